"""Names and comments by which an operator recognises policies and pods in `nft list ruleset`.

A name is the thing's own where nft can take it; what is too long, or has characters nft cannot take, is cut and ends
in a hash of the whole.  Names and selectors are chosen by tenants: a hash has 128 bits, of parts that cannot be taken
for others, and a chain's name with a hash has an underscore, which none without has: nobody can choose another's.
"""

import hashlib
import re
from functools import lru_cache
from typing import Any

import msgspec

from flock.core.policy.compiled import ALL_PODS, NODES, GroupId, NamedPort, PolicyKey
from flock.core.policy.wording import policy_text

LONGEST_NAME = 120  # the kernel takes 255; nobody reads that
LONGEST_COMMENT = 120  # nft 1.0.6 takes 128 bytes
LONGEST_PREFIX = 120  # of a log line: 127
DIGEST = 32  # hexadecimal digits

_PLAIN = re.compile(r"[A-Za-z0-9.-]+")  # what the API takes as a name
_FOREIGN_IN_NAME = re.compile(r"[^A-Za-z0-9./-]")
_FOREIGN_IN_TEXT = re.compile(r"[^ !#-\[\]-~]")  # printable ASCII without quote and backslash


def digest(*parts: Any) -> str:
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=DIGEST // 2).hexdigest()


def shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1 - DIGEST]}~{digest(text)}"


@lru_cache(maxsize=64)
def comment(text: str) -> str:
    return shorten(_FOREIGN_IN_TEXT.sub("'", text), LONGEST_COMMENT)


def policies_text(policies: tuple[PolicyKey, ...], longest: int) -> str:
    """As many as there is room for, and how many more there are."""
    told = _FOREIGN_IN_TEXT.sub("'", ",".join(map(policy_text, policies))) or "undecided"
    if len(told) <= longest or "," not in told:
        return shorten(told, longest)
    room = longest - len(f" and {len(policies)} more")
    kept = told[: told.rfind(",", 0, room + 1)] if "," in told[: room + 1] else shorten(told.split(",")[0], room)
    return f"{kept} and {len(policies) - kept.count(',') - 1} more"


def policy_chain(kind: str, policy: PolicyKey) -> str:
    name = f"{kind}/{policy[0]}/{policy[1]}"
    if len(name) <= LONGEST_NAME and all(map(_PLAIN.fullmatch, policy)):
        return name
    return f"{_FOREIGN_IN_NAME.sub('.', name)[: LONGEST_NAME - 1 - DIGEST]}_{digest(policy)}"


@lru_cache(maxsize=64)  # pods that are judged alike come one after the other
def class_chain(kind: str, *parts: Any) -> str:
    return f"{kind}-class/{digest(*parts)}"


def tier_chain(kind: str, tier: str, *parts: Any) -> str:
    return f"{kind}-{tier.lower()}/{digest(*parts)}"


def log_prefix(kind: str, policies: tuple[PolicyKey, ...]) -> str:
    prefix = f"flock {kind} "
    return prefix + policies_text(policies, LONGEST_PREFIX - len(prefix))


def rule_prefix(kind: str, rule: str) -> str:
    return shorten(_FOREIGN_IN_TEXT.sub("'", f"flock {kind} {rule}"), LONGEST_PREFIX)


def group_set(group: GroupId, version: int) -> str:
    return f"pods{version}/{digest(group)}"


def group_comment(group: GroupId) -> str:
    if group == ALL_PODS:
        return "all pods"
    if group.of:
        return comment(f"{len(group.of)} groups: {'; '.join(map(group_comment, group.of[:3]))}")
    if group.namespace == NODES:
        return comment(f"nodes {group.pods or 'all'}")
    where = f"namespace {group.namespace}" if group.namespace else f"namespaces {group.namespaces or 'all'}"
    return comment(f"{where}: pods {group.pods or 'all'}")


def port_set(group: GroupId | None, port: NamedPort, version: int) -> str:
    """`version` 0: by interface, this node's pods; else by address."""
    return f"port{version or ''}/{digest(port, group)}"


def port_comment(group: GroupId | None, port: NamedPort) -> str:
    whose = "own pods" if group is None else group_comment(group)
    return comment(f"port {port.name}/{port.protocol} of {whose}")
