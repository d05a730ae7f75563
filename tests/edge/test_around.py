"""What is around flock, read from files and processes: made and mended in a directory that stands for the host."""

import json
import subprocess
from pathlib import Path

import pytest

from flock.core.doctor import Finding, diagnose
from flock.edge.around import Surroundings, gather, other_birds


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for name in ("etc", "run/systemd/system", "proc", "state", "usr-lib-cni"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def found(host: Path, about: str, **more: Path | None) -> list[str]:
    places = {"root": host, "proc": host / "proc", "state_dir": host / "state", "run_dir": host / "run"}
    at = Surroundings(**{**places, "conf_dir": None, "bin_dir": host / "bin", **more}, usual=(host / "usr-lib-cni",))
    return [finding.finding for finding in diagnose(gather(at)) if finding.about == about and not finding.note]


def process(host: Path, name: str, *arguments: str) -> None:
    (host / "proc" / "7").mkdir(exist_ok=True)
    (host / "proc" / "7" / "comm").write_text(f"{name[:15]}\n")
    (host / "proc" / "7" / "cmdline").write_bytes("\0".join((f"/lib/{name}", *arguments, "")).encode())


def write(host: Path, path: str, text: str) -> None:
    (host / path).parent.mkdir(parents=True, exist_ok=True)
    (host / path).write_text(text)


def test_a_bird_that_only_checks_a_file_or_has_ended_is_no_second_one(host: Path) -> None:
    for task in ("7", "thread-self"):
        (host / "proc" / task / "ns").mkdir(parents=True)
        (host / "proc" / task / "ns" / "net").symlink_to("net:[1]")
    process(host, "bird", "-p", "-c", "/etc/flock/bird/.bird.conf.new")
    assert [*other_birds(host / "run", proc=host / "proc")] == []
    (host / "proc" / "7" / "cmdline").write_bytes(b"")  # its memory is gone, it is still to be buried
    assert [*other_birds(host / "run", proc=host / "proc")] == []
    process(host, "bird", "-u", "bird")
    assert [*other_birds(host / "run", proc=host / "proc")] == ["/lib/bird -u bird (process 7)"]


def test_networkd_is_to_leave_links_and_routes_alone(host: Path) -> None:
    assert found(host, "network-daemon") == []
    process(host, "systemd-networkd")
    assert len(found(host, "network-daemon")) == 2
    write(host, "etc/systemd/networkd.conf.d/flock.conf", "[Network]\nManageForeignRoutes=no\n")
    [left] = found(host, "network-daemon")
    assert "pods' links" in left
    write(host, "etc/systemd/network/00-flock.network", "[Match]\nName=flock*\n[Link]\nUnmanaged=yes\n")
    assert found(host, "network-daemon") == []


def test_networkmanager_is_to_leave_links_alone(host: Path) -> None:
    process(host, "NetworkManager")
    assert len(found(host, "network-daemon")) == 1
    write(host, "usr/lib/NetworkManager/conf.d/f.conf", "[keyfile]\nunmanaged-devices+=interface-name:flock*\n")
    assert found(host, "network-daemon") == []


def test_the_distributions_bird_is_not_to_start_at_the_next_boot(host: Path) -> None:
    unit = host / "etc/systemd/system/multi-user.target.wants/bird.service"
    unit.parent.mkdir(parents=True)
    assert found(host, "second-bird") == []
    unit.symlink_to("/lib/systemd/system/bird.service")
    assert len(found(host, "second-bird")) == 1
    unit.unlink()
    assert found(host, "second-bird") == []


@pytest.mark.parametrize("place", ["etc", "usr/lib"])
def test_a_unit_of_flocks_bird_is_seen_where_package_and_installer_put_it(host: Path, place: str) -> None:
    at = Surroundings(root=host, proc=host / "proc", run_dir=host / "run", conf_dir=None, usual=())
    assert not gather(at).bird_is_a_unit
    write(host, f"{place}/systemd/system/flock-bird.service", "[Unit]\n")
    assert gather(at).bird_is_a_unit


@pytest.mark.parametrize(
    "line", ["net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding = 0", "net.ipv4.conf.all.rp_filter=1"]
)
def test_files_that_turn_switches_off_at_boot_are_told(host: Path, line: str) -> None:
    write(host, "etc/sysctl.d/99-hardening.conf", f"# {line}\nkernel.panic=1\n")
    assert found(host, "sysctl") == []
    write(host, "etc/sysctl.d/99-hardening.conf", f"{line}\n")
    assert found(host, "sysctl") == [f"/etc/sysctl.d/99-hardening.conf says {line}"]


def test_conflists_and_plugins(host: Path) -> None:
    conf = host / "net.d"
    assert found(host, "conflist", conf_dir=conf) == [f"there is no 01-flock.conflist in {conf}"]
    write(host, "net.d/01-flock.conflist", "{}")
    assert found(host, "conflist", conf_dir=conf) == []
    answer = json.dumps({"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]})
    write(host, "usr-lib-cni/portmap", f"#!/bin/sh\necho '{answer}'\n")
    (host / "usr-lib-cni/portmap").chmod(0o755)
    [elsewhere] = found(host, "plugins", conf_dir=conf)
    assert "where not every runtime looks" in elsewhere
    write(host, "state/cni-paths", f"/opt/cni/bin:{host / 'usr-lib-cni'}\n")
    assert found(host, "plugins", conf_dir=conf) == []


# --- podman -----------------------------------------------------------------------------------------------------------

NETAVARK = "podman uses netavark, not CNI: it does not see the network flock"
CHOSEN = "var/lib/containers/storage/defaultNetworkBackend"
WITH_CNI = "\x7fELF github.com/containers/common/libnetwork/cni.NewCNINetworkInterface"


def podman(host: Path) -> list[Finding]:
    at = Surroundings(root=host, proc=host / "proc", state_dir=host / "state", conf_dir=host / "net.d")
    return [finding for finding in diagnose(gather(at)) if finding.about == "podman"]


def test_a_podman_that_chose_netavark_is_told_until_the_cure_is_followed(host: Path) -> None:
    write(host, CHOSEN, "netavark")
    assert podman(host) == []  # nobody who would read it
    write(host, "usr/bin/podman", WITH_CNI)
    [found] = podman(host)
    assert found.finding == NETAVARK and f"/{CHOSEN}" in found.why and not found.note
    subprocess.run(["sh", "-ec", found.cure.replace("/etc/", f"{host}/etc/")], check=True)
    assert podman(host) == []


def test_podman_that_has_not_chosen_yet_takes_cni_because_there_is_a_network_of_it(host: Path) -> None:
    write(host, "usr/bin/podman", WITH_CNI)
    assert podman(host) == []
    write(host, CHOSEN, "cni")
    assert podman(host) == []


def test_what_podmans_configuration_says_counts_for_more_than_its_choice_and_the_last_word_most(host: Path) -> None:
    write(host, "usr/bin/podman", WITH_CNI)
    write(host, CHOSEN, "cni")
    write(host, "usr/share/containers/containers.conf", '[network]\n#network_backend = "cni"\n')
    write(host, "etc/containers/containers.conf", '[network]\nnetwork_backend = "netavark"  # as ever\n')
    [found] = podman(host)
    assert "/etc/containers/containers.conf says so" in found.why
    write(host, "etc/containers/containers.conf.d/10.conf", "[network]\n  network_backend='cni'\n")
    assert podman(host) == []
    write(host, "etc/containers/containers.conf.d/20.conf", '[network]\nnetwork_backend = "netavark"\n')
    assert len(podman(host)) == 1


def test_a_podman_that_knows_no_cni_is_told_to_be_no_way_to_flock(host: Path) -> None:
    write(host, "usr/bin/podman", "\x7fELF github.com/containers/common/libnetwork/netavark.NewNetworkInterface")
    [found] = podman(host)
    assert found.note and found.finding.startswith("podman has no CNI") and "use ctr" in found.cure
