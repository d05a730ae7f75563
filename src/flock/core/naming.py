"""Names and numbers by which our things are recognised in the kernel: with `ip`, and by ourselves after a crash."""

import functools
import re
from ipaddress import IPv6Address

# Route protocol numbers (rtm_protocol).  The kernel and the well-known daemons leave 100-185 free.
PROTO_POD = 133  # host routes to pods: covered by the node's aggregates, never announced one by one
PROTO_ANNOUNCE = 134  # what BIRD may learn and announce

SERVICE_TABLE = 0xF10C  # 61708: where addresses of Services are announced from; no rule leads there

# Below 32, the metric BIRD gives its own kernel routes: a route to a pod on this node always wins over one
# that leads to the same address elsewhere.
ROUTE_METRIC = 20

GATEWAY6 = "fe80::1"  # on every host side; the pods' IPv6 default gateway
GATEWAY4 = "169.254.1.1"  # on no interface at all: the pod has a permanent neighbour entry for it
POD_INTERFACE = "eth0"  # by which every runtime calls it: for records that do not tell
# One address for all host sides (each link has just two ends).  Set explicitly, so that udev leaves it alone.
HOST_MAC = b"\x02flock"

_HOST_INTERFACE = re.compile(r"flock[0-9a-f]{8}")


def fnv1a32(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


@functools.lru_cache(maxsize=1024)  # an ADD asks for its container's several times, and byte by byte it takes long
def fnv1a64(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


@functools.lru_cache(maxsize=1024)
def host_interface(container_id: str, attempt: int = 0) -> str:
    """The host side's name.  Attempt 0 is the original's name; further ones answer a hash collision."""
    salted = container_id if attempt == 0 else f"{container_id}#{attempt}"
    return f"flock{fnv1a32(salted.encode()):08x}"


def is_host_interface(name: str) -> bool:
    return _HOST_INTERFACE.fullmatch(name) is not None


def pod_mac(container_id: str) -> bytes:
    """A locally administered unicast address, the same for every attempt at the same container."""
    digest = fnv1a64(container_id.encode())
    return b"\x0a" + digest.to_bytes(8, "big")[:5]


def link_local(mac: str) -> IPv6Address:
    """What the kernel makes of a MAC (RFC 4291, appendix A): the one link-local address that a pod has."""
    octets = bytes.fromhex(mac.replace(":", ""))
    return IPv6Address(b"\xfe\x80" + bytes(6) + bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:])


def alias(*, pod: str, container_id: str, ifname: str) -> str:
    """What `ip link` shows beside the host side.  The kernel takes at most 255 bytes, the closing zero among them."""
    told = "" if ifname == POD_INTERFACE else f" interface={ifname}"
    return f"flock pod={pod} container={container_id}{told}".encode()[:254].decode(errors="ignore")


def format_mac(mac: bytes) -> str:
    return mac.hex(":")
