"""bird.conf on disk: checked before it is swapped in, 0600 because it may hold passwords, never half written."""

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

from flock.core.errors import FlockError
from flock.edge.bird.control import BirdError

FILE = "bird.conf"
CANDIDATE = ".bird.conf.new"
CHECK_TIMEOUT = 20.0


def read(directory: Path) -> str | None:
    try:
        return (directory / FILE).read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FlockError(f"cannot read {directory / FILE}: {error.strerror}") from None


def write(directory: Path, text: str) -> None:
    """Put our own text in place unchecked: it needs no check if it holds nothing of an operator's."""
    candidate = directory / CANDIDATE
    _write_candidate(candidate, text)
    os.rename(candidate, directory / FILE)  # noqa: PTH104
    _sync(directory)


async def replace(directory: Path, text: str) -> None:
    """BirdError with BIRD's own words if it would refuse the file; the old one stays in place then."""
    candidate = directory / CANDIDATE
    try:
        _write_candidate(candidate, text)
        await _check(candidate)
        os.rename(candidate, directory / FILE)  # noqa: PTH104
        _sync(directory)
    except OSError as error:
        raise FlockError(f"cannot write {directory / FILE}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            candidate.unlink(missing_ok=True)


def _write_candidate(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        os.fchmod(fd, 0o600)
        file.write(text)
        file.flush()
        os.fsync(fd)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


async def _check(candidate: Path) -> None:
    """Without a `bird` of our own to ask, BIRD itself checks at `configure` and keeps the old file if it refuses."""
    program = shutil.which("bird") or shutil.which("bird", path="/usr/sbin:/sbin:/usr/local/sbin")
    if program is None:
        return
    process = await asyncio.create_subprocess_exec(
        program,
        "-p",
        "-c",
        str(candidate),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), CHECK_TIMEOUT)
    except TimeoutError:
        process.kill()
        raise BirdError("checking bird.conf took too long") from None
    if process.returncode:
        said = output.decode(errors="replace").strip().replace(f"{candidate.name}", FILE)
        raise BirdError(f"BIRD refuses the new bird.conf: {said or f'exit code {process.returncode}'}")
