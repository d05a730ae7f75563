"""The prefixes that are this node's to announce: those it is configured with, and retired ones that still hold pods.

Each ends in a blackhole route.  So the kernel remembers them over restarts of the agent: the first look at it finds
those that the configuration does not name any more.
"""

import logging
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address

import msgspec

from flock.agent.configured import Configured
from flock.agent.reconciling import Telling
from flock.core.facts import Network
from flock.core.model import Allocation
from flock.core.nodeconfig import NodeConfig
from flock.edge.kernel.compare import Difference, aggregate_differences, blackholed
from flock.edge.kernel.linkmessages import packed
from flock.edge.kernel.observe import Observed

log = logging.getLogger("node")


class Aggregates(Telling):
    def __init__(self, configured: Configured) -> None:
        super().__init__()
        self.known = False  # also those that an earlier life announced
        self.retired: frozenset[Network] = frozenset()
        self._configured = configured
        self._named: tuple[Network, ...] = ()
        self._spans: list[tuple[int, int, bool]] = []
        configured.subscribe(self._follow)
        self._follow()

    @property
    def networks(self) -> tuple[Network, ...]:
        return (*self._named, *sorted(self.retired, key=lambda n: (n.version, n)))

    @property
    def announced_config(self) -> NodeConfig | None:
        """The configuration in force with retired aggregates still in it.

        None until those of an earlier life are known as well: they would be withdrawn for a moment."""
        config = self._configured.config
        if config is None or not self.known:
            return None
        return msgspec.structs.replace(
            config,
            cidr6=tuple(n for n in self.networks if isinstance(n, IPv6Network)),
            cidr4=tuple(n for n in self.networks if isinstance(n, IPv4Network)),
        )

    def uncovered(self, allocation: Allocation) -> frozenset[str]:
        """Primary addresses that no aggregate covers: each has to be announced by itself."""
        return frozenset(a for a in (allocation.ip6, allocation.ip4) if a and not self._covers(a))

    def _covers(self, address: str) -> bool:
        """By numbers: this runs for every address of every pod in each healing pass."""
        value, is_v6 = int.from_bytes(packed(address)), ":" in address
        return any(first <= value <= last and v6 == is_v6 for first, last, v6 in self._spans)

    # --- the kernel ---

    def take_stock(self, observed: Observed, allocations: Iterable[Allocation]) -> None:
        """Learn at the first look what an earlier life announced; let go of what is retired and holds no pod."""
        first, self.known = not self.known, True
        retired = self.retired | (frozenset(blackholed(observed)) - set(self._named) if first else set())
        if retired:
            primaries = [ip_address(a) for x in allocations for a in (x.ip6, x.ip4) if a]
            kept = frozenset(n for n in retired if any(a in n for a in primaries))
            if kept != retired:
                log.info("dropped empty aggregates %s", ",".join(sorted(map(str, retired - kept))))
            retired = kept
        if first or retired != self.retired:
            self._change(retired)

    def differences(self, observed: Observed) -> list[Difference]:
        """Blackholes that are missing, and those that are nobody's."""
        return aggregate_differences(self.networks, observed)

    def _follow(self) -> None:
        before, config = self._named, self._configured.config
        self._named = config.aggregates if config else ()
        self._change((self.retired | set(before)) - set(self._named))

    def _change(self, retired: frozenset[Network]) -> None:
        self.retired = retired
        self._spans = [(int(n[0]), int(n[-1]), n.version == 6) for n in self.networks]
        self._notify()
