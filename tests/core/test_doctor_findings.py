"""What of the surroundings hurts: each fact alone, and the same fact as it should be."""

from typing import Any

import msgspec
import pytest

from flock.core.doctor import EPOCH, Daemon, Facts, Finding, Plugin, Podman, diagnose
from flock.core.foreignrules import Obstacle

WELL = Facts(
    families=("ipv6", "ipv4"),
    conflist_dir="/etc/cni/net.d",
    conflists=("01-flock.conflist", "87-podman.conflist"),
    plugins=(Plugin(name="portmap", path="/opt/cni/bin/portmap", versions=("0.4.0", "1.0.0"), usable=True),),
    switches={"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/rp_filter": "2"},
    pods_mtu=1500,
    mtus={"eth0": 1500},
    now=EPOCH + 1000,
    versions={"kernel": "6.1.0-13-amd64", "nft": "1.0.6", "bird": "2.0.12"},
)


def diagnosed(**changes: Any) -> list[Finding]:
    return diagnose(msgspec.structs.replace(WELL, **changes))


def test_a_host_that_is_well_has_nothing() -> None:
    assert diagnose(WELL) == [] and diagnose(Facts()) == []


@pytest.mark.parametrize(
    ("changes", "about", "finding", "cure"),
    [
        ({"birds": ("bird -u bird (process 7)",)}, "second-bird", "another BIRD runs", "systemctl disable --now bird"),
        (
            {"bird_unit": "/etc/x/bird.service"},
            "second-bird",
            "starts at the next boot",
            "systemctl disable --now bird",
        ),
        ({"bird_problem": "BIRD does not answer at /x"}, "bird", "BIRD does not answer at /x", "flock-bird"),
        ({"daemons": (Daemon(name="NetworkManager", lacks="pods' links"),)}, "network-daemon", "Network", "installer"),
        ({"conflists": ("87-podman.conflist",)}, "conflist", "there is no 01-flock.conflist", "--cni-conf-dir"),
        ({"conflists": ("00-a.conf", "01-flock.conflist")}, "conflist", "00-a.conf comes before", "00-a.conf out"),
        (
            {"podman": Podman(knows_cni=True, netavark="/var/x/defaultNetworkBackend")},
            "podman",
            "podman uses netavark, not CNI: it does not see the network flock",
            "/etc/containers/containers.conf.d/flock.conf",
        ),
        ({"switches": {"ipv4/conf/eth0/rp_filter": "1"}}, "rp_filter", "eth0.rp_filter is 1", "eth0.rp_filter=2"),
        ({"switches": {"ipv4/ip_forward": "0"}}, "sysctl", "net.ipv4.ip_forward is off", "who turns it off"),
        ({"at_boot": (("/etc/sysctl.d/x.conf", "a = 0"),)}, "sysctl", "/etc/sysctl.d/x.conf says a = 0", "remove"),
        ({"mtus": {"eth0": 1400}}, "mtu", "MTU of 1500, and eth0 has 1400", "spec.mtu"),
        ({"fabric": ("no session carries IPv4",)}, "fabric", "no session carries IPv4", "router-config"),
        ({"lan": ("spec.cidr4[0]: x is the network of eth0",)}, "lan", "the network of eth0", "route it to this host"),
        ({"now": 0.0}, "clock", "years behind", "time daemon"),
        ({"newest_record": EPOCH + 5000}, "clock", "4000 s behind", "time daemon"),
        ({"versions": {"kernel": "5.10.0"}}, "versions", "kernel 5.10.0 is older than 5.13", "upgrade"),
        ({"versions": {"nft": None}}, "versions", "there is no nft", "nftables"),
        ({"versions": {"bird": "3.1.7"}}, "versions", "bird is 3.1.7", "apt install bird2"),
        ({"versions": {"bird": "2.0.7"}}, "versions", "bird 2.0.7 is older than 2.0.8", "upgrade"),
    ],
)
def test_one_thing_that_is_wrong_is_one_finding_with_its_cure(
    changes: dict[str, Any], about: str, finding: str, cure: str
) -> None:
    [found] = diagnosed(**changes)
    assert found.about == about and finding in found.finding and cure in found.cure and found.why and not found.note


