"""The tables' fixed part: sets, maps and base chains that every packet of a pod meets.  See docs/policy-rules.md.

A chain is a name and its lines, so that what is rendered can also be counted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import IPv6Address
from typing import NamedTuple

from flock.core.naming import GATEWAY6
from flock.core.policy.elements import ARP_TABLE, BIND_TABLE, TABLE

NFLOG_GROUP = 133
# Enough to see what is going on, too few to slow anything down.  Each place that drops has a limit of its own.
LOG_LIMIT = "limit rate 10/second burst 20 packets"

SOURCE, DESTINATION = "0x0000ffff", "0xffff0000"  # the halves of a connection's mark
COUNTERS = {"ingress-drops": "ingress", "egress-drops": "egress", "spoofed": "spoofed"}

SETS = {
    "sources6": ("set", "type ifname . ipv6_addr", "addresses each pod may send from"),
    "sources4": ("set", "type ifname . ipv4_addr", "addresses each pod may send from"),
    "targets6": ("set", "typeof iifname . @th,64,128", "addresses each pod may advertise as a neighbour"),
    "pods": ("set", "type ifname . mark", "each pod's number, as source and as destination of a connection"),
    "earlier": ("set", "type ifname . mark", "numbers a pod had before its connections were to be judged again"),
    "self": ("set", "type ifname . ifname", "a pod that reaches itself through a Service"),
    "egress": ("map", "type ifname : verdict", "pods isolated in what they open"),
    "ingress": ("map", "type ifname : verdict", "pods isolated in what they accept"),
    "isolated-egress": ("set", "type ifname", "the same pods: whoever is judged by nothing else is dropped"),
    "isolated-ingress": ("set", "type ifname", "the same pods: whoever is judged by nothing else is dropped"),
    "egress-replies": ("map", "type ifname : verdict", "how earlier connections a pod opened are judged by an answer"),
    "ingress-replies": ("map", "type ifname : verdict", "how earlier connections a pod took are judged by its answer"),
}
BIND_SETS = {
    "bind-source": ("map", "type ifname : verdict", "writes the number of the pod a connection comes from"),
    "bind-destination": ("map", "type ifname : verdict", "writes the number of the pod a connection goes to"),
}
ARP_SETS = {"sources4": ("set", "type ifname . ipv4_addr", "addresses each pod may speak for")}


def _judging(side: str, *, here: str, there: str, map_: str, answers: str) -> list[str]:
    """`side`: the pod's, iifname or oifname.  `here`: the half that has its number in a connection's original
    direction, `there` in the reply direction."""
    return [
        f'{side} != "flock*" accept',
        f"ct state established,related ct direction original {side} . ct mark & {here} @pods accept",
        f"ct state established,related ct direction reply {side} . ct mark & {there} @pods accept",
        "iifname . oifname @self accept",
        f"ct direction reply {side} . ct mark & {there} @earlier goto {answers}",
        f"{side} vmap @{map_}",
        # The kernel switches to new rules between two rules of one packet: a chain that was just made may still be
        # empty to it.  Members of this set do not change when everything is made anew, so it drops even then.
        f"{side} @isolated-{map_} counter name {map_}-drops drop",
    ]


def logged_drop(prefix: str, counter: str) -> list[str]:
    return [f'{LOG_LIMIT} log prefix "{prefix}" group {NFLOG_GROUP}', f"counter name {counter} drop"]


ANTISPOOFING: Mapping[str, Sequence[str]] = {
    "spoofed": logged_drop("flock spoofed", "spoofed"),
    "advertised": [
        f"@th,64,128 0x{IPv6Address(GATEWAY6).packed.hex()} goto spoofed",
        "@th,64,10 0x3fa return",  # fe80::/10
        "iifname . @th,64,128 @targets6 return",
        "goto spoofed",
    ],
    "antispoof": [
        "type filter hook prerouting priority raw; policy accept;",
        'iifname != "flock*" accept',
        "iifname . ip saddr @sources4 accept",
        "icmpv6 type nd-neighbor-advert jump advertised",
        "iifname . ip6 saddr @sources6 accept",
        f"ip6 saddr {GATEWAY6} goto spoofed",
        "ip6 saddr fe80::/10 ip6 daddr { fe80::/10, ff02::/16 } accept",
        "ip6 saddr :: ip6 daddr ff02::/16 icmpv6 type { nd-neighbor-solicit, nd-router-solicit, "
        "mld-listener-report, mld2-listener-report } accept",
        "goto spoofed",
    ],
}
CHAINS: Mapping[str, Sequence[str]] = {
    "answers-from": ["iifname vmap @ingress-replies", "accept"],
    "answers-to": ["oifname vmap @egress-replies", "accept"],
    "egress": [
        "type filter hook forward priority filter - 1; policy accept;",
        *_judging("iifname", here=SOURCE, there=DESTINATION, map_="egress", answers="answers-from"),
    ],
    "ingress": [
        "type filter hook forward priority filter; policy accept;",
        *_judging("oifname", here=DESTINATION, there=SOURCE, map_="ingress", answers="answers-to"),
    ],
}
BIND_CHAINS: Mapping[str, Sequence[str]] = {
    "bind": [
        "type filter hook forward priority filter + 1; policy accept;",
        "ct state related accept",
        'iifname "flock*" ct direction original iifname vmap @bind-source',
        'iifname "flock*" ct direction reply iifname vmap @bind-destination',
        'oifname "flock*" ct direction original oifname vmap @bind-destination',
        'oifname "flock*" ct direction reply oifname vmap @bind-source',
    ],
}
ARP_CHAINS: Mapping[str, Sequence[str]] = {
    "antispoof": [
        "type filter hook input priority filter; policy accept;",
        'iifname != "flock*" accept',
        "iifname . arp saddr ip @sources4 accept",
        "arp saddr ip 0.0.0.0 accept",  # duplicate detection
        f'{LOG_LIMIT} log prefix "flock spoofed" group {NFLOG_GROUP}',
        "counter name spoofed drop",
    ],
}


def is_hook(line: str) -> bool:
    """The line that makes a chain a base chain is no rule."""
    return line.startswith("type ")


KEPT = frozenset({"isolated-egress", "isolated-ingress"})  # sets that are never made anew


class Content(NamedTuple):
    """Names of what is in a table: its chains, its sets and maps with their kind, and members of KEPT sets."""

    chains: Sequence[str]
    sets: Sequence[tuple[str, str]]
    kept: Mapping[str, Collection[str]] = {}


Existing = Mapping[str, Content]  # by table


def tables(*, antispoofing: bool, existing: Existing | None) -> str:
    """Our tables anew, without pods, in place of what there is; for the beginning of a script.

    What was there stays in force until the script's last line is in.  Base chains stay and are filled anew: were they
    made anew as well, a packet could meet the new one before the switch, still empty, and the old one after it, empty
    already.  `existing` None: without regard to that, for tables that somebody else has changed beyond recognition.
    """
    chains = {**ANTISPOOFING, **CHAINS} if antispoofing else CHAINS
    return "".join(
        _cleared(name, contents, None if existing is None else existing.get(name, Content((), ())))
        + _table(name, counters, sets, contents)
        for name, counters, sets, contents in (
            (TABLE, COUNTERS, SETS, chains),
            (BIND_TABLE, (), BIND_SETS, BIND_CHAINS),
            (ARP_TABLE, ["spoofed"], ARP_SETS, ARP_CHAINS if antispoofing else {}),
        )
    )


def _cleared(table: str, chains: Mapping[str, Sequence[str]], existing: Content | None) -> str:
    """The table with nothing in it but its base chains, still without rules."""
    text = f"table {table} {{}}\n"
    if existing is None:
        return text + f"delete table {table}\n"
    base = {name: lines[0] for name, lines in chains.items() if is_hook(lines[0])}
    text += "".join(f"add chain {table} {name} {{ {hook} }}\n" for name, hook in base.items())
    text += f"flush table {table}\n"
    text += "".join(f"delete {kind} {table} {name}\n" for kind, name in existing.sets if name not in KEPT)
    return text + "".join(f"delete chain {table} {name}\n" for name in existing.chains if name not in base)


def _table(
    table: str,
    counters: Iterable[str],
    sets: Mapping[str, tuple[str, str, str]],
    chains: Mapping[str, Sequence[str]],
) -> str:
    text = f"table {table} {{\n"
    for name in counters:
        text += f"\tcounter {name} {{}}\n"
    for name, (kind, type_, comment) in sets.items():
        text += f'\n\t{kind} {name} {{\n\t\t{type_}\n\t\tcomment "{comment}"\n\t}}\n'
    for name, lines in chains.items():
        text += f"\n\tchain {name} {{\n" + "".join(f"\t\t{line}\n" for line in lines) + "\t}\n"
    return text + "}\n"
