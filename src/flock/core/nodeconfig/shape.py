"""The structs of a NodeConfig: every field stated once, with what is taken for it, its default, and what it is for.

An annotation says how the field is read (`values`) and what people are told of it; its encoded name is its YAML name.
The reader (`parse`) and the schema for API servers (`scripts/crd`) are both made from this.  Addresses are
`ipaddress` objects, times are whole seconds but for BFD's interval, which is in milliseconds, and all is frozen.
"""

from collections.abc import Callable, Mapping
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec

from flock.core.facts import Address, Network
from flock.core.model import PREFIX
from flock.core.nodeconfig import values as v
from flock.core.nodeconfig.values import Community, Family, ImportPolicy
from flock.core.selectors import LabelSelector

OSPFAlgorithm = Literal["md5", "hmac-sha1", "hmac-sha256", "hmac-sha384", "hmac-sha512"]
OSPFType = Literal["broadcast", "ptp"]
BGP_CLASS = f"{PREFIX}/bgp"  # a loadBalancerClass
DERIVED: Final = object()  # where it is absent, its value follows from others (`parse`)


class Declared(NamedTuple):
    """One field, as it is read and described."""

    name: str
    key: str  # in YAML
    about: str
    of: type[msgspec.Struct] | None  # a section, or a list of them
    parse: Callable[[Any], Any]  # a value, or each of a list
    many: bool
    default: Any  # msgspec.NODEFAULT: it is required
    derived: bool


@cache
def declared(shape: type[msgspec.Struct]) -> tuple[Declared, ...]:
    return tuple(map(_declared, msgspec.structs.fields(shape)))


def _declared(field: msgspec.structs.FieldInfo) -> Declared:
    kind, *said = get_args(field.type)
    nested = (kind, *get_args(kind))
    return Declared(
        name=field.name,
        key=field.encode_name,
        about=next((word for word in said if isinstance(word, str)), ""),
        of=next((part for part in nested if isinstance(part, type) and issubclass(part, msgspec.Struct)), None),
        parse=next((word for word in said if callable(word)), v.text),
        many=get_origin(kind) is tuple,
        default=field.default,
        derived=DERIVED in said,
    )


_NAMES = {
    "import_": "import",
    "router_id": "routerID",
    "key_id": "keyID",
    "allow_local_as": "allowLocalAS",
    "class_": "class",
}


def _yaml_name(name: str) -> str:
    first, *rest = name.split("_")
    return _NAMES.get(name) or first + "".join(map(str.capitalize, rest))


class _Section(msgspec.Struct, frozen=True, rename=_yaml_name):
    """A mapping of the YAML."""


def zone_of(address: Address) -> str | None:
    return address.scope_id if isinstance(address, IPv6Address) else None


class SecretRef(_Section, frozen=True):
    name: Annotated[str, v.object_name, "Name of the Secret."]
    key: Annotated[str, v.secret_key, "Key in its data."]


PasswordSource = str | SecretRef  # a str is the absolute path of a file


class _Password(_Section, frozen=True):
    """Where a password comes from; at most one of the two is set."""

    password_file: Annotated[
        str | None, v.file_path, "Absolute path of a file on the node that holds the password."
    ] = None
    password_secret_ref: Annotated[SecretRef | None, "A Secret in the agent's namespace."] = None

    @property
    def password(self) -> PasswordSource | None:
        return self.password_file or self.password_secret_ref


class Defaults(_Section, frozen=True):
    """None is the built-in answer, yes."""

    ipv6: Annotated[bool | None, v.boolean, "Default: true."] = None
    ipv4: Annotated[bool | None, v.boolean, "Default: true."] = None


class BFD(_Section, frozen=True):
    enabled: Annotated[bool, v.boolean, "True once the section is there."] = True
    interval: Annotated[int, v.Milliseconds(10, 60_000), "Between packets, in both directions; 10ms to 60s."] = 300
    multiplier: Annotated[int, v.Integer(1, 255), "Packets missed until the session is down."] = 3


NO_BFD = BFD(enabled=False)
_Bfd = Annotated[BFD, "Fast detection of a dead neighbour; off if absent."]


class GracefulRestart(_Section, frozen=True):
    enabled: Annotated[bool, v.boolean, "Default: true."] = True
    # Twelve bits on the wire.
    time: Annotated[int, v.Seconds(1, 4095), "How long routers keep this node's routes; default 120s, 1s to 4095s."] = (
        120
    )


