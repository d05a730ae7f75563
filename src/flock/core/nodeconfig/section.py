"""Reading a mapping of an object field by field, keeping every problem instead of stopping at the first.

A `Section` is one mapping and its path.  Scalars are read by functions that take the raw value and raise
`ValueError` with the problem in words; nested mappings by functions that take a `Section`.  Both yield None where
the value is unusable, and the problem is kept: a caller that finds problems at the end throws the result away.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from reprlib import repr as short
from typing import Any, TypeVar

import msgspec

from flock.core.errors import Code, FieldError, FlockError

T = TypeVar("T")


class NodeConfigError(FlockError):
    """The NodeConfig is wrong in one or more fields; the last good one stays in force (invariant 7)."""

    code = Code.INVALID_CONFIG

    def __init__(self, problems: Iterable[FieldError]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.msg for problem in self.problems))


class Section:
    def __init__(self, value: Mapping[Any, Any], *, path: str, keys: Iterable[str], problems: list[FieldError]) -> None:
        self._value = value
        self._path = path
        self.problems = problems
        known = list(keys)
        for key in value:
            if key not in known:
                self.problem(short(key)[1:-1] if isinstance(key, str) else short(key), _unknown(str(key), known))

    def path(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def problem(self, key: str, text: str) -> None:
        self.problems.append(FieldError(self.path(key), text))

    def value(self, key: str, parse: Callable[[Any], T]) -> T | None:
        """The field; None where it is absent, null or wrong."""
        raw = self._value.get(key)
        return None if raw is None else self._parsed(key, raw, parse)

    def required(self, key: str, parse: Callable[[Any], T]) -> T | None:
        if self._value.get(key) is None:
            self.problem(key, "is required")
        return self.value(key, parse)

    def values(self, key: str, parse: Callable[[Any], T]) -> tuple[T, ...]:
        """A list of distinct scalars."""
        found: list[T] = []
        for at, raw in self._items(key):
            item = self._parsed(at, raw, parse)
            if item is None:
                continue
            if item in found:
                self.problem(at, f"{raw} is there twice")
            else:
                found.append(item)
        return tuple(found)

    def section(self, key: str, shape: type[msgspec.Struct], read: Callable[["Section"], T | None]) -> T | None:
        """A nested mapping whose keys are those of `shape`."""
        raw = self._value.get(key)
        return None if raw is None else self._nested(key, raw, shape, read)

    def sections(self, key: str, shape: type[msgspec.Struct], read: Callable[["Section"], T | None]) -> tuple[T, ...]:
        """A list of nested mappings."""
        found = (self._nested(at, raw, shape, read) for at, raw in self._items(key))
        return tuple(item for item in found if item is not None)

    def has(self, key: str) -> bool:
        return self._value.get(key) is not None

    def _items(self, key: str) -> list[tuple[str, Any]]:
        raw = self._value.get(key)
        if raw is None:
            return []
        if not isinstance(raw, list | tuple):
            self.problem(key, "must be a list")
            return []
        return [(f"{key}[{number}]", item) for number, item in enumerate(raw)]

    def _parsed(self, key: str, raw: Any, parse: Callable[[Any], T]) -> T | None:
        try:
            return parse(raw)
        except ValueError as problem:
            self.problem(key, str(problem))
            return None

    def _nested(
        self, key: str, raw: Any, shape: type[msgspec.Struct], read: Callable[["Section"], T | None]
    ) -> T | None:
        if not isinstance(raw, Mapping):
            self.problem(key, "must be a mapping")
            return None
        return read(Section(raw, path=self.path(key), keys=shape.__struct_encode_fields__, problems=self.problems))


def _unknown(key: str, known: list[str]) -> str:
    lowered = {name.lower(): name for name in known}
    near = get_close_matches(key.lower(), list(lowered), n=1)
    return f"there is no such field; did you mean {lowered[near[0]]}?" if near else "there is no such field"
