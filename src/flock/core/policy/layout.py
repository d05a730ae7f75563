"""The tables' fixed part: sets, maps and base chains that every packet of a pod meets.  See docs/policy-rules.md.

A chain is a name and its lines, so that what is rendered can also be counted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from flock.core.policy import walls
from flock.core.policy.drops import COUNTERS
from flock.core.policy.elements import ARP_TABLE, BIND_TABLE, TABLE

SOURCE, DESTINATION = "0x0000ffff", "0xffff0000"  # the halves of a connection's mark

SETS = {
    **walls.SETS,
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
    chains = {**walls.chains(antispoofing=antispoofing), **CHAINS}
    return "".join(
        _cleared(name, contents, None if existing is None else existing.get(name, Content((), ())))
        + _table(name, counters, sets, contents)
        for name, counters, sets, contents in (
            (TABLE, COUNTERS, SETS, chains),
            (BIND_TABLE, (), BIND_SETS, BIND_CHAINS),
            (ARP_TABLE, ["spoofed"], walls.ARP_SETS, walls.arp_chains(antispoofing=antispoofing)),
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
