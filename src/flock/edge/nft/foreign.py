"""Other people's chains on the way of pods' packets, as far as they drop them (`core/foreignrules.py`).

Asked of the kernel itself, chain by chain as the packet comes to them, and never more than a bound of any: a tenant who
has ten thousand Services has kube-proxy write as many rules, and nobody's agent is to become slow by that.  `nft` is
started for the text of a rule that is told of, if its chain is one that can be listed in a moment.  Legacy iptables is
another packet filter, of which only its own program can tell; whether it is in use at all stands in /proc.
"""

import shutil
import struct
import subprocess
import threading
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from flock.core.facts import Network
from flock.core.foreign.matches import Decide, Elements, Rule
from flock.core.foreignrules import Chain, Chapter, Dropped, Obstacle, Table, Unclear, dropped
from flock.edge.kernel.uplinks import uplinks
from flock.edge.netlink import wire as w
from flock.edge.nft import batch as b
from flock.edge.nft.bytecode import elements, rule
from flock.edge.nft.listing import some
from flock.edge.nft.socket import NftSocket
from flock.edge.nft.tables import OURS

HOOK_NUMBER, HOOK_PRIORITY, CHAIN_TYPE = 1, 2, 7
NAT = "nat"  # is to translate, not to filter, and has a chain for each Service
NUMBERS = {0: "prerouting", 2: "forward", 4: "postrouting"}
NAMES = {1: "inet", 2: "ip", 10: "ip6"}
# Of one look.  firewalld has some hundred rules in as many chains, Docker one for each published port.
RULES = 512  # of a chain
ALL_RULES = 4096
CHAINS = 256
SETS = 128
MESSAGES = 2  # of a set's elements, some hundred in each
NAMELESS = "__chain"  # as the kernel calls what is written as `jump { … }`, and `nft` does not list
PATIENCE = 10.0
LEGACY = (("iptables-legacy-save", "ip_tables_names"), ("ip6tables-legacy-save", "ip6_tables_names"))


class Seen(msgspec.Struct, frozen=True):
    obstacles: tuple[Obstacle, ...]
    unclear: tuple[Unclear, ...]


def obstacles(aggregates: Iterable[Network], *, proc_net: Path = Path("/proc/net")) -> list[Obstacle]:
    """In the network namespace of the calling thread.  KernelRefused, OSError."""
    return [*look(aggregates, proc_net=proc_net).obstacles]


def look(aggregates: Iterable[Network], *, proc_net: Path = Path("/proc/net")) -> Seen:
    """And what cannot be told, in the same namespace.  KernelRefused, OSError."""
    networks, chains = [*aggregates], _base_chains()
    if not chains:
        return Seen(tuple(_legacy(proc_net)), ())
    reader = _Reader()
    tables = {(c.family, c.table): reader.table(c.family, c.table) for c in chains}
    found, unclear = dropped(chains, tables, networks, uplinks())
    told = [_obstacle(one, tables[one.chain.family, one.chain.table]) for one in found]
    return Seen((*told, *_legacy(proc_net)), tuple(unclear))


def _base_chains() -> list[Chain]:
    """Picked out of all there are, which may be many: each Service of kube-proxy has some."""

    def base(body: bytes) -> bool:
        return body[0] in NAMES and bool(w.find(body, 4, b.CHAIN_HOOK))

    found = []
    for body in some(b.GETCHAIN, b.plain_header(), keep=base)[0]:
        attrs = w.attrs(body, 4)
        hook, table = w.attrs(attrs[b.CHAIN_HOOK]), w.as_text(attrs[b.TABLE_NAME])
        at = NUMBERS.get(int.from_bytes(hook[HOOK_NUMBER]))
        if at is None or OURS.fullmatch(table) or w.as_text(attrs.get(CHAIN_TYPE, b"")) == NAT:
            continue
        found.append(
            Chain(
                family=NAMES[body[0]],
                table=table,
                name=w.as_text(attrs[b.CHAIN_NAME]),
                drops=b.CHAIN_POLICY in attrs and not int.from_bytes(attrs[b.CHAIN_POLICY]),
                hook=at,
                priority=int.from_bytes(hook[HOOK_PRIORITY], signed=True),
            )
        )
    return found


