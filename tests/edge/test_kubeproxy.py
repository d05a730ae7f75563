"""Telling kube-proxy's ways by what it leaves in the kernel: the rules as it writes them, by the tools it uses."""

import os
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from flock.core.facts import Network
from flock.edge.kernel import netns
from flock.edge.kubeproxy import Harm, look
from harness import run

MINE: tuple[Network, ...] = (ip_network("10.1.7.0/24"), ip_network("2001:db8:7::/64"))

# ruff: noqa: E501 - rules as they are
# A Service of today's kube-proxy in iptables mode, with one endpoint; {not_local} tells strangers from pods.
IPTABLES = """*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-ERIFXISQEP7F7OF4 - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-EXT-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-SEP-6E7XQMQ4RAYOWTTM - [0:0]
-A KUBE-SERVICES -m comment --comment "default/web:https cluster IP" -m tcp -p tcp -d {vip} --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SERVICES -m comment --comment "default/web:https external IP" -m tcp -p tcp -d {external} --dport 443 -j KUBE-EXT-NPX46M4PTMTKRN6Y
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -m comment --comment default/web:https -m tcp -p tcp --dport 30443 -j KUBE-EXT-NPX46M4PTMTKRN6Y
-A KUBE-EXT-NPX46M4PTMTKRN6Y -m comment --comment "masquerade traffic for default/web:https external destinations" -j KUBE-MARK-MASQ
-A KUBE-EXT-NPX46M4PTMTKRN6Y -j KUBE-SVC-NPX46M4PTMTKRN6Y
{cluster_ip}
-A KUBE-SVC-NPX46M4PTMTKRN6Y -m comment --comment "default/web:https -> {endpoint}:6443" -j KUBE-SEP-6E7XQMQ4RAYOWTTM
-A KUBE-SEP-6E7XQMQ4RAYOWTTM -m comment --comment default/web:https -s {endpoint} -j KUBE-MARK-MASQ
-A KUBE-SEP-6E7XQMQ4RAYOWTTM -m comment --comment default/web:https -m tcp -p tcp -j DNAT --to-destination {to}
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
COMMIT
"""
IN_ITS_CHAIN = '-A KUBE-SVC-NPX46M4PTMTKRN6Y -m comment --comment "default/web:https cluster IP" -m tcp -p tcp -d {vip} --dport 443 {not_local} -j KUBE-MARK-MASQ'
BEFORE_1_23 = '-A KUBE-SERVICES -m comment --comment "default/web:https cluster IP" -m tcp -p tcp -d {vip} --dport 443 {not_local} -j KUBE-MARK-MASQ'
FOUR = {"vip": "10.96.0.1/32", "external": "192.0.2.1/32", "endpoint": "10.1.7.9", "to": "10.1.7.9:6443"}
SIX = {
    "vip": "2001:db8:96::1/128",
    "external": "2001:db8:9::1/128",
    "endpoint": "2001:db8:7::9",
    "to": "[2001:db8:7::9]:6443",
}

NFTABLES = """table {family} kube-proxy {{
	comment "rules for kube-proxy"
	set cluster-ips {{
		type {type}
		comment "Active ClusterIPs"
	}}
	chain mark-for-masquerade {{
		mark set mark or 0x4000
	}}
	chain masquerading {{
		mark and 0x4000 == 0 return
		mark set mark xor 0x4000
		masquerade fully-random
	}}
	chain endpoint-5OJB2KTY-default/web/tcp/https__x/6443 {{
		{family} saddr {endpoint} jump mark-for-masquerade
		meta l4proto tcp dnat to {to}
	}}
	chain service-QMWWTXBG-default/web/tcp/https {{
		{family} daddr {vip} tcp dport 443 {not_local} jump mark-for-masquerade
		numgen random mod 1 vmap {{ 0 : goto endpoint-5OJB2KTY-default/web/tcp/https__x/6443 }}
	}}
	chain external-QMWWTXBG-default/web/tcp/https {{
		jump mark-for-masquerade
		goto service-QMWWTXBG-default/web/tcp/https
	}}
	chain nat-postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		jump masquerading
	}}
}}
"""


class Namespace:
    def __init__(self, name: str) -> None:
        self.name = name
        run("ip", "netns", "add", name)

    def execute(self, *command: str, text: str = "") -> None:
        run("nsenter", f"--net=/run/netns/{self.name}", *command, input=text)

    def look(self, proc_net: Path = Path("/nowhere")) -> Harm:
        there, home = netns.open_netns(f"/run/netns/{self.name}"), netns.own_netns()
        try:
            with netns.inside(there, home=home):
                return look(MINE, proc_net=proc_net)
        finally:
            there.close()
            home.close()

    def flush(self) -> None:
        self.execute("nft", "flush", "ruleset")


@pytest.fixture
def node() -> Iterator[Namespace]:
    made = Namespace(f"fk{os.getpid()}")
    try:
        yield made
    finally:
        run("ip", "netns", "del", made.name)


def iptables(node: Namespace, version: int, rule: str, not_local: str = "") -> Harm:
    """`rule` empty: kube-proxy knows no way to tell pods, and leaves Services' own addresses alone."""
    values = FOUR if version == 4 else SIX
    text = IPTABLES.format(cluster_ip=rule.format(not_local=not_local, **values), **values)
    node.flush()
    node.execute("iptables-nft-restore" if version == 4 else "ip6tables-nft-restore", text=text)
    return node.look()


