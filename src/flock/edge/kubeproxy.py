"""What kube-proxy does on this node that policies cannot see through, told from what it leaves in the kernel.

IPVS.  A packet to a Service goes to the address of the interface `kube-ipvs0`, so it is input, and leaves as output to
the pod behind: it is never forwarded, and no rule of ours sees it.

Masquerading.  What does not come from a pod, by kube-proxy's `detectLocalMode`, leaves with the node's address when it
goes to a Service.  Told by source address (`ClusterCIDR`, `NodeCIDR`) pods outside that network are taken for
strangers, and the policies of other nodes see a node where they mean a pod.  By interface (`InterfaceNamePrefix:
flock`) pods are pods.  Its rules are in the tables `nat` (iptables, where that is nft's) or `kube-proxy` (nftables):

    chain KUBE-SVC-…, service-…    [ip saddr != CIDR | iifname != "flock*"] … jump KUBE-MARK-MASQ, mark-for-masquerade

Every Service has such a rule and all are alike, so a few are looked at.  Rules of legacy iptables are not seen here.
"""

import socket
from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path

import msgspec

from flock.core.facts import Network
from flock.core.services import IPVS_LINK
from flock.edge.netlink import wire as w
from flock.edge.nft import batch as b
from flock.edge.nft.listing import some

OURS = "flock"  # how the names of pods' interfaces begin
PROC_NET = Path("/proc/net")
TABLES = {"ip nat": 4, "ip6 nat": 6, "ip kube-proxy": 4, "ip6 kube-proxy": 6}
OF_A_SERVICE = ("KUBE-SVC-", "service-")
OF_ALL = "KUBE-SERVICES"  # where releases before 1.23 have these rules, among others that say nothing of pods
MARKS = ("KUBE-MARK-MASQ", "mark-for-masquerade")
ENOUGH = 16  # chains of Services: one without endpoints has no rules
RULES = 512  # of a chain: as many as there are Services, where it has those of all
FAMILIES = {2: "ip", 10: "ip6"}

SOURCE_OFFSET = {4: 12, 6: 8}  # of the source address in a header
PAYLOAD_BASE, PAYLOAD_OFFSET, NETWORK_HEADER = 2, 3, 1
META_KEY, IIFNAME = 2, 6
IMMEDIATE_DATA = 2


class Harm(msgspec.Struct, frozen=True, kw_only=True):
    """What of it does harm here, in words, each with its cure; empty: nothing that can be seen."""

    ipvs: str = ""
    masquerade: str = ""


def look(aggregates: Iterable[Network], *, proc_net: Path = PROC_NET) -> Harm:
    """In the network namespace of the calling thread.  KernelRefused, OSError."""
    return Harm(ipvs=_ipvs(proc_net), masquerade=_masquerade([*aggregates]))


# --- IPVS -------------------------------------------------------------------------------------------------------


def _ipvs(proc_net: Path) -> str:
    found = []
    if any(name == IPVS_LINK for _, name in socket.if_nameindex()):
        found.append(f"the interface {IPVS_LINK} is there")
    if number := _virtual_services(proc_net / "ip_vs"):
        found.append(f"{number} virtual services")
    if not found:
        return ""
    return (
        f"IPVS carries Service traffic past NetworkPolicy on this node ({', '.join(found)}): "
        "run kube-proxy in mode nftables or iptables"
    )


