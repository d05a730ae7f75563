"""How much is tried: `make test` keeps a representative of each promise, `make test-all` runs everything."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

THOROUGH = os.environ.get("FLOCK_THOROUGH") == "1"  # as `make test-all` says


def slowly(*values: Any) -> list[Any]:
    """Parameters for `make test-all` alone: `["bird", *slowly("frr", "gobgp")]`."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def some(values: Iterable[Any]) -> list[Any]:
    """Of many alike, every third; `make test-all` tries all."""
    return [value if n % 3 == 0 else slowly(value)[0] for n, value in enumerate(values)]


def examples(number: int) -> int:
    """Of those that Hypothesis makes up, a tenth."""
    return number if THOROUGH else number // 10
