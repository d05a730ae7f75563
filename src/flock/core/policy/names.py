"""Names and comments by which an operator recognises policies and pods in `nft list ruleset`.

A name is the thing's own where nft can take it; what is too long, or has characters nft cannot take, is cut and ends
in a hash of the whole.
"""

import hashlib
import re

from flock.core.policy.compiled import ALL_PODS, GroupId, NamedPort, PolicyKey

LONGEST_NAME = 120  # the kernel takes 255; nobody reads that
LONGEST_COMMENT = 120  # nft 1.0.6 takes 128 bytes
LONGEST_PREFIX = 120  # of a log line: 127

_FOREIGN_IN_NAME = re.compile(r"[^A-Za-z0-9./-]")
_FOREIGN_IN_TEXT = re.compile(r"[^ !#-\[\]-~]")  # printable ASCII without quote and backslash


def digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=5).hexdigest()


def shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 11]}~{digest(text)}"


def comment(text: str) -> str:
    return shorten(_FOREIGN_IN_TEXT.sub("'", text), LONGEST_COMMENT)


def policies_text(policies: tuple[PolicyKey, ...]) -> str:
    return ",".join(f"{namespace}/{name}" for namespace, name in policies) or "undecided"


def policy_chain(kind: str, policy: PolicyKey) -> str:
    plain = f"{kind}/{policy[0]}/{policy[1]}"
    name = _FOREIGN_IN_NAME.sub(".", plain)
    return name if name == plain and len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 11]}/{digest(plain)}"


def class_chain(kind: str, policies: tuple[PolicyKey, ...]) -> str:
    return f"{kind}-class/{digest(policies_text(policies))}"


def log_prefix(kind: str, policies: tuple[PolicyKey, ...]) -> str:
    return shorten(_FOREIGN_IN_TEXT.sub("'", f"flock {kind} {policies_text(policies)}"), LONGEST_PREFIX)


def group_set(group: GroupId, version: int) -> str:
    return f"pods{version}/{digest(group.namespace, group.namespaces, group.pods)}"


def group_comment(group: GroupId) -> str:
    if group == ALL_PODS:
        return "all pods"
    where = f"namespace {group.namespace}" if group.namespace else f"namespaces {group.namespaces or 'all'}"
    return comment(f"{where}: pods {group.pods or 'all'}")


def port_set(group: GroupId | None, port: NamedPort, version: int) -> str:
    """`version` 0: by interface, this node's pods; else by address."""
    whose = ("own",) if group is None else (group.namespace, group.namespaces, group.pods)
    return f"port{version or ''}/{digest(port.protocol, port.name, *whose)}"


def port_comment(group: GroupId | None, port: NamedPort) -> str:
    whose = "own pods" if group is None else group_comment(group)
    return comment(f"port {port.name}/{port.protocol} of {whose}")
