"""The structs of a NodeConfig, defaults filled in, addresses as `ipaddress` objects, all frozen.

A field's encoded name is its YAML name: `section.Section` reads from it which keys exist.  Times are whole seconds,
except BFD's interval, which is in milliseconds.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal

import msgspec

from flock.core.selectors import LabelSelector

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Family = Literal["ipv6", "ipv4"]
Community = tuple[int, ...]  # two 16-bit numbers, or three 32-bit numbers: a large community
# A prefix stands for itself and all inside it, but 0.0.0.0/0 and ::/0 for the default route alone ("all" says more).
ImportPolicy = Literal["all", "none", "default"] | tuple[Network, ...]
OSPFAlgorithm = Literal["md5", "hmac-sha1", "hmac-sha256", "hmac-sha384", "hmac-sha512"]


def zone_of(address: Address) -> str | None:
    return address.scope_id if isinstance(address, IPv6Address) else None


class SecretRef(msgspec.Struct, frozen=True):
    """A key of a Secret in the agent's namespace."""

    name: str
    key: str


PasswordSource = str | SecretRef  # a str is the absolute path of a file


class _Password(msgspec.Struct, frozen=True):
    """Where a password comes from; at most one of the two is set."""

    password_file: str | None = msgspec.field(default=None, name="passwordFile")
    password_secret_ref: SecretRef | None = msgspec.field(default=None, name="passwordSecretRef")

    @property
    def password(self) -> PasswordSource | None:
        return self.password_file or self.password_secret_ref


class Defaults(msgspec.Struct, frozen=True):
    """Families a pod gets without asking; None is the built-in answer, yes."""

    ipv6: bool | None = None
    ipv4: bool | None = None


class BFD(msgspec.Struct, frozen=True):
    enabled: bool = True
    interval: int = 300  # milliseconds, both directions
    multiplier: int = 3


NO_BFD = BFD(enabled=False)


class GracefulRestart(msgspec.Struct, frozen=True):
    enabled: bool = True
    time: int = 120


class Peer(_Password, frozen=True, kw_only=True):
    name: str
    address: Address  # a link-local one carries its interface as `scope_id`
    asn: int
    local_address: Address | None = msgspec.field(default=None, name="localAddress")
    families: tuple[Family, ...]
    multihop: int | None = None
    ttl_security: bool = msgspec.field(default=False, name="ttlSecurity")
    # Long enough for a busy router, short enough that a dead node without BFD is noticed.
    hold_time: int = msgspec.field(default=90, name="holdTime")
    keepalive_time: int = msgspec.field(default=30, name="keepaliveTime")
    bfd: BFD = NO_BFD
    communities: tuple[Community, ...] = ()
    allow_local_as: int = msgspec.field(default=0, name="allowLocalAS")
    connect_retry: int = msgspec.field(default=5, name="connectRetry")
    import_: ImportPolicy = msgspec.field(default="default", name="import")
    # Two prefixes for each of five thousand nodes.  A router that leaks a table of a million fills no node's kernel.
    import_limit: int = msgspec.field(default=10_000, name="importLimit")

    @property
    def zone(self) -> str | None:
        """The interface of a link-local peer."""
        return zone_of(self.address)


class BGP(msgspec.Struct, frozen=True, kw_only=True):
    asn: int
    graceful_restart: GracefulRestart = msgspec.field(default=GracefulRestart(), name="gracefulRestart")
    peers: tuple[Peer, ...] = ()


class Authentication(_Password, frozen=True, kw_only=True):
    algorithm: OSPFAlgorithm = "hmac-sha256"
    key_id: int = msgspec.field(default=1, name="keyID")


class OSPFInterface(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cost: int = 10
    type: Literal["broadcast", "ptp"] = "broadcast"
    passive: bool = False
    hello_interval: int = msgspec.field(default=10, name="helloInterval")
    dead_interval: int = msgspec.field(default=40, name="deadInterval")
    authentication: Authentication | None = None
    bfd: BFD = NO_BFD


class OSPFArea(msgspec.Struct, frozen=True, kw_only=True):
    id: IPv4Address
    interfaces: tuple[OSPFInterface, ...] = ()


class OSPF(msgspec.Struct, frozen=True, kw_only=True):
    areas: tuple[OSPFArea, ...]
    families: tuple[Family, ...]
    import_: ImportPolicy = msgspec.field(default="all", name="import")  # an IGP is how nodes find each other


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Prefixes, and the namespaces that may have addresses of them (None: every one)."""

    prefixes: tuple[Network, ...]
    namespace_selector: LabelSelector | None = msgspec.field(default=None, name="namespaceSelector")


class Anycast(msgspec.Struct, frozen=True, kw_only=True):
    # Off unless asked for: to Kubernetes a cordon means "no new pods", and a fleet may be cordoned all at once.
    withdraw_on_cordon: bool = msgspec.field(default=False, name="withdrawOnCordon")
    communities: tuple[Community, ...] = ()  # on every announced host route
    allowed: tuple[Grant, ...] = ()


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    allowed: tuple[Grant, ...] = ()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant may have of what all share."""

    # Every address a pod names is a kernel address, a route and a line in the routers' tables.  More than any
    # namespace with a fixed address or two for each of a node's pods needs.
    claims_per_namespace: int = msgspec.field(default=256, name="claimsPerNamespace")
    pool_percent_per_namespace: int = msgspec.field(default=25, name="poolPercentPerNamespace")
    # None: half of what the kernel tracks, which differs from node to node; 0: as many as it likes.
    connections_per_pod: int | None = msgspec.field(default=None, name="connectionsPerPod")


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    cidr6: tuple[IPv6Network, ...] = ()
    cidr4: tuple[IPv4Network, ...] = ()
    defaults: Defaults = Defaults()
    mtu: int | None = None
    router_id: IPv4Address | None = msgspec.field(default=None, name="routerID")
    bgp: BGP | None = None
    ospf: OSPF | None = None
    anycast: Anycast = Anycast()
    addresses: Addresses = Addresses()
    limits: Limits = Limits()


class NodeConfig(Spec, frozen=True, kw_only=True):
    name: str
    annotations: Mapping[str, str]

    @property
    def aggregates(self) -> tuple[Network, ...]:
        return (*self.cidr6, *self.cidr4)

    @property
    def reach(self) -> tuple[Network, ...]:
        """Everything a pod of this node may have an address in."""
        grants = (*self.anycast.allowed, *self.addresses.allowed)
        return (*self.aggregates, *(prefix for grant in grants for prefix in grant.prefixes))

    @property
    def wants_ipv6(self) -> bool:
        """A pod that does not say gets IPv6; a family without a CIDR is off."""
        return bool(self.cidr6) and self.defaults.ipv6 is not False

    @property
    def wants_ipv4(self) -> bool:
        """A pod that does not say gets IPv4; a family without a CIDR is off."""
        return bool(self.cidr4) and self.defaults.ipv4 is not False

    @property
    def password_sources(self) -> frozenset[PasswordSource]:
        """Every password whoever renders the routing configuration has to fetch first."""
        peers = self.bgp.peers if self.bgp else ()
        areas = self.ospf.areas if self.ospf else ()
        keys = (i.authentication for area in areas for i in area.interfaces if i.authentication)
        return frozenset(holder.password for holder in (*peers, *keys) if holder.password)
