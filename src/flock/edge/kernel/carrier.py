"""Starting a link's queue now, rather than when the kernel gets round to it.

The side of a veth that came up first, alone, has a queue that drops everything.  When its other end comes up too, the
kernel notes that and starts the queue in a work item, which needs the lock of all network configuration: milliseconds
later on a calm node, longer where many pods come and go.  Asking for the state of the carrier, the way `ethtool` does,
does what is noted first (`linkwatch_sync_dev`); asking by netlink does since Linux 6.8 only.
"""

import array
import errno
import fcntl
import os
import struct

from flock.core.errors import KernelRefused
from flock.edge.netlink.socket import Netlink

SIOCETHTOOL, ETHTOOL_GLINK = 0x8946, 0x0000000A
_IFREQ = struct.Struct("16sP16x")


def start_queue(netlink: Netlink, interface: str) -> None:
    """Both ends are up: from now on packets go."""
    question = array.array("I", [ETHTOOL_GLINK, 0])
    try:
        fcntl.ioctl(netlink, SIOCETHTOOL, _IFREQ.pack(interface.encode(), question.buffer_info()[0]))
    except OSError as error:
        number = error.errno or errno.EIO
        raise KernelRefused(f"ask for the carrier of {interface}: {os.strerror(number)}", errno=number) from None
