"""What a node believes about its configuration: NodeConfig, templates, Node in; configuration, problem out.  Pure.

It is put together from what is common and what is the node's own.  From weak to strong: the Node's podCIDRs (only where
nothing else names CIDRs), NodeConfigTemplates that select the node (fewer conditions first, then by name), the node's
own NodeConfig.  Sections are merged key by key; a list or a plain value is taken whole from the strongest layer that
has it, because half a list of peers is nobody's intention.

Bad input never takes away what is in force (invariant 7): a layer that cannot be read, a NodeConfig that is refused and
one that was deleted leave the last good version where it is, and say so.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Any

import msgspec

from flock.core.errors import FieldError, FlockError
from flock.core.model import PREFIX, Node
from flock.core.nodeconfig import NodeConfig, parse_node_config
from flock.core.nodeconfig.parse import API_VERSION
from flock.core.selectors import LabelSelector

POD_CIDRS = "Node spec.podCIDRs"
CREATED_BY, AGENT = f"{PREFIX}/created-by", "agent"  # a label
Raw = Mapping[str, Any]


class Effective(msgspec.Struct, frozen=True):
    """`raw` is a NodeConfig object as if somebody had written it; `origins` says who did, by field path."""

    raw: dict[str, Any]
    origins: dict[str, str]


class FromNode(msgspec.Struct, frozen=True):
    """What the Node object contributes."""

    labels: Mapping[str, str] = {}
    pod_cidrs: tuple[str, ...] = ()

    @staticmethod
    def of(node: Node | None) -> "FromNode":
        return FromNode(dict(node.metadata.labels or {}), tuple(node.spec.pod_cidrs or ())) if node else FromNode()


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that a node's configuration follows from."""

    given: FromNode = FromNode()
    templates: tuple[Raw, ...] = ()
    own: Raw | None = None  # NodeConfig


class Configuration(msgspec.Struct, frozen=True):
    """`config` is in force, None while there was never a good one; `layers` say who said what of it; `problem` is why
    the last inputs did not become it."""

    config: NodeConfig | None = None
    layers: Effective | None = None
    problem: str = ""


def decide(node: str, inputs: Inputs, *, before: Configuration) -> Configuration:
    """What is believed after these inputs.  Never raises.  An equal configuration is the very object it was."""
    try:
        layers = effective(node, inputs)
        config = parse_node_config(layers.raw) if layers else None
    except FlockError as error:
        return _refused(before, error.msg)
    except Exception as error:  # a mistake of ours is no reason to lose the configuration in force
        return _refused(before, f"cannot be understood: {error!r}")
    if config is None:
        lost = f"NodeConfig {node} was deleted; its last version stays in force" if before.config else ""
        return msgspec.structs.replace(before, problem=lost)
    return Configuration(before.config if config == before.config else config, layers)


def _refused(before: Configuration, problem: str) -> Configuration:
    return msgspec.structs.replace(before, problem=still_in_force(problem, before.config))


def still_in_force(problem: str, config: NodeConfig | None) -> str:
    return f"{problem}; the last good one stays in force" if config else problem


# --- layers -------------------------------------------------------------------------------------------------


def effective(node: str, inputs: Inputs) -> Effective | None:
    """None if nothing configures this node.  FieldError for a layer that cannot be read, and nothing else."""
    given, own = inputs.given, inputs.own
    layers = _selected(inputs.templates, given.labels)
    annotations: Raw = {}
    if own is not None:
        whose = f"NodeConfig {node}"
        spec = _mapping(own, whose, "spec")
        if spec or not made_to_report(own):
            layers.append((whose, spec))
        metadata = _mapping(own, whose, "metadata")
        annotations = _mapping(metadata, whose, "annotations", at="metadata.annotations")
    if not layers:
        return None
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        _merge(merged, layer, origin, origins, path="spec")
    if not merged.get("cidr6") and not merged.get("cidr4"):
        _take_pod_cidrs(merged, given.pod_cidrs, origins)
    raw = {
        "apiVersion": API_VERSION,
        "kind": "NodeConfig",
        "metadata": {"name": node, "annotations": dict(annotations)},
        "spec": merged,
    }
    return Effective(raw, origins)


def made_to_report(own: Raw) -> bool:
    """An agent made this NodeConfig to have a place for its status: as long as it is empty it configures nothing.

    Without this a node whose last template goes would be one that is configured to have no addresses."""
    metadata = own.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return isinstance(labels, Mapping) and labels.get(CREATED_BY) == AGENT


def _selected(templates: Iterable[Raw], labels: Mapping[str, str]) -> list[tuple[str, Raw]]:
    """What the templates that select these labels say, weakest first, each with whose it is."""
    chosen = []
    for template in templates:
        name = str(_mapping(template, "NodeConfigTemplate", "metadata").get("name", ""))
        whose = f"NodeConfigTemplate {name}"
        spec = _mapping(template, whose, "spec")
        raw = _mapping(spec, whose, "nodeSelector", at="spec.nodeSelector")
        try:
            selector = msgspec.convert(raw, LabelSelector)
        except msgspec.ValidationError as error:
            raise FieldError(f"{whose}: spec.nodeSelector", str(error)) from None
        conditions = len(selector.match_labels or ()) + len(selector.match_expressions or ())
        if selector.fits(labels):
            layer = _mapping(spec, whose, "template", at="spec.template")
            chosen.append((conditions, name, whose, layer))
    return [(whose, layer) for _, _, whose, layer in sorted(chosen, key=lambda entry: entry[:2])]


def _merge(into: dict[str, Any], layer: Raw, origin: str, origins: dict[str, str], *, path: str) -> None:
    for key, value in layer.items():
        here = f"{path}.{key}"
        if isinstance(value, Mapping):
            below = into.get(key)
            into[key] = dict(below) if isinstance(below, Mapping) else {}
            _merge(into[key], value, origin, origins, path=here)
        else:
            into[key] = value
            origins[here] = origin


def _take_pod_cidrs(merged: dict[str, Any], pod_cidrs: Iterable[str], origins: dict[str, str]) -> None:
    for text in pod_cidrs:
        try:
            key = "cidr6" if ip_network(text).version == 6 else "cidr4"
        except ValueError as error:
            raise FieldError(POD_CIDRS, str(error)) from None
        merged[key] = [*(merged.get(key) or ()), text]
        origins[f"spec.{key}"] = POD_CIDRS


def _mapping(obj: Raw, whose: str, key: str, *, at: str = "") -> Raw:
    """What stands under `key`, named `at` where it is refused; left out or null is empty."""
    value = obj.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise FieldError(f"{whose}: {at or key}", f"must be a mapping, not {type(value).__name__}")
    return value
