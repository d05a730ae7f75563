"""What the package does to what others have on the host, plugins in odd places and a BIRD, and that it undoes it."""

import pytest
from test_maintainer_scripts import ROOT, SERVICES, Host, host, package

from thoroughness import slowly

__all__ = ["host", "package"]  # fixtures
BIRD = "bird.service"
WANTED = f"/etc/systemd/system/multi-user.target.wants/{BIRD}"
# As its own package does when it is installed or upgraded.
BIRDS_SCRIPT = f"""
export DPKG_MAINTSCRIPT_PACKAGE=bird2
deb-systemd-helper unmask {BIRD} >/dev/null
if deb-systemd-helper --quiet was-enabled {BIRD}; then deb-systemd-helper enable {BIRD} >/dev/null
else deb-systemd-helper update-state {BIRD} >/dev/null; fi
"""


def plugins(host: Host) -> str:
    return host.run(
        "sh",
        "-c",
        "for p in /opt/cni/bin/*; do echo $p $(readlink -f $p); done; flock=/opt/cni/bin/flock; cmp $flock $1",
        "sh",
        str(ROOT / "build/flock"),
    )


@pytest.mark.parametrize(
    "target", ["/usr/lib/cni", *slowly("/srv/plugins", "/usr/local/lib/cni/bin", "../../srv/plugins")]
)
def test_plugins_are_found_where_their_directory_is_a_link(host: Host, target: str) -> None:
    """Of a distribution whose plugins are elsewhere, or to a disk of its own; what it leads to may not be there yet."""
    host.run("mkdir", "-p", "/opt/cni")
    host.run("ln", "-s", target, "/opt/cni/bin")
    find = ("sh", "-c", "find /opt /srv /usr/local/lib -printf '%p %l\\n'; ls /usr/lib/cni")
    before = host.run(*find)
    for _ in range(2):
        host.install()
        assert "/opt/cni/bin/flock /usr/lib/cni/flock\n" in plugins(host)
    host.run("dpkg", "--purge", "flock")
    assert host.run(*find) == before


@pytest.mark.slow
def test_links_of_an_older_package_go_too(host: Host) -> None:
    host.run("mkdir", "-p", "/opt/cni/bin")
    host.run("ln", "-s", "../../../usr/lib/cni/portmap", "/opt/cni/bin/portmap")
    host.install()
    host.run("dpkg", "--purge", "flock")
    assert host.run("ls", "/opt/cni/bin") == ""


def wanted(host: Host) -> bool:
    """Does the distribution's BIRD start with the host?"""
    return host.try_to("test", "-h", WANTED).returncode == 0


def enable(host: Host, by: str = "its package") -> None:
    host.run("sh", "-ec", BIRDS_SCRIPT)
    if by == "hand":  # after it was disabled by hand
        host.run("rm", WANTED)
        host.run("sh", "-ec", BIRDS_SCRIPT)
        assert not wanted(host)
        host.run("ln", "-s", "/lib/systemd/system/bird.service", WANTED)
    assert wanted(host)


@pytest.mark.parametrize("by", ["its package", *slowly("hand")])
@pytest.mark.parametrize("runs", [True, *slowly(False)])
def test_another_bird_is_stopped_and_disabled_with_a_word_and_comes_back_when_flock_goes(
    host: Host, runs: bool, by: str
) -> None:
    enable(host, by)
    if runs:
        host.run("touch", f"/running/{BIRD}")
    said = host.install()
    assert f"flock: {'stopped and disabled' if runs else 'disabled'} bird.service" in said
    assert (wanted(host), host.running()) == (False, SERVICES)
    host.run("sh", "-ec", BIRDS_SCRIPT)
    assert not wanted(host)
    assert "bird.service" not in host.install()  # an upgrade
    said = host.run("dpkg", "--remove", "flock")
    assert f"flock: {'enabled and started' if runs else 'enabled'} bird.service again" in said
    assert (wanted(host), host.running()) == (True, [BIRD] if runs else [])
    assert "bird.service" in host.install()  # once more
    assert (wanted(host), host.running()) == (False, SERVICES)


@pytest.mark.slow
def test_a_bird_that_was_not_enabled_stays_so_without_a_word(host: Host) -> None:
    said = host.install() + host.run("dpkg", "--purge", "flock")
    assert "bird.service" not in said
    assert (wanted(host), host.running()) == (False, [])


@pytest.mark.slow
def test_a_bird_that_somebody_enabled_meanwhile_stays_so(host: Host) -> None:
    """Against the doctor's advice, perhaps; it is theirs."""
    host.install()
    host.run("ln", "-s", "/lib/systemd/system/bird.service", WANTED)
    host.install()
    assert wanted(host)
    host.run("dpkg", "--purge", "flock")
    assert wanted(host)


@pytest.mark.slow
def test_a_bird_that_is_gone_is_not_missed(host: Host) -> None:
    enable(host)
    host.install()
    host.run("rm", "/lib/systemd/system/bird.service")
    assert "bird.service" not in host.run("dpkg", "--purge", "flock")
    assert not wanted(host)
