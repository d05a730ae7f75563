"""Switches of the kernel (sysctl), as files."""

import os
from collections.abc import Callable

from flock.core.errors import KernelRefused, TryAgain, refusal

Opener = Callable[[str, int], int]


def write_switch(path: str, value: str, *, opener: Opener = os.open) -> None:
    """Write a sysctl unless it has that value already: reading may be all we may do."""
    try:
        fd = opener(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.read(fd, 16).strip() == value.encode():
                return
        finally:
            os.close(fd)
    except OSError as error:
        raise _not_set(path, value, error) from None
    correct_switch(path, value, opener=opener)


def correct_switch(path: str, value: str, *, opener: Opener = os.open) -> None:
    """Write a sysctl that is known to have another value."""
    try:
        fd = opener(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise _not_set(path, value, error) from None


def _not_set(path: str, value: str, error: OSError) -> KernelRefused | TryAgain:
    return refusal(f"cannot set {path} to {value}", error)
