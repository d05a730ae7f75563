"""What installing, upgrading and removing the package does to a host: dpkg itself, on a copy of this machine's files.

The package has its scripts and little else; services are files in /running, a container is its link.  Which of them
start with the host is kept by Debian's own program.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from thoroughness import slowly, some

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import deb  # noqa: E402

SERVICES = ["flock-agent.service", "flock-bird.service"]
LINKS = {f"/opt/cni/bin/{name}": f"/usr/lib/cni/{name}" for name in ("bandwidth", "flock", "portmap")}
# All that is written goes to memory, and away with the last process in there.  /run, where others come and go, is new.
ENTER = """
mount -t tmpfs tmpfs $1
mkdir $1/up $1/work $1/root
mount -t overlay -o lowerdir=/,upperdir=$1/up,workdir=$1/work overlay $1/root
cd $1/root
for place in dev proc sys; do mount --rbind /$place $place; done
mount -t tmpfs tmpfs run
rm -rf opt/* etc/cni etc/flock var/lib/flock etc/systemd/system/*.wants/bird.service
find var/lib/systemd/deb-systemd-helper-* -name "bird.service*" -delete
mkdir -p run/systemd/system running
echo there
exec cat
"""
# Also what systemd would do; /on-stop is what happens in that moment.
INVOKE = """\
#!/bin/sh
case $1 in
  start|restart) touch /running/$2 ;;
  stop) rm -f /running/$2; if [ -e /on-stop ]; then sh -e /on-stop; rm -f /on-stop; fi ;;
esac
"""
SYSTEMCTL = """\
#!/bin/sh
case "$*" in
  is-active*) [ -e "/running/$3" ] ;;
  *preset*) SYSTEMD_OFFLINE=1 exec /usr/bin/systemctl "$@" ;;
esac
"""


class Host:
    def __init__(self, place: Path, package: Path) -> None:
        self.root, self._package = place / "root", package
        enter = ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-ec", ENTER, "sh", str(place)]
        self._process = subprocess.Popen(enter, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None and self._process.stdout.readline() == b"there\n"
        self._program("deb-systemd-invoke", INVOKE)
        self._program("systemctl", SYSTEMCTL)

    def _program(self, name: str, text: str) -> None:
        self.run("sh", "-c", f"cat >/usr/local/sbin/{name}; chmod +x /usr/local/sbin/{name}", input=text)

    def try_to(self, *command: str, **options: str) -> subprocess.CompletedProcess[str]:
        inside = ["nsenter", "-t", str(self._process.pid), "--mount", "--net", "chroot", str(self.root), *command]
        path = {"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        return subprocess.run(inside, capture_output=True, text=True, timeout=120, env=path, **options)  # type: ignore[call-overload,no-any-return]

    def run(self, *command: str, **options: str) -> str:
        done = self.try_to(*command, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self) -> str:
        return self.run("dpkg", "--force-depends", "--force-unsafe-io", "-i", str(self._package))

    def attach(self, number: int, name: str) -> None:
        """As the agent describes it."""
        link = f"flock{number:08x}"
        self.run("ip", "link", "add", link, "type", "veth", "peer", "name", f"p{number}")
        self.run("ip", "link", "set", link, "alias", f"flock pod={name} container=c{number}")

    def detach(self, number: int) -> None:
        self.run("ip", "link", "delete", f"flock{number:08x}")

    def running(self) -> list[str]:
        return self.run("ls", "/running").split()

    def files(self) -> dict[str, str]:
        """Those a package could forget or take away, with what links say; not the state."""
        found = self.run("find", "/opt", "/etc/cni", "/etc/flock", "-printf", "%p %l\n").splitlines()
        return dict(line.split(" ", 1) for line in found)

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("package")
    stage = place / "stage"
    for path, text in (
        ("usr/bin/flock-installer", f"#!{sys.executable}\nfrom flock.cli.installer import main\n\nmain()\n"),
        ("etc/flock/manifests/nodeconfig.yaml.sample", "kind: NodeConfig\n"),
    ):
        (stage / path).parent.mkdir(parents=True)
        (stage / path).write_text(text)
        (stage / path).chmod(0o755)
    (stage / deb.PLUGINS).mkdir(parents=True)
    shutil.copy(ROOT / "build/flock", stage / deb.PLUGINS)
    deb._control(stage, debian=deb.debian())
    (stage / "DEBIAN/conffiles").unlink()
    target = place / "flock.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", stage, target], check=True, capture_output=True)
    return target


@pytest.fixture
def host(package: Path, tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path, package)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("verb", ["--remove", *slowly("--purge")])
def test_it_cannot_be_removed_while_containers_run_and_nothing_is_stopped(host: Host, verb: str) -> None:
    """Without it they could not even be ended."""
    host.install()
    host.attach(1, "default/default-p1")
    host.run("sh", "-c", "echo '{}' >/etc/cni/net.d/01-flock.conflist; echo 'false' >/on-stop")
    before = host.files()
    done = host.try_to("dpkg", verb, "flock")
    assert done.returncode != 0
    assert (
        "flock: containers of flock still run: default/default-p1. End them (podman stop NAME; what a unit runs, by "
        "systemctl stop; else ctr task kill -s 9 NAME, where default/default-web is web), then remove flock again. "
        "Nothing was changed.\n"
    ) in done.stderr
    assert (host.files(), host.running()) == (before, SERVICES)
    assert host.run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}", "flock").strip() in ("ii", "hi", "ri", "pi")
    assert host.run("sh", "-c", "[ -e /on-stop ] && flock-installer --version")


@pytest.mark.slow
def test_of_many_containers_a_few_are_named(host: Host) -> None:
    host.install()
    for number in range(1, 8):
        host.attach(number, f"default/p{number}")
    said = host.try_to("dpkg", "--remove", "flock").stderr
    assert "still run: default/p1, default/p2, default/p3, default/p4, default/p5 and 2 more. End them" in said


def test_one_that_starts_in_the_last_moment_stops_the_removal_and_services_run_again(host: Host) -> None:
    host.install()
    host.run("sh", "-c", "cat >/on-stop", input="ip link add flock000000aa type veth peer name p\n")
    done = host.try_to("dpkg", "--remove", "flock")
    assert done.returncode != 0 and "containers of flock still run: flock000000aa." in done.stderr
    assert host.running() == SERVICES
    assert host.files().items() >= LINKS.items()


@pytest.mark.slow
def test_it_can_be_upgraded_while_containers_run(host: Host) -> None:
    host.install()
    host.attach(1, "default/web")
    before = host.files()
    host.install()
    assert (host.files(), host.running()) == (before, SERVICES)


@pytest.mark.slow
def test_records_of_containers_that_are_gone_are_no_reason_to_stay(host: Host) -> None:
    host.install()
    host.attach(1, "default/web")
    host.detach(1)
    host.run("sh", "-c", """echo '{"entries": [{"pod": "default/web"}]}' >/var/lib/flock/state.json""")
    host.run("dpkg", "--remove", "flock")
    assert host.running() == []
    assert host.run("ls", "/var/lib/flock").split() == ["state.json"]
    host.run("dpkg", "--purge", "flock")
    assert host.try_to("ls", "/var/lib/flock").returncode != 0


@pytest.mark.parametrize("there", some([[], ["/opt"], ["/opt", "/opt/cni", "/opt/cni/bin", "/etc/cni"]]), ids=len)
def test_directories_that_were_there_stay_and_those_it_made_go(host: Host, there: list[str]) -> None:
    host.run("rm", "-rf", "/opt")
    for directory in there:
        host.run("mkdir", directory)
    find = ("sh", "-c", "find /opt /etc/cni /etc/flock 2>/dev/null; true")
    before = host.run(*find)
    host.install()
    assert host.files().items() >= LINKS.items()
    host.install()
    host.run("dpkg", "--purge", "flock")
    assert host.run(*find) == before


@pytest.mark.slow
def test_what_others_have_put_beside_it_stays(host: Host) -> None:
    host.run("mkdir", "-p", "/opt/cni/bin")
    host.run("touch", "/opt/cni/bin/portmap")
    host.install()
    assert host.files()["/opt/cni/bin/portmap"] == ""
    host.run("touch", "/opt/cni/bin/later", "/etc/cni/net.d/10-other.conflist")
    host.run("dpkg", "--purge", "flock")
    assert host.run("ls", "/opt/cni/bin", "/etc/cni/net.d").split("\n\n") == [
        "/etc/cni/net.d:\n10-other.conflist",
        "/opt/cni/bin:\nlater\nportmap\n",
    ]


@pytest.mark.slow
def test_an_executable_that_flock_installer_put_there_is_replaced(host: Host) -> None:
    host.run("mkdir", "-p", "/opt/cni/bin")
    host.run("cp", str(ROOT / "build/flock"), "/opt/cni/bin/flock")
    host.install()
    assert host.files().items() >= LINKS.items()


@pytest.mark.parametrize(
    ("debian", "recommended"),
    [("12.11", "podman | containerd"), ("13.1", "containerd"), ("forky/sid", "containerd")],
)
def test_podman_is_recommended_where_it_can_use_flock(tmp_path: Path, debian: str, recommended: str) -> None:
    """podman 5, from Debian 13 on, has no CNI."""
    deb._control(tmp_path, debian=deb.debian(debian))
    said = (tmp_path / "DEBIAN/control").read_text()
    assert f"\nRecommends: {recommended}, containernetworking-plugins\n" in said
