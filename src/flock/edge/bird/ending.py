"""Ending BIRD for good: routers are told, and what it put into the kernel goes, as with a plain SIGTERM."""

import asyncio
import contextlib
from pathlib import Path

from flock.edge.bird import room
from flock.edge.bird.control import BirdControl, BirdError

PATIENCE = 20.0  # BIRD closes its sessions in well under a second; a router that does not answer takes it longer


def end(run_dir: Path) -> bool:
    """False if no BIRD answers.  BirdError if one does and does not end."""
    return asyncio.run(_end(run_dir))


async def _end(run_dir: Path) -> bool:
    control = await _reach(run_dir)
    if control is None:
        return False
    with contextlib.suppress(BirdError):  # it may be quicker to end than to answer
        await control.command("down")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await control.lost.wait()
            return True
    raise BirdError(f"BIRD was told to end and did not within {PATIENCE:.0f} s")


async def _reach(run_dir: Path) -> BirdControl | None:
    for path in (run_dir / room.SOCKET, run_dir / room.ROOM / room.SOCKET):
        with contextlib.suppress(BirdError):
            return await BirdControl.connect(path)
    return None
