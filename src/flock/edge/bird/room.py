"""Where BIRD is found, and how it is ended.

Its control socket is `<run-dir>/bird.ctl`, or behind that name in a directory that is BIRD's alone.
A BIRD in a pod of its own is given `<run-dir>/bird` and not the run directory, where the agent's socket is.  The name
stays the one that people and programs know: it becomes a link into BIRD's room when nobody answers at it and a socket
is there.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from flock.edge import rundir
from flock.edge.bird.control import BirdControl, BirdError

SOCKET = "bird.ctl"
ROOM = "bird"
GOING_DOWN = "going-down"  # there while the node is; deploy/bird.yaml looks for it before BIRD ends
PATIENCE = 20.0  # BIRD closes its sessions in well under a second; a router that does not answer takes it longer


def own(run_dir: Path) -> Iterator[Path]:
    """What a BIRD of flock's and the agent make there.  Who asks knows BIRD to be flock's: others call theirs so."""
    yield from rundir.own_socket(run_dir, SOCKET)
    room = run_dir / ROOM
    if room.is_dir() and not room.is_symlink():
        yield from rundir.own_socket(room, SOCKET)
        yield room / GOING_DOWN
        yield room


def prepare(run_dir: Path) -> None:
    """BIRD may start in its room from now on.  OSError if the directory cannot be made."""
    (run_dir / ROOM).mkdir(mode=0o755, exist_ok=True)


def follow(run_dir: Path) -> None:
    """Called when nobody answers: let the name lead to where a BIRD in its room listens."""
    name, target = run_dir / SOCKET, Path(ROOM, SOCKET)
    if not (run_dir / target).is_socket():
        return
    link = run_dir / rundir.placing_name(SOCKET, os.getpid())
    with contextlib.suppress(OSError):  # the next attempt tries again
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        link.replace(name)


def end(run_dir: Path) -> bool:
    """For good: routers are told, and what BIRD put into the kernel goes, as with a plain SIGTERM.  False if none
    answers.  BirdError if one does and does not end."""
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
    for path in (run_dir / SOCKET, run_dir / ROOM / SOCKET):
        with contextlib.suppress(BirdError):
            return await BirdControl.connect(path)
    return None