def nftables(node: Namespace, version: int, not_local: str) -> Harm:
    family, type_, values = ("ip", "ipv4_addr", FOUR) if version == 4 else ("ip6", "ipv6_addr", SIX)
    text = NFTABLES.format(not_local=not_local.format(family=family), family=family, type=type_, **values)
    node.flush()
    node.execute("nft", "-f", "-", text=text)
    return node.look()


def told(harm: Harm) -> str:
    """Whom kube-proxy takes for strangers."""
    assert "set its detectLocalMode to InterfaceNamePrefix, the prefix to flock" in harm.masquerade and not harm.ipvs
    return harm.masquerade.partition("(")[2].partition(")")[0]


def test_a_node_without_kube_proxy_is_fine(node: Namespace) -> None:
    assert node.look() == Harm()


# --- masquerading -----------------------------------------------------------------------------------------------

STRANGERS = {
    4: ("10.1.7.128/25", "10.244.0.0/16", "10.2.0.0/15", "192.0.0.0/8"),
    6: ("2001:db8:8::/64", "2001:db8:7::/65", "fd00::/8"),
}
COVERING = {
    4: ("10.1.7.0/24", "10.1.0.0/21", "10.0.0.0/8", "10.1.0.0/16", "8.0.0.0/6"),
    6: ("2001:db8:7::/64", "2001:db8::/45", "2001::/16"),
}


@pytest.mark.parametrize("version", [4, 6])
def test_a_proxy_that_takes_pods_for_strangers_is_told_with_the_cure(node: Namespace, version: int) -> None:
    mine = MINE[version == 6]
    for cidr in STRANGERS[version]:
        expected = f"{mine} is outside its {cidr}"
        assert told(iptables(node, version, IN_ITS_CHAIN, f"! -s {cidr}")) == expected
        assert told(iptables(node, version, BEFORE_1_23, f"! -s {cidr}")) == expected
        assert told(nftables(node, version, f"{{family}} saddr != {cidr}")) == expected


@pytest.mark.parametrize("version", [4, 6])
def test_a_network_that_has_all_our_pods_in_it_is_fine(node: Namespace, version: int) -> None:
    for cidr in COVERING[version]:
        assert iptables(node, version, IN_ITS_CHAIN, f"! -s {cidr}") == Harm()
        assert iptables(node, version, BEFORE_1_23, f"! -s {cidr}") == Harm()
        assert nftables(node, version, f"{{family}} saddr != {cidr}") == Harm()


@pytest.mark.parametrize("version", [4, 6])
def test_pods_known_by_their_interfaces_are_fine(node: Namespace, version: int) -> None:
    for rule in (IN_ITS_CHAIN, BEFORE_1_23):
        assert iptables(node, version, rule, "! -i flock+") == Harm()
        assert told(iptables(node, version, rule, "! -i cali+")) == "all but interfaces cali*"
    assert nftables(node, version, 'iifname != "flock*"') == Harm()
    assert told(nftables(node, version, 'iifname != "cni0"')) == "all but interfaces cni0*"


@pytest.mark.parametrize("version", [4, 6])
def test_a_proxy_that_masquerades_everybody_is_told(node: Namespace, version: int) -> None:
    assert told(iptables(node, version, IN_ITS_CHAIN)) == told(nftables(node, version, "")) == "of all sources"


def test_a_proxy_that_knows_no_pods_masquerades_none(node: Namespace) -> None:
    assert iptables(node, 4, "") == Harm()


def test_a_service_without_endpoints_hides_nothing(node: Namespace) -> None:
    """Its chain is empty; there may be many, and those of others come after them."""
    text = "".join(f":KUBE-SVC-A{number:015} - [0:0]\n" for number in range(10))
    iptables(node, 4, IN_ITS_CHAIN, "! -s 10.244.0.0/16")
    node.execute("iptables-nft-restore", "--noflush", text=f"*nat\n{text}COMMIT\n")
    assert told(node.look()) == "10.1.7.0/24 is outside its 10.244.0.0/16"


def test_other_peoples_rules_are_none_of_it(node: Namespace) -> None:
    node.execute("iptables-nft", "-t", "nat", "-A", "POSTROUTING", "!", "-s", "10.9.0.0/16", "-j", "MASQUERADE")
    node.execute(
        "nft",
        "add table inet other; add chain inet other service-x; add rule inet other service-x ip saddr != 10.9.0.0/16 drop",
    )
    assert node.look() == Harm()


# --- IPVS -------------------------------------------------------------------------------------------------------

HEADER = """IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
"""
SERVICES = """TCP  0A600001:01BB rr
  -> C6336401:192B      Masq    1      0          0
UDP  [2001:0db8:0096:0000:0000:0000:0000:000a]:0035 rr
FWM  00000001 rr
"""


def test_ipvs_is_told_by_the_interface_it_puts_addresses_on(node: Namespace) -> None:
    node.execute("ip", "link", "add", "kube-ipvs0", "type", "bridge")
    harm = node.look()
    assert "(the interface kube-ipvs0 is there)" in harm.ipvs and "mode nftables or iptables" in harm.ipvs
    assert not harm.masquerade


def test_ipvs_is_told_by_its_virtual_services(node: Namespace, tmp_path: Path) -> None:
    listing = tmp_path / "ip_vs"
    listing.write_text(HEADER)
    assert node.look(tmp_path) == Harm()
    listing.write_text(HEADER + SERVICES)
    assert "(3 virtual services)" in node.look(tmp_path).ipvs
