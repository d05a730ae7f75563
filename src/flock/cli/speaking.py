"""The last words of a command: whoever reads them may have left, and the disk they go to may be full."""

import contextlib
import os
import sys
from collections.abc import Iterator

CANNOT = 1


@contextlib.contextmanager
def speaking(program: str) -> Iterator[None]:
    """What was printed is written before this ends: else nobody would hear of what cannot be, but from Python itself.

    That nobody reads on (`| head`) is no failure.  What the system refuses is told in its words, with exit code 1."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # closed from the beginning
                sys.stdout.flush()
    except BrokenPipeError:
        _hush()
        sys.exit(0)
    except OSError as error:
        _hush()
        where = f"{error.filename}: " if error.filename else ""
        print(f"{program}: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(CANNOT)


def _hush() -> None:
    """What could not be written is not tried again at the end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
