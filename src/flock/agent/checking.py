"""CHECK and `flockctl check`: store, prevResult, kernel and manifests, compared item by item.

Links, routes and neighbours, what is announced, rules, and whether the node forwards: whatever pods' packets depend on.
"""

import asyncio
from collections.abc import Callable, Iterable

from flock.agent.parts import Parts
from flock.agent.policies import Policies
from flock.core.cni import PrevResult, Request, prev_result_differences
from flock.core.errors import FlockError
from flock.core.kinds import PODS
from flock.core.model import Allocation
from flock.core.policy import rulediff
from flock.edge.kernel.compare import Difference, Kind
from flock.edge.nft import observe
from flock.edge.nft.apply import ask_aside
from flock.edge.nft.socket import NftSocket

LOOKS = 5  # at rules, before it is said that every one met a change of our own


class Checker:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def check(self, known: Allocation, request: Request, prev: PrevResult | None) -> list[str]:
        """Every difference, each naming the item; empty if there is none."""
        found = [f"rules: {what}" for what in await rule_differences(self._parts.policies, known.host_interface)]
        if known.ifname != request.ifname:
            found.append(f"interface {request.ifname}: the container is attached as {known.ifname}")
        found += prev_result_differences(known, prev, request)
        host = [d for d in await self._parts.healer.differences() if d.container_id == known.container_id]
        found += [f"{d.kind}: {d.what}" for d in host]
        if not any(d.kind is Kind.LINK_MISSING for d in host):
            found += await self._parts.kernel.pod_differences(known, request.netns)
        if known.anycast or known.addresses:
            found += [what for whose, what in await self._parts.announcer.differences() if whose == known.container_id]
        return found + await self._parts.preparing.differences()

    async def repair(self) -> None:
        """Everything that can be repaired, at once; what cannot be is for `audit` to tell."""
        await self._parts.attachments.resolve_pending()
        await self._parts.preparing.reconcile()
        await self._parts.healer.repair_now()
        await self._parts.policies.settled(repaired=True)
        self._parts.announcer.trigger()  # a look at the kernel, though nothing was heard
        await self._parts.announcer.reconcile()
        self._parts.services.trigger()
        await self._parts.services.reconcile()

    async def audit(self) -> list[dict[str, str]]:
        """Leaks and losses of the whole node, as rows.  Containers that a verb is at work on are left out."""
        rows = []
        settled = (a for a in self._parts.attached.entries if not self._parts.attached.is_busy(a.container_id))
        by_container = {a.container_id: a for a in settled}
        broken = set()
        for difference in await self._parts.healer.differences():
            leak = difference.kind in (Kind.ORPHAN_LINK, Kind.UNRECORDED, Kind.ORPHAN_ROUTE)
            dead = difference.container_id in self._parts.healer.dead
            if difference.kind is Kind.LINK_MISSING:
                broken.add(difference.container_id)
            item = f"{difference.kind}: {difference.what}" + (" (namespace gone)" if dead else "")
            rows.append(_row("leak" if leak or dead else "loss", item, difference))
        for allocation in by_container.values():
            if allocation.state != "committed":
                rows.append(_row("leak", "allocation is pending and nobody works on it", allocation))
            elif allocation.netns and allocation.container_id not in broken:
                differences = await self._parts.kernel.pod_differences(allocation, allocation.netns)
                rows += [_row("loss", item, allocation) for item in differences]
        rows += [_row("loss", f"rules: {what}") for what in await rule_differences(self._parts.policies)]
        for container_id, what in await self._parts.announcer.differences():
            owner = by_container.get(container_id)
            rows.append(_row("loss" if container_id else "leak", what, owner))
        rows += [_row(kind, what) for kind, what in await self._parts.services.differences()]
        rows += [_row("loss", what) for what in await self._parts.preparing.differences()]
        return rows + self._against_pods(by_container.values())

    def _against_pods(self, allocations: Iterable[Allocation]) -> list[dict[str, str]]:
        rows = []
        for allocation in allocations:
            pod = self._parts.cache.table(PODS).get((allocation.namespace, allocation.pod_name))
            if pod is None:
                if self._parts.feeder.requires_pods:
                    rows.append(_row("leak", "no such pod", allocation))
            elif not pod.may_be(allocation.owner_uid):
                rows.append(_row("leak", f"the pod is another one now (uid {pod.metadata.uid})", allocation))
        return rows


def _row(kind: str, item: str, of: Allocation | Difference | None = None) -> dict[str, str]:
    """Of nothing in particular: the node's."""
    return {"type": kind, "pod": of.pod if of else "", "container": of.container_id if of else "", "item": item}


async def rule_differences(policies: Policies, interface: str | None = None) -> list[str]:
    """Rules in the kernel against what the policies say, in words: of one pod, by its host interface, which costs what
    the pod has; or of all.  Asked beside transactions, so that damage is seen while it is being repaired.  A look that
    met a change of our own says nothing, and is repeated."""
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
