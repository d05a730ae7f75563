"""What a pod may send at all, whatever policies say.  See docs/policy-rules.md.

Walls stand between a pod and its node and cannot be switched off: nothing from or to 127.0.0.0/8, no router
advertisements, no redirects, and nothing for the node's routing protocols.  Anti-spoofing, which can, is about
addresses: a pod sends from its own, and has one link-local address.

Both are decided in one chain where they can be: every packet of a pod meets it, and a further chain would cost each
more than a few rules do.

A wall of another kind is about what others translate: the node's routing protocols are not for anybody's host port or
Service.  Of all chains of type nat the first that decides has decided, so ours come before and translate nothing.
"""

from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address

from flock.core.naming import GATEWAY6
from flock.core.policy.dropping import LOG_LIMIT, NFLOG_GROUP, logged_drop
from flock.core.policy.elements import SOURCE

Chains = Mapping[str, Sequence[str]]

SETS = {
    "sources6": ("set", "type ifname . ipv6_addr", "addresses each pod may send from"),
    "sources4": ("set", "type ifname . ipv4_addr", "addresses each pod may send from"),
    "link-locals": ("set", "type ifname . ipv6_addr", "the link-local address of each pod"),
    "unknown-link-locals": ("set", "type ifname", "pods set up by the original, whose link-local address is not known"),
    "targets6": ("set", "typeof iifname . @th,64,128", "addresses each pod may advertise as a neighbour"),
}
# Filled by packets, not by us.  A pod's entry is forgotten after it was silent for as long as its bucket takes to fill.
_METER = "type ifname; size 65535; flags dynamic,timeout; timeout 1m"
METERS = {
    "fragments": ("set", _METER, "how many fragments each pod sends"),
    "fragment-bytes": ("set", _METER, "how much each pod sends in fragments"),
}
ARP_SETS = {"sources4": ("set", "type ifname . ipv4_addr", "addresses each pod may speak for")}

# Control and echo of BFD, one hop and several (RFC 5881, 5883).
BFD_PORTS = "{ 3784, 3785, 4784 }"
_PORTS = {("TCP", 179): "BGP", ("UDP", 3784): "BFD", ("UDP", 3785): "BFD", ("UDP", 4784): "BFD", ("OSPF", None): "OSPF"}
# Before DNAT, where `portmap` and kube-proxy translate (-100); only first packets of connections come there.
_UNTRANSLATED = -110

