"""Which objects does this selector fit, and which selectors fit this object: both without trying all of them.

A selector that demands something (`app=web`, `app in (web, db)`, `app`) can only fit objects that carry one of those
labels: its anchors.  `Objects` finds objects by label, `Selectors` finds selectors by anchor; what remains is really
compared, and counted in `Effort` so that tests can tell what an event costs.  Selectors that only exclude, or demand
nothing, have no anchor and are tried on everything in question.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from flock.core.selectors import LabelSelector, Requirement

T = TypeVar("T")
Labels = Mapping[str, str]
Anchor = tuple[str, str | None]  # a label; None: any value


class Effort:
    """Selectors compared with labels so far."""

    __slots__ = ("comparisons",)

    def __init__(self) -> None:
        self.comparisons = 0

    def fits(self, selector: LabelSelector, labels: Labels) -> bool:
        self.comparisons += 1
        return selector.fits(labels)


def canonical(selector: LabelSelector) -> LabelSelector:
    """Equal for selectors that say the same in another order or form; hashable."""
    said = {Requirement(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()}
    for requirement in selector.match_expressions or ():
        values = tuple(sorted(set(requirement.values or ()))) or None
        said.add(Requirement(requirement.key, requirement.operator, values))
    return LabelSelector(None, tuple(sorted(said, key=lambda r: (r.key, r.operator, r.values or ()))) or None)


def selector_text(selector: LabelSelector) -> str:
    """A canonical selector as `kubectl -l` takes it; empty if it fits everything."""
    return ",".join(map(_requirement_text, selector.match_expressions or ()))


def _requirement_text(requirement: Requirement) -> str:
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            many = f"{requirement.key} in ({','.join(values)})"
            return f"{requirement.key}={values[0]}" if len(values) == 1 else many
        case "NotIn":
            return f"{requirement.key} notin ({','.join(values)})"
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"


def _anchors(selector: LabelSelector) -> Iterator[tuple[Anchor, ...]]:
    """Of each tuple, one has to be on an object for the (canonical) selector to fit it."""
    for requirement in selector.match_expressions or ():
        if requirement.operator == "In":
            yield tuple((requirement.key, value) for value in requirement.values or ())
        elif requirement.operator == "Exists":
            yield ((requirement.key, None),)


def demands_labels(selector: LabelSelector) -> bool:
    """False where most objects fit it."""
    return any(True for _ in _anchors(selector))


class Selectors(Generic[T]):
    """Things that have a selector, found by the labels it demands."""

    __slots__ = ("_by_anchor", "_effort", "_known")

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._by_anchor: dict[Anchor | None, set[T]] = {}
        self._known: dict[T, tuple[LabelSelector, tuple[Anchor | None, ...]]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[T]:
        return iter(self._known)

    def add(self, thing: T, selector: LabelSelector) -> None:
        # Hung on the demand that fewest others hang on: where all say `env=prod`, `app=...` tells them apart.
        fewest = min(_anchors(selector), key=self._crowd, default=None)
        anchors: tuple[Anchor | None, ...] = fewest or (None,)
        self._known[thing] = selector, anchors
        for anchor in anchors:
            self._by_anchor.setdefault(anchor, set()).add(thing)

    def remove(self, thing: T) -> None:
        _, anchors = self._known.pop(thing)
        for anchor in anchors:
            _discard(self._by_anchor, anchor, thing)

    def fitting(self, labels: Labels) -> Iterator[T]:
        anchors: list[Anchor | None] = [None]
        for key, value in labels.items():
            anchors += (key, value), (key, None)
        for anchor in anchors:  # a selector hangs on anchors of one key, so none is met twice
            for thing in self._by_anchor.get(anchor, ()):
                if self._effort.fits(self._known[thing][0], labels):
                    yield thing

    def _crowd(self, anchors: tuple[Anchor, ...]) -> int:
        return sum(len(self._by_anchor.get(anchor, ())) for anchor in anchors)


class Objects(Generic[T]):
    """Things that have labels, found by them."""

    __slots__ = ("_by_label",)

    def __init__(self) -> None:
        self._by_label: dict[str, dict[str, set[T]]] = {}

    def add(self, thing: T, labels: Labels) -> None:
        for key, value in labels.items():
            self._by_label.setdefault(key, {}).setdefault(value, set()).add(thing)

    def remove(self, thing: T, labels: Labels) -> None:
        for key, value in labels.items():
            values = self._by_label[key]
            _discard(values, value, thing)
            if not values:
                del self._by_label[key]

    def candidates(self, selector: LabelSelector, *, among: int) -> Iterable[T] | None:
        """Things the selector may fit; None if looking at `among` others is no more work."""
        best: list[set[T]] | None = None
        for anchors in _anchors(selector):
            found = [things for anchor in anchors for things in self._carrying(anchor)]
            size = sum(map(len, found))
            if size < among:
                best, among = found, size
        return None if best is None else [thing for things in best for thing in things]

    def _carrying(self, anchor: Anchor) -> Iterable[set[T]]:
        key, value = anchor
        values = self._by_label.get(key, {})
        if value is None:
            return values.values()
        return (values[value],) if value in values else ()


K = TypeVar("K")


def _discard(sets: dict[K, set[T]], key: K, thing: T) -> None:
    """Takes the thing out, and the set with it when that was the last."""
    sets[key].discard(thing)
    if not sets[key]:
        del sets[key]
