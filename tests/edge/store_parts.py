"""A store in a directory of the test's own, and its file as others see it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flock.core.faults import Faults
from flock.core.model import Allocation
from flock.edge import store as store_module
from flock.edge.store import Store

COOLDOWN = 120.0


def entry(container: str, **fields: Any) -> Allocation:
    given = {"namespace": "default", "pod_name": container, "owner_uid": "u", "state": "committed"}
    return Allocation(container_id=container, allocated_at="2024-01-01T00:00:00Z", **{**given, **fields})


def unread(directory: Path) -> Store:
    notes = directory.with_name("notes-of-" + directory.name)
    return Store(directory, node="node1", cooldown=COOLDOWN, half_done=notes)


@contextmanager
def opened(directory: Path) -> Iterator[Store]:
    store = unread(directory)
    try:
        store.load()
        yield store
    finally:
        shut(store)


def shut(store: Store) -> None:
    """Close a store that is idle, from inside or outside a loop."""
    with pytest.raises(StopIteration):
        store.close().send(None)


@contextmanager
def armed(text: str) -> Iterator[None]:
    faults = Faults()
    faults.arm(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "faults", faults)
        yield


def state_file(directory: Path) -> Path:
    return directory / "allocations.json"


def on_disk(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(state_file(directory).read_text())
    return content


def containers(directory: Path) -> list[str]:
    return [a["container_id"] for a in on_disk(directory)["allocations"]]


def reread(directory: Path) -> dict[str, Allocation]:
    with opened(directory) as store:
        return dict(store.entries)