def test_where_flocks_bird_is_a_unit_the_cure_of_a_second_one_starts_it_again() -> None:
    """Whoever starts the distribution's stops flock's, and nobody else starts that again."""
    whole = "systemctl disable --now bird.service; systemctl start flock-bird"
    for changes in ({"birds": ("bird (process 7)",)}, {"bird_unit": "/etc/x/bird.service"}):
        assert [found.cure for found in diagnosed(**changes, bird_is_a_unit=True)] == [whole]
        assert [found.cure for found in diagnosed(**changes)] == [whole.partition(";")[0]]
    [found] = diagnosed(bird_problem="BIRD does not answer at /x", bird_is_a_unit=True)
    assert found.cure.startswith("systemctl start flock-bird; ")


def test_router_advertisements_matter_where_there_is_no_other_default_route() -> None:
    switches = {"ipv6/conf/eth0/accept_ra": "1"}
    assert diagnosed(switches=switches) == []
    [found] = diagnosed(switches=switches, default6=False)
    assert found.about == "accept_ra" and "eth0.accept_ra=2" in found.cure
    assert diagnosed(switches=switches, default6=False, families=("ipv4",)) == []


def test_plugins_elsewhere_too_old_and_absent() -> None:
    portmap = WELL.plugins[0]
    elsewhere = msgspec.structs.replace(portmap, path="/usr/lib/cni/portmap", usable=False)
    [found] = diagnosed(plugins=(elsewhere,))
    assert "portmap is at /usr/lib/cni/portmap, where not every runtime looks" in found.finding
    [found] = diagnosed(plugins=(msgspec.structs.replace(portmap, versions=("0.3.1", "0.4.0")),))
    assert "knows CNI up to 0.4.0" in found.finding
    [found] = diagnosed(plugins=())
    assert found.note and "no portmap" in found.finding
    assert diagnosed(plugins=(), conflists=None) == []


def test_manifests_that_no_container_has_the_name_of_are_a_note() -> None:
    [found] = diagnosed(unclaimed=("default/dsn",), unnamed=("default/dns",))
    assert found.note and found.finding == "no container has the name of the Pod manifest default/dsn"
    assert found.cure.endswith("mend metadata.name, or remove the manifest; containers without a manifest: default/dns")
    [found] = diagnosed(unclaimed=tuple("abcdefg"))
    assert found.finding.endswith("manifest a, b, c, d, e and 2 more") and "without" not in found.cure
    assert diagnosed(unnamed=("default/dns",)) == []


def test_a_clock_that_nothing_keeps_is_a_note() -> None:
    [found] = diagnosed(synchronised=False)
    assert found.note and found.about == "clock"


@pytest.mark.parametrize(
    ("whose", "chain", "sides", "cure"),
    [
        ("nft", "inet mine fwd", (True, False), 'nft insert rule inet mine fwd iifname "flock*" accept'),
        ("iptables", "ip filter FORWARD", (False, True), "iptables -I FORWARD -o flock+ -j ACCEPT"),
        ("iptables", "ip6 filter FORWARD", (True, False), "ip6tables -I FORWARD -i flock+ -j ACCEPT"),
        ("iptables-legacy", "ip filter FORWARD", (True, False), "iptables-legacy -I FORWARD -i flock+ -j ACCEPT"),
        ("ufw", "ip filter FORWARD", (True, False), "ufw route allow in on flock+"),
        ("firewalld", "inet firewalld filter_FORWARD", (True, True), "firewall-cmd --permanent --new-policy flock; "),
    ],
)
def test_each_packet_filter_is_opened_in_its_own_words(
    whose: str, chain: str, sides: tuple[bool, bool], cure: str
) -> None:
    sent, received = sides
    obstacle = Obstacle(whose=whose, chain=chain, rule="policy drop", sent=sent, received=received)
    [found] = diagnosed(obstacles=(obstacle,))
    assert found.cure.startswith(cure) and f"the chain {chain} of {whose} drops" in found.finding


def test_a_podman_without_cni_is_worth_knowing_and_nothing_to_mend() -> None:
    [found] = diagnosed(podman=Podman(knows_cni=False, netavark="/var/x/defaultNetworkBackend"))
    assert found.note and "podman has no CNI" in found.finding and "use ctr" in found.cure


def test_a_podman_with_cni_or_on_a_host_where_nobody_writes_a_conflist_is_well() -> None:
    assert diagnosed(podman=Podman(knows_cni=True)) == []
    assert diagnosed(podman=Podman(knows_cni=True, netavark="/x"), conflists=None) == []
