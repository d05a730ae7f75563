"""Which boot of this machine it is: what the kernel numbers (namespaces, processes) it numbers anew in the next."""

import functools
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@functools.cache
def boot_id() -> str:
    """Empty where the host tells none."""
    try:
        return BOOT_ID.read_text().strip()
    except (FileNotFoundError, PermissionError):
        return ""
