"""From the raw NodeConfig object to its structs.

How a field is read is said where it is declared (`shape`), what a single value has to be in `values`.  Here is what
sees a whole mapping: whether its values go together, and what those that are absent follow from.
"""

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from itertools import combinations
from typing import Any, TypeVar, cast

import msgspec

from flock.core.errors import FieldError
from flock.core.facts import Address
from flock.core.model import PREFIX
from flock.core.nodeconfig import shape as s
from flock.core.nodeconfig import values as v
from flock.core.nodeconfig.section import NodeConfigError, Section
from flock.core.selectors import OPERATORS, LabelSelector, Operator, Requirement

API_VERSION = f"{PREFIX}/v1alpha1"
_METADATA_KEYS = ("name", "annotations")

S = TypeVar("S", bound=msgspec.Struct)
Given = dict[str, Any]  # what a mapping holds, by the names of its struct's fields; defaults among it


def parse_node_config(obj: Mapping[str, Any]) -> s.NodeConfig:
    """The checked NodeConfig.  Raises `NodeConfigError` with every problem found, and nothing else."""
    problems: list[FieldError] = []
    if not isinstance(obj, Mapping):
        raise NodeConfigError([FieldError("NodeConfig", "must be a mapping")])
    top = Section(obj, path="", keys=("apiVersion", "kind", "metadata", "spec", "status"), problems=problems)
    top.required("apiVersion", v.Choice((API_VERSION,)))
    top.required("kind", v.Choice(("NodeConfig",)))
    metadata = top.required("metadata", _mapping)
    raw = top.required("spec", _mapping)
    name, spec, annotations = None, None, None
    if metadata is not None:
        ours = {key: value for key, value in metadata.items() if key in _METADATA_KEYS}
        section = Section(ours, path="metadata", keys=_METADATA_KEYS, problems=problems)
        name, annotations = section.required("name", v.object_name), section.value("annotations", v.string_map)
    if raw is not None:
        section = Section(raw, path="spec", keys=s.Spec.__struct_encode_fields__, problems=problems)
        spec = _read(section, s.Spec)
    if problems or name is None or spec is None:
        raise NodeConfigError(problems)
    return s.NodeConfig(name=name, annotations=annotations or {}, **msgspec.structs.asdict(spec))


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping")
    return value


def _read(section: Section, shape: type[S]) -> S | None:
    """None if what is required is missing or unusable."""
    fields = s.declared(shape)
    given = {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}
    for field in fields:
        if field.derived:
            given.pop(field.name, None)
        if (found := _found(section, field)) is not None:
            given[field.name] = found
    if shape in CHECKS:
        CHECKS[shape](section, given)
    for field in fields:
        if field.name not in given and not field.derived and not section.has(field.key):
            section.problem(field.key, "is required")
    return shape(**given) if all(field.name in given for field in fields) else None


def _found(section: Section, field: s.Declared) -> Any:
    if not section.has(field.key):
        return None
    if field.of is None:
        return (section.values if field.many else section.value)(field.key, field.parse)
    shape = field.of
    read = _label_selector if shape is LabelSelector else lambda nested: _read(nested, shape)
    return (section.sections if field.many else section.section)(field.key, shape, read)


# --- checks -------------------------------------------------------------------------------------------------


def _spec(section: Section, given: Given) -> None:
    for key in ("cidr6", "cidr4"):
        for one, other in combinations(given[key], 2):
            if one.overlaps(other):
                section.problem(key, f"{one} and {other} overlap")
    own = [(f"spec.{key}[{at}]", cidr) for key in ("cidr6", "cidr4") for at, cidr in enumerate(given[key])]
    for number, peer in enumerate(given["bgp"].peers if given["bgp"] else ()):
        for where, cidr in own:
            if peer.address in cidr:
                section.problem(f"bgp.peers[{number}].address", f"{peer.address} lies inside {where}, {cidr}")
    if given["cidr6"] and given["mtu"] is not None and given["mtu"] < 1280:
        section.problem("mtu", f"must be a whole number from 1280 to 65535, not {given['mtu']}")
    if ospf := given["ospf"]:
        known = tuple(family for family, key in (("ipv6", "cidr6"), ("ipv4", "cidr4")) if given[key])
        families = ospf.families or known or ("ipv6", "ipv4")
        interfaces = (interface for area in ospf.areas for interface in area.interfaces)
        md5 = [i.name for i in interfaces if i.authentication and i.authentication.algorithm == "md5"]
        if md5 and "ipv6" in families:
            text = f"{', '.join(md5)}: OSPF for IPv6 knows no md5 authentication; use hmac-sha256"
            section.problem("ospf.areas", text)
        given["ospf"] = msgspec.structs.replace(ospf, families=families)


