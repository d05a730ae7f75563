"""ClusterNetworkPolicy as the API server understands it, for clusters that have no definition of it yet.

The API is not ours; this definition says of it what flock reads, with its limits as far as a schema can tell them (the
agent checks the rest).  A cluster that has upstream's keeps that: the agent reads objects of either.
"""

from typing import Any

from crd.patterns import prefix4, prefix6, whole
from crd.schema import Schema, label_selector
from flock.core.policy.cluster import ACTIONS, LAST_PRIORITY, LONGEST_NAME, MOST, TIERS

GROUP, VERSION, PLURAL = "policy.networking.k8s.io", "v1alpha2", "clusternetworkpolicies"
FILE = "clusternetworkpolicies.yaml"
_PORT_NAME = "^[a-z0-9]+(-[a-z0-9]+)*$"


def cluster_policy() -> dict[str, Any]:
    names = {
        "kind": "ClusterNetworkPolicy",
        "listKind": "ClusterNetworkPolicyList",
        "plural": PLURAL,
        "singular": "clusternetworkpolicy",
        "shortNames": ["cnp"],
    }
    columns = [
        {"name": "Tier", "type": "string", "jsonPath": ".spec.tier"},
        {"name": "Priority", "type": "integer", "jsonPath": ".spec.priority"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    fields: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    about = "Rules of the cluster's administrator, above NetworkPolicy (Admin) or below it (Baseline)."
    schema = {"type": "object", "description": about, "required": ["spec"], "properties": fields | {"spec": _spec()}}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            # Groups that end in k8s.io want a word on who approved their definition.
            "annotations": {"api-approved.kubernetes.io": "unapproved, written for flock; upstream's may replace it"},
        },
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }


def _spec() -> Schema:
    return {
        "type": "object",
        "required": ["tier", "priority", "subject"],
        "properties": {
            "tier": {"type": "string", "enum": [*TIERS], "description": "Asked before NetworkPolicy, or after it."},
            "priority": {
                "type": "integer",
                "format": "int32",
                "minimum": 0,
                "maximum": LAST_PRIORITY,
                "description": "Within the tier, lower goes first; where it is the same, by name.",
            },
            "subject": _one_of(_pods(), "The pods that are judged by these rules; being one isolates nobody."),
            "ingress": _rules("from", _pods(), "What reaches the subject: the first rule that matches decides."),
            "egress": _rules("to", _pods() | _places(), "What the subject opens: the first rule that matches decides."),
        },
    }


def _rules(peers: str, kinds: dict[str, Schema], about: str) -> Schema:
    rule = {
        "type": "object",
        "required": ["action", peers],
        "properties": {
            "name": {"type": "string", "maxLength": LONGEST_NAME, "description": "For people."},
            "action": {
                "type": "string",
                "enum": [*ACTIONS],
                "description": "Accept and Deny are final, Pass leaves the tier.",
            },
            peers: _some(_one_of(kinds, "One kind of peer."), "Any of these."),
            "protocols": _some(_one_of(_protocols(), "One protocol."), "Any of these; absent: all, ICMP too."),
        },
    }
    return {"type": "array", "maxItems": MOST, "items": rule, "description": about}


def _pods() -> dict[str, Schema]:
    pods = {
        "namespaceSelector": label_selector("Their namespaces; absent: every one."),
        "podSelector": label_selector("Their labels."),
    }
    return {
        "namespaces": label_selector("All pods of the namespaces with these labels."),
        "pods": {
            "type": "object",
            "required": ["podSelector"],
            "properties": pods,
            "description": "Pods with these labels.",
        },
    }


def _places() -> dict[str, Schema]:
    network = {"type": "string", "maxLength": 43, "pattern": whole(prefix4(), prefix6())}
    return {
        "networks": _some(network, "Addresses, of pods as well."),
        "nodes": label_selector("The addresses of nodes with these labels."),
    }


def _protocols() -> dict[str, Schema]:
    number = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}
    range_ = {"type": "object", "required": ["start", "end"], "properties": {"start": number, "end": number}}
    port = _one_of({"number": number, "range": range_}, "Absent: all of them.")
    by_number = {"type": "object", "properties": {"destinationPort": port}, "description": "By port number."}
    name = {"type": "string", "maxLength": 15, "pattern": _PORT_NAME, "not": {"pattern": "^[0-9-]*$"}}
    return {
        **dict.fromkeys(("tcp", "udp", "sctp"), by_number),
        "destinationNamedPort": name | {"description": "Every port of that name, in each protocol it is declared for."},
    }


def _one_of(fields: dict[str, Schema], about: str) -> Schema:
    return {"type": "object", "minProperties": 1, "maxProperties": 1, "properties": fields, "description": about}


def _some(items: Schema, about: str) -> Schema:
    return {"type": "array", "minItems": 1, "maxItems": MOST, "items": items, "description": about}
