"""Announces addresses of Services where they work, by routes in a kernel table of their own.

Runs once Services and their endpoints are listed (before, what an earlier life announced stays, unless all is
withdrawn), and on every change of these, of the configuration, of pods that hold such addresses, and of what kube-proxy
says.  A change costs what it is about: the whole table is looked at when the agent starts, with each healing pass, and
after a failure.  What is withdrawn is withdrawn at once: what is still under way is kube-proxy's to deliver.
"""

import asyncio
import logging
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from flock.agent.announcer import LAST_TRIES, RETRY, Announcer
from flock.agent.attached import Attached
from flock.agent.configured import Configured
from flock.agent.happened import Happened
from flock.agent.healthports import HealthPorts
from flock.agent.offered import Offered
from flock.agent.reconciling import Reconciler
from flock.core.errors import KernelRefused
from flock.core.happenings import Repaired, ServiceAnnounced, ServiceRefused, ServiceWithdrawn
from flock.core.ipam import Ipam
from flock.core.kinds import NODES, Key
from flock.core.model import Allocation
from flock.core.services import Offer, excluded
from flock.edge.cache import Cache
from flock.edge.kernel.linkmessages import packed
from flock.edge.kernel.threads import Kernel

log = logging.getLogger("services")

LOST = "route of a Service missing"  # a kind of repair
UNGRANTED = "spec.services grants nothing"


