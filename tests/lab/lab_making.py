"""Names and traces of the labs that tests bring up."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

from flock.lab import namespaces
from flock.lab.fabric import Lab
from flock.lab.home import DEFAULT_ROOT, Home

MakeLab = Callable[..., Lab]
_numbers = count(1)


def new_name() -> str:
    return f"t{os.getpid()}-{next(_numbers)}"


def remove(name: str) -> None:
    Lab.down(name=name, home=Home.named(name))


def traces(name: str, directory: Path | None = None) -> list[str]:
    """Everything that shows there is a lab of that name: namespaces, processes, a directory."""
    directory = directory or DEFAULT_ROOT / name
    left = [*namespaces.present(name), *_processes_mentioning(f"{directory}/")]
    return [*left, str(directory)] if directory.exists() else left


def _processes_mentioning(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # ended meanwhile
            continue
        if text in command:
            found.append(command)
    return found