class _Reader:
    """Of one look: what is read once is kept for its next packet, and all of it is bounded."""

    def __init__(self) -> None:
        self._rules, self._chains, self._sets = ALL_RULES, CHAINS, SETS

    def table(self, family: str, name: str) -> Table:
        place = struct.pack(">BBH", b.FAMILIES[family], 0, 0) + w.text(b.TABLE_NAME, name)
        return Table(
            chapter=cache(lambda chain: self._chapter(place, chain)), sets=cache(lambda which: self._set(place, which))
        )

    def _chapter(self, place: bytes, chain: str) -> Chapter:
        most = min(RULES, self._rules)
        if not self._chains or not most:
            return Chapter(whole=False)
        told, whole = some(b.GETRULE, place + w.text(b.RULE_CHAIN, chain), most=most)
        self._chains -= 1
        self._rules -= len(told)
        return Chapter(tuple(map(rule, told)), whole)

    def _set(self, place: bytes, name: str) -> Elements | None:
        described = self._describe(place + w.text(b.SET_NAME, name)) if self._sets else b""
        if not described:
            return None
        self._sets -= 1
        told, whole = some(b.GETSETELEM, place + w.text(b.ELEMENTS_SET, name), most=MESSAGES)
        return elements(described, told, whole=whole)

    @staticmethod
    def _describe(body: bytes) -> bytes:
        with NftSocket() as nft:
            return next(iter(nft.ask(b.GETSET, body, dump=False)), b"")


def _obstacle(found: Dropped, table: Table) -> Obstacle:
    chain, whose = found.chain, found.whose
    if whose == "iptables" and any(_leads_to_ufw(rule) for rule in table.chapter(chain.name).rules):
        whose = "ufw"
    nameless = found.where.startswith(NAMELESS)
    return Obstacle(
        whose=whose,
        chain=str(chain) if nameless else f"{chain.family} {chain.table} {found.where}",
        rule="drop, in a chain without a name" if nameless else _text(found, table.chapter(found.where)),
        hook=chain.hook,
        sent=found.sent,
        received=found.received,
        between=found.between,
    )


def _leads_to_ufw(rule: Rule) -> bool:
    return any(isinstance(step, Decide) and step.target.startswith("ufw") for step in rule.steps)


def _text(found: Dropped, chapter: Chapter) -> str:
    """The deciding rule as a person reads it, if it is not one of very many."""
    if not found.handle:
        return "policy drop"
    if not chapter.whole:
        return "drop"
    listed = _nft("-a", "list", "chain", found.chain.family, found.chain.table, found.where)
    lines = (line.strip() for line in listed.splitlines())
    return next((line.rpartition(" # ")[0] for line in lines if line.endswith(f"# handle {found.handle}")), "drop")


def _nft(*arguments: str) -> str:
    """Empty if the chain has gone meanwhile."""
    try:
        done = subprocess.run(["nft", *arguments], capture_output=True, text=True, errors="replace", timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


def _legacy(proc_net: Path) -> Iterator[Obstacle]:
    for program, names in LEGACY:
        try:
            used = "filter" in (proc_net / names).read_text().split()
        except OSError:
            used = False
        if not used or shutil.which(program) is None:
            continue
        drops, lets = _legacy_lines(program)
        if drops and not all(lets.values()):
            chain = f"{'ip6' if program.startswith('ip6') else 'ip'} filter FORWARD"
            yield Obstacle(
                whose="iptables-legacy",
                chain=chain,
                rule=":FORWARD DROP",
                sent=not lets["i"],
                received=not lets["o"],
                between=not any(lets.values()),
            )


def _legacy_lines(program: str) -> tuple[bool, dict[str, bool]]:
    """The policy, and whether pods' links are let in and out; line by line, as there may be many."""
    drops, lets = False, {"i": False, "o": False}
    with subprocess.Popen([program, "-t", "filter"], stdout=subprocess.PIPE, text=True, errors="replace") as listing:
        ending = threading.Timer(PATIENCE, listing.kill)
        ending.start()
        for line in listing.stdout or ():
            drops |= line.startswith(":FORWARD DROP")
            for side in lets:
                lets[side] |= line.rstrip() == f"-A FORWARD -{side} flock+ -j ACCEPT"
        ending.cancel()
    return drops, lets
