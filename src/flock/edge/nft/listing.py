"""Lists of the packet filter's things, as much of them as somebody wants: others' may be of any length."""

import errno
import sys
from collections.abc import Callable
from contextlib import closing

from flock.core.errors import KernelRefused
from flock.edge.netlink.socket import ATTEMPTS
from flock.edge.nft.socket import NftSocket


def some(
    kind: int, body: bytes, *, most: int = sys.maxsize, keep: Callable[[bytes], object] = bool
) -> tuple[list[bytes], bool]:
    """So many at most of those to be kept, and whether these are all.  What is not read, the kernel does not put
    together either.  In the network namespace of the calling thread.  KernelRefused."""
    for _ in range(ATTEMPTS):
        found: list[bytes] = []
        with NftSocket() as nft, closing(nft.each(kind, body)) as told:
            try:
                for one in told:
                    if len(found) == most:
                        return found, False
                    if keep(one):
                        found.append(one)
            except KernelRefused as error:
                if error.errno != errno.EINTR:
                    raise
                continue
            return found, True
    raise KernelRefused(f"nft: list: changed {ATTEMPTS} times while it was read")
