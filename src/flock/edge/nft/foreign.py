"""Other people's chains at the hook `forward`, as far as they drop pods' packets (`core/foreignrules.py`).

Which there are is asked of the kernel directly, in one dump; `nft` is started only for those, which most nodes have
none of, and for the chains they lead to.  Legacy iptables is another packet filter, of which only its own program can
tell; whether it is in use at all stands in /proc.
"""

import json
import shutil
import struct
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from flock.core.facts import Network
from flock.core.foreignrules import Chain, Dropped, Obstacle, dropped
from flock.edge.netlink import wire as w
from flock.edge.nft import batch as b
from flock.edge.nft.socket import NftSocket
from flock.edge.nft.tables import OURS

HOOK_NUMBER = 1
FORWARD = 2  # NF_INET_FORWARD
NAMES = {1: "inet", 2: "ip", 10: "ip6"}
MOST = 64  # chains that are read of one packet filter: firewalld's way to its last word has a dozen
PATIENCE = 10.0
LEGACY = (("iptables-legacy-save", "ip_tables_names"), ("ip6tables-legacy-save", "ip6_tables_names"))


def obstacles(aggregates: Iterable[Network], *, proc_net: Path = Path("/proc/net")) -> list[Obstacle]:
    """In the network namespace of the calling thread.  KernelRefused, OSError."""
    networks = [*aggregates]
    found = [told for chain in _forward_chains() if (told := _obstacle(chain, networks)) is not None]
    return [*found, *_legacy(proc_net)]


def _forward_chains() -> list[Chain]:
    found = []
    with NftSocket() as nft:
        bodies = nft.ask(b.GETCHAIN, b.plain_header(), dump=True)
    for body in bodies:
        attrs, family = w.attrs(body, 4), NAMES.get(body[0])
        if family is None or b.CHAIN_HOOK not in attrs or OURS.fullmatch(w.as_text(attrs[b.TABLE_NAME])):
            continue
        if struct.unpack(">I", w.attrs(attrs[b.CHAIN_HOOK])[HOOK_NUMBER])[0] == FORWARD:
            drops = b.CHAIN_POLICY in attrs and struct.unpack(">I", attrs[b.CHAIN_POLICY])[0] == 0
            table, name = w.as_text(attrs[b.TABLE_NAME]), w.as_text(attrs[b.CHAIN_NAME])
            found.append(Chain(family=family, table=table, name=name, drops=drops))
    return found


def _obstacle(chain: Chain, aggregates: list[Network]) -> Obstacle | None:
    read = 0

    @cache
    def rules(name: str) -> Sequence[dict[str, Any]]:
        nonlocal read
        read += 1
        if read > MOST:
            return ()
        listed = _nft("-j", "list", "chain", chain.family, chain.table, name)
        return [entry["rule"] for entry in json.loads(listed or '{"nftables": []}')["nftables"] if "rule" in entry]

    found = dropped(chain, rules, aggregates)
    if found is None:
        return None
    whose = (
        "ufw" if found.whose == "iptables" and any(_leads_to_ufw(rule) for rule in rules(chain.name)) else found.whose
    )
    where = chain if found.where == chain.name else f"{chain.family} {chain.table} {found.where}"
    return Obstacle(whose=whose, chain=str(where), rule=_text(found), sent=found.sent, received=found.received)


def _leads_to_ufw(rule: dict[str, Any]) -> bool:
    return any("jump" in statement and statement["jump"]["target"].startswith("ufw") for statement in rule["expr"])


def _text(found: Dropped) -> str:
    """The deciding rule as a person reads it."""
    if not found.handle:
        return "policy drop"
    listed = _nft("-a", "list", "chain", found.chain.family, found.chain.table, found.where)
    lines = (line.strip() for line in listed.splitlines())
    return next((line.rpartition(" # ")[0] for line in lines if line.endswith(f"# handle {found.handle}")), "drop")


def _nft(*arguments: str) -> str:
    """Empty if the chain has gone meanwhile."""
    try:
        done = subprocess.run(["nft", *arguments], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


def _legacy(proc_net: Path) -> list[Obstacle]:
    found = []
    for program, names in LEGACY:
        try:
            used = "filter" in (proc_net / names).read_text().split()
        except OSError:
            used = False
        if not used or shutil.which(program) is None:
            continue
        done = subprocess.run([program, "-t", "filter"], capture_output=True, text=True, timeout=PATIENCE)
        lines = done.stdout.splitlines()
        lets = {side: f"-A FORWARD -{side} flock+ -j ACCEPT" in lines for side in "io"}
        if any(line.startswith(":FORWARD DROP") for line in lines) and not all(lets.values()):
            chain = f"{'ip6' if program.startswith('ip6') else 'ip'} filter FORWARD"
            told = {"sent": not lets["i"], "received": not lets["o"]}
            found.append(Obstacle(whose="iptables-legacy", chain=chain, rule=":FORWARD DROP", **told))
    return found
