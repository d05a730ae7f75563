"""Which boot of this machine it is: what the kernel numbers (namespaces, processes) it numbers anew in the next."""

import functools

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@functools.cache
def boot_id() -> str:
    """Empty where the host tells none."""
    try:
        with open(BOOT_ID) as told:
            return told.read().strip()
    except (FileNotFoundError, PermissionError):
        return ""
