"""CNI_ARGS: what the runtime says about the pod behind a container.

`IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=front-0;K8S_POD_UID=…;K8S_POD_INFRA_CONTAINER_ID=…`.  Keys we do
not know are ignored, as IgnoreUnknown asks.  Whether an absent name is an error depends on the source of pods (an
API server needs it, a manifest directory does not), so that is the caller's decision.
"""

import re

import msgspec

from flock.core.errors import Code, FieldError

FIELD = "CNI_ARGS"

# Wider than Kubernetes' names, for podman's containers; narrow enough to stand unescaped in a link alias, an nft
# comment or a log line.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class CniArgs(msgspec.Struct, frozen=True, kw_only=True):
    """What was said; an empty string where nothing was."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    infra_container_id: str = ""


KEYS = {
    "K8S_POD_NAMESPACE": "namespace",
    "K8S_POD_NAME": "name",
    "K8S_POD_UID": "uid",
    "K8S_POD_INFRA_CONTAINER_ID": "infra_container_id",
}


def parse_cni_args(text: str) -> CniArgs:
    """Raises FieldError for a pair without `=` and for a name that cannot be one; of a repeated key the last counts."""
    found: dict[str, str] = {}
    for pair in text.split(";"):
        if not pair.strip():
            continue
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise _error(f"{pair.strip()!r} is not key=value", details="pairs are separated by semicolons")
        if key not in KEYS:
            continue
        if value and not NAME.fullmatch(value):
            raise _error(f"{key} has a value that is no name: {value[:80]!r}")
        found[KEYS[key]] = value
    return CniArgs(**found)


def _error(problem: str, *, details: str = "") -> FieldError:
    return FieldError(FIELD, problem, details=details, code=Code.INVALID_ENVIRONMENT)
