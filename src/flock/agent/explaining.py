"""`flockctl policy why` and `policy show`: what policies mean for a packet, or for a pod, in words and as values."""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from flock.agent.policies import Policies
from flock.core.policy.explain import describe, parse_port
from flock.core.policy.explain import why as reasons


def why(
    policies: Policies, *, source: str, destination: str, port: str, node_addresses: Collection[Any]
) -> dict[str, Any]:
    """FieldError for a question that makes no sense."""
    protocol, number = parse_port(port)
    answers = reasons(
        policies.index,
        source=source,
        destination=destination,
        protocol=protocol,
        port=number,
        node_addresses=tuple(node_addresses),
    )
    return _told(policies, answers)


def show(policies: Policies, pod: str) -> dict[str, Any]:
    return _told(policies, describe(policies.index, pod))


def _told(policies: Policies, answers: Iterable[Any]) -> dict[str, Any]:
    """What is to be in the kernel is there, or it is said that it is not."""
    answers = list(answers)
    caveat = [f"not in the kernel as told here: {policies.problem}"] if policies.problem else []
    return {"answers": msgspec.to_builtins(answers), "text": "\n".join([*map(str, answers), *caveat])}
