"""Rules in the kernel against what the policies say, for CHECK and `flockctl check`.  Nothing is repaired here.

The question goes beside transactions, so that damage is seen while it is being repaired.  A look that met a change of
our own says nothing, and is repeated.
"""

import asyncio
from collections.abc import Callable

from flock.agent.policies import Policies
from flock.core.errors import FlockError
from flock.core.policy import rulediff
from flock.edge.nft import observe
from flock.edge.nft.apply import ask_aside
from flock.edge.nft.socket import NftSocket

LOOKS = 5


async def rule_differences(policies: Policies, interface: str | None = None) -> list[str]:
    """Of one pod, by its host interface, which costs what the pod has; or of all.  In words."""
    for _ in range(LOOKS):
        try:
            question = await _question(policies, interface)
            transactions = policies.transactions
            found = await asyncio.to_thread(ask_aside, question)
        except FlockError as error:
            return [error.msg]
        undisturbed = transactions == policies.transactions and not policies.changing
        if not found or policies.disturbed or undisturbed:
            return found
    return []  # so busy that every look met a change


async def _question(policies: Policies, interface: str | None) -> Callable[[NftSocket], list[str]]:
    rules = await policies.settled()
    if interface is None:
        expected = rules.expected(policies.index.compiled)
        return lambda socket: rulediff.differences(expected, observe.observe(socket))
    of_pod = rules.expected_of(interface)
    if of_pod is None:
        return lambda _: [f"there are none for {interface}"]
    return lambda socket: observe.lacking(socket, of_pod)
