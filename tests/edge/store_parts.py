"""A store in a directory of the test's own, and its file as others see it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flock.core.faults import Faults
from flock.core.model import Allocation
from flock.edge import journal as journal_module
from flock.edge import statedir
from flock.edge.store import Store
from harness import recorded

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
        for module in (statedir, journal_module):
            patch.setattr(module, "faults", faults)
        yield


def state_file(directory: Path) -> Path:
    return directory / "allocations.json"


def journal(directory: Path) -> Path:
    return directory / "allocations.journal"


def begun(directory: Path) -> Path:
    """An earlier life left its file here, with nobody in it; so changes go into a journal from the first on."""
    state_file(directory).write_text(
        '{"version": 1, "allocations": [], "journal": {"id": "0123456789abcdef", "through": 1}}'
    )
    return directory


def on_disk(directory: Path) -> dict[str, Any]:
    """The file alone."""
    content: dict[str, Any] = json.loads(state_file(directory).read_text())
    return content


def in_file(directory: Path) -> list[str]:
    return [a["container_id"] for a in on_disk(directory)["allocations"]]


def containers(directory: Path) -> list[str]:
    """The file and what the journal adds to it."""
    return list(recorded(directory))


def reread(directory: Path) -> dict[str, Allocation]:
    with opened(directory) as store:
        return dict(store.entries)
