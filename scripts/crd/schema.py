"""The fields of a NodeConfig's `spec` as a structural schema, made from their declarations (`nodeconfig.shape`).

Two rules follow from how configurations are put together (`core.configuration`): sections are merged key by key from
templates and the node's own object, lists are taken whole.  So in a section nothing is required, because another
layer may have it, and nothing has a default, because a default written into the strongest layer would hide what a
template says.  Inside a list's items both are fine.

What is here beside that is what a declaration has no words for: each value's own rules as patterns, and how the values
of one mapping go together, as far as a schema can tell.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from crd import patterns as p
from flock.core.nodeconfig import shape as s
from flock.core.nodeconfig import values as v
from flock.core.selectors import OPERATORS, LabelSelector

Schema = dict[str, Any]

_LABEL = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_IPV4_ONLY: Schema = {"pattern": "^[0-9.]+$"}
_LINK_LOCAL6: Schema = {"pattern": f"^{p.LINK_LOCAL6}"}
_OTHER_IPV6: Schema = {"pattern": ":", "not": _LINK_LOCAL6}
_PREFIX = p.whole(p.prefix6(), p.prefix4())


def spec() -> Schema:
    return _section(s.Spec, "What the node has and whom it speaks to.", in_list=False)


# --- what declarations say ----------------------------------------------------------------------------------


def _section(shape: type[msgspec.Struct], about: str, *, in_list: bool) -> Schema:
    fields = s.declared(shape)
    required = [field.key for field in fields if field.default is msgspec.NODEFAULT and not field.derived]
    return {
        "type": "object",
        "description": about,
        "properties": {field.key: _field(shape, field, in_list=in_list) for field in fields},
        **({"required": required} if in_list and required else {}),
        **_TOGETHER.get(shape, {}),
    }


def _field(shape: type[msgspec.Struct], field: s.Declared, *, in_list: bool) -> Schema:
    nested = in_list or field.many
    if field.of is LabelSelector:
        return label_selector(field.about)
    if field.of is not None:
        schema = _section(field.of, _ITEMS.get(field.of, "") if field.many else field.about, in_list=nested)
    else:
        schema = _value(field.parse)
    if field.many:
        schema = {
            "type": "array",
            "items": schema,
            **(_listed("set") if field.of is None else _KEYED.get(field.of, {})),
        }
    return schema | {"description": field.about} | _default(field, in_list=in_list) | _ALSO.get((shape, field.key), {})


def _default(field: s.Declared, *, in_list: bool) -> Schema:
    """Of single values: a list that is left out is empty, and a section has defaults of its own."""
    if not in_list or field.derived or field.many or field.of or field.default in (None, msgspec.NODEFAULT):
        return {}
    unit = "s" if isinstance(field.parse, v.Seconds) else "ms" if isinstance(field.parse, v.Milliseconds) else ""
    return {"default": f"{field.default}{unit}" if unit else field.default}


def _listed(kind: str, *keys: str) -> Schema:
    return {"x-kubernetes-list-type": kind} | ({"x-kubernetes-list-map-keys": [*keys]} if keys else {})


_KEYED = {s.Peer: _listed("map", "address"), s.OSPFInterface: _listed("map", "name")}
_ITEMS = {
    s.Peer: "One router to speak BGP with.",
    s.OSPFInterface: "One interface of the area.",
    s.Grant: "A grant.",
    s.ServiceGrant: "A grant.",
}


# --- values -------------------------------------------------------------------------------------------------


def _value(parse: Callable[[Any], Any]) -> Schema:
    match parse:
        case v.Integer(low=low, high=high):
            return {"type": "integer", "format": "int64", "minimum": low, "maximum": high}
        case v.Choice(names=names):
            return {"type": "string", "enum": [*names]}
        case v.Matching(pattern=pattern, longest=longest):
            # What a pattern bounds by itself needs no further words.
            bound = {"maxLength": longest} if "*" in pattern.pattern else {}
            return _text(pattern.pattern, **bound)
        case v.Seconds(low=low, high=high):
            text = p.duration(low * p.SECOND, high * p.SECOND, step=p.SECOND)
            return _number_or_text(minimum=low, maximum=high, pattern=text)
        case v.Milliseconds(low=low, high=high):
            seconds = {"minimum": -(-low // p.SECOND), "maximum": high // p.SECOND}
            return _number_or_text(**seconds, pattern=p.duration(low, high, step=1))
    return _VALUES[parse]


def _text(*alternatives: str, **rules: Any) -> Schema:
    return {"type": "string", "pattern": p.whole(*alternatives), **rules}


def _number_or_text(**rules: Any) -> Schema:
    return {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], **rules}


def _aggregate(pattern: str) -> Schema:
    return _text(pattern, **{"not": {"pattern": f"^({p.RESERVED}|{p.LINK_LOCAL})"}})


_SMALL, _LARGE = p.between(0, 2**16 - 1, digits=10), p.between(0, 2**32 - 1, digits=10)
_VALUES: dict[Callable[[Any], Any], Schema] = {
    v.boolean: {"type": "boolean"},
    v.asn: _value(v.Integer(1, 2**32 - 2)) | {"not": {"enum": [v._AS_TRANS, 2**16 - 1]}},
    v.community: _text(f"{_SMALL}:{_SMALL}", f"{_LARGE}(:{_LARGE}){{2}}"),
    v.file_path: _text(v._PATH.pattern, maxLength=4096, **{"not": {"pattern": r"/\.\.(/|$)"}}),
    v.router_id: _text(p.IPV4, **{"not": {"enum": ["0.0.0.0", "255.255.255.255"]}}),
    v.area_id: _number_or_text(minimum=0, maximum=2**32 - 1, pattern=p.whole(p.IPV4, _LARGE)),
    v.router_address: _text(p.IPV4, f"{p.IPV6}(%{v._INTERFACE.pattern})?", **{"not": {"pattern": f"^{p.RESERVED}"}}),
    v.aggregate6: _aggregate(p.prefix6(126)),
    v.aggregate4: _aggregate(p.prefix4(30)),
    v.granted_prefix: {"type": "string", "pattern": _PREFIX, "not": {"pattern": p.RESERVED_PREFIX}},
    # A word or a list, which a schema has no type for.  What is no list passes every rule for lists, `maxItems: 0`
    # too: whatever does not pass that one is a list, and not empty.
    v.import_policy: {
        "x-kubernetes-preserve-unknown-fields": True,
        "items": {"type": "string"},
        "anyOf": [
            {"enum": ["all", "none", "default"]},
            {"not": {"maxItems": 0}, "items": {"pattern": _PREFIX}},
        ],
    },
}


def _zone(zone: str) -> Schema:
    """How a link-local address names its interface: `%name`, or that it may be left out."""
    return {"anyOf": [{"not": _LINK_LOCAL6, "pattern": "^[^%]+$"}, {"pattern": f"^{p.LINK_LOCAL6}[^%]*{zone}$"}]}


_ALSO: dict[tuple[type[msgspec.Struct], str], Schema] = {
    (s.Peer, "address"): _zone(f"%{v._INTERFACE.pattern}"),
    (s.Peer, "localAddress"): _zone(f"(%{v._INTERFACE.pattern})?"),
    (s.Peer, "families"): {"minItems": 1},
}


# --- what goes together -------------------------------------------------------------------------------------

_TOGETHER: dict[type[msgspec.Struct], Schema] = {
    s.Peer: {
        "anyOf": [
            {"properties": {"address": kind, "localAddress": kind}} for kind in (_IPV4_ONLY, _OTHER_IPV6, _LINK_LOCAL6)
        ],
        "allOf": [
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
    },
    s.Authentication: {"oneOf": [{"required": ["passwordFile"]}, {"required": ["passwordSecretRef"]}]},
}


def label_selector(about: str) -> Schema:
    value: Schema = {"type": "string", "pattern": f"^({_LABEL})?$"}
    takes = {"properties": {"operator": {"enum": ["In", "NotIn"]}, "values": {"minItems": 1}}, "required": ["values"]}
    takes_none = {"properties": {"operator": {"enum": ["Exists", "DoesNotExist"]}, "values": {"maxItems": 0}}}
    key = _text(f"({v._SUBDOMAIN.pattern}/)?{_LABEL}", maxLength=317, description="A label's key.")
    operator = {"type": "string", "description": "How key and values relate.", "enum": [*OPERATORS]}
    values = {"type": "array", "description": "For In and NotIn.", "items": value, **_listed("set")}
    requirement = {
        "type": "object",
        "description": "One condition on the labels.",
        "properties": {"key": key, "operator": operator, "values": values},
        "required": ["key", "operator"],
        "anyOf": [takes, takes_none],
    }
    labels = {"type": "object", "description": "Labels that must be there with these values."}
    expressions = {"type": "array", "description": "Conditions that must all hold.", "items": requirement}
    fields = {"matchLabels": labels | {"additionalProperties": value}, "matchExpressions": expressions}
    return {"type": "object", "description": about, "properties": fields}