class Peer(_Password, frozen=True, kw_only=True):
    name: Annotated[str, v.peer_name, "What the peer is called; default: from its address.", DERIVED]
    address: Annotated[
        Address, v.router_address, "The router's address; a link-local one with its interface, fe80::1%eth0."
    ]
    asn: Annotated[int, v.asn, "The router's AS number."]
    local_address: Annotated[
        Address | None, v.router_address, "This node's end; default: its address in the router's subnet."
    ] = None
    families: Annotated[
        tuple[Family, ...], v.family, "What the session carries; default: the family of the address.", DERIVED
    ]
    multihop: Annotated[int | None, v.Integer(1, 255), "Hops to a router that is not directly connected."] = None
    ttl_security: Annotated[bool, v.boolean, "Accept packets from one hop away only."] = False
    # Long enough for a busy router, short enough that a dead node without BFD is noticed.
    hold_time: Annotated[int, v.Seconds(3, 65535), "3s to 65535s."] = 90
    keepalive_time: Annotated[int, v.Seconds(1, 65535), "Default: a third of holdTime.", DERIVED] = 30
    bfd: _Bfd = NO_BFD
    communities: Annotated[
        tuple[Community, ...], v.community, 'Added to what this node announces: "a:b" or "a:b:c".'
    ] = ()
    allow_local_as: Annotated[int, v.Integer(0, 10), "How often the own AS number may be in a received path."] = 0
    connect_retry: Annotated[int, v.Seconds(1, 3600), "Between attempts to connect; 1s to 3600s."] = 5
    import_: Annotated[
        ImportPolicy,
        v.import_policy,
        "What is taken from the router: all, none, default (the default route) or a list of prefixes.",
    ] = "default"
    # Two prefixes for each of five thousand nodes.  A router that leaks a table of a million fills no node's kernel.
    max_prefixes: Annotated[
        int, v.Integer(1, 10_000_000), "How many routes of each family are taken; further ones are passed over."
    ] = 10_000

    @property
    def zone(self) -> str | None:
        """The interface of a link-local peer."""
        return zone_of(self.address)


class BGP(_Section, frozen=True, kw_only=True):
    asn: Annotated[int, v.asn, "This node's AS number; required, here or in a template."]
    graceful_restart: Annotated[GracefulRestart, "For sessions without BFD: BIRD may restart without loss."] = (
        GracefulRestart()
    )
    peers: Annotated[tuple[Peer, ...], "The routers."] = ()


class Authentication(_Password, frozen=True, kw_only=True):
    algorithm: Annotated[OSPFAlgorithm, v.Choice(get_args(OSPFAlgorithm))] = "hmac-sha256"
    key_id: Annotated[int, v.Integer(1, 255), "Number of the key."] = 1


class OSPFInterface(_Section, frozen=True, kw_only=True):
    name: Annotated[str, v.interface_name, "The interface."]
    cost: Annotated[int, v.Integer(1, 65535)] = 10
    type: Annotated[OSPFType, v.Choice(get_args(OSPFType))] = "broadcast"
    passive: Annotated[bool, v.boolean, "Announce the network, speak to nobody."] = False
    hello_interval: Annotated[int, v.Seconds(1, 65535), "1s to 65535s."] = 10
    dead_interval: Annotated[int, v.Seconds(2, 65535), "Default: four times helloInterval.", DERIVED] = 40
    authentication: Annotated[Authentication | None, "How packets are signed."] = None
    bfd: _Bfd = NO_BFD


class OSPFArea(_Section, frozen=True, kw_only=True):
    id: Annotated[IPv4Address, v.area_id, "0.0.0.0, or a number."]
    interfaces: Annotated[tuple[OSPFInterface, ...], "Interfaces in this area."] = ()


class OSPF(_Section, frozen=True, kw_only=True):
    areas: Annotated[tuple[OSPFArea, ...], "Required, here or in a template."]
    families: Annotated[tuple[Family, ...], v.family, "Default: those this node has CIDRs of."] = ()
    # All, for an IGP is how nodes find each other.
    import_: Annotated[
        ImportPolicy,
        v.import_policy,
        "What is taken from the routers: all (the default), none, default or a list of prefixes.",
    ] = "all"


class Grant(_Section, frozen=True, kw_only=True):
    """Prefixes, and the namespaces that may have addresses of them (None: every one)."""

    prefixes: Annotated[tuple[Network, ...], v.granted_prefix, "What may be used."]
    namespace_selector: Annotated[LabelSelector | None, "By whom; absent: by every namespace."] = None


