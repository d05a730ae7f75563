"""From the raw NodeConfig object to its structs: one function per mapping, in the order of the YAML.

Checks that concern one value are in `values`; the ones here see a whole mapping.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from itertools import combinations
from typing import Any, Literal, cast, get_args

from flock.core.errors import FieldError
from flock.core.model import PREFIX
from flock.core.nodeconfig import values as v
from flock.core.nodeconfig.section import NodeConfigError, Section
from flock.core.nodeconfig.shape import (
    BFD,
    BGP,
    NO_BFD,
    OSPF,
    Address,
    Addresses,
    Anycast,
    Authentication,
    Defaults,
    Family,
    GracefulRestart,
    Grant,
    Limits,
    Network,
    NodeConfig,
    OSPFAlgorithm,
    OSPFArea,
    OSPFInterface,
    Peer,
    SecretRef,
    Spec,
    zone_of,
)
from flock.core.selectors import OPERATORS, LabelSelector, Operator, Requirement

API_VERSION = f"{PREFIX}/v1alpha1"
_METADATA_KEYS = ("name", "annotations")


def parse_node_config(obj: Mapping[str, Any]) -> NodeConfig:
    """The checked NodeConfig.  Raises `NodeConfigError` with every problem found, and nothing else."""
    problems: list[FieldError] = []
    if not isinstance(obj, Mapping):
        raise NodeConfigError([FieldError("NodeConfig", "must be a mapping")])
    top = Section(obj, path="", keys=("apiVersion", "kind", "metadata", "spec", "status"), problems=problems)
    top.required("apiVersion", v.choice(API_VERSION))
    top.required("kind", v.choice("NodeConfig"))
    metadata = top.required("metadata", _mapping)
    spec = top.required("spec", _mapping)
    config = None
    if metadata is not None and spec is not None:
        ours = {key: value for key, value in metadata.items() if key in _METADATA_KEYS}
        config = _node_config(
            Section(ours, path="metadata", keys=_METADATA_KEYS, problems=problems),
            Section(spec, path="spec", keys=Spec.__struct_encode_fields__, problems=problems),
        )
    if problems or config is None:
        raise NodeConfigError(problems)
    return config


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping")
    return value


def _node_config(metadata: Section, spec: Section) -> NodeConfig | None:
    name = metadata.required("name", v.object_name)
    cidr6 = spec.values("cidr6", v.aggregate6)
    cidr4 = spec.values("cidr4", v.aggregate4)
    _check_disjoint(spec, "cidr6", cidr6)
    _check_disjoint(spec, "cidr4", cidr4)
    bgp = spec.section("bgp", BGP, _bgp)
    aggregates: tuple[Network, ...] = (*cidr6, *cidr4)
    for peer in bgp.peers if bgp else ():
        if any(peer.address in aggregate for aggregate in aggregates):
            spec.problem("bgp.peers", f"{peer.address} lies inside this node's own aggregates")
    own: tuple[tuple[Family, object], ...] = (("ipv6", cidr6), ("ipv4", cidr4))
    families = tuple(family for family, cidrs in own if cidrs)
    if name is None:
        return None
    return NodeConfig(
        name=name,
        annotations=metadata.value("annotations", v.string_map, {}),
        cidr6=cidr6,
        cidr4=cidr4,
        defaults=spec.section("defaults", Defaults, _defaults) or Defaults(),
        # 1280 is what IPv6 demands of a link, 576 what every IPv4 host must take.
        mtu=spec.value("mtu", v.integer(1280 if cidr6 else 576, 65535), None),
        router_id=spec.value("routerID", v.router_id, None),
        bgp=bgp,
        ospf=spec.section("ospf", OSPF, lambda section: _ospf(section, default_families=families)),
        anycast=spec.section("anycast", Anycast, _anycast) or Anycast(),
        addresses=spec.section("addresses", Addresses, lambda s: Addresses(allowed=_allowed(s))) or Addresses(),
        limits=spec.section("limits", Limits, _limits) or Limits(),
    )


def _check_disjoint(section: Section, key: str, networks: Iterable[Network]) -> None:
    for one, other in combinations(networks, 2):
        if one.overlaps(other):
            section.problem(key, f"{one} and {other} overlap")


def _check_unique(section: Section, key: str, what: str, names: Iterable[object]) -> None:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            section.problem(key, f"the {what} {name} is there twice")
        seen.add(name)


def _defaults(section: Section) -> Defaults:
    return Defaults(ipv6=section.value("ipv6", v.boolean, None), ipv4=section.value("ipv4", v.boolean, None))


# --- BGP ----------------------------------------------------------------------------------------------------


def _bgp(section: Section) -> BGP | None:
    asn = section.required("asn", v.asn)
    restart = section.section("gracefulRestart", GracefulRestart, _graceful_restart)
    peers = section.sections("peers", Peer, _peer)
    _check_unique(section, "peers", "name", (peer.name for peer in peers))
    _check_unique(section, "peers", "address", (peer.address for peer in peers))
    return None if asn is None else BGP(asn=asn, graceful_restart=restart or GracefulRestart(), peers=peers)


def _graceful_restart(section: Section) -> GracefulRestart:
    return GracefulRestart(
        enabled=section.value("enabled", v.boolean, True),
        time=section.value("time", v.seconds(1, 4095), GracefulRestart().time),  # twelve bits on the wire
    )


def _peer(section: Section) -> Peer | None:
    address = section.required("address", v.router_address)
    asn = section.required("asn", v.asn)
    hold = section.value("holdTime", v.seconds(3, 65535), 90)
    keepalive = section.value("keepaliveTime", v.seconds(1, 65535), hold // 3)
    if keepalive >= hold:
        section.problem("keepaliveTime", f"{keepalive}s must be less than holdTime, {hold}s")
    multihop = section.value("multihop", v.integer(1, 255), None)
    ttl_security = section.value("ttlSecurity", v.boolean, False)
    if multihop is not None and ttl_security:
        section.problem("ttlSecurity", "means a router one hop away; it excludes multihop")
    password_file, password_secret_ref = _password(section)
    name = section.value("name", v.peer_name, None)
    if address is None or asn is None:
        return None
    return Peer(
        name=name or _name_from(address),
        address=address,
        asn=asn,
        local_address=_local_address(section, peer=address, multihop=multihop is not None),
        families=_peer_families(section, address=address),
        multihop=multihop,
        ttl_security=ttl_security,
        hold_time=hold,
        keepalive_time=keepalive,
        password_file=password_file,
        password_secret_ref=password_secret_ref,
        bfd=section.section("bfd", BFD, _bfd) or NO_BFD,
        communities=section.values("communities", v.community),
        allow_local_as=section.value("allowLocalAS", v.integer(0, 10), 0),
        connect_retry=section.value("connectRetry", v.seconds(1, 3600), 5),
        import_=section.value("import", v.import_policy, "default"),
        import_limit=section.value("importLimit", v.integer(1, 10_000_000), 10_000),
    )


def _name_from(address: Address) -> str:
    return "".join(character if character.isalnum() else "_" for character in str(address))


def _local_address(section: Section, *, peer: Address, multihop: bool) -> Address | None:
    local = section.value("localAddress", v.router_address, None)
    if isinstance(peer, IPv6Address) and peer.is_link_local:
        if peer.scope_id is None:
            section.problem("address", f"{peer} is link-local: name its interface, as in {peer}%eth0")
        if multihop:
            section.problem("multihop", f"{peer} is link-local and cannot be behind another router")
    if local is None:
        return None
    if local.version != peer.version:
        section.problem("localAddress", f"{local} is not of the family of {peer}")
    elif local == peer:
        section.problem("localAddress", f"{local} is the peer's address")
    elif isinstance(local, IPv6Address) and local.is_link_local != peer.is_link_local:
        section.problem("localAddress", f"{local} and {peer} must both be link-local, or neither")
    elif zone_of(local) not in (None, zone_of(peer)):
        section.problem("localAddress", f"{local} is on another interface than {peer}")
    return local


def _peer_families(section: Section, *, address: Address) -> tuple[Family, ...]:
    own: Family = "ipv4" if isinstance(address, IPv4Address) else "ipv6"
    families = section.values("families", v.family)
    if section.has("families") and not families:
        section.problem("families", "must not be empty")
    if own == "ipv4" and "ipv6" in families:
        section.problem("families", "an IPv4 session cannot carry ipv6; peer with the IPv6 address for both")
    return families or (own,)


def _password(section: Section) -> tuple[str | None, SecretRef | None]:
    file = section.value("passwordFile", v.file_path, None)
    ref = section.section("passwordSecretRef", SecretRef, _secret_ref)
    if section.has("passwordFile") and section.has("passwordSecretRef"):
        section.problem("passwordSecretRef", "excludes passwordFile; give one of them")
    return file, ref


def _secret_ref(section: Section) -> SecretRef | None:
    name = section.required("name", v.object_name)
    key = section.required("key", v.secret_key)
    return None if name is None or key is None else SecretRef(name=name, key=key)


def _bfd(section: Section) -> BFD:
    return BFD(
        enabled=section.value("enabled", v.boolean, True),
        interval=section.value("interval", v.milliseconds(10, 60_000), BFD().interval),
        multiplier=section.value("multiplier", v.integer(1, 255), BFD().multiplier),
    )


# --- OSPF ---------------------------------------------------------------------------------------------------


def _ospf(section: Section, *, default_families: tuple[Family, ...]) -> OSPF:
    areas = section.sections("areas", OSPFArea, _area)
    interfaces = [interface for area in areas for interface in area.interfaces]
    if not areas and not section.has("areas"):
        section.problem("areas", "is required")
    _check_unique(section, "areas", "area", (area.id for area in areas))
    _check_unique(section, "areas", "interface", (interface.name for interface in interfaces))
    families = section.values("families", v.family) or default_families or ("ipv6", "ipv4")
    md5 = [i.name for i in interfaces if i.authentication and i.authentication.algorithm == "md5"]
    if md5 and "ipv6" in families:
        section.problem("areas", f"{', '.join(md5)}: OSPF for IPv6 knows no md5 authentication; use hmac-sha256")
    return OSPF(areas=areas, families=families, import_=section.value("import", v.import_policy, "all"))


def _area(section: Section) -> OSPFArea | None:
    number = section.required("id", v.area_id)
    interfaces = section.sections("interfaces", OSPFInterface, _ospf_interface)
    return None if number is None else OSPFArea(id=number, interfaces=interfaces)


def _ospf_interface(section: Section) -> OSPFInterface | None:
    name = section.required("name", v.interface_name)
    hello = section.value("helloInterval", v.seconds(1, 65535), 10)
    dead = section.value("deadInterval", v.seconds(2, 65535), min(4 * hello, 65535))
    if dead <= hello:
        section.problem("deadInterval", f"{dead}s must be more than helloInterval, {hello}s")
    kind = section.value("type", v.choice("broadcast", "ptp"), "broadcast")
    if name is None:
        return None
    return OSPFInterface(
        name=name,
        cost=section.value("cost", v.integer(1, 65535), 10),
        type=cast(Literal["broadcast", "ptp"], kind),
        passive=section.value("passive", v.boolean, False),
        hello_interval=hello,
        dead_interval=dead,
        authentication=section.section("authentication", Authentication, _authentication),
        bfd=section.section("bfd", BFD, _bfd) or NO_BFD,
    )


def _authentication(section: Section) -> Authentication:
    password_file, password_secret_ref = _password(section)
    if not section.has("passwordFile") and not section.has("passwordSecretRef"):
        section.problem("passwordFile", "is required, or passwordSecretRef")
    return Authentication(
        algorithm=cast(OSPFAlgorithm, section.value("algorithm", v.choice(*get_args(OSPFAlgorithm)), "hmac-sha256")),
        key_id=section.value("keyID", v.integer(1, 255), 1),
        password_file=password_file,
        password_secret_ref=password_secret_ref,
    )


# --- what pods may have -------------------------------------------------------------------------------------


def _anycast(section: Section) -> Anycast:
    return Anycast(
        withdraw_on_cordon=section.value("withdrawOnCordon", v.boolean, False),
        communities=section.values("communities", v.community),
        allowed=_allowed(section),
    )


def _limits(section: Section) -> Limits:
    default = Limits()
    return Limits(
        claims_per_namespace=section.value("claimsPerNamespace", v.integer(0, 65536), default.claims_per_namespace),
        pool_percent_per_namespace=section.value(
            "poolPercentPerNamespace", v.integer(1, 100), default.pool_percent_per_namespace
        ),
        connections_per_pod=section.value("connectionsPerPod", v.integer(0, 2**24), None),
    )


def _allowed(section: Section) -> tuple[Grant, ...]:
    return section.sections("allowed", Grant, _grant)


def _grant(section: Section) -> Grant:
    prefixes = section.values("prefixes", v.granted_prefix)
    if not section.has("prefixes"):
        section.problem("prefixes", "is required")
    return Grant(
        prefixes=prefixes, namespace_selector=section.section("namespaceSelector", LabelSelector, _label_selector)
    )


def _label_selector(section: Section) -> LabelSelector:
    selector = LabelSelector(
        match_labels=section.value("matchLabels", v.string_map, None),
        match_expressions=section.sections("matchExpressions", Requirement, _requirement),
    )
    for path, problem in selector.problems():
        section.problem(path, problem)
    return selector


def _requirement(section: Section) -> Requirement | None:
    key = section.required("key", v.text)
    operator = section.required("operator", v.choice(*OPERATORS))
    values = section.values("values", v.text)
    return None if key is None or operator is None else Requirement(key, cast(Operator, operator), values)