def _virtual_services(path: Path) -> int:
    """Lines such as `TCP  0A600001:01BB rr`; the file is there if the kernel's module is."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return 0
    return sum(line.startswith(("TCP ", "UDP ", "SCTP", "FWM ")) for line in lines)


# --- masquerading -----------------------------------------------------------------------------------------------


def _masquerade(aggregates: list[Network]) -> str:
    for table, chains in _chains().items():
        version = TABLES[table]
        mine = [aggregate for aggregate in aggregates if aggregate.version == version]
        for chain in chains:
            for exempt in _exemptions(table, chain, version):
                if why := _harm(exempt, mine):
                    return (
                        f"kube-proxy masquerades pods that talk to Services ({why}), so policies elsewhere see this "
                        f"node and not the pod: set its detectLocalMode to InterfaceNamePrefix, the prefix to {OURS}"
                    )
    return ""


def _chains() -> dict[str, list[str]]:
    """A few of each table, picked out of all there are: tens of thousands beside as many Services."""
    found: dict[str, list[str]] = {table: [] for table in TABLES}

    def pick(body: bytes) -> bool:
        table = f"{FAMILIES.get(body[0])} {w.as_text(w.find(body, 4, b.TABLE_NAME))}"
        if table in found:
            name, few = w.as_text(w.find(body, 4, b.CHAIN_NAME)), found[table]
            if name == OF_ALL or (len(few) < ENOUGH and name.startswith(OF_A_SERVICE)):
                few.append(name)
        return False

    some(b.GETCHAIN, b.plain_header(), keep=pick)
    return found


def _exemptions(table: str, chain: str, version: int) -> Iterator[Network | str]:
    """Whom each rule of the chain that asks for masquerading exempts: a network, interfaces by the beginning of their
    names, or nobody ("")."""
    for body in some(b.GETRULE, b.header(table) + w.text(b.RULE_CHAIN, chain), most=RULES)[0]:
        expressions = [*_expressions(w.attrs(body, 4).get(b.RULE_EXPRESSIONS, b""))]
        if not any(name == "immediate" and _target(data) in MARKS for name, data in expressions):
            continue
        exempt = _exempt(expressions, version)
        if exempt is not None or chain != OF_ALL:
            yield "" if exempt is None else exempt


def _harm(exempt: Network | str, aggregates: list[Network]) -> str:
    if isinstance(exempt, str):
        if exempt and f"{OURS}00000000".startswith(exempt):
            return ""
        return f"all but interfaces {exempt}*" if exempt else "of all sources"
    outside = [aggregate for aggregate in aggregates if not aggregate.subnet_of(exempt)]  # type: ignore[arg-type]
    return f"{outside[0]} is outside its {exempt}" if outside else ""


def _exempt(expressions: list[tuple[str, w.Attrs]], version: int) -> Network | str | None:
    """What the rule compares as unequal: the source address, or the name of the interface."""
    loaded, mask = "", b""
    for name, data in expressions:
        if name == "payload":
            place = (_number(data[PAYLOAD_BASE]), _number(data[PAYLOAD_OFFSET]))
            loaded, mask = "source" if place == (NETWORK_HEADER, SOURCE_OFFSET[version]) else "", b""
        elif name == "meta":
            loaded, mask = "interface" if _number(data.get(META_KEY, bytes(4))) == IIFNAME else "", b""
        elif name == "bitwise":
            mask = w.attrs(data[b.BITWISE_MASK])[b.DATA_VALUE]
        elif name == "cmp" and loaded and data[b.COMPARE_OPERATION] == b.UNEQUAL:
            value = w.attrs(data[b.COMPARE_DATA])[b.DATA_VALUE]
            return w.as_text(value) if loaded == "interface" else _network(value, mask, version)
    return None


def _network(value: bytes, mask: bytes, version: int) -> Network:
    """Whole bytes are compared without a mask, and bytes that do not matter not at all."""
    size = 4 if version == 4 else 16
    bits = sum(byte.bit_count() for byte in mask) if mask else 8 * len(value)
    return ip_network((ip_address(value.ljust(size, b"\0")), bits), strict=False)


def _target(data: w.Attrs) -> str:
    """The chain a verdict leads to."""
    verdict = w.attrs(w.attrs(data.get(IMMEDIATE_DATA, b"")).get(b.DATA_VERDICT, b""))
    return w.as_text(verdict.get(b.VERDICT_CHAIN, b""))


def _expressions(data: bytes) -> Iterator[tuple[str, w.Attrs]]:
    for item in w.items(data):
        found = w.attrs(item)
        yield w.as_text(found[b.EXPRESSION_NAME]), w.attrs(found.get(b.EXPRESSION_DATA, b""))


def _number(data: bytes) -> int:
    return int.from_bytes(data)
