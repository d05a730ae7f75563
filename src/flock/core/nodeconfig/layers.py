"""The configuration in force on a node, put together from what is common and what is its own.  Pure.

From weak to strong: the Node's podCIDRs (only where nothing else names CIDRs), NodeConfigTemplates that select the
node (fewer conditions first, then by name), the node's own NodeConfig.  Sections are merged key by key; a list or a
plain value is taken whole from the strongest layer that has it, because half a list of peers is nobody's intention.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Any

import msgspec

from flock.core.errors import FieldError
from flock.core.model import Node
from flock.core.nodeconfig.parse import API_VERSION
from flock.core.selectors import LabelSelector

POD_CIDRS = "Node spec.podCIDRs"
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


def effective(
    node: str,
    *,
    given: "FromNode",
    templates: Iterable[Raw],
    own: Raw | None,
) -> Effective | None:
    """None if nothing configures this node.  FieldError if a template's selector cannot be read."""
    layers = [
        (f"NodeConfigTemplate {_name(t)}", _spec(t).get("template") or {}) for t in _selecting(templates, given.labels)
    ]
    if own is not None:
        layers.append((f"NodeConfig {node}", _spec(own)))
    if not layers:
        return None
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        _merge(merged, layer, origin, origins, path="spec")
    if not merged.get("cidr6") and not merged.get("cidr4"):
        _take_pod_cidrs(merged, given.pod_cidrs, origins)
    annotations = dict((own or {}).get("metadata", {}).get("annotations") or {})
    raw = {
        "apiVersion": API_VERSION,
        "kind": "NodeConfig",
        "metadata": {"name": node, "annotations": annotations},
        "spec": merged,
    }
    return Effective(raw, origins)


def _selecting(templates: Iterable[Raw], labels: Mapping[str, str]) -> list[Raw]:
    chosen = []
    for template in templates:
        raw = _spec(template).get("nodeSelector") or {}
        try:
            selector = msgspec.convert(raw, LabelSelector)
        except msgspec.ValidationError as error:
            raise FieldError(f"NodeConfigTemplate {_name(template)}: spec.nodeSelector", str(error)) from None
        conditions = len(raw.get("matchLabels") or ()) + len(raw.get("matchExpressions") or ())
        if selector.fits(labels):
            chosen.append((conditions, _name(template), template))
    return [template for _, _, template in sorted(chosen, key=lambda entry: entry[:2])]


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
        key = "cidr6" if ip_network(text).version == 6 else "cidr4"
        merged.setdefault(key, []).append(text)
        origins[f"spec.{key}"] = POD_CIDRS


def _name(obj: Raw) -> str:
    return str((obj.get("metadata") or {}).get("name", ""))


def _spec(obj: Raw) -> Raw:
    spec = obj.get("spec")
    return spec if isinstance(spec, Mapping) else {}