def _unique(section: Section, key: str, what: str, names: Iterable[object]) -> None:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            section.problem(key, f"the {what} {name} is there twice")
        seen.add(name)


def _bgp(section: Section, given: Given) -> None:
    _unique(section, "peers", "name", (peer.name for peer in given["peers"]))
    _unique(section, "peers", "address", (peer.address for peer in given["peers"]))


def _peer(section: Section, given: Given) -> None:
    hold = given["hold_time"]
    if given.setdefault("keepalive_time", hold // 3) >= hold:
        section.problem("keepaliveTime", f"{given['keepalive_time']}s must be less than holdTime, {hold}s")
    if given["multihop"] is not None and given["ttl_security"]:
        section.problem("ttlSecurity", "means a router one hop away; it excludes multihop")
    _password(section, given)
    address = given.get("address")
    if address is not None:
        given.setdefault("name", "".join(letter if letter.isalnum() else "_" for letter in str(address)))
        _check_ends(section, address, given["local_address"], multihop=given["multihop"] is not None)
        _peer_families(section, given, address)


def _check_ends(section: Section, peer: Address, local: Address | None, *, multihop: bool) -> None:
    if isinstance(peer, IPv6Address) and peer.is_link_local:
        if peer.scope_id is None:
            section.problem("address", f"{peer} is link-local: name its interface, as in {peer}%eth0")
        if multihop:
            section.problem("multihop", f"{peer} is link-local and cannot be behind another router")
    if local is None:
        return
    if local.version != peer.version:
        section.problem("localAddress", f"{local} is not of the family of {peer}")
    elif local == peer:
        section.problem("localAddress", f"{local} is the peer's address")
    elif isinstance(local, IPv6Address) and local.is_link_local != peer.is_link_local:
        section.problem("localAddress", f"{local} and {peer} must both be link-local, or neither")
    elif s.zone_of(local) not in (None, s.zone_of(peer)):
        section.problem("localAddress", f"{local} is on another interface than {peer}")


def _peer_families(section: Section, given: Given, address: Address) -> None:
    own: v.Family = "ipv4" if isinstance(address, IPv4Address) else "ipv6"
    families = given.setdefault("families", (own,))
    if not families:
        section.problem("families", "must not be empty")
    if own == "ipv4" and "ipv6" in families:
        section.problem("families", "an IPv4 session cannot carry ipv6; peer with the IPv6 address for both")


def _password(section: Section, given: Given) -> None:
    if section.has("passwordFile") and section.has("passwordSecretRef"):
        section.problem("passwordSecretRef", "excludes passwordFile; give one of them")


def _authentication(section: Section, given: Given) -> None:
    _password(section, given)
    if not section.has("passwordFile") and not section.has("passwordSecretRef"):
        section.problem("passwordFile", "is required, or passwordSecretRef")


def _ospf(section: Section, given: Given) -> None:
    areas = given.get("areas", ())
    _unique(section, "areas", "area", (area.id for area in areas))
    _unique(section, "areas", "interface", (interface.name for area in areas for interface in area.interfaces))


def _ospf_interface(section: Section, given: Given) -> None:
    hello = given["hello_interval"]
    if given.setdefault("dead_interval", min(4 * hello, 65535)) <= hello:
        section.problem("deadInterval", f"{given['dead_interval']}s must be more than helloInterval, {hello}s")


CHECKS: Mapping[type[msgspec.Struct], Callable[[Section, Given], None]] = {
    s.Spec: _spec,
    s.BGP: _bgp,
    s.Peer: _peer,
    s.OSPF: _ospf,
    s.OSPFInterface: _ospf_interface,
    s.Authentication: _authentication,
}


# --- selectors, which others read in their own way ----------------------------------------------------------


def _label_selector(section: Section) -> LabelSelector:
    selector = LabelSelector(
        match_labels=section.value("matchLabels", v.string_map),
        match_expressions=section.sections("matchExpressions", Requirement, _requirement),
    )
    for path, problem in selector.problems():
        section.problem(path, problem)
    return selector


def _requirement(section: Section) -> Requirement | None:
    key = section.required("key", v.text)
    operator = section.required("operator", v.Choice(OPERATORS))
    values = section.values("values", v.text)
    return None if key is None or operator is None else Requirement(key, cast(Operator, operator), values)
