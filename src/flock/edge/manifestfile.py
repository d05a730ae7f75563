"""One file of a manifest directory: is it a manifest, and what does it say?"""

import errno
import os
import stat
from pathlib import Path

from flock.core.decoding import Unreadable

SUFFIXES = (".yaml", ".yml", ".json")
# Parsed on the event loop at about 2 MiB/s: a file of this size holds 10,000 small pods and up a second or two.
MAX_BYTES = 4 << 20


def is_manifest(name: str) -> bool:
    """Dotfiles are editors' and ConfigMaps' own; their other temporary names have no such suffix."""
    return name.endswith(SUFFIXES) and not name.startswith(".")


def content(path: Path) -> bytes | None:
    """The file's bytes; None if there is no such file or it is a folder.  Raises OSError, Unreadable."""
    try:
        # Not blocking, so that a FIFO with this name cannot hang the agent.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if path.is_symlink():
            raise OSError(errno.ENOENT, "the link leads nowhere") from None
        return None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("not a regular file")
        if status.st_size > MAX_BYTES:
            raise Unreadable(f"more than {MAX_BYTES} bytes")
        return os.read(descriptor, MAX_BYTES)
    finally:
        os.close(descriptor)
