"""YAML or JSON → the documents in it, bounded, and with no key that counts twice.

PyYAML's C loader recurses on the C stack and follows aliases freely, so 100 kB of `[` would end the process and a
kilobyte of nested aliases fill its memory.  A pass over the parser's flat event stream bounds both before anything
is built; it costs about half of what building does.

The same pass finds keys that are there twice, of which loaders take the last without a word: a line that was copied, or
a `---` that is missing between two objects.  Either value may be the one that was meant, so the document is wrong.
"""

import json
from typing import Any, NamedTuple

import msgspec
import yaml

from flock.core.decoding import Unreadable
from flock.core.errors import in_one_line

try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # a PyYAML built without libyaml: ten times slower, otherwise the same
    from yaml import SafeLoader  # type: ignore[assignment]

MAX_DEPTH = 100  # CRD schemas, the deepest manifests there are, stay below 50
MAX_NODES = 2_000_000  # after following aliases; 4 MiB of plain YAML stay below
# By which an object is known: with one of these twice nobody can tell which object is wrong.
IDENTITY = {"apiVersion", "kind", "metadata", "name", "namespace"}
MERGED = "<<"  # may be there several times
TIMESTAMP, INT, FLOAT, STR = (f"tag:yaml.org,2002:{name}" for name in ("timestamp", "int", "float", "str"))


class Document(NamedTuple):
    value: Any
    wrong: str  # which key is there twice; the object can be told apart from others nevertheless


def documents(data: bytes) -> list[Document]:
    """Raises Unreadable."""
    if data.lstrip()[:1] == b"{":
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            pass  # YAML's flow style looks alike
        else:
            return [Document(value, _twice_in_json(data))]
    try:
        wrong = _examined(data)
        return [*map(Document, yaml.load_all(data, Loader=_Loader), wrong)]
    except Unreadable:
        raise
    except yaml.MarkedYAMLError as error:
        raise Unreadable(f"{_line(error.problem_mark)}{error.problem or error.context}") from None
    except Exception as error:  # PyYAML lets half a dozen types escape on odd scalars, `!!bool x` a KeyError
        raise Unreadable(" ".join(f"not YAML: {type(error).__name__} {error}".split())[:200]) from None


class _Loader(SafeLoader):
    """Plain scalars as kubectl reads them: timestamps stay text, and 64601:20 is no number to the base of sixty."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        tag = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        if tag == TIMESTAMP or (tag in (INT, FLOAT) and ":" in value):
            return STR
        return tag


class _Twice(Exception):
    """A key of this name is."""


def _twice_in_json(data: bytes) -> str:
    try:
        json.loads(data, object_pairs_hook=_once)
    except _Twice as twice:
        try:
            return _examined(data)[0]  # which knows lines
        except yaml.YAMLError:  # JSON may have tabs where YAML must not
            raise Unreadable(f"the key {twice} is there twice") from None
    except RecursionError:
        raise Unreadable("nested too deep") from None
    return ""


def _once(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise _Twice(in_one_line(key)[:80])
        seen.add(key)


def _examined(data: bytes) -> list[str]:
    """What is wrong with the keys of each document.  Raises Unreadable if building what `data` describes would go too
    deep or get too big, or an object could not be told from another."""
    wrong: list[str] = []
    sizes = [0]  # nodes so far in each open collection, the whole stream first
    open_anchors: list[str | None] = []
    anchors: dict[str | None, int] = {}
    keys = _Keys()
    for event in yaml.parse(data, Loader=_Loader):
        if isinstance(event, yaml.NodeEvent):
            twice = keys.take(event)
            if twice and not wrong[-1]:
                wrong[-1] = twice
        if isinstance(event, yaml.CollectionStartEvent):
            open_anchors.append(event.anchor)
            anchors.pop(event.anchor, None)
            sizes.append(1)
        elif isinstance(event, yaml.CollectionEndEvent):
            keys.leave()
            size = sizes.pop()
            anchors[open_anchors.pop()] = size
            sizes[-1] += size
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in open_anchors:
                raise Unreadable(f"{_line(event.start_mark)}alias {event.anchor} contains itself")
            sizes[-1] += anchors.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            anchors.pop(event.anchor, None)
            sizes[-1] += 1
        elif isinstance(event, yaml.DocumentStartEvent):
            wrong.append("")
        if len(sizes) > MAX_DEPTH:
            raise Unreadable(f"{_line(event.start_mark)}nested more than {MAX_DEPTH} levels deep")
        if sizes[-1] > MAX_NODES:
            raise Unreadable(f"more than {MAX_NODES} values")
    return wrong


class _Keys:
    """The keys of each open mapping, and where they are; None for a list."""

    def __init__(self) -> None:
        self._open: list[dict[str, int] | None] = []
        self._at_key: list[bool] = []  # is a key what comes next in it?

    def take(self, event: yaml.NodeEvent) -> str:
        """What is wrong with a key.  Raises Unreadable if it is one that an object is known by."""
        wrong = ""
        seen = self._open[-1] if self._open else None
        if seen is not None:
            if self._at_key[-1] and isinstance(event, yaml.ScalarEvent) and event.value != MERGED:
                wrong = self._noted(seen, event)
            self._at_key[-1] = not self._at_key[-1]
        if isinstance(event, yaml.CollectionStartEvent):
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._open.append({} if is_mapping else None)
            self._at_key.append(is_mapping)
        return wrong

    def _noted(self, seen: dict[str, int], event: yaml.ScalarEvent) -> str:
        line = event.start_mark.line + 1 if event.start_mark else 0
        if event.value not in seen:
            seen[event.value] = line
            return ""
        where = (
            f"line {line}: the key {in_one_line(event.value)[:80]} is there twice, first in line {seen[event.value]}"
        )
        if len(self._open) <= 2 and event.value in IDENTITY:
            raise Unreadable(where)
        return where

    def leave(self) -> None:
        self._open.pop()
        self._at_key.pop()


def _line(mark: Any) -> str:
    return f"line {mark.line + 1}: " if mark else ""
