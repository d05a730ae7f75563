"""Labs with real agents: one per kind of router shared by all tests, put back after each; others of a test's own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fabric_flows import Replica, Serve, close_all
from fabric_parts import MakeLab, Origin, new_name, node_configs, patient, remove, restore, write_configs

from flock.lab.fabric import Lab
from flock.lab.speaker import Kind
from showing import on_failure_of_lab
from thoroughness import slowly


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Kind], tuple[Lab, Origin]]]:
    """One settled leaf-spine lab for each kind of router that is asked for, and how it was then."""
    labs: dict[Kind, tuple[Lab, Origin]] = {}
    names: list[str] = []

    def of(kind: Kind) -> tuple[Lab, Origin]:
        if kind not in labs:
            names.append(new_name())
            configs = node_configs(nodes=2, routers=2, bfd=kind != "gobgp")
            directory = write_configs(tmp_path_factory.mktemp(kind), map(patient, configs))
            lab = Lab.up(name=names[-1], router=kind, nodes=2, routers=2, topology="leaf-spine", nodeconfigs=directory)
            lab.wait()
            labs[kind] = lab, Origin.of(lab)
        return labs[kind]

    yield of
    for name in names:
        remove(name)


def _borrowed(shared: Any, kind: Kind, request: pytest.FixtureRequest) -> Iterator[Lab]:
    lab, origin = shared(kind)
    on_failure_of_lab(request, lab)
    yield lab
    restore(lab, origin)


@pytest.fixture
def lab(shared: Any, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Two nodes, two BIRD routers, a client; no pods before and after."""
    yield from _borrowed(shared, "bird", request)


@pytest.fixture(params=["bird", *slowly("frr", "gobgp")])
def fabric(shared: Any, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The same with each kind of router.  `tests/lab` brings each of them up in `make test` too."""
    yield from _borrowed(shared, request.param, request)


@pytest.fixture(params=["bird", *slowly("frr")])
def forwarding(shared: Any, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Those whose routers forward and know BFD."""
    yield from _borrowed(shared, request.param, request)


@pytest.fixture
def make_lab(request: pytest.FixtureRequest) -> Iterator[MakeLab]:
    """`make_lab(nodes=1, …)`: a lab of the test's own, settled unless told otherwise."""
    names: list[str] = []

    def make(*, settled: bool = True, **options: Any) -> Lab:
        names.append(new_name())
        lab = Lab.up(name=names[-1], **options)
        on_failure_of_lab(request, lab)
        if settled:
            lab.wait()
        return lab

    yield make
    for name in names:
        remove(name)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(lab, pod)`: the pod answers TCP with its name until the test ends."""
    replicas: list[Replica] = []

    def start(lab: Lab, pod: str) -> Replica:
        replicas.append(Replica(lab, pod))
        return replicas[-1]

    yield start
    close_all(replicas)
