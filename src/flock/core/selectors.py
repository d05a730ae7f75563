"""Kubernetes label selectors: does a set of labels fit?

The structs mirror the API's JSON, so `msgspec` can decode them from a NetworkPolicy as they stand.  A selector is
the conjunction of all its parts; an empty one fits everything.  `NotIn` and `DoesNotExist` also fit an object
that lacks the key, as in Kubernetes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal, get_args

import msgspec

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
OPERATORS: tuple[str, ...] = get_args(Operator)

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


class Requirement(msgspec.Struct, frozen=True):
    key: str
    operator: Operator
    values: tuple[str, ...] | None = None

    def fits(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return self.key in labels and labels[self.key] in (self.values or ())
            case "NotIn":
                return self.key not in labels or labels[self.key] not in (self.values or ())
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: Mapping[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None

    def fits(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in (self.match_labels or {}).items()) and all(
            requirement.fits(labels) for requirement in self.match_expressions or ()
        )

    def problems(self) -> Iterator[tuple[str, str]]:
        """What the types cannot say, as (path inside the selector, problem): an API server has checked all of it,
        a manifest file nobody."""
        for key, value in (self.match_labels or {}).items():
            if not _is_key(key):
                yield "matchLabels", f"{key!r} is no label key"
            if not _is_value(value):
                yield f"matchLabels.{key}", f"{value!r} is no label value"
        for number, requirement in enumerate(self.match_expressions or ()):
            at = f"matchExpressions[{number}]"
            if not _is_key(requirement.key):
                yield f"{at}.key", f"{requirement.key!r} is no label key"
            takes_values = requirement.operator in ("In", "NotIn")
            if takes_values != bool(requirement.values):
                yield f"{at}.values", f"{requirement.operator} needs {'at least one' if takes_values else 'none'}"
            for value in requirement.values or ():
                if not _is_value(value):
                    yield f"{at}.values", f"{value!r} is no label value"


def _is_key(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return _NAME.fullmatch(name) is not None and (not slash or _DOMAIN.fullmatch(prefix) is not None)


def _is_value(text: str) -> bool:
    return text == "" or _NAME.fullmatch(text) is not None
