"""A life of a store that can be killed at any step, and tells what it was answered before."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from flock.core.faults import Point
from flock.core.model import Allocation
from looping import PATIENCE

LIVING = """
import asyncio, sys
from pathlib import Path
from flock.core.faults import faults
from flock.core.model import Allocation
from flock.edge import journal
from flock.edge.boot import boot_id
from flock.edge.store import Store
journal.SIZE = 6 * 4096
faults.arm(sys.argv[2])
store = Store(Path(sys.argv[1]), node="node1", cooldown=120, half_done=Path(sys.argv[1]).with_name("half-done"))
entry = dict(namespace="", pod_name="", owner_uid="", state="committed", allocated_at="", boot_id=boot_id())

async def live():
    store.load()
    for n in range(11):
        print("+", n, end=" ", flush=True)
        new = Allocation(container_id=str(n), **entry)
        if n % 4:
            store.put_ahead(new)
        await asyncio.sleep(0.002 * (n % 4 // 2))
        if n % 4 == 3:
            await store.fold()
        await store.put(new)
        print("ok", flush=True)
        if n % 3 == 1:
            print("-", n - 1, end=" ", flush=True)
            await store.forget(str(n - 1), released=())
            print("ok", flush=True)
        if n % 5 == 4:
            await store.fold()
    await store.close()

asyncio.run(live())
"""

STEPS = [point for point in Point if point.startswith(("store.", "journal."))]


def finished(entries: Mapping[str, Allocation]) -> set[str]:
    return {name for name, entry in entries.items() if entry.state == "committed"}


def lived(directory: Path, faults: str) -> tuple[list[set[str]], int]:
    """What may be on record after such a life, and how it ended: all that was answered, and the rest perhaps."""
    ended = subprocess.run(
        [sys.executable, "-c", LIVING, directory, faults], timeout=PATIENCE, check=False, stdout=subprocess.PIPE
    )
    answered: set[str] = set()
    possible = [answered]
    for line in ended.stdout.decode().splitlines():
        verb, name, *told = line.split()
        after = answered | {name} if verb == "+" else answered - {name}
        possible = [after] if told else [answered, after]
        answered = after
    return possible, ended.returncode
