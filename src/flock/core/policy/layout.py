"""The tables' fixed part: sets, maps and base chains that every packet of a pod meets.  See docs/policy-rules.md.

A chain is a name and its lines, so that what is rendered can also be counted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from flock.core.policy import walls
from flock.core.policy.dropping import COUNTERS, ITSELF, TOLD, logged_drop
from flock.core.policy.elements import ARP_TABLE, BIND_TABLE, BOUND, DESTINATION, SOURCE, TABLE, Mark

_BOUND, _UNBOUND = f"0x{BOUND:08x}", f"0x{BOUND ^ 0xFFFFFFFF:08x}"

SETS = {
    **walls.SETS,
    "pods": ("set", "type ifname . mark", "each pod's number, as source and as destination of a connection"),
    "earlier": ("set", "type ifname . mark", "numbers a pod had before its connections were to be judged again"),
    "overfull": ("set", "type ifname", "pods that have opened more connections than they may"),
    "self": ("set", "type ifname . ifname", "a pod that reaches itself through a Service"),
    "egress": ("map", "type ifname : verdict", "pods isolated in what they open"),
    "ingress": ("map", "type ifname : verdict", "pods isolated in what they accept"),
    "egress-replies": ("map", "type ifname : verdict", "how earlier connections a pod opened are judged by an answer"),
    "ingress-replies": ("map", "type ifname : verdict", "how earlier connections a pod took are judged by its answer"),
    "isolated-egress": ("set", "type ifname", "the pods in @egress: whoever its class does not judge is dropped"),
    "isolated-ingress": ("set", "type ifname", "the pods in @ingress: whoever its class does not judge is dropped"),
    "isolated-egress-replies": ("set", "type ifname", "the pods in @egress-replies, likewise"),
    "isolated-ingress-replies": ("set", "type ifname", "the pods in @ingress-replies, likewise"),
    "egress-node": ("map", "type ifname : verdict", "pods whose packets to the node are judged"),
    "isolated-egress-node": (
        "set",
        "type ifname",
        "the pods in @egress-node, likewise",
    ),
    "audit-egress": ("map", "type ifname : verdict", "pods whose connections audited policies might not let out"),
    "audit-ingress": ("map", "type ifname : verdict", "pods whose connections audited policies might not let in"),
    "audit-egress-node": ("map", "type ifname : verdict", "likewise, to the node"),
}
BIND_SETS = {
    "bind-source": ("map", "type ifname : verdict", "writes the number of the pod a connection comes from"),
    "bind-destination": ("map", "type ifname : verdict", "writes the number of the pod a connection goes to"),
}


def _judging(
    side: str, *, here: Mark, there: Mark, map_: str, answers: str, strangers: Sequence[str] = ()
) -> list[str]:
    """`side`: the pod's, iifname or oifname.  `here`: where its number is in the mark in a connection's original
    direction, `there` in the reply direction, where rules of the other direction judge.  `strangers`: rules for what is
    not about a connection it has."""
    other = {"egress": "ingress", "ingress": "egress"}[map_]
    original, reply = (f"ct direction {way} {side} . ct mark & 0x{part:08x}"
                       for way, part in (("original", here), ("reply", there)))  # fmt: skip
    return [
        f'{side} != "flock*" accept',
        f"ct state established,related {original} @pods accept",
        f"ct state established,related {reply} @pods accept",
        # What is judged is bound again if it is let through.  An error tells nothing of the connection it is about.
        f"ct state established,new ct mark & {_BOUND} != 0 ct mark set ct mark & {_UNBOUND}",
        f"{reply} @earlier goto {answers}",
        *strangers,
        # A number that was retired is in no set any more: what was cut by the rules read backwards stays so.
        *_by_class(
            f"ct direction reply ct mark & 0x{there:08x} != 0 {side}", f"{other}-replies", counter=f"{other}-drops"
        ),
        f"{side} != @isolated-{map_} accept",  # so most first packets meet one set
        *_by_class(side, map_, counter=f"{map_}-drops"),
    ]


def _by_class(side: str, map_: str, *, counter: str) -> list[str]:
    """A packet may see a new element of the map and not yet the rules of the chain it jumps to.  That jump comes back
    here, while a class that has its rules accepts or drops."""
    return [f"{side} vmap @{map_}", f"{side} @isolated-{map_} counter name {counter} drop"]


CHAINS: Mapping[str, Sequence[str]] = {
    "overfull": [ITSELF, *logged_drop("flock overfull", "overfull")],
    "answers-from": [*_by_class("iifname", "ingress-replies", counter="ingress-drops"), "accept"],
    "answers-to": [*_by_class("oifname", "egress-replies", counter="egress-drops"), "accept"],
    "egress": [
        "type filter hook forward priority filter - 1; policy accept;",
        *_judging(
            "iifname",
            here=SOURCE,
            there=DESTINATION,
            map_="egress",
            answers="answers-from",
            strangers=[walls.OPENS_TOO_MANY, *walls.FORGED_ERRORS],
        ),
    ],
    "ingress": [
        "type filter hook forward priority filter; policy accept;",
        *_judging("oifname", here=DESTINATION, there=SOURCE, map_="ingress", answers="answers-to"),
    ],
}
# The first packet of a connection, which was let through by all that is in force: a connection is known as such
# (`confirmed`) once its first packet has passed everything.  These tell and never drop.  They are there only where
# policies are audited, and have other names than their maps, which always are.
_FIRST = ["ct status confirmed accept", "ct state invalid,related,untracked accept"]
AUDIT_CHAINS: Mapping[str, Sequence[str]] = {
    "audit-from-pods": [
        "type filter hook forward priority filter + 2; policy accept;",
        *_FIRST,
        "iifname vmap @audit-egress",
    ],
    "audit-to-pods": [
        "type filter hook forward priority filter + 3; policy accept;",
        _FIRST[0],
        f"ct mark & 0x{TOLD:08x} != 0 ct mark set ct mark & 0x{TOLD ^ 0xFFFFFFFF:08x} accept",
        _FIRST[1],
        "oifname vmap @audit-ingress",
    ],
    "audit-to-node": [
        "type filter hook input priority filter + 2; policy accept;",
        *_FIRST,
        "iifname vmap @audit-egress-node",
    ],
}
BIND_CHAINS: Mapping[str, Sequence[str]] = {
    "bind": [
        "type filter hook forward priority filter + 1; policy accept;",
        f"ct mark & {_BOUND} != 0 accept",  # all that most packets meet
        'iifname != "flock*" oifname != "flock*" accept',
        "ct state related accept",
        "ct direction original iifname vmap @bind-source",
        "ct direction reply iifname vmap @bind-destination",
        "ct direction original oifname vmap @bind-destination",
        "ct direction reply oifname vmap @bind-source",
        f"ct mark set ct mark | {_BOUND}",
    ],
    # What a pod opens to the node is judged by nobody, but counts among its connections.
    "bind-input": [
        "type filter hook input priority filter + 1; policy accept;",
        "ct state related accept",
        'iifname "flock*" ct direction original iifname vmap @bind-source',
    ],
}


def is_hook(line: str) -> bool:
    """The line that makes a chain a base chain is no rule."""
    return line.startswith("type ")


def count(chains: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Rules by chain."""
    return {name: sum(not is_hook(line) for line in lines) for name, lines in chains.items()}


