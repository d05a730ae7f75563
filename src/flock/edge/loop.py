"""asyncio's event loop, which looks for news less often than it could.

What a callback makes ready is mostly the next step of the same thing: a thread has done its piece, whoever shared it
is told, and goes on.  asyncio asks the kernel for news before each of these steps, which takes longer than most of
them; an ADD has sixteen.  Here they follow each other, a few at a time, and then the kernel is asked.
"""

import asyncio
import contextlib

STEPS = 8  # more than follow one another in any verb; who never ends makes nobody wait for longer than these


class Loop(asyncio.SelectorEventLoop):
    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        ready = self._ready  # type: ignore[attr-defined]
        for _ in range(STEPS):
            if not ready or self._stopping:  # type: ignore[attr-defined]
                return
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()

    def _read_from_self(self) -> None:
        """Once: what else is there is found at the next look."""
        with contextlib.suppress(InterruptedError, BlockingIOError):
            self._process_self_data(self._ssock.recv(4096))  # type: ignore[attr-defined]
