"""Prepares the node for its configuration: its own addresses are known, the uplink's MTU is, and it forwards.

Runs when another configuration is in force, when the node's links or addresses change, and every PERIOD; what the
kernel refuses is shown and tried again.  An ADD gets configuration, addresses and MTU as one value, for which the node
was prepared: one that comes while that is under way waits.
"""

import logging

import msgspec

from flock.agent.configured import Configured
from flock.agent.reconciling import Reconciler
from flock.core.errors import TryAgain
from flock.core.facts import NodeFacts
from flock.core.nodeconfig import NodeConfig
from flock.edge.kernel.node import DEFAULT_MTU
from flock.edge.kernel.threads import Kernel

log = logging.getLogger("node")

PERIOD = 30.0  # bounds what no event tells: switches that somebody turned
SPACING = 1.0  # between runs: a flood of events costs one a second


class Prepared(msgspec.Struct, frozen=True):
    """What a pod is attached by."""

    config: NodeConfig
    facts: NodeFacts
    mtu: int


class Preparing(Reconciler):
    def __init__(self, *, configured: Configured, kernel: Kernel) -> None:
        super().__init__(log, "could not prepare the node", period=PERIOD, spacing=SPACING)
        self.facts = NodeFacts(node=configured.node)
        self._configured = configured
        self._kernel = kernel
        self._prepared: Prepared | None = None

    @property
    def mtu(self) -> int:
        return self._prepared.mtu if self._prepared else DEFAULT_MTU

    async def prepared(self) -> Prepared:
        """The newest configuration, once the node is prepared for it.  Cheap when it is; TryAgain when it cannot be."""
        self._configured.take_in()
        if missing := self._configured.missing:
            raise TryAgain(missing)
        if not self._is_prepared():
            await self.reconcile(unless=self._is_prepared)
        if self._prepared is None or self.problem:
            raise TryAgain(self.problem)
        return self._prepared

    def _is_prepared(self) -> bool:
        return self._prepared is not None and self._prepared.config is self._configured.config

    async def _reconcile(self) -> str:
        """What is refused is all of it: no pod gets in before the node's own addresses are known and it forwards."""
        await self.observe()
        if (config := self._configured.config) is not None:
            await self._apply(config)
        return ""

    async def observe(self) -> None:
        """The node's own addresses, on which it depends what pods may have.  KernelRefused."""
        facts = await self._kernel.facts(self._configured.node)
        if facts != self.facts:
            self.facts = facts
            self._notify()

    async def _apply(self, config: NodeConfig) -> None:
        peers = config.bgp.peers if config.bgp else ()
        routed = [peer.address.packed for peer in peers if peer.zone is None]
        mtu = config.mtu or await self._kernel.uplink_mtu(routed)
        if changed := await self._kernel.enable_forwarding(**_families(config)):
            log.info("set sysctls %s", " ".join(changed))
        self._prepared = Prepared(config, self.facts, mtu)

    async def differences(self) -> list[str]:
        """Switches of the node that keep pods' packets from being forwarded now."""
        off = await self._kernel.forwarding_off(**_families(self._configured.config))
        return [f"forwarding: {switch} is off" for switch in off]


def _families(config: NodeConfig | None) -> dict[str, bool]:
    versions = {network.version for network in config.reach} if config else set()
    return {"ipv6": 6 in versions, "ipv4": 4 in versions}
