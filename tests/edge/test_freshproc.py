"""Switches of pods' namespaces, found in a /proc of our own, against the real kernel."""

import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from spaces import Space

from flock.edge.kernel.freshproc import LOOKUPS, FreshProc
from flock.edge.kernel.netns import Netns, inside, open_netns, own_netns
from flock.edge.kernel.switches import correct_switch

USUAL = Path("/proc/sys/net")
SWITCH = f"{USUAL}/ipv6/conf/lo/accept_ra"


@pytest.fixture
def home() -> Iterator[Netns]:
    home = own_netns()
    yield home
    home.close()


def read(path: str, fresh: FreshProc) -> str:
    fd = fresh.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 16).decode().strip()
    finally:
        os.close(fd)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def root_of(fresh: FreshProc) -> tuple[int, int]:
    """Which /proc it is."""
    status = os.fstat(fresh._root)
    return status.st_dev, status.st_ino


def test_a_switch_is_that_of_the_namespace_the_thread_is_in(node: Space, pod: Space, home: Netns) -> None:
    fresh = FreshProc(USUAL)
    for space, value in ((node, "0"), (pod, "2")):
        namespace = open_netns(f"/run/netns/{space.name}")
        with inside(namespace, home=home):
            correct_switch(SWITCH, value, opener=fresh.open)
        namespace.close()
    for space, value in ((node, "0"), (pod, "2")):
        namespace = open_netns(f"/run/netns/{space.name}")
        with inside(namespace, home=home):
            assert read(SWITCH, fresh) == Path(SWITCH).read_text().strip() == value
        namespace.close()


def test_another_proc_is_made_in_time_and_none_is_left(home: Netns) -> None:
    gc.collect()  # what earlier tests left open
    fresh = FreshProc(USUAL)
    read(SWITCH, fresh)
    first, held = root_of(fresh), descriptors()
    assert first[0] != Path("/proc").stat().st_dev  # nothing that others looked up is in it
    for _ in range(LOOKUPS - 1):
        read(SWITCH, fresh)
    assert root_of(fresh) == first
    for _ in range(3 * LOOKUPS):
        read(SWITCH, fresh)
    assert descriptors() == held
    del fresh
    assert descriptors() == held - 1


def test_what_only_the_usual_place_has_is_found_there(tmp_path: Path) -> None:
    """As where a container may not look into another /proc."""
    (tmp_path / "ours").write_text("1\n")
    assert read(f"{tmp_path}/ours", FreshProc(tmp_path)) == "1"
    with pytest.raises(FileNotFoundError, match="nobodys"):
        read(f"{tmp_path}/nobodys", FreshProc(tmp_path))


def test_for_want_of_descriptors_it_is_tried_again_later() -> None:
    fresh = FreshProc(USUAL)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_free = os.open("/", os.O_RDONLY)
    os.close(next_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            fresh.open(SWITCH, os.O_RDONLY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for _ in range(LOOKUPS):
        read(SWITCH, fresh)
    assert fresh._root >= 0