# Before fragments are put together (-400), by addresses and number alone, whoever sent them: each is judged by itself.
# What tells a router's messages is always in the first one, without which the others come to nothing.
_FROM_PODS = ["type filter hook prerouting priority -450; policy accept;", 'iifname != "flock*" accept']
_FROM_PODS4 = [
    "ip frag-off & 0x3fff != 0 jump fragments",
    # Before any translation: the answer of a host port that the node asked for at 127.0.0.1 still has its address.
    "ip daddr 127.0.0.0/8 goto walled",
    "icmp type redirect goto walled",
]
# A UDP flow without an answer stays new, but has its mark.
OPENS_TOO_MANY = "ct state new ct mark 0 iifname @overfull goto overfull"
_FROM_PODS6 = "exthdr frag exists jump fragments"  # behind whichever other headers
_ROUTERS_ONLY = "nd-router-advert : goto walled, nd-redirect : goto walled"
_ERRORS = (
    "icmp type { destination-unreachable, source-quench, time-exceeded, parameter-problem }",
    "icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem }",
)
# What comes here, after all that is about connections of the pod itself was accepted, is about somebody else's.
FORGED_ERRORS = [f"{kind} jump errors" for kind in _ERRORS]
_WALLS: Chains = {
    "walled": logged_drop("flock walled", "walled"),
    # What waits for the rest of its datagram takes memory that is one for the node, whatever it is sent for: see
    # edge/kernel/node.py.  By number, because the smallest takes 1 kB, and by length: a pod can send 60 kB in one.
    "fragments": [
        "update @fragments { iifname limit rate over 1000/second burst 1000 packets } goto overfull",
        "update @fragment-bytes { iifname limit rate over 2 mbytes/second burst 2 mbytes } goto overfull",
    ],
    # After translation: a Service that leads to the node's own port leads nowhere as well.
    "to-node": [
        "type filter hook input priority filter; policy accept;",
        'iifname != "flock*" accept',
        OPENS_TOO_MANY,
        "tcp dport 179 goto walled",
        f"udp dport {BFD_PORTS} goto walled",
        "meta l4proto 89 goto walled",  # OSPF, whose name only a file in /etc knows
        *(f"{kind} jump errors-to-node" for kind in _ERRORS),
        # Policies of the cluster's administrator.  Never what the node asked for, nor how neighbours find each other.
        "iifname != @isolated-egress-node accept",
        "ct direction reply accept",
        f"ct state established,related iifname . ct mark & 0x{SOURCE:08x} @pods accept",
        "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, mld-listener-report, "
        "mld2-listener-report, mld-listener-query, mld-listener-done } accept",
        "iifname vmap @egress-node",
        "iifname @isolated-egress-node counter name egress-drops drop",
    ],
    # Connections of the node itself carry no number, so here the ends of the one it is about tell whose it is.
    "errors-to-node": [
        *(
            f"iifname . ct {direction} {family} saddr @{own} accept"
            for family, own in (("ip", "sources4"), ("ip6", "sources6"))
            for direction in ("original", "reply")
        ),
        "jump errors",
    ],
    # What comes by a host port asked for at 127.0.0.1 has no pod's link yet, and gets another source later.
    "from-node": [
        "type filter hook output priority filter; policy accept;",
        'oifname "flock*" ip saddr 127.0.0.0/8 goto walled',
    ],
    # A host port, or a Service with a node's or a router's address among its `externalIPs`, would be given the node's
    # sessions: a pod behind it could end them, or speak for the node.  At another address such a port is a Service's.
    "from-routers": [
        f"type nat hook prerouting priority {_UNTRANSLATED}; policy accept;",
        "tcp dport 179 fib daddr type local jump as-it-is",
        f"udp dport {BFD_PORTS} fib daddr type local jump as-it-is",
    ],
    "to-routers": [
        f"type nat hook output priority {_UNTRANSLATED}; policy accept;",
        "tcp dport 179 jump as-it-is",
        f"udp dport {BFD_PORTS} jump as-it-is",
    ],
    "as-it-is": ["dnat ip to ip daddr", "dnat ip6 to ip6 daddr"],
}
_ANTISPOOFING: Chains = {
    "spoofed": logged_drop("flock spoofed", "spoofed"),
    "errors": ["goto spoofed"],
    "advertised": [
        f"@th,64,128 0x{IPv6Address(GATEWAY6).packed.hex()} goto spoofed",
        "iifname . @th,64,128 @targets6 return",
        "iifname @unknown-link-locals @th,64,10 0x3fa return",  # fe80::/10
        "goto spoofed",
    ],
    "from-pods": [
        *_FROM_PODS,
        # What most packets are: whole, as no header is before that of TCP or UDP, and no message of a router's.
        # A second rule takes less time than a look into a set of the two.
        *(f"ip6 nexthdr {number} iifname . ip6 saddr @sources6 accept" for number in (6, 17)),
        *_FROM_PODS4,
        "iifname . ip saddr @sources4 accept",
        _FROM_PODS6,
        f"icmpv6 type vmap {{ {_ROUTERS_ONLY}, nd-neighbor-advert : jump advertised }}",
        "iifname . ip6 saddr @sources6 accept",
        "ip6 daddr { fe80::/10, ff02::/16 } iifname . ip6 saddr @link-locals accept",
        f"ip6 saddr {GATEWAY6} goto spoofed",
        "iifname @unknown-link-locals ip6 saddr fe80::/10 ip6 daddr { fe80::/10, ff02::/16 } accept",
        "ip6 saddr :: ip6 daddr ff02::/16 icmpv6 type { nd-neighbor-solicit, nd-router-solicit, "
        "mld-listener-report, mld2-listener-report } accept",
        "goto spoofed",
    ],
}
_BELIEVING: Chains = {
    "errors": ["return"],
    "from-pods": [
        *_FROM_PODS,
        *_FROM_PODS4,
        "ip saddr 127.0.0.0/8 goto walled",
        _FROM_PODS6,
        f"icmpv6 type vmap {{ {_ROUTERS_ONLY} }}",
        "ip6 saddr ::ffff:0.0.0.0/96 goto walled",
    ],
}
_ARP: Chains = {
    "antispoof": [
        "type filter hook input priority filter; policy accept;",
        'iifname != "flock*" accept',
        "iifname . arp saddr ip @sources4 accept",
        "arp saddr ip 0.0.0.0 accept",  # duplicate detection
        f'{LOG_LIMIT} log prefix "flock spoofed" group {NFLOG_GROUP}',
        "counter name spoofed drop",
    ],
}


def wall_to_node(protocol: str, port: int | None) -> str:
    """Why this gets nowhere that a pod sends to its node, whatever policies say; empty if it may."""
    spoken = _PORTS.get((protocol, port))
    return f"walled off: nothing that a pod sends reaches the {spoken} of its node" if spoken else ""


def chains(*, antispoofing: bool) -> Chains:
    return {**_WALLS, **(_ANTISPOOFING if antispoofing else _BELIEVING)}


def arp_chains(*, antispoofing: bool) -> Chains:
    return _ARP if antispoofing else {}
