"""Where BIRD is found, and how it is ended.

Its control socket is `<run-dir>/bird.ctl`, or behind that name in a directory that is BIRD's alone.
A BIRD in a pod of its own is given `<run-dir>/bird` and not the run directory, where the agent's socket is.  The name
stays the one that people and programs know: it becomes a link into BIRD's room when nobody answers at it and somebody
does there.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from flock.edge import rundir
from flock.edge.bird.control import BirdControl, BirdError
from flock.edge.inotify import CREATE, MOVED_TO, Notices

SOCKET = "bird.ctl"
ROOM = "bird"
GOING_DOWN = "going-down"  # there while the node is; deploy/bird.yaml looks for it before BIRD ends
RAN = "ran"  # in it: some BIRD has run since the boot; units and deploy/bird.yaml look for it before they start another
SOONEST, LATEST = 0.1, 2.0  # seconds from one attempt to reach a BIRD that is away to the next
PATIENCE = 20.0  # BIRD closes its sessions in well under a second; a router that does not answer takes it longer


def own(run_dir: Path) -> Iterator[Path]:
    """What a BIRD of flock's and the agent make there.  Who asks knows BIRD to be flock's: others call theirs so."""
    yield from rundir.own_socket(run_dir, SOCKET)
    room = run_dir / ROOM
    if room.is_dir() and not room.is_symlink():
        yield from rundir.own_socket(room, SOCKET)
        yield room / GOING_DOWN
        yield room / RAN
        yield room


def prepare(run_dir: Path) -> None:
    """BIRD may start in its room from now on.  OSError if the directory cannot be made."""
    (run_dir / ROOM).mkdir(mode=0o755, exist_ok=True)


async def reach(run_dir: Path) -> BirdControl:
    """The BIRD under its name or, if nobody answers there, in its room, to which the name leads from then on.
    BirdError."""
    try:
        return await BirdControl.connect(run_dir / SOCKET)
    except BirdError:
        if not (run_dir / ROOM / SOCKET).is_socket():
            raise
        with contextlib.suppress(BirdError):
            control = await BirdControl.connect(run_dir / ROOM / SOCKET)
            _lead_there(run_dir)
            return control
        raise


def _lead_there(run_dir: Path) -> None:
    link = run_dir / rundir.placing_name(SOCKET, os.getpid())
    with contextlib.suppress(OSError):  # the next who is looking for it tries again
        link.unlink(missing_ok=True)
        link.symlink_to(Path(ROOM, SOCKET))
        link.replace(run_dir / SOCKET)


class Bell:
    """For who waits until a BIRD may be there: it rings when something appears where sockets of BIRD's are made.

    A name is there a moment before anybody listens at it, and where the kernel gives no notices there are none.  So a
    wait ends after a while too: soon after the bell rang, and later with each time that it did not."""

    def __init__(self, run_dir: Path) -> None:
        self._directories = (run_dir, run_dir / ROOM)
        self._rang = asyncio.Event()
        self._notices = Notices(self._rang.set)
        self._pause = SOONEST

    async def wait(self) -> None:
        watched = [self._notices.watch(directory, CREATE | MOVED_TO) for directory in self._directories]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self._rang.wait()
        soon = self._rang.is_set() or not all(watched)
        self._pause = SOONEST if soon else min(2 * self._pause, LATEST)
        self._rang.clear()

    def close(self) -> None:
        self._notices.close()


def note(run_dir: Path) -> None:
    """A BIRD runs: the next one of this boot takes up what it leaves."""
    with contextlib.suppress(OSError):  # the next one waits for nobody, then
        (run_dir / ROOM / RAN).touch()


def end(run_dir: Path) -> bool:
    """For good: routers are told, and what BIRD put into the kernel goes, as with a plain SIGTERM.  False if none
    answers.  BirdError if one does and does not end."""
    return asyncio.run(_end(run_dir))


async def _end(run_dir: Path) -> bool:
    try:
        control = await reach(run_dir)
    except BirdError:
        return False
    with contextlib.suppress(BirdError):  # it may be quicker to end than to answer
        await control.command("down")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await control.lost.wait()
            return True
    raise BirdError(f"BIRD was told to end and did not within {PATIENCE:.0f} s")
