"""Announces anycast and extra addresses while their pods are eligible, by kernel routes alone.

Runs once all pods and links are known (before, what an earlier life announced stays, unless all is withdrawn), on every
change of pods, attachments or configuration, and with each healing pass.  Whoever changes what is announced does so in
such a run, alone: draining and leaving too.  BIRD sees the routes come and go within milliseconds.  `drain` withdraws
everything on this node until `undrain`, across restarts of the agent.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from flock.agent.attached import Attached
from flock.agent.configured import Configured
from flock.agent.departure import Departure
from flock.agent.happened import Happened
from flock.agent.preparing import Preparing
from flock.agent.reconciling import Reconciler
from flock.core.announcing import Claim, Rights, Via, claims, desired, leaving, standing
from flock.core.errors import KernelRefused
from flock.core.happenings import Announced, Drained, Rerouted, Undrained, Withdrawn
from flock.core.kinds import NAMESPACES, NODES, PODS, Aspect
from flock.edge.cache import Cache
from flock.edge.kernel.announce import Changes
from flock.edge.kernel.linkmessages import packed
from flock.edge.kernel.threads import Kernel

log = logging.getLogger("anycast")

DRAINED = "drained"  # a file in the state directory: its presence is the state
RETRY = 1.0
LAST_TRIES = 3  # before the agent ends, whatever the kernel says
# How long a withdrawn address is still delivered: routers hear of it in milliseconds, those behind them a little later.
LINGER = 2.0
READ = (NAMESPACES, NODES, Aspect(PODS, standing))
# How long a pod that terminates, while others on the node stay, may finish what it is in the middle of.
FAREWELL = 1.0


class Announcer(Reconciler):
    def __init__(
        self,
        *,
        attached: Attached,
        cache: Cache,
        configured: Configured,
        preparing: Preparing,
        kernel: Kernel,
        departure: Departure,
        happened: Happened,
        state_dir: Path,
    ) -> None:
        super().__init__(log, "could not announce", pauses=(RETRY, RETRY))
        self._attached = attached
        self._cache, self._reader = cache, cache.reader(*READ)
        self._configured = configured
        self._preparing = preparing
        self._kernel = kernel
        self._departure = departure
        self._happened = happened
        self._marker = state_dir / DRAINED
        self._leaving = False
        self._drained = ""  # why all is withdrawn, as was told
        self._withdrawn: dict[bytes, float] = {}  # when, for addresses that are still delivered
        self._leaving_since: dict[Via, float] = {}
        self._rights: Rights | None = None
        self._refused: dict[str, str] = {}  # interfaces the kernel takes no next hop on, with the reason
        self._made: dict[str, tuple[Via, ...]] = {}  # what the last run put into the kernel
        self._done: Any = None  # what the last run was for, if nothing of it is left to do
        self._objects_only = False  # all that was heard of since
        self._claimants: frozenset[str] = frozenset()  # pods that claim anything, as of the last run
        self.announced: frozenset[str] = frozenset()

    def trigger(self) -> None:
        """The kernel may have changed, too."""
        self._objects_only = False
        super().trigger()

    def consider(self) -> None:
        """Objects changed.  A pod that claims nothing concerns nobody here, and most other changes say nothing about
        who may announce what: then the kernel is not looked at."""
        changes = self._reader.changes()
        if not changes or any(kind != PODS.name or f"{ns}/{name}" in self._claimants for kind, ns, name in changes):
            super().trigger()

    async def _reconcile(self) -> str:
        """What one pod cannot have keeps no other waiting."""
        self._note_drained(self.withdrawn)
        all_claims = self.claims()
        self._claimants = frozenset(claim.pod for claim in all_claims)
        wanted, going = desired(all_claims), self._still_leaving(leaving(all_claims))
        indexes, objects_only, self._objects_only = self._attached.links, self._objects_only, True
        asked = wanted, going, {via: indexes.get(via.interface) for vias in wanted.values() for via in vias}
        if objects_only and asked == self._done and not self._withdrawn:
            return ""
        self._done = None
        now = time.monotonic()

        def lingers(address: bytes) -> bool:
            """An earlier life may have withdrawn it, a moment ago: then its time begins with the first sight."""
            return self._withdrawn.setdefault(address, now) + LINGER > now

        changes = await self._kernel.announce(wanted, leaving=going, indexes=indexes, lingers=lingers)
        await self._replace_originals(indexes)
        self._refused, self._made = changes.refused, wanted
        self.announced = frozenset(
            a for a, vias in wanted.items() if {v.interface for v in vias} - changes.refused.keys()
        )
        self._note(changes)
        self._remember_withdrawn(changes.withdrawn, now)
        self._done = None if changes.refused else asked
        return "; ".join(f"{name}: {reason}" for name, reason in sorted(changes.refused.items()))

    def _note_drained(self, reason: str) -> None:
        if reason != self._drained:
            self._happened.note(Drained(reason=reason) if reason else Undrained())
            self._drained = reason

    def _note(self, changes: Changes) -> None:
        for address in changes.announced:
            self._happened.note(Announced(address=address))
        for address in changes.changed:
            self._happened.note(Rerouted(address=address))
        for withdrawn in changes.withdrawn:
            self._happened.note(Withdrawn(address=str(ip_address(withdrawn))))

    async def _replace_originals(self, indexes: Mapping[str, int]) -> None:
        """Where the original flock led to what its pods carry, now that ours says who is announced."""
        carriers: dict[bytes, list[int]] = {}
        for allocation in self._attached.entries:
            if allocation.is_adopted and allocation.host_interface in indexes:
                for address in (*allocation.anycast, *allocation.addresses):
                    carriers.setdefault(packed(address), []).append(indexes[allocation.host_interface])
        if carriers:
            for gone in await self._kernel.remove_originals(carriers):
                log.info("removed the original's route address=%s", ip_address(gone))

    def _still_leaving(self, found: dict[str, tuple[Via, ...]]) -> dict[str, tuple[Via, ...]]:
        """Those whose time is not over; look again when it is."""
        now = time.monotonic()
        everybody = {via for vias in found.values() for via in vias}
        self._leaving_since = {via: self._leaving_since.get(via, now) for via in everybody}
        late = {via for via, since in self._leaving_since.items() if since + FAREWELL <= now}
        if early := everybody - late:
            self.look_again(min(self._leaving_since[via] for via in early) + FAREWELL - now + 0.05)
        return {address: tuple(via for via in vias if via not in late) for address, vias in found.items()}

    def _remember_withdrawn(self, addresses: Iterable[bytes], now: float) -> None:
        """Look again when the time is over for which withdrawn addresses are still delivered."""
        self._withdrawn = {a: since for a, since in self._withdrawn.items() if since + LINGER > now}
        self._withdrawn |= dict.fromkeys(addresses, now)
        if self._withdrawn:
            self.look_again(min(self._withdrawn.values()) + LINGER - now + 0.1)

    def claims(self) -> list[Claim]:
        config, facts = self._configured.config, self._preparing.facts
        self._rights = Rights(config, facts, self._cache.table(NAMESPACES), before=self._rights)
        return claims(
            self._attached.entries,
            self._cache.table(PODS),
            withdrawn=self.withdrawn,
            alive=lambda allocation: self._attached.has_link(allocation.host_interface),
            right=self._rights.of,
        )

    async def differences(self) -> list[tuple[str, str]]:
        """What the last run made and is not there any more, what it could not make, and what is announced for nobody:
        the container it belongs to, empty for none, and words.  What the next run is about to change is not told."""
        async with self._alone:
            present = await self._kernel.announced()
            indexes = self._attached.links
            found = []
            for claim in self.claims():
                if claim.obstacle:
                    continue
                name, hops = claim.via.interface, present.get(packed(claim.address), frozenset())
                problem = self._refused.get(name, "")
                if not problem and claim.via not in self._made.get(claim.address, ()):
                    problem = self.problem
                elif not problem and (indexes.get(name, 0), packed(claim.via.gateway)) not in hops:
                    problem = f"route missing via {claim.via.gateway} dev {name}"
                if problem:
                    found.append((claim.container_id, f"announced {claim.address}: {problem}"))
            known = set(map(packed, self._made))
            found += [("", f"announced {ip_address(dst)}: for no pod") for dst in present if dst not in known]
            return found

    # --- withdrawing everything ---

    @property
    def withdrawn(self) -> str:
        """Why this node announces no anycast at all; empty if it may."""
        if self._leaving or self._departure.begun:
            return "the node is going down"
        if self._marker.exists():
            return "the node is drained (flockctl undrain restores it)"
        node, config = self._cache.own(NODES), self._configured.config
        if node is not None and node.cordoned and config is not None and config.anycast.withdraw_on_cordon:
            return "the node is cordoned"
        return ""

    async def drain(self) -> None:
        """KernelRefused if it is noted but not done yet: it is tried again until it is."""
        self._marker.touch(mode=0o600)
        if not await self.reconcile():
            raise KernelRefused(f"the node is drained, but not all is withdrawn yet: {self.problem}")

    async def undrain(self) -> None:
        self._marker.unlink(missing_ok=True)
        await self.reconcile()

    async def leave(self) -> None:
        """The agent stops: withdraw if traffic should go elsewhere, i.e. the node is cordoned or going down."""
        await self._departure.reconcile()
        node = self._cache.own(NODES)
        if (node is not None and node.cordoned) or self._departure.begun:
            log.info("withdrawing anycast before stopping")
            self._leaving = True
            for _ in range(LAST_TRIES):
                if await self.reconcile():
                    return
                await asyncio.sleep(RETRY)

    def rows(self) -> list[dict[str, Any]]:
        def obstacle(claim: Claim) -> str:
            return claim.obstacle or self._refused.get(claim.via.interface, "")

        return [
            {
                "address": claim.address,
                "kind": claim.kind,
                "pod": claim.pod,
                "container": claim.container_id,
                "interface": claim.via.interface,
                "via": claim.via.gateway,
                "announced": not obstacle(claim),
                "reason": obstacle(claim),
            }
            for claim in sorted(self.claims(), key=lambda c: (c.address, c.pod))
        ]
