"""CHECK and `flockctl check`: store, prevResult, kernel and manifests, compared item by item.

Links, routes and neighbours, what is announced, rules, and whether the node forwards: whatever pods' packets depend on.
"""

from collections.abc import Iterable
from ipaddress import ip_address, ip_interface

from flock.agent.parts import Parts
from flock.agent.rulecheck import rule_differences
from flock.core.cni import PrevResult, Request, gateway
from flock.core.kinds import PODS
from flock.core.model import Allocation
from flock.core.naming import GATEWAY4, GATEWAY6, HOST_MAC, format_mac
from flock.edge.kernel.compare import Kind


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
        await self._parts.announcer.reconcile()

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
            rows.append(
                {
                    "type": "leak" if leak or dead else "loss",
                    "pod": difference.pod,
                    "container": difference.container_id,
                    "item": f"{difference.kind}: {difference.what}" + (" (namespace gone)" if dead else ""),
                }
            )
        for allocation in by_container.values():
            if allocation.state != "committed":
                rows.append(_row("leak", allocation, "allocation is pending and nobody works on it"))
            elif allocation.netns and allocation.container_id not in broken:
                differences = await self._parts.kernel.pod_differences(allocation, allocation.netns)
                rows += [_row("loss", allocation, item) for item in differences]
        rows += [_of_node("loss", f"rules: {what}") for what in await rule_differences(self._parts.policies)]
        for container_id, what in await self._parts.announcer.differences():
            owner = by_container.get(container_id)
            rows.append(_row("loss", owner, what) if owner else _of_node("loss" if container_id else "leak", what))
        rows += [_of_node("loss", what) for what in await self._parts.preparing.differences()]
        return rows + self._against_pods(by_container.values())

    def _against_pods(self, allocations: Iterable[Allocation]) -> list[dict[str, str]]:
        rows = []
        for allocation in allocations:
            pod = self._parts.cache.table(PODS).get((allocation.namespace, allocation.pod_name))
            if pod is None:
                if self._parts.feeder.requires_pods:
                    rows.append(_row("leak", allocation, "no such pod"))
            elif not pod.may_be(allocation.owner_uid):
                rows.append(_row("leak", allocation, f"the pod is another one now (uid {pod.metadata.uid})"))
        return rows


def _row(kind: str, allocation: Allocation, item: str) -> dict[str, str]:
    return {"type": kind, "pod": allocation.pod, "container": allocation.container_id, "item": item}


def _of_node(kind: str, item: str) -> dict[str, str]:
    return {"type": kind, "pod": "", "container": "", "item": item}


def prev_result_differences(known: Allocation, prev: PrevResult | None, request: Request) -> list[str]:
    """What the runtime remembers and we do not.  What prevResult leaves out is no difference."""
    if prev is None:
        return []
    found = []
    interfaces = prev.interfaces or ()
    names = {request.ifname: known.mac, known.host_interface: format_mac(HOST_MAC) if known.mac else ""}
    for interface in interfaces:
        mac = names.get(interface.name)
        if interface.name == request.ifname and interface.sandbox and interface.sandbox != request.netns:
            found.append(f"prevResult interface {interface.name}: sandbox {interface.sandbox}, not {request.netns}")
        if mac and interface.mac and interface.mac.lower() != mac:
            found.append(f"prevResult interface {interface.name}: MAC {interface.mac}, expected {mac}")
    defaults = {"::/0": known.ip6 and GATEWAY6, "0.0.0.0/0": known.ip4 and GATEWAY4}
    for route in prev.routes or ():
        expected = defaults.get(route.dst)
        if expected and route.gw and not _same_address(route.gw, expected):
            found.append(f"prevResult route {route.dst} via {route.gw}: expected via {expected}")
    held = set(known.held)
    for entry in prev.ips or ():
        index = entry.interface
        if index is not None and 0 <= index < len(interfaces) and interfaces[index].name != request.ifname:
            continue  # another plugin of the chain
        try:
            address = str(ip_interface(entry.address).ip)
        except ValueError:
            found.append(f"prevResult address {entry.address!r}: not an address")
            continue
        if address not in held:
            found.append(f"prevResult address {address}: not allocated to this container")
        elif entry.gateway and not _same_address(entry.gateway, gateway(address)):
            found.append(f"prevResult gateway {entry.gateway} of {address}: expected {gateway(address)}")
    return found


def _same_address(one: str, other: str) -> bool:
    try:
        return ip_address(one) == ip_address(other)
    except ValueError:
        return False
