"""ip-algo: IPv6 addresses that tell an operator which workload they belong to.

The host part of the address is cut into nibbles (hex digits).  The last is the instance: it is left zero here and
chosen by the allocator, so that replicas of a workload differ in nothing else.  The rest is shared by the fields in
the order given, remainders going one nibble each to the first fields: a /64 with three fields is 5+5+5+1.

    2001:db8:1:0: aaaa a bbb bb cc ccc N     namespace, app, image, instance

A field shows the trailing digits of FNV-1a-64 of its text, so at most 16; digits nobody claims are zeros right after
the prefix.  Trailing, because the last character of a text hardly reaches the leading ones: of `web-0` … `web-9` these
are nearly all the same.  The trailing ones follow from each character by steps that can be undone, so two names that
differ in one character never share them, from two digits on.  `image` shows the leading digits of the image's own
sha256 digest if the reference has one: 64 hex digits alone (as the original reads them), or behind `sha256:` or
`…@sha256:`, where people pin images.

This is cosmetics, not security, and never a reason to fail: what does not fit comes back as a Misfit, what is
misspelt as a warning, and the pod gets a random address.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from ipaddress import IPv6Network

import msgspec

from flock.core.annotations import IP_ALGO, list_items
from flock.core.errors import AnnotationError, FieldError
from flock.core.model import Pod
from flock.core.naming import fnv1a64

HASH_NIBBLES = 16  # what a 64-bit hash has to show
DIGEST = re.compile(r"(?:(?:.*@)?sha256:)?([0-9a-fA-F]{64})", re.DOTALL)
POD_TEMPLATE_HASH = "pod-template-hash"


class Field(StrEnum):
    NAMESPACE = "namespace"
    APP = "app"
    IMAGE = "image"


class Misfit(msgspec.Struct, frozen=True):
    """Why fields cannot be embedded in a prefix; the caller warns and takes a random address."""

    reason: str


def parse_ip_algo(text: str) -> tuple[Field, ...]:
    """`namespace, app` → fields in that order.  Raises AnnotationError for an unknown, repeated or missing field."""
    fields: list[Field] = []
    for item in list_items(IP_ALGO, text):
        try:
            field = Field(item)
        except ValueError:
            known = ", ".join(Field)
            raise AnnotationError(IP_ALGO, f"unknown field {item[:80]!r}", details=f"known are {known}") from None
        if field in fields:
            raise AnnotationError(IP_ALGO, f"field {item} is listed twice")
        fields.append(field)
    if not fields:
        raise AnnotationError(IP_ALGO, "lists no field")
    return tuple(fields)


def resolve_ip_algo(
    pod_annotations: Mapping[str, str], node_annotations: Mapping[str, str]
) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """The fields in force and what to warn about: the pod's, else the NodeConfig's, else none (a random address).

    A blank value counts as absent; an invalid one is passed over with a warning.
    """
    warnings: list[str] = []
    for whose, annotations in (("pod", pod_annotations), ("NodeConfig", node_annotations)):
        text = annotations.get(IP_ALGO, "")
        if not text.strip():
            continue
        try:
            return parse_ip_algo(text), tuple(warnings)
        except FieldError as error:
            warnings.append(f"{whose} annotation {error.msg}, ignored")
    return (), tuple(warnings)


def embed(
    prefix: IPv6Network, fields: tuple[Field, ...], *, namespace: str, app: str, image: str, container_id: str
) -> int | Misfit:
    """The workload's address in `prefix` with instance nibble zero: add 1-15, or nothing, for a replica's own."""
    if prefix.prefixlen % 4:
        return Misfit(f"{prefix}: ip-algo needs a prefix length divisible by 4")
    room = (128 - prefix.prefixlen) // 4 - 1
    if not fields or room < len(fields):
        return Misfit(f"{prefix}: {max(room, 0)} hex digits are too few for ip-algo with {len(fields)} fields")
    texts = {Field.NAMESPACE: namespace, Field.APP: app, Field.IMAGE: image or container_id}
    share, remainder = divmod(room, len(fields))
    host = 0
    for position, field in enumerate(fields):
        width = min(share + (position < remainder), HASH_NIBBLES)
        host = host << 4 * width | _digits(texts[field], width, may_be_digest=field is Field.IMAGE)
    return int(prefix.network_address) | host << 4


def _digits(text: str, width: int, *, may_be_digest: bool) -> int:
    pinned = DIGEST.fullmatch(text) if may_be_digest else None
    return int(pinned[1][:width], 16) if pinned else fnv1a64(text.encode()) % 16**width


def app_name(pod: Pod) -> str:
    """The workload all replicas share: the controller's name, a Deployment's rather than its ReplicaSet's.

    A ReplicaSet made by a Deployment is called `<deployment>-<pod-template-hash>`; one that is not keeps its name.
    A pod without a controller is its own workload.
    """
    owner = next((o for o in pod.metadata.owner_references or () if o.controller), None)
    if owner is None:
        return pod.metadata.name
    template_hash = pod.labels.get(POD_TEMPLATE_HASH, "")
    if owner.kind == "ReplicaSet" and template_hash:
        return owner.name.removesuffix(f"-{template_hash}")
    return owner.name


def image_ref(pod: Pod) -> str:
    """The first container's image as written in the spec: equal for all replicas, unlike the resolved digest."""
    containers = pod.spec.containers
    return containers[0].image if containers else ""
