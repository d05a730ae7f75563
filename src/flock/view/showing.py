"""`flockctl view` at work: a source fills the picture, the server shows it, until Ctrl-C."""

import asyncio
import ctypes
import signal
from collections.abc import Callable

from flock.edge.ending import end
from flock.view.picture import Picture
from flock.view.server import Server
from flock.view.source import Source

LARGE = 32 << 10  # bytes: a status, and nothing that is kept for long
_M_MMAP_THRESHOLD = -3  # the C library's name for it


async def show(source: Source, *, port: int = 0, ready: Callable[[str], None]) -> None:
    """Until SIGINT or SIGTERM.  `ready` is told the address.  When this returns, what the source started has ended."""
    _keep_large_apart()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    picture = Picture(origin=source.origin, name=source.name, live=source.live)
    server = Server(picture, source)
    address = await server.start(port)
    gathering = asyncio.create_task(_gather(source, picture))
    stopping = asyncio.create_task(stop.wait())
    try:
        ready(address)
        await asyncio.wait({gathering, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            gathering.result()  # it failed: say why
    finally:
        try:
            await end(gathering, stopping)
        finally:
            await server.close()


def _keep_large_apart() -> None:
    """Statuses come and go, happenings stay.  Out of one heap, each that stays keeps a hole open where a status was and
    the next does not fit: it grew by two MiB a minute.  So what is large is the kernel's, and given back at once."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # the C library's own may be another
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE)


async def _gather(source: Source, picture: Picture) -> None:
    await source.run(picture)
    await asyncio.Event().wait()  # nothing more to tell, and still to be looked at