class Content(NamedTuple):
    """Names of what is in a table: its chains, and its sets and maps with their kind."""

    chains: Sequence[str]
    sets: Sequence[tuple[str, str]]


Existing = Mapping[str, Content]  # by table


def auditing() -> list[str]:
    """Statements that begin it."""
    lines = []
    for name, (hook, *rules) in AUDIT_CHAINS.items():
        lines.append(f"add chain {TABLE} {name} {{ {hook} }}")
        lines += [f"add rule {TABLE} {name} {rule}" for rule in rules]
    return lines


def tables(*, antispoofing: bool, existing: Existing | None, wanted: Collection[str] = ()) -> str:
    """Our tables anew, without pods, in place of what there is; for the beginning of a script.

    What was there stays in force until the script's last line is in.  Chains and sets that stay (those fixed here, and
    `wanted`) are emptied and filled again, never made anew: a packet that is under way has the rules from before, and
    these lead to the chains and sets from before.  `existing` None: without regard to that, for tables that somebody
    else has changed beyond recognition.
    """
    chains = {**walls.chains(antispoofing=antispoofing), **CHAINS}
    return "".join(
        _cleared(name, contents, None if existing is None else existing.get(name, Content((), ())), {*sets, *wanted})
        + _table(name, counters, sets, contents)
        for name, counters, sets, contents in (
            (TABLE, COUNTERS, SETS | walls.METERS, chains),
            (BIND_TABLE, (), BIND_SETS, BIND_CHAINS),
            (ARP_TABLE, ["spoofed"], walls.ARP_SETS, walls.arp_chains(antispoofing=antispoofing)),
        )
    )


def _cleared(table: str, chains: Mapping[str, Sequence[str]], existing: Content | None, wanted: Collection[str]) -> str:
    """The table with nothing in it but its base chains and what stays, all empty."""
    text = f"table {table} {{}}\n"
    if existing is None:
        return text + f"delete table {table}\n"
    base = {name: lines[0] for name, lines in chains.items() if is_hook(lines[0])}
    text += "".join(f"add chain {table} {name} {{ {hook} }}\n" for name, hook in base.items())
    text += f"flush table {table}\n"
    for kind, name in existing.sets:
        text += f"{'flush' if name in wanted else 'delete'} {kind} {table} {name}\n"
    staying = {*chains, *wanted}
    return text + "".join(f"delete chain {table} {name}\n" for name in existing.chains if name not in staying)


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
