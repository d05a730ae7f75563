"""What the agent currently believes about its node: configuration, addresses, MTU.

A NodeConfig that does not parse is reported and changes nothing: the last good one stays in force (invariant 7).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address

import msgspec

from flock.core.configuration import Configuration, Inputs, decide
from flock.core.errors import FlockError
from flock.core.facts import NodeFacts
from flock.core.model import Allocation
from flock.core.nodeconfig import Network, NodeConfig
from flock.core.nodeconfig.layers import Effective, FromNode
from flock.edge.kernel.node import DEFAULT_MTU
from flock.edge.kernel.podlink import packed
from flock.edge.kernel.threads import Kernel
from flock.edge.source import Source

log = logging.getLogger("node")


class NodeView:
    def __init__(self, *, node: str, source: Source, kernel: Kernel) -> None:
        self.node = node
        self._believed = Configuration()
        self.kernel_problem = ""  # why the node could not be looked at or made to forward
        self.facts = NodeFacts(node=node)
        self.mtu = DEFAULT_MTU
        self._source = source
        self._kernel = kernel
        self._retired: frozenset[Network] = frozenset()
        self._earlier_known = False  # which aggregates an earlier life announced
        self._spans: list[tuple[int, int, bool]] = []
        self._spans_of: NodeConfig | None = None
        self._spans_retired = self._retired
        self._seen: Inputs | None = None  # what all of this follows from
        self._changing = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []

    @property
    def config(self) -> NodeConfig | None:
        return self._believed.config

    @property
    def layers(self) -> Effective | None:
        """Where its values came from."""
        return self._believed.layers

    @property
    def config_problem(self) -> str:
        return self._believed.problem

    def subscribe(self, listener: Callable[[], None]) -> None:
        """`listener` runs after the configuration, the node's addresses or the set of aggregates changed."""
        self._listeners.append(listener)

    async def take_in(self) -> None:
        """Take in the source's NodeConfig if it changed.  Cheap when it did not.

        Configuration and MTU change together, once the node is prepared for them; whoever comes meanwhile waits.
        """
        if self._inputs() == self._seen:
            return
        async with self._changing:
            inputs = self._inputs()
            if inputs != self._seen:
                await self._take(inputs)
                self._seen = inputs

    async def _take(self, inputs: Inputs) -> None:
        new = decide(self.node, inputs, before=self._believed)
        if new.problem and new.problem != self.config_problem:
            log.error("refused NodeConfig node=%s problem=%r last_good=%s", self.node, new.problem, bool(self.config))
        before, config = self.config, new.config
        if config is not None and config is not before:
            await self._prepare(config)
            self._retired |= set(before.aggregates if before else ())
            self._retired -= set(config.aggregates)
            log.info("took NodeConfig node=%s cidrs=%s", self.node, ",".join(map(str, config.aggregates)) or "-")
        self._believed = new
        if config is not before:
            self._notify()

    def _inputs(self) -> Inputs:
        source = self._source
        return Inputs(given=FromNode.of(source.node), templates=tuple(source.templates), own=source.node_config)

    async def refresh(self) -> None:
        """Read the node's addresses and uplink MTU again, and see to forwarding."""
        async with self._changing:
            if self.config is not None:
                await self._prepare(self.config)

    async def _prepare(self, config: NodeConfig) -> None:
        peers = config.bgp.peers if config.bgp else ()
        routed = [peer.address.packed for peer in peers if peer.zone is None]
        versions = {network.version for network in config.reach}
        try:
            facts = await self._kernel.facts(self.node)
            mtu = config.mtu or await self._kernel.uplink_mtu(routed)
            changed = await self._kernel.enable_forwarding(ipv6=6 in versions, ipv4=4 in versions)
        except FlockError as error:  # no pod gets in before the node's own addresses are known and it forwards
            if error.msg != self.kernel_problem:
                log.error("could not prepare the node problem=%r", error.msg)
            self.kernel_problem = error.msg
            return
        self.kernel_problem = ""
        self.mtu = mtu
        if changed:
            log.info("set sysctls %s", " ".join(changed))
        if facts != self.facts:
            self.facts = facts
            self._notify()

    async def forwarding_off(self) -> list[str]:
        """Switches of the node that keep pods' packets from being forwarded now."""
        versions = {network.version for network in self.config.reach} if self.config else set()
        return await self._kernel.forwarding_off(ipv6=6 in versions, ipv4=4 in versions)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    @property
    def speaks(self) -> bool:
        """Is BIRD expected to talk to anybody?"""
        return self.config is not None and bool(self.config.bgp or self.config.ospf)

    # --- aggregates ---

    def retire(self, networks: Iterable[Network]) -> None:
        """Aggregates an earlier life of the agent announced: kept while pods are in them."""
        self._retired |= frozenset(networks) - set(self.config.aggregates if self.config else ())
        self._earlier_known = True
        self._notify()

    def drop_empty(self, allocations: Iterable[Allocation]) -> None:
        """Stop announcing retired aggregates that hold no pod any more."""
        if not self._retired:
            return
        primaries = [ip_address(a) for x in allocations for a in (x.ip6, x.ip4) if a]
        kept = frozenset(n for n in self._retired if any(a in n for a in primaries))
        if kept != self._retired:
            log.info("dropped empty aggregates %s", ",".join(sorted(map(str, self._retired - kept))))
            self._retired = kept
            self._notify()

    @property
    def aggregates(self) -> tuple[Network, ...]:
        """What this node announces: the configured ones, and removed ones that still hold pods."""
        if self.config is None:
            return ()
        return (*self.config.aggregates, *sorted(self._retired, key=lambda n: (n.version, n)))

    @property
    def effective_config(self) -> NodeConfig | None:
        """The configuration with retired aggregates still in it, for what is announced.

        None until those of an earlier life are known as well: they would be withdrawn for a moment."""
        if not self._earlier_known:
            return None
        if self.config is None or not self._retired:
            return self.config
        return msgspec.structs.replace(
            self.config,
            cidr6=tuple(n for n in self.aggregates if isinstance(n, IPv6Network)),
            cidr4=tuple(n for n in self.aggregates if isinstance(n, IPv4Network)),
        )

    def announced(self, allocation: Allocation) -> frozenset[str]:
        """Primary addresses that no aggregate covers: each has to be announced by itself."""
        if self._spans_of is not self.config or self._spans_retired is not self._retired:
            self._spans_of, self._spans_retired = self.config, self._retired
            self._spans = [(int(n[0]), int(n[-1]), n.version == 6) for n in self.aggregates]
        return frozenset(a for a in (allocation.ip6, allocation.ip4) if a and not self._covered(a))

    def _covered(self, address: str) -> bool:
        """By numbers: this runs for every address of every pod in each healing pass."""
        value, is_v6 = int.from_bytes(packed(address)), ":" in address
        return any(first <= value <= last and v6 == is_v6 for first, last, v6 in self._spans)
