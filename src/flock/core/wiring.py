"""What a pod's link is made by, as plain values: whoever makes nothing but links need know no more."""

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from flock.core.model import Allocation


class Wiring(NamedTuple):
    """Fields as in an allocation."""

    container_id: str
    pod: str
    netns: str
    ifname: str
    host_interface: str
    mac: str
    mtu: int
    ip6: str
    ip4: str
    addresses: tuple[str, ...]
    anycast: tuple[str, ...]

    @classmethod
    def of(cls, allocation: "Allocation") -> "Wiring":
        return cls(*(getattr(allocation, field) for field in cls._fields))


Wired: TypeAlias = "Allocation | Wiring"
