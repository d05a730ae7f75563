"""The fields of a NodeConfig's `spec` and `status`, as structural schemas.

Two rules follow from how configurations are put together (`nodeconfig.layers`): sections are merged key by key from
templates and the node's own object, lists are taken whole.  So in a section nothing is required, because another
layer may have it, and nothing has a default, because a default written into the strongest layer would hide what a
template says.  Inside a list's items both are fine.

Every section names the struct it describes, and its fields must be that struct's: a field added there and forgotten
here is an error, not a field the API server silently drops.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any, get_args

import msgspec

from flock.core.crd import patterns as p
from flock.core.nodeconfig import shape
from flock.core.nodeconfig import values as v
from flock.core.selectors import OPERATORS, LabelSelector, Requirement

Schema = dict[str, Any]

_RESERVED_ASNS = [v._AS_TRANS, 2**16 - 1]
_LABEL = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DOMAIN = v._SUBDOMAIN.pattern
_IPV4_ONLY: Schema = {"pattern": "^[0-9.]+$"}
_LINK_LOCAL6: Schema = {"pattern": f"^{p.LINK_LOCAL6}"}
_OTHER_IPV6: Schema = {"pattern": ":", "not": _LINK_LOCAL6}


# --- words --------------------------------------------------------------------------------------------------


def _section(shape: type[msgspec.Struct], about: str, fields: Mapping[str, Schema], **rules: Any) -> Schema:
    if set(fields) != set(shape.__struct_encode_fields__):
        raise ValueError(f"{shape.__name__}: {set(fields) ^ set(shape.__struct_encode_fields__)} only in one of both")
    return {"type": "object", "description": about, "properties": dict(fields), **rules}


def _text(about: str, pattern: str, **rules: Any) -> Schema:
    return {"type": "string", "description": about, "pattern": pattern, **rules}


def _choice(about: str, *names: str, **rules: Any) -> Schema:
    return {"type": "string", "description": about, "enum": list(names), **rules}


def _integer(about: str, low: int, high: int, **rules: Any) -> Schema:
    return {"type": "integer", "format": "int64", "description": about, "minimum": low, "maximum": high, **rules}


def _switch(about: str, **rules: Any) -> Schema:
    return {"type": "boolean", "description": about, **rules}


def _list(about: str, items: Schema, **rules: Any) -> Schema:
    return {"type": "array", "description": about, "items": items, **rules}


def _set(about: str, items: Schema, **rules: Any) -> Schema:
    return _list(about, items, **{"x-kubernetes-list-type": "set"}, **rules)


def _number_or_text(about: str, **rules: Any) -> Schema:
    kinds = [{"type": "integer"}, {"type": "string"}]
    return {"description": about, "x-kubernetes-int-or-string": True, "anyOf": kinds, **rules}


def _seconds(about: str, low: int, high: int, **rules: Any) -> Schema:
    text = p.duration(low * p.SECOND, high * p.SECOND, step=p.SECOND)
    return _number_or_text(about, minimum=low, maximum=high, pattern=text, **rules)


def _milliseconds(about: str, low: int, high: int, **rules: Any) -> Schema:
    seconds = {"minimum": -(-low // p.SECOND), "maximum": high // p.SECOND}
    return _number_or_text(about, **seconds, pattern=p.duration(low, high, step=1), **rules)


# --- values -------------------------------------------------------------------------------------------------


def _asn(about: str) -> Schema:
    return _integer(about, 1, 2**32 - 2, **{"not": {"enum": _RESERVED_ASNS}})


def _families(about: str, **rules: Any) -> Schema:
    return _set(about, {"type": "string", "enum": list(get_args(shape.Family))}, **rules)


def _communities(about: str) -> Schema:
    small, large = p.between(0, 2**16 - 1, digits=10), p.between(0, 2**32 - 1, digits=10)
    return _set(about, {"type": "string", "pattern": p.whole(f"{small}:{small}", f"{large}(:{large}){{2}}")})


def _router_address(about: str, *, zone: str) -> Schema:
    """`zone` says how a link-local address names its interface: `%name`, or that it may be left out."""
    plain, local = {"not": _LINK_LOCAL6, "pattern": "^[^%]+$"}, {"pattern": f"^{p.LINK_LOCAL6}[^%]*{zone}$"}
    address = p.whole(p.IPV4, f"{p.IPV6}(%{v._INTERFACE.pattern})?")
    return _text(about, address, anyOf=[plain, local], **{"not": {"pattern": f"^{p.RESERVED}"}})


def _import(about: str, **rules: Any) -> Schema:
    """A word or a list, which a schema has no type for.  What is no list passes every rule for lists, `maxItems: 0`
    too: whatever does not pass that one is a list, and not empty."""
    prefixes = {"not": {"maxItems": 0}, "items": {"pattern": p.whole(p.prefix6(), p.prefix4())}}
    words: Schema = {"enum": ["all", "none", "default"]}
    return {
        "description": about,
        "x-kubernetes-preserve-unknown-fields": True,
        "items": {"type": "string"},
        "anyOf": [words, prefixes],
        **rules,
    }


def _password() -> dict[str, Schema]:
    fields = {
        "name": _text("Name of the Secret.", p.whole(_DOMAIN), maxLength=253),
        "key": _text("Key in its data.", p.whole(v._SECRET_KEY.pattern)),
    }
    file = "Absolute path of a file on the node that holds the password."
    return {
        "passwordFile": _text(file, p.whole(v._PATH.pattern), maxLength=4096, **{"not": {"pattern": r"/\.\.(/|$)"}}),
        "passwordSecretRef": _section(
            shape.SecretRef, "A Secret in the agent's namespace.", fields, required=["name", "key"]
        ),
    }


def _bfd() -> Schema:
    default = shape.BFD()
    fields = {
        "enabled": _switch("True once the section is there.", default=default.enabled),
        "interval": _milliseconds(
            "Between packets, in both directions; 10ms to 60s.", 10, 60_000, default=f"{default.interval}ms"
        ),
        "multiplier": _integer("Packets missed until the session is down.", 1, 255, default=default.multiplier),
    }
    return _section(shape.BFD, "Fast detection of a dead neighbour; off if absent.", fields)


def label_selector(about: str) -> Schema:
    key = _text("A label's key.", p.whole(f"({_DOMAIN}/)?{_LABEL}"), maxLength=317)
    value: Schema = {"type": "string", "pattern": f"^({_LABEL})?$"}
    takes = {"properties": {"operator": {"enum": ["In", "NotIn"]}, "values": {"minItems": 1}}, "required": ["values"]}
    takes_none = {"properties": {"operator": {"enum": ["Exists", "DoesNotExist"]}, "values": {"maxItems": 0}}}
    requirement = _section(
        Requirement,
        "One condition on the labels.",
        {
            "key": key,
            "operator": _choice("How key and values relate.", *OPERATORS),
            "values": _set("For In and NotIn.", value),
        },
        required=["key", "operator"],
        anyOf=[takes, takes_none],
    )
    fields = {
        "matchLabels": {
            "type": "object",
            "description": "Labels that must be there with these values.",
            "additionalProperties": value,
        },
        "matchExpressions": _list("Conditions that must all hold.", requirement),
    }
    return _section(LabelSelector, about, fields)


# --- BGP and OSPF -------------------------------------------------------------------------------------------


def _peer() -> Schema:
    default = shape.Peer(name="", address=IPv4Address(0), asn=1, families=())
    fields = {
        "name": _text("What the peer is called; default: from its address.", p.whole(v._PEER_NAME.pattern)),
        "address": _router_address(
            "The router's address; a link-local one with its interface, fe80::1%eth0.", zone=f"%{v._INTERFACE.pattern}"
        ),
        "asn": _asn("The router's AS number."),
        "localAddress": _router_address(
            "This node's end; default: its address in the router's subnet.", zone=f"(%{v._INTERFACE.pattern})?"
        ),
        "families": _families("What the session carries; default: the family of the address.", minItems=1),
        "multihop": _integer("Hops to a router that is not directly connected.", 1, 255),
        "ttlSecurity": _switch("Accept packets from one hop away only.", default=default.ttl_security),
        "holdTime": _seconds("3s to 65535s.", 3, 65535, default=f"{default.hold_time}s"),
        "keepaliveTime": _seconds("Default: a third of holdTime.", 1, 65535),
        **_password(),
        "bfd": _bfd(),
        "communities": _communities('Added to what this node announces: "a:b" or "a:b:c".'),
        "allowLocalAS": _integer(
            "How often the own AS number may be in a received path.", 0, 10, default=default.allow_local_as
        ),
        "connectRetry": _seconds(
            "Between attempts to connect; 1s to 3600s.", 1, 3600, default=f"{default.connect_retry}s"
        ),
        "import": _import(
            "What is taken from the router: all, none, default (the default route) or a list of prefixes.",
            default=default.import_,
        ),
        "importLimit": _integer(
            "How many routes of each family are taken; further ones are passed over.",
            1,
            10_000_000,
            default=default.import_limit,
        ),
    }
    kinds = (_IPV4_ONLY, _OTHER_IPV6, _LINK_LOCAL6)
    return _section(
        shape.Peer,
        "One router to speak BGP with.",
        fields,
        required=["address", "asn"],
        anyOf=[{"properties": {"address": kind, "localAddress": kind}} for kind in kinds],
        allOf=[
            {"not": {"required": ["passwordFile", "passwordSecretRef"]}},
            {"not": {"required": ["multihop", "ttlSecurity"], "properties": {"ttlSecurity": {"enum": [True]}}}},
            {"not": {"required": ["multihop"], "properties": {"address": _LINK_LOCAL6}}},
            # Some family is not ipv4, on a session over IPv4.
            {
                "not": {
                    "required": ["families"],
                    "properties": {"address": _IPV4_ONLY, "families": {"not": {"items": {"enum": ["ipv4"]}}}},
                }
            },
        ],
    )


def _bgp() -> Schema:
    restart = {
        "enabled": _switch("Default: true."),
        "time": _seconds("How long routers keep this node's routes; default 120s, 1s to 4095s.", 1, 4095),
    }
    peers = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["address"]}
    fields = {
        "asn": _asn("This node's AS number; required, here or in a template."),
        "gracefulRestart": _section(
            shape.GracefulRestart, "For sessions without BFD: BIRD may restart without loss.", restart
        ),
        "peers": _list("The routers.", _peer(), **peers),
    }
    return _section(shape.BGP, "BGP with the routers this node is connected to.", fields)


def _ospf_interface() -> Schema:
    default = shape.OSPFInterface(name="")
    keys = shape.Authentication()
    authentication = _section(
        shape.Authentication,
        "How packets are signed.",
        {
            "algorithm": _choice("", *get_args(shape.OSPFAlgorithm), default=keys.algorithm),
            "keyID": _integer("Number of the key.", 1, 255, default=keys.key_id),
            **_password(),
        },
        oneOf=[{"required": ["passwordFile"]}, {"required": ["passwordSecretRef"]}],
    )
    fields = {
        "name": _text("The interface.", p.whole(v._INTERFACE.pattern)),
        "cost": _integer("", 1, 65535, default=default.cost),
        "type": _choice("", "broadcast", "ptp", default=default.type),
        "passive": _switch("Announce the network, speak to nobody.", default=default.passive),
        "helloInterval": _seconds("1s to 65535s.", 1, 65535, default=f"{default.hello_interval}s"),
        "deadInterval": _seconds("Default: four times helloInterval.", 2, 65535),
        "authentication": authentication,
        "bfd": _bfd(),
    }
    return _section(shape.OSPFInterface, "One interface of the area.", fields, required=["name"])


def _ospf() -> Schema:
    number = {"minimum": 0, "maximum": 2**32 - 1}
    named = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    area = {
        "id": _number_or_text(
            "0.0.0.0, or a number.", **number, pattern=p.whole(p.IPV4, p.between(0, 2**32 - 1, digits=10))
        ),
        "interfaces": _list("Interfaces in this area.", _ospf_interface(), **named),
    }
    fields = {
        "areas": _list("Required, here or in a template.", _section(shape.OSPFArea, "", area, required=["id"])),
        "families": _families("Default: those this node has CIDRs of."),
        "import": _import("What is taken from the routers: all (the default), none, default or a list of prefixes."),
    }
    return _section(shape.OSPF, "OSPF instead of, or beside, BGP.", fields)


# --- spec and status ----------------------------------------------------------------------------------------


def _allowed(about: str) -> Schema:
    granted: Schema = {
        "type": "string",
        "pattern": p.whole(p.prefix6(), p.prefix4()),
        "not": {"pattern": p.RESERVED_PREFIX},
    }
    fields = {
        "prefixes": _set("What may be used.", granted),
        "namespaceSelector": label_selector("By whom; absent: by every namespace."),
    }
    return _list(about, _section(shape.Grant, "A grant.", fields, required=["prefixes"]))


def _aggregates(about: str, pattern: str) -> Schema:
    return _set(
        about,
        {"type": "string", "pattern": p.whole(pattern), "not": {"pattern": f"^({p.RESERVED}|{p.LINK_LOCAL})"}},
    )


def spec() -> Schema:
    families = {family: _switch("Default: true.") for family in get_args(shape.Family)}
    anycast = {
        "withdrawOnCordon": _switch("Stop announcing while the node is cordoned; default: false."),
        "communities": _communities("On every announced host route."),
        "allowed": _allowed("Who may announce what, beyond this node's CIDRs and inside them."),
    }
    addresses = {"allowed": _allowed("Who may hold what, beyond this node's CIDRs and inside them.")}
    limits = {
        "claimsPerNamespace": _integer(
            "Addresses that pods of a namespace may name in annotations on this node; default: 256.", 0, 65536
        ),
        "poolPercentPerNamespace": _integer(
            "Of each CIDR, how much pods of a namespace may name in annotations; default: 25.", 1, 100
        ),
        "connectionsPerPod": _integer(
            "Entries of connection tracking a pod may open, 0: any number; default: half of the node's.", 0, 2**24
        ),
    }
    router_id = "What this node is called in BGP and OSPF; default: one of its IPv4 addresses."
    fields = {
        "cidr6": _aggregates("IPv6 prefixes this node allocates from and announces, in order.", p.prefix6(126)),
        "cidr4": _aggregates("IPv4 prefixes this node allocates from and announces, in order.", p.prefix4(30)),
        "defaults": _section(shape.Defaults, "Families a pod gets that does not say.", families),
        "mtu": _integer("Of pods' interfaces, 1280 or more with cidr6; default: that of the uplinks.", 576, 65535),
        "routerID": _text(router_id, p.whole(p.IPV4), **{"not": {"enum": ["0.0.0.0", "255.255.255.255"]}}),
        "bgp": _bgp(),
        "ospf": _ospf(),
        "anycast": _section(shape.Anycast, "Addresses that several pods share.", anycast),
        "addresses": _section(shape.Addresses, "Addresses that pods ask for by annotation.", addresses),
        "limits": _section(shape.Limits, "What one tenant may have of what all share.", limits),
    }
    return _section(shape.Spec, "What the node has and whom it speaks to.", fields)
