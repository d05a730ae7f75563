"""What is known of every node and router, kept as encoded pieces, and what of it a page has not been told yet.

Pure: gatherers write, each page has a `Reader`.  A reader is told the latest of what changed since it was last asked,
however often that changed, so a slow one costs no memory.  What happened is kept for each node apart, drops apart from
the rest: who makes much happen pushes out only the like of it.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from flock.view.history import History

KEPT_EACH = 2000  # happenings of a node that are no drops, and as many drops; what its agent remembers itself
KEPT_BYTES = 32 << 20  # of all of them; 200 busy nodes stay below, and the longest list gives way
BATCH = 500  # happenings in one event

# The only part of a status that always differs: when it was made.
_MADE_AT = re.compile(rb'"at":[0-9.eE+-]+')


class _Node:
    """`told` and `looked` are numbers of changes: of what the page shows, and of the time of its last status."""

    __slots__ = ("looked", "name", "problem", "reached", "seen", "status", "told")

    def __init__(self, name: str) -> None:
        self.name, self.reached, self.problem, self.seen = name, False, "", 0.0
        self.status = b"null"
        self.told = self.looked = 0

    def event(self) -> bytes:
        head = {"name": self.name, "reached": self.reached, "problem": self.problem, "seen": self.seen or None}
        return _event("node", msgspec.json.encode(head)[:-1] + b',"status":' + self.status + b"}")


class _Happenings:
    """The latest of one kind of one node; `count` of all there ever were."""

    __slots__ = ("count", "kept", "size")

    def __init__(self) -> None:
        self.kept: deque[bytes] = deque()
        self.count = self.size = 0

    def add(self, entry: bytes) -> int:
        """How much larger it is now."""
        before, self.count, self.size = self.size, self.count + 1, self.size + len(entry)
        self.kept.append(entry)
        if len(self.kept) > KEPT_EACH:
            self.size -= len(self.kept.popleft())
        return self.size - before

    def thin(self) -> int:
        """Forget the older eighth; how much smaller it is now."""
        gone = sum(len(self.kept.popleft()) for _ in range(len(self.kept) // 8 + 1))
        self.size -= gone
        return gone

    def forget(self) -> int:
        """Everything; readers go on counting."""
        gone, self.size = self.size, 0
        self.kept.clear()
        return gone

    def after(self, count: int) -> Iterable[bytes]:
        return reversed(list(islice(reversed(self.kept), self.count - count)))


class Picture:
    """`origin` is node, lab, cluster, bundle or played; `live` whether it goes on, else it is of the time `at`."""

    def __init__(self, *, origin: str, name: str, live: bool) -> None:
        self.origin, self.name, self.live, self.at = origin, name, live, 0.0
        self.number = 0  # of the last change
        self._nodes: dict[str, _Node] = {}
        self._others: dict[tuple[str, str], tuple[int, bytes]] = {}  # router, fabric and gone, by event and name
        self._happened: dict[tuple[str, bool], _Happenings] = {}  # by node, drops apart
        self._size = 0
        self._history = History()

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    # --- told by gatherers ---

    def expect(self, name: str, problem: str = "") -> None:
        """There is such a node; nothing is known of it yet."""
        if name not in self._nodes:
            self._nodes[name] = node = _Node(name)
            self._others.pop(("gone", name), None)
            node.problem, node.told = problem, self._next()

    def status(self, name: str, status: bytes, *, at: float, problem: str = "") -> None:
        """What its agent answered, as it came; `problem` is what else it does not tell.  ValueError if that is no JSON
        object."""
        known, compact = _object(status)
        self.expect(name)
        self._history.told(name, known, at=at)
        node = self._nodes[name]
        number = node.looked = self._next()
        if not node.reached or node.problem != problem or _timeless(compact) != _timeless(node.status):
            node.told = number
        node.reached, node.problem, node.seen, node.status = True, problem, at, compact

    def lost(self, name: str, problem: str) -> None:
        """It does not answer; what was known of it stays, with the time of when it was."""
        self.expect(name)
        node = self._nodes[name]
        if node.reached or node.problem != problem:
            node.reached, node.problem, node.told = False, problem, self._next()

    def gone(self, name: str) -> None:
        """It is no part of this any more."""
        if self._nodes.pop(name, None) is not None:
            self._history.forget(name)
            for kind in (False, True):
                self._size -= self._happened.setdefault((name, kind), _Happenings()).forget()
            self._put("gone", name, msgspec.json.encode({"name": name}))

    def router(self, name: str, content: bytes) -> None:
        self._put("router", name, _object(content)[1])

    def fabric(self, cut: Iterable[str]) -> None:
        self._put("fabric", "", msgspec.json.encode({"cut": list(cut)}))

    def happened(self, name: str, number: int, row: dict[str, Any]) -> None:
        entry = msgspec.json.encode({**row, "node": name, "number": number})
        self._history.happened(row.get("kind"), row.get("time"))
        key = (name, row.get("kind") in ("Dropped", "WouldDrop"))
        self._size += self._happened.setdefault(key, _Happenings()).add(entry)
        if self._size > KEPT_BYTES:
            self._size -= max(self._happened.values(), key=lambda one: one.size).thin()
        self._next()

    def _put(self, event: str, name: str, data: bytes) -> None:
        content = _event(event, data)
        if self._others.get((event, name), (0, b""))[1] != content:
            self._others[event, name] = self._next(), content

    def _next(self) -> int:
        self.number += 1
        return self.number

    # --- told to pages ---

    def hello(self, *, now: float, version: str) -> bytes:
        at = now if self.live else self.at
        known = {"origin": self.origin, "name": self.name, "at": at, "live": self.live, "version": version}
        return _event("hello", msgspec.json.encode(known))

    def changed(self, after: int) -> Iterator[bytes]:
        """Events of what is different since change number `after`, happenings apart."""
        nodes = [node for node in self._nodes.values() if node.told > after]
        others = sorted(one for one in self._others.values() if one[0] > after)
        looked = {node.name: node.seen for node in self._nodes.values() if node.told <= after < node.looked}
        yield from (node.event() for node in nodes)
        yield from (content for _, content in others)
        if looked:
            yield _event("seen", msgspec.json.encode(looked))

    def happened_after(self, counts: dict[tuple[str, bool], int], *, first: bool) -> Iterator[bytes]:
        """Events of what is new since `counts`, which is brought up to date.  At first the history as well, of the same
        moment and after them: what a page counts until then is part of it."""
        history = [_event("history", msgspec.json.encode(self._history.of_an_hour()))] if first else []
        entries: list[bytes] = []
        for key, happenings in self._happened.items():
            entries += happenings.after(counts.get(key, 0))
            counts[key] = happenings.count
        for start in range(0, len(entries), BATCH):
            yield _event("happenings", b"[" + b",".join(entries[start : start + BATCH]) + b"]")
        yield from history


class Reader:
    """One page's place in the picture."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._number = 0
        self._counts: dict[tuple[str, bool], int] = {}

    def news(self) -> Iterator[bytes]:
        """Events, of everything at first; nothing if nothing changed.  What changes while they are taken comes next."""
        picture, after = self._picture, self._number
        if picture.number != after:
            self._number = picture.number
            yield from picture.changed(after)
            yield from picture.happened_after(self._counts, first=after == 0)


def _event(kind: str, data: bytes) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _object(content: bytes) -> tuple[dict[str, Any], bytes]:
    """What it says, and itself in one line, valid, in UTF-8."""
    try:
        said = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(said, dict):
        raise ValueError("not a JSON object")
    return said, msgspec.json.format(content, indent=-1)


def _timeless(status: bytes) -> bytes:
    return _MADE_AT.sub(b"", status, count=1)