class Anycast(_Section, frozen=True, kw_only=True):
    # Off unless asked for: to Kubernetes a cordon means "no new pods", and a fleet may be cordoned all at once.
    withdraw_on_cordon: Annotated[bool, v.boolean, "Stop announcing while the node is cordoned; default: false."] = (
        False
    )
    communities: Annotated[tuple[Community, ...], v.community, "On every announced host route."] = ()
    allowed: Annotated[tuple[Grant, ...], "Who may announce what, beyond this node's CIDRs and inside them."] = ()


class Addresses(_Section, frozen=True, kw_only=True):
    allowed: Annotated[tuple[Grant, ...], "Who may hold what, beyond this node's CIDRs and inside them."] = ()


class ServiceGrant(Grant, frozen=True, kw_only=True):
    service_selector: Annotated[LabelSelector | None, "For which Services, by their labels; absent: for all."] = None


class Services(_Section, frozen=True, kw_only=True):
    """Addresses of Services of type LoadBalancer.  Off where nothing is allowed."""

    allowed: Annotated[
        tuple[ServiceGrant, ...], "Which addresses are announced, for whose Services; nothing else is."
    ] = ()
    communities: Annotated[tuple[Community, ...], v.community, "On every announced address of a Service."] = ()
    class_: Annotated[
        str | None,
        v.load_balancer_class,
        f"Services of this loadBalancerClass alone; default: those without one, and of {BGP_CLASS}.",
    ] = None
    exclude: Annotated[bool, v.boolean, "This node takes no part; default: false."] = False

    def serves(self, load_balancer_class: str | None) -> bool:
        return load_balancer_class in ((self.class_,) if self.class_ else (None, "", BGP_CLASS))


class Limits(_Section, frozen=True, kw_only=True):
    """What one tenant may have of what all share."""

    # Every address a pod names is a kernel address, a route and a line in the routers' tables.  More than any
    # namespace with a fixed address or two for each of a node's pods needs.
    claims_per_namespace: Annotated[
        int,
        v.Integer(0, 65536),
        "Addresses that pods of a namespace may name in annotations on this node; default: 256.",
    ] = 256
    pool_percent_per_namespace: Annotated[
        int, v.Integer(1, 100), "Of each CIDR, how much pods of a namespace may name in annotations; default: 25."
    ] = 25
    # None: half of what the kernel tracks, which differs from node to node.
    connections_per_pod: Annotated[
        int | None,
        v.Integer(0, 2**24),
        "Entries of connection tracking a pod may open, 0: any number; default: half of the node's.",
    ] = None


class Spec(_Section, frozen=True, kw_only=True):
    cidr6: Annotated[
        tuple[IPv6Network, ...],
        v.aggregate6,
        "IPv6 prefixes this node allocates from and announces, in order.",
    ] = ()
    cidr4: Annotated[
        tuple[IPv4Network, ...],
        v.aggregate4,
        "IPv4 prefixes this node allocates from and announces, in order.",
    ] = ()
    defaults: Annotated[Defaults, "Families a pod gets that does not say."] = Defaults()
    # 576 is what every IPv4 host must take, 1280 what IPv6 demands of a link.
    mtu: Annotated[
        int | None,
        v.Integer(576, 65535),
        "Of pods' interfaces, 1280 or more with cidr6; default: that of the uplinks.",
    ] = None
    router_id: Annotated[
        IPv4Address | None,
        v.router_id,
        "What this node is called in BGP and OSPF; default: one of its IPv4 addresses.",
    ] = None
    bgp: Annotated[BGP | None, "BGP with the routers this node is connected to."] = None
    ospf: Annotated[OSPF | None, "OSPF instead of, or beside, BGP."] = None
    anycast: Annotated[Anycast, "Addresses that several pods share."] = Anycast()
    addresses: Annotated[Addresses, "Addresses that pods ask for by annotation."] = Addresses()
    services: Annotated[Services, "Addresses of LoadBalancer Services, announced where they work."] = Services()
    limits: Annotated[Limits, "What one tenant may have of what all share."] = Limits()


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
    def announces(self) -> tuple[Network, ...]:
        """Everything a host route of this node may lead to."""
        return (*self.reach, *(prefix for grant in self.services.allowed for prefix in grant.prefixes))

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
