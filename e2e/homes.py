"""A cluster's directory, whose name is also that of its network namespaces and cgroups.

The name tells the process it belongs to.  So what a test run that was killed has left behind is recognised, and removed
by the next one: by the first of the processes it consists of, while the others wait.  Most processes die with their run
(`places`); the routers' are ended with the network.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cgroups
import network

_PREFIX = "flock-e2e-"


@contextmanager
def new_home() -> Iterator[Path]:
    with _alone():
        _remove_leftovers()
    home = _parent() / f"{_PREFIX}{os.getpid()}"
    home.mkdir()
    try:
        yield home
    finally:
        shutil.rmtree(home)


def _remove_leftovers() -> None:
    for home in _parent().glob(f"{_PREFIX}*"):
        if not Path("/proc", home.name.removeprefix(_PREFIX)).exists():
            network.remove(home.name)
            cgroups.remove(f"{home.name}-*")
            shutil.rmtree(home)


@contextmanager
def _alone() -> Iterator[None]:
    """Of all that look for leftovers there; a process that ends lets go."""
    directory = os.open(_parent(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _parent() -> Path:
    return Path(tempfile.gettempdir())