class Services(Reconciler):
    def __init__(
        self,
        *,
        cache: Cache,
        configured: Configured,
        offered: Offered,
        attached: Attached,
        ipam: Ipam,
        announcer: Announcer,
        ports: HealthPorts,
        kernel: Kernel,
        happened: Happened,
    ) -> None:
        super().__init__(log, "could not announce Services", pauses=(RETRY, RETRY))
        self._cache, self._configured, self._offered = cache, configured, offered
        self._attached, self._ipam, self._announcer = attached, ipam, announcer
        self._ports, self._kernel, self._happened = ports, kernel, happened
        self._touched: set[str] = set()  # addresses to decide on anew
        self._unasked: set[Key] = set()  # Services of which kube-proxy is to be asked, or no more
        self._node_wide: str | None = None  # why nothing at all is announced; None: not decided yet
        self._look, self._first = True, True
        self._told: dict[str, dict[str, str]] = {}  # refusals, by address and Service
        self.announced: set[str] = set()  # as the kernel has it
        ports.on_verdict = self._heard

    # --- what is heard ---

    def trigger(self) -> None:
        """The kernel may have changed, too."""
        self._look = True
        super().trigger()

    def consider(self) -> None:
        """Objects changed."""
        super().trigger()

    def follow(self) -> None:
        """Another configuration is in force."""
        self._offered.follow()
        super().trigger()

    def settled(self, allocation: Allocation) -> None:
        """A pod came or went: what it carries is its own."""
        carried = {address for address in allocation.carried if self._offered.book.at(address)}
        if carried:
            self._touched |= carried
            super().trigger()

    def _heard(self, service: Key) -> None:
        self._touched |= {offer.address for offer in self._offered.book.by_service.get(service, ())}
        super().trigger()

    # --- deciding ---

    async def _reconcile(self) -> str:
        touched, changed = self._offered.take_in()
        self._touched |= touched
        self._unasked |= changed
        node_wide = self._why_nothing()
        if node_wide is None or not (node_wide or self._offered.listed):
            return ""  # what an earlier life announced stays
        book = self._offered.book
        if node_wide == UNGRANTED and not self._first and not self.announced:
            self._look = False  # nothing of ours is there, and nothing will be
        whole = self._look or node_wide != self._node_wide
        self._node_wide = node_wide
        if self._look:
            await self._observe()
        if whole:
            self._touched = book.addresses | self.announced
        self._ask_kube_proxy()
        addresses, self._touched = self._touched, set()
        wanted = {address for address in addresses if self._served(address)}
        announce, withdraw = wanted - self.announced, (addresses & self.announced) - wanted
        try:
            if announce or withdraw:
                await self._kernel.announce_services(map(packed, announce), map(packed, withdraw))
        except KernelRefused:
            self._look = True
            raise
        self.announced = (self.announced | announce) - withdraw
        self._first = False
        self._note(announce, withdraw)
        self._note_refusals(addresses)
        return ""

    async def _observe(self) -> None:
        present = {str(ip_address(address)) for address in await self._kernel.announced_services()}
        for address in sorted(self.announced - present):
            self._happened.note(Repaired(kind=LOST, what=address, pod=""))
        self.announced, self._look = present, False

    def _why_nothing(self) -> str | None:
        """Why this node announces no Service at all; empty if it may, None if it is not known."""
        if withdrawn := self._announcer.withdrawn:
            return withdrawn
        if (config := self._configured.config) is None:
            return None
        return excluded(config, self._cache.own(NODES)) if config.services.allowed else UNGRANTED

    def _ask_kube_proxy(self) -> None:
        """Of Services with a ready endpoint here; of what is announced already, an earlier life has."""
        for key in self._unasked:
            asked = [o for o in self._offered.book.by_service.get(key, ()) if o.port and not o.obstacle]
            if asked:
                adopted = self._first and any(offer.address in self.announced for offer in asked)
                self._ports.want(key, asked[0].port, adopted=adopted)
            else:
                self._ports.forget(key)
        self._unasked = set()

    def _served(self, address: str) -> list[str]:
        """The Services for which the address is to be announced."""
        return [o.service for key, o in self._offered.book.at(address).items() if not self._why_not(key, o)]

    def _why_not(self, key: Key, offer: Offer) -> str:
        if offer.obstacle or self._node_wide:
            return offer.obstacle or self._node_wide or ""
        if holder := self._holder(offer.address):
            return f"the pod {holder} has the address here, and keeps it"
        waits = offer.port and not self._ports.is_open(key)
        return f"kube-proxy does not say 200 (healthCheckNodePort {offer.port})" if waits else ""

    def _holder(self, address: str) -> str:
        found = ip_address(address)
        container = self._ipam.holder(found) or min(self._ipam.sharers(found), default="")
        known = self._attached.of(container) if container else None
        return known.pod if known else container

    # --- telling ---

    def _note(self, announced: Iterable[str], withdrawn: Iterable[str]) -> None:
        for address in sorted(announced):
            self._happened.note(ServiceAnnounced(address=address, services=", ".join(sorted(self._served(address)))))
        for address in sorted(withdrawn):
            why = {self._why_not(key, offer): "" for key, offer in self._offered.book.at(address).items()}
            reason = "; ".join(why) or "no Service has it any more"
            self._happened.note(ServiceWithdrawn(address=address, reason=reason))

    def _note_refusals(self, addresses: Iterable[str]) -> None:
        """What whoever made a Service can do something about, once for as long as it lasts."""
        for address in addresses:
            found = self._offered.book.at(address).items()
            now = {offer.service: why for key, offer in found if (why := self._refusal(key, offer))}
            before = self._told.pop(address, {})
            for service, why in now.items():
                if before.get(service) != why:
                    self._happened.note(ServiceRefused(service=service, address=address, problem=why))
            if now:
                self._told[address] = now

    def _refusal(self, key: Key, offer: Offer) -> str:
        is_refused = offer.refused or (not offer.obstacle and self._holder(offer.address))
        return self._why_not(key, offer) if is_refused else ""

    @property
    def refused(self) -> int:
        """Addresses of Services that are not announced here whatever their endpoints do."""
        return sum(map(len, self._told.values()))

    @property
    def conflicts(self) -> list[tuple[str, str]]:
        """Services of which a pod here has an address, and what that means."""
        book = self._offered.book
        clashing = [(o.service, a) for a in self._told for o in book.at(a).values() if not o.obstacle]
        return [(who, f"{a}: {why}") for who, a in clashing if (why := self._told[a].get(who))]

    @property
    def waiting(self) -> int:
        """Services with a ready endpoint here of which kube-proxy does not say 200."""
        return self._ports.waiting

    def rows(self) -> Iterable[dict[str, Any]]:
        """Every address of every Service, and why it is not announced for it."""
        for key, found in sorted(self._offered.book.by_service.items()):
            for offer in sorted(found, key=lambda offer: offer.address):
                yield self._row(key, offer)

    def _row(self, key: Key, offer: Offer) -> dict[str, Any]:
        sharing = self._offered.book.at(offer.address) if offer.address else {}
        others = sorted(other.service for who, other in sharing.items() if who != key)
        reason = self._why_not(key, offer)
        announced = not reason and offer.address in self.announced
        if reason and offer.address in self.announced and (served := self._served(offer.address)):
            reason += f"; it is announced for {', '.join(sorted(served))}"
        return {
            "service": offer.service,
            "address": offer.address,
            "policy": offer.policy,
            "port": offer.port,
            "announced": announced,
            "reason": reason if reason or announced else "not announced yet",
            "shared": others,
        }

    async def differences(self) -> list[tuple[str, str]]:
        """What the kernel lacks, and what it announces for nobody: loss or leak, and words."""
        async with self._alone:
            if self._first:
                return []
            present = {str(ip_address(address)) for address in await self._kernel.announced_services()}
            lost = [("loss", f"announced Service address {a}: route missing") for a in self.announced - present]
            return sorted(lost + [("leak", f"announced {a}: for no Service") for a in present - self.announced])

    # --- withdrawing everything ---

    async def follow_node(self) -> None:
        """The node is drained, or is not any more.  KernelRefused if not all is withdrawn yet: it is tried again."""
        if not await self.reconcile() and self._node_wide:
            raise KernelRefused(f"the node is drained, but not all Services are withdrawn yet: {self.problem}")

    async def leave(self) -> None:
        """The agent stops, after the announcer has said whether traffic should go elsewhere."""
        if self._announcer.withdrawn:
            for _ in range(LAST_TRIES):
                if await self.reconcile():
                    return
                await asyncio.sleep(RETRY)
