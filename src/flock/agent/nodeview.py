"""What the agent currently believes about its node: configuration, addresses, MTU.

A NodeConfig that does not parse is reported and changes nothing: the last good one stays in force (invariant 7).
"""

import logging
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

from flock.core.errors import FlockError
from flock.core.facts import NodeFacts
from flock.core.model import Allocation
from flock.core.nodeconfig import Network, NodeConfig, parse_node_config
from flock.edge.kernel.node import DEFAULT_MTU
from flock.edge.kernel.threads import Kernel
from flock.edge.source import Source

log = logging.getLogger("node")


class NodeView:
    def __init__(self, *, node: str, source: Source, kernel: Kernel) -> None:
        self.node = node
        self.config: NodeConfig | None = None
        self.config_problem = ""
        self.kernel_problem = ""  # why forwarding could not be switched on
        self.facts = NodeFacts(node=node)
        self.mtu = DEFAULT_MTU
        self._source = source
        self._kernel = kernel
        self._raw: Mapping[str, Any] | None = None
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """`listener` runs after the configuration changed."""
        self._listeners.append(listener)

    async def take_in(self) -> None:
        """Take in the source's NodeConfig if it changed.  Cheap when it did not."""
        raw = self._source.node_config
        if raw is None and self._raw is not None:
            self.config_problem = f"NodeConfig {self.node} was deleted; its last version stays in force"
        if raw is None or raw == self._raw:
            return
        self._raw = raw
        try:
            config = parse_node_config(raw)
        except FlockError as error:
            self.config_problem = error.msg
            log.error("refused NodeConfig node=%s problem=%r last_good=%s", self.node, error.msg, bool(self.config))
            return
        self.config_problem = ""
        if config == self.config:
            return
        self.config = config
        log.info("took NodeConfig node=%s cidrs=%s", self.node, ",".join(map(str, config.aggregates)) or "-")
        await self.refresh()
        for listener in self._listeners:
            listener()

    async def refresh(self) -> None:
        """Read the node's addresses and uplink MTU again, and see to forwarding."""
        config = self.config
        if config is None:
            return
        self.facts = await self._kernel.facts(self.node)
        peers = config.bgp.peers if config.bgp else ()
        routed = [peer.address.packed for peer in peers if peer.zone is None]
        self.mtu = config.mtu or await self._kernel.uplink_mtu(routed)
        try:
            changed = await self._kernel.enable_forwarding(ipv6=bool(config.cidr6), ipv4=bool(config.cidr4))
        except FlockError as error:
            if error.msg != self.kernel_problem:
                log.error("could not enable forwarding problem=%r", error.msg)
            self.kernel_problem = error.msg
        else:
            self.kernel_problem = ""
            if changed:
                log.info("set sysctls %s", " ".join(changed))

    @property
    def aggregates(self) -> tuple[Network, ...]:
        return self.config.aggregates if self.config else ()

    def announced(self, allocation: Allocation) -> frozenset[str]:
        """Primary addresses that no aggregate covers: each has to be announced by itself."""
        return frozenset(
            address
            for address, networks in (
                (allocation.ip6, self.config.cidr6 if self.config else ()),
                (allocation.ip4, self.config.cidr4 if self.config else ()),
            )
            if address and not _covered(address, networks)
        )


def _covered(address: str, networks: tuple[Network, ...]) -> bool:
    return any(ip_address(address) in network for network in networks)
