"""Labs for tests: named after the test run, gone when it ends, whatever happened."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lab_making import MakeLab, new_name, remove

from flock.lab.fabric import Lab
from flock.lab.speaker import Kind
from showing import on_failure_of_lab


@pytest.fixture(scope="session")
def fabrics() -> Iterator[Callable[[Kind], Lab]]:
    """One plain leaf-spine lab for each kind of router that is asked for, settled, shared by all tests."""
    labs: dict[Kind, Lab] = {}
    names: list[str] = []

    def of(kind: Kind) -> Lab:
        if kind not in labs:
            names.append(new_name())
            labs[kind] = Lab.up(name=names[-1], router=kind, nodes=2, plain=True)
            labs[kind].wait()
        return labs[kind]

    yield of
    for name in names:
        remove(name)


@pytest.fixture(params=["bird", "frr", "gobgp"])
def fabric(request: pytest.FixtureRequest, fabrics: Callable[[Kind], Lab]) -> Lab:
    """A lab with each kind of router; the test leaves it as it found it."""
    lab = fabrics(request.param)
    on_failure_of_lab(request, lab)
    return lab


@pytest.fixture(params=["bird", "frr"])
def forwarding(request: pytest.FixtureRequest, fabrics: Callable[[Kind], Lab]) -> Lab:
    """Those labs whose routers forward and know BFD."""
    return fabrics(request.param)


@pytest.fixture
def make_lab(request: pytest.FixtureRequest) -> Iterator[MakeLab]:
    """`make_lab(nodes=1, ...)`: a plain lab of the test's own, settled unless told otherwise."""
    names: list[str] = []

    def make(*, settled: bool = True, **options: Any) -> Lab:
        names.append(options.setdefault("name", new_name()))
        lab = Lab.up(**({"plain": True} | options))
        on_failure_of_lab(request, lab)
        if settled:
            lab.wait()
        return lab

    yield make
    for name in names:
        remove(name)


@pytest.fixture
def lab_name() -> Iterator[str]:
    """A name for a lab that the test brings up by other means."""
    name = new_name()
    yield name
    remove(name)
