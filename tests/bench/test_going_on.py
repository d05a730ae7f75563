"""One contender, or one measurement, that cannot be made is told of, and the others are made."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import run
from launching import BenchError
from measuring import QUICK, Bench, Outcome

Fault = Callable[[], object]


def _refused_by_a_tool() -> object:
    return subprocess.run(["false"], check=True)


def _refused_by_the_machine() -> object:
    return Path("/proc/self/nothing").read_text()


def _refused_by_ourselves() -> object:
    raise BenchError("no pods to talk")


FAULTS = [_refused_by_a_tool, _refused_by_the_machine, _refused_by_ourselves]


class NoWorld:
    def clear(self) -> None:
        pass


@pytest.fixture
def bench() -> Bench:
    anything: Any = NoWorld()
    return Bench(anything, anything, QUICK)


class Measured:
    def __init__(self, name: str, fault: Fault | None = None) -> None:
        self.name = self.title = name
        self._fault = fault

    def run(self, bench: Bench) -> Outcome:
        if self._fault is not None:
            self._fault()
        return Outcome([], [], {})


@pytest.mark.parametrize("fault", FAULTS)
def test_a_contender_that_cannot_come_is_noted(bench: Bench, fault: Fault) -> None:
    assert bench.enter(fault) == []
    assert len(bench.problems) == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_measurement_that_cannot_be_made_keeps_no_other_from_it(
    bench: Bench, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SETTLE", 0.0)
    broken, whole = Measured("broken", fault), Measured("whole")
    assert list(run._measure(bench, [broken, whole])) == [whole]
    [problem] = bench.problems
    assert problem.startswith("broken: ")
