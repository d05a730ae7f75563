"""flock-installer, on directories of its own: what it puts in place, keeps, refuses and takes away."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flock.cli import installer
from flock.cli.installer import MARK, main
from flock.core.conflist import render_conflist
from flock.edge.conflist import supported_versions, write_conflist

EXECUTABLE = Path(__file__).parent.parent.parent / "build" / "flock"
NEIGHBOUR = "[Match]\nName=eth0\n"


class Host:
    """Directories that stand for a host's; in each a file of somebody else's."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "opt/cni/bin"
        self.conf = root / "etc/cni/net.d"
        self.networkd = root / "etc/systemd/network"
        self.networkd_conf = root / "etc/systemd/networkd.conf.d"
        self.networkmanager = root / "etc/NetworkManager/conf.d"
        self.rt_protos = root / "etc/iproute2/rt_protos.d"
        self.systemd = root / "etc/systemd/system"
        self.root = root
        for directory in (self.bin, self.conf, self.networkd, self.networkmanager):
            directory.mkdir(parents=True)
            (directory / "10-other.conf").write_text(NEIGHBOUR)

    def flags(self) -> list[str]:
        directories = {
            "--executable": EXECUTABLE,
            "--bin-dir": self.bin,
            "--conf-dir": self.conf,
            "--networkd-dir": self.networkd,
            "--networkd-conf-dir": self.networkd_conf,
            "--networkmanager-dir": self.networkmanager,
            "--rt-protos-dir": self.rt_protos,
            "--systemd-dir": self.systemd,
            "--run-dir": self.root / "run/flock",
            "--bird-dir": self.root / "etc/flock/bird",
        }
        return [f"{flag}={path}" for flag, path in directories.items()]

    def run(self, *more: str) -> None:
        main([*self.flags(), *more])

    def uninstall(self) -> str:
        """In a network namespace without anything: the machine's own kernel is none of the tests' business."""
        command = ["unshare", "--net", sys.executable, "-c", "from flock.cli.installer import main; main()"]
        done = subprocess.run([*command, *self.flags(), "--uninstall"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def files(self) -> dict[str, tuple[bytes, int, int]]:
        """Content, mode and inode of every file."""
        found = (path for path in self.root.rglob("*") if path.is_file())
        return {str(p.relative_to(self.root)): (p.read_bytes(), p.stat().st_mode, p.stat().st_ino) for p in found}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Wherever these sources are: programs in a home are refused in a test of its own."""
    monkeypatch.setattr(installer, "HOMES", ())
    return Host(tmp_path)


def test_the_executable_and_the_drop_ins_are_put_in_place(host: Host) -> None:
    host.run()
    installed = host.bin / "flock"
    assert installed.read_bytes() == EXECUTABLE.read_bytes()
    assert installed.stat().st_mode & 0o777 == 0o755
    assert supported_versions(installed) == ("0.4.0", "1.0.0", "1.1.0")
    assert "Name=flock*" in (host.networkd / "00-flock.network").read_text()
    assert "ManageForeignRoutes=no" in (host.networkd_conf / "flock.conf").read_text()
    assert "unmanaged-devices+=interface-name:flock*" in (host.networkmanager / "flock.conf").read_text()
    assert (host.rt_protos / "flock.conf").read_text().endswith("133\tflock-pod\n134\tflock-announce\n")


def test_no_configuration_is_written_because_the_agent_cannot_serve_yet(host: Host) -> None:
    host.run()
    assert [path.name for path in host.conf.iterdir()] == ["10-other.conf"]


def test_a_second_run_touches_nothing(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.run()
    before = host.files()
    capsys.readouterr()
    host.run()
    assert host.files() == before
    assert all(line.startswith("unchanged ") for line in capsys.readouterr().out.splitlines())


def test_an_older_release_is_replaced_even_while_it_runs(host: Host) -> None:
    old = host.bin / "flock"
    old.write_bytes(EXECUTABLE.read_bytes() + b"older")
    old.chmod(0o755)
    waiting = subprocess.Popen([old], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        host.run()
        assert old.read_bytes() == EXECUTABLE.read_bytes()
    finally:
        waiting.communicate(timeout=30)


def test_a_lost_mode_is_mended(host: Host) -> None:
    host.run()
    (host.bin / "flock").chmod(0o644)
    host.run()
    assert os.access(host.bin / "flock", os.X_OK)


def test_a_broken_executable_never_takes_the_place_of_one_that_works(host: Host, tmp_path: Path) -> None:
    host.run()
    broken = tmp_path / "broken"
    broken.write_bytes(EXECUTABLE.read_bytes()[:4000])
    with pytest.raises(SystemExit, match="does not tell its CNI versions"):
        host.run(f"--executable={broken}")
    assert (host.bin / "flock").read_bytes() == EXECUTABLE.read_bytes()
    assert sorted(path.name for path in host.bin.iterdir()) == ["10-other.conf", "flock"]


def test_somebody_elses_executable_stays(host: Host) -> None:
    other = host.bin / "flock"
    other.write_text("#!/bin/sh\n")
    with pytest.raises(SystemExit, match="is not flock's: move it away"):
        host.run()
    host.uninstall()
    assert other.read_text() == "#!/bin/sh\n"


def test_somebody_elses_drop_in_of_the_same_name_stays(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = host.networkmanager / "flock.conf"
    theirs.write_text("[keyfile]\n")
    host.run()
    assert f"left alone {theirs}: it is not flock-installer's" in capsys.readouterr().out
    host.uninstall()
    assert theirs.read_text() == "[keyfile]\n"


def test_an_empty_directory_means_no_drop_in(host: Host) -> None:
    host.run("--networkd-dir=", "--networkd-conf-dir=", "--networkmanager-dir=", "--rt-protos-dir=")
    assert not any(MARK.encode() in content for content, _, _ in host.files().values())


def test_units_are_written_where_they_are_asked_for_and_name_the_programs_beside(host: Host) -> None:
    host.run()
    assert not host.systemd.exists()
    host.run("--systemd")
    agent, bird = (host.systemd / name for name in ("flock-agent.service", "flock-bird.service"))
    assert f"ExecStart={Path(sys.argv[0]).resolve().parent}/flock-agent\n" in agent.read_text()
    assert f"FLOCK_CNI_BIN_DIR={host.bin}\n" in agent.read_text()
    assert "Conflicts=bird.service" in bird.read_text()
    for unit in (agent, bird):
        assert "WantedBy=multi-user.target" in unit.read_text()


@pytest.mark.parametrize("program", ["argv", "executable"])
def test_units_are_refused_for_programs_that_systemd_would_hide_from_them(
    host: Host, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is put in place; without units, homes are as good as any."""
    monkeypatch.setattr(installer, "HOMES", (host.root / "home",))
    if program == "argv":
        monkeypatch.setattr(sys, "argv", [str(host.root / "home/me/flock/.venv/bin/flock-installer")])
    else:
        monkeypatch.setattr(sys, "executable", str(host.root / "home/me/.pyenv/bin/python3"))
    before = host.files()
    with pytest.raises(
        SystemExit, match=rf"{host.root}/home/me.*ProtectHome=yes.*install flock elsewhere, to /srv"
    ) as no:
        host.run("--systemd")
    assert str(no.value).startswith("flock-installer: ")
    assert host.files() == before
    host.run()
    assert (host.bin / "flock").exists()


def test_homes_are_those_that_the_units_cannot_see() -> None:
    assert (Path("/home"), Path("/root"), Path("/run/user")) == installer.HOMES  # man systemd.exec, ProtectHome
    for name in installer.UNITS:
        assert "ProtectHome=yes\n" in installer.unit(name, plugins=Path("/x"))


def test_without_an_executable_it_says_where_one_is_built(host: Host) -> None:
    missing = host.root / "usr/local/lib/flock/flock"
    with pytest.raises(SystemExit) as no:
        host.run(f"--executable={missing}", "--systemd")
    assert str(no.value) == f"flock-installer: no executable at {missing}: say --executable build/flock"
    assert not host.systemd.exists()


def test_uninstall_removes_what_was_put_there_and_nothing_else(host: Host) -> None:
    before = host.files()
    host.run("--systemd")
    conflist = render_conflist(socket=Path("/run/flock/flock.sock"), wait=30, plugins_present={})
    write_conflist(host.conf, conflist)
    host.uninstall()
    assert host.files() == before
    host.uninstall()
    assert host.files() == before


def test_uninstall_leaves_a_configuration_of_another_plugin(host: Host) -> None:
    other = host.conf / "01-flock.conflist"
    other.write_text('{"name": "x", "plugins": [{"type": "ptp"}]}')
    host.uninstall()
    assert other.exists()


def test_every_flag_is_an_environment_variable_too(host: Host) -> None:
    env = {f"FLOCK_{f[2:].partition('=')[0].replace('-', '_').upper()}": f.partition("=")[2] for f in host.flags()}
    command = [sys.executable, "-c", "from flock.cli.installer import main; main()"]
    subprocess.run(command, env=env, check=True, capture_output=True)
    assert (host.bin / "flock").exists() and (host.rt_protos / "flock.conf").exists()


def test_ip_reads_the_names_of_the_protocols(host: Host) -> None:
    """In namespaces where /etc has the installed file over what the machine has."""
    host.run()
    over = host.root / "over"
    over.mkdir()
    script = f"""
        mount -t tmpfs none {over}
        mkdir -p {over}/up/iproute2/rt_protos.d {over}/work
        cp {host.rt_protos}/flock.conf {over}/up/iproute2/rt_protos.d
        mount -t overlay -o lowerdir=/etc,upperdir={over}/up,workdir={over}/work none /etc
        ip route add blackhole 192.0.2.0/24 proto 133
        ip route show proto flock-pod
    """
    run = subprocess.run(["unshare", "--mount", "--net", "sh", "-ec", script], capture_output=True, text=True)
    assert run.stdout.split() == ["blackhole", "192.0.2.0/24"], run.stderr
