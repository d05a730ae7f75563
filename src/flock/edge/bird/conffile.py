"""bird.conf on disk: checked before it is swapped in, 0600 because it may hold passwords, never half written."""

import shutil
import subprocess
from pathlib import Path

from flock.core.birdconf import MARK
from flock.core.errors import FlockError
from flock.edge.bird.control import BirdError
from flock.edge.placing import place

FILE = "bird.conf"
CHECK_TIMEOUT = 20.0


def read(directory: Path) -> str | None:
    try:
        return (directory / FILE).read_text(errors="replace")  # what is no text is none of ours
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FlockError(f"cannot read {directory / FILE}: {error.strerror}") from None


def is_ours(directory: Path) -> bool:
    """Whether flock wrote the file that is there.  FlockError if it cannot be read."""
    return (read(directory) or "").startswith(MARK)


def write(directory: Path, text: str, *, check: bool) -> None:
    """Runs BIRD to check the text, so not for the event loop's thread.

    BirdError with BIRD's own words if it would refuse the file; the old one stays in place then.
    """
    place(directory / FILE, text.encode(), mode=0o600, check=_check if check else None)


def _check(candidate: Path) -> None:
    """Without a `bird` of our own to ask, BIRD itself checks at `configure` and keeps the old file if it refuses."""
    program = shutil.which("bird") or shutil.which("bird", path="/usr/sbin:/sbin:/usr/local/sbin")
    if program is None:
        return
    try:
        done = subprocess.run(
            [program, "-p", "-c", str(candidate)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CHECK_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BirdError("checking bird.conf took too long") from None
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip().replace(candidate.name, FILE)
        raise BirdError(f"BIRD refuses the new bird.conf: {said or f'exit code {done.returncode}'}")
