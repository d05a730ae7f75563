"""What BIRD answers, as values: a reply's lines with their codes, and what they tell about its protocols."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

_HEAD = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\d{4}-\d\d-\d\d \S+|\S+)\s*(.*)")
_CHANNEL = re.compile(r"\s*Channel (\S+)")
_STATE = re.compile(r"\s+State:\s+(\S+)")
_LIMIT = re.compile(r"Import limit:\s+(\d+) \[HIT\]")
_BFD = re.compile(r"\s*([0-9a-fA-F:.]*[:.][0-9a-fA-F:.]+)\s+(\S+)\s+(\S+)")
_GREETING = re.compile(r"BIRD v?(\d+)(\S*)")
_ROUTES = re.compile(r"Routes:\s+(\d+) imported(?:, \d+ filtered)?, (\d+) exported")

KNOWN_MAJOR = 2  # what a later one answers and does with the same file was not tried


class Reply(msgspec.Struct, frozen=True):
    """Lines with their codes; from 8000 on they are errors."""

    lines: tuple[tuple[int, str], ...]

    @property
    def error(self) -> str:
        """What BIRD complains about, empty if it does not."""
        return "; ".join(text.strip() for code, text in self.lines if code >= 8000)

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.lines)


def unknown_bird(greeting: Reply) -> str:
    """Why the BIRD that greets so is not to be told anything; empty for one that flock knows."""
    if (found := _GREETING.search(greeting.text)) and int(found[1]) > KNOWN_MAJOR:
        return f"it is BIRD {found[1]}{found[2]}, and flock knows BIRD {KNOWN_MAJOR} alone (apt install bird2)"
    return ""


class Carried(msgspec.Struct, frozen=True):
    """Prefixes of one family that were received and sent; `up`: both ends have the family on the session."""

    imported: int = 0
    exported: int = 0
    up: bool = True


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol that talks to a neighbour."""

    name: str
    kind: str  # BGP or OSPF
    up: bool
    state: str  # Established, Active, Connect … for BGP; Running, Alone for OSPF
    since: str
    neighbour: str = ""
    imported: int = 0
    exported: int = 0
    last_error: str = ""
    bfd: str = ""  # up, down, init …; empty where there is none
    families: dict[str, Carried] = {}
    full: tuple[str, ...] = ()  # families of which it has all routes that it may take, and was sent more


def protocol_names(reply: Reply) -> frozenset[str]:
    """All protocols that are running, from `show protocols`."""
    heads = (_HEAD.fullmatch(text.strip()) for code, text in reply.lines if code == 1002)
    return frozenset(head[1] for head in heads if head)


def sessions(reply: Reply, before: Iterable[Session] = ()) -> list[Session]:
    """BGP and OSPF protocols, from `show protocols all`; `before`: what was told last."""
    found: list[Session] = []
    head: re.Match[str] | None = None
    details: list[str] = []
    for code, text in (*reply.lines, (1002, "")):
        if code == 1002:
            if head is not None and head[2] in ("BGP", "OSPF"):
                found.append(_session(head, details))
            head, details = _HEAD.fullmatch(text.strip()), []
        else:
            details += text.splitlines()
    known = {session.name: session for session in before}
    return [_steady(session, known.get(session.name)) for session in found]


def bfd_states(reply: Reply) -> dict[str, str]:
    """By neighbour, with its zone and without, from `show bfd sessions`; none where BIRD has no BFD."""
    found: dict[str, str] = {}
    for code, text in reply.lines:
        if code == 1020 and (row := _BFD.match(text)):
            found[row[1]] = found[f"{row[1]}%{row[2]}"] = row[3].lower()
    return found


def _steady(now: Session, before: Session | None) -> Session:
    """BIRD reckons times anew for each answer, and is a millisecond off now and then: no news."""
    if before is None or (before.up, before.since) == (now.up, now.since):
        return now
    try:
        moved = datetime.fromisoformat(now.since) - datetime.fromisoformat(before.since)
    except ValueError:  # the time alone, as a BIRD with another configuration tells it
        return now
    is_same = now.up == before.up and abs(moved) <= timedelta(seconds=1)
    return msgspec.structs.replace(now, since=before.since) if is_same else now


def _session(head: re.Match[str], details: Iterable[str]) -> Session:
    fields: dict[str, str] = {}
    families: dict[str, Carried] = {}
    family, limit, full = "", None, []
    for line in details:
        if channel := _CHANNEL.fullmatch(line):
            family, limit = channel[1], None
        elif family and family not in families and (state := _STATE.fullmatch(line)):
            families[family] = Carried(up=state[1] == "UP")
        elif hit := _LIMIT.search(line):
            limit = int(hit[1])
        elif routes := _ROUTES.search(line):
            up = families[family].up if family in families else True
            families[family] = Carried(int(routes[1]), int(routes[2]), up=up)
            if limit is not None and int(routes[1]) >= limit:
                full.append(family)
        key, colon, value = line.strip().partition(":")
        if colon:
            fields.setdefault(key, value.strip())
    up = head[4] == "up"
    shown = fields.get("BGP state") or head[6].strip() or head[4]
    return Session(
        name=head[1],
        kind=head[2],
        up=up and (head[2] != "BGP" or shown == "Established"),
        state=shown,
        since=head[5].partition(".")[0],
        neighbour=fields.get("Neighbor address", ""),
        imported=sum(carried.imported for carried in families.values()),
        exported=sum(carried.exported for carried in families.values()),
        families=families,
        last_error=fields.get("Last error", ""),
        full=tuple(full),
    )
