"""The two CustomResourceDefinitions, for every Kubernetes from 1.20 on."""

from typing import Any

from crd.schema import Schema, label_selector, spec
from flock.core.model import PREFIX

VERSION = "v1alpha1"


def definitions() -> dict[str, dict[str, Any]]:
    """By file name."""
    return {"nodeconfigs.yaml": _node_config(), "nodeconfigtemplates.yaml": _template()}


def _node_config() -> dict[str, Any]:
    columns = [
        _column("Ready", _condition("Ready", "status"), "Can pods be attached?"),
        _column("BGP", _condition("BGPEstablished", "status"), "Are all sessions established?"),
        _column("Pods", ".status.pods", "Pods attached.", kind="integer"),
        _column("Sessions", _condition("BGPEstablished", "message"), "What BGP is about.", priority=1),
        _column("Version", ".status.version", "The agent's.", priority=1),
        _AGE,
    ]
    about = "What an operator says about the node of the same name, and what its agent says back."
    return _definition("NodeConfig", "nodeconfigs", ["nc"], about, spec=spec(), status=_status(), columns=columns)


def _template() -> dict[str, Any]:
    fields = {
        "nodeSelector": label_selector("Nodes it is for; absent or empty: all of them."),
        "template": spec() | {"description": "As the spec of a NodeConfig."},
    }
    about = "What is common to several nodes: the most specific template wins, and a NodeConfig over all."
    columns = [_column("ASN", ".spec.template.bgp.asn", "Of the selected nodes.", kind="integer"), _AGE]
    wanted = {"type": "object", "required": ["template"], "properties": fields}
    return _definition("NodeConfigTemplate", "nodeconfigtemplates", ["nct"], about, spec=wanted, columns=columns)


def _definition(
    kind: str,
    plural: str,
    short_names: list[str],
    about: str,
    *,
    spec: Schema,
    columns: list[dict[str, Any]],
    status: Schema | None = None,
) -> dict[str, Any]:
    fields: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    fields |= {"spec": spec} | ({"status": status} if status else {})
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        **({"subresources": {"status": {}}} if status else {}),
        "schema": {
            "openAPIV3Schema": {"type": "object", "description": about, "required": ["spec"], "properties": fields}
        },
    }
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": short_names,
        "categories": ["flock"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{PREFIX}"},
        "spec": {"group": PREFIX, "scope": "Cluster", "names": names, "versions": [version]},
    }


def _status() -> Schema:
    """Written by the agent alone, so types are all that is said."""
    # Nullable, because API servers that were built with a newer Go than meant for them take an empty text for null.
    name, text = {"type": "string"}, {"type": "string", "nullable": True}
    number = {"type": "integer", "format": "int64"}
    condition = _object(["type", "status"], type=name, status=name, reason=text, message=text, lastTransitionTime=text)
    session = _object(
        ["peer"], peer=name, address=text, state=text, since=text, received=number, sent=number, lastError=text
    )
    pool = _object(["cidr"], cidr=name, size=text, used=number, cooling=number)
    by_type = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return _object(
        [],
        observedGeneration=number | {"description": "The version of this object that the rest is about."},
        conditions={"type": "array", "items": condition, **by_type}
        | {"description": "Ready, BGPEstablished, AddressesAvailable, PolicyEnforced."},
        sessions={"type": "array", "items": session, "description": "BGP, as BIRD tells it."},
        pools={"type": "array", "items": pool, "description": "Addresses in use, per CIDR."},
        pods=number | {"description": "Pods attached."},
        version=text | {"description": "The agent's."},
    )


def _object(required: list[str], **fields: Schema) -> Schema:
    return {"type": "object", **({"required": required} if required else {}), "properties": fields}


def _condition(name: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{name}")].{field}'


def _column(name: str, path: str, about: str, *, kind: str = "string", priority: int = 0) -> dict[str, Any]:
    column = {"name": name, "type": kind, "description": about, "jsonPath": path}
    return column | ({"priority": priority} if priority else {})


_AGE = _column("Age", ".metadata.creationTimestamp", "Since the object was made.", kind="date")
