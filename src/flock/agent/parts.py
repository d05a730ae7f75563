"""What the agent is made of once its store is loaded, in one place for whoever needs to ask around."""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from flock.agent.aggregates import Aggregates
from flock.agent.announcer import Announcer
from flock.agent.attached import Attached
from flock.agent.attachments import Attachments
from flock.agent.checking import Checker
from flock.agent.configured import Configured
from flock.agent.departure import Departure
from flock.agent.flags import Settings
from flock.agent.happened import Happened
from flock.agent.healing import Healer
from flock.agent.limiting import ConnectionLimit
from flock.agent.neighbours import Neighbours
from flock.agent.podinfo import Learner
from flock.agent.policies import Policies
from flock.agent.preparing import Preparing
from flock.agent.readiness import Readiness
from flock.agent.reconciling import Reconciler
from flock.agent.routing import Routing
from flock.core.ipam import Ipam
from flock.core.model import Allocation
from flock.core.nodeconfig import set_aside
from flock.edge.bird import room
from flock.edge.cache import Cache
from flock.edge.feeder import Feeder
from flock.edge.hostunits import HostUnits
from flock.edge.kernel.threads import Kernel
from flock.edge.store import Store


class Telling(Protocol):
    def subscribe(self, listener: Callable[[], None], /) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    happened: Happened
    readiness: Readiness
    cache: Cache
    feeder: Feeder
    configured: Configured
    preparing: Preparing
    aggregates: Aggregates
    ipam: Ipam
    store: Store
    kernel: Kernel
    attached: Attached
    attachments: Attachments
    policies: Policies
    routing: Routing
    departure: Departure
    announcer: Announcer
    healer: Healer
    checker: Checker
    neighbours: Neighbours
    connection_limit: ConnectionLimit

    def complaints(self) -> Iterable[str]:
        """What is not as it should be with what runs by nobody's doing.  That a pool is full is no reason to report the
        node as unable: kubelet would evict the pods that fill it."""
        yield self.store.last_error
        yield self.kernel.stuck
        networks = self.configured.config.aggregates if self.configured.config else ()
        if full := [use.cidr for use in self.ipam.use(networks, time.time()) if use.full]:
            yield f"no free address in {', '.join(full)}"


def assemble(settings: Settings, *, readiness: Readiness, cache: Cache, feeder: Feeder) -> Parts:
    """Make all of them, and let them hear of each other's changes.  Nothing is begun."""
    happened = Happened()
    store = Store(
        settings.state_dir, node=settings.node, cooldown=settings.cooldown, half_done=settings.run_dir / "pending"
    )
    attached = Attached(store)
    kernel = Kernel(sysctl=settings.sysctl_dir)
    configured = Configured(cache=cache, happened=happened)
    aggregates = Aggregates(configured)
    preparing = Preparing(configured=configured, kernel=kernel)
    routing = Routing(
        configured=configured,
        aggregates=aggregates,
        preparing=preparing,
        feeder=feeder,
        happened=happened,
        bird_dir=settings.bird_dir,
        run_dir=settings.run_dir,
    )
    policies = Policies(
        cache=cache,
        requires_pods=feeder.requires_pods,
        configured=configured,
        preparing=preparing,
        happened=happened,
        attached=attached,
        state_dir=settings.state_dir,
        strict=settings.strict,
        antispoofing=settings.antispoofing,
    )
    ipam = Ipam(rng=random.SystemRandom(), cooldown=settings.cooldown)

    def spare_granted() -> None:
        """Pools give out nothing that the configuration in force keeps for somebody."""
        ipam.set_aside(set_aside(configured.config) if configured.config else ())

    learner = Learner(cache=cache, feeder=feeder, preparing=preparing, policies=policies)
    attachments = Attachments(
        attached=attached,
        learner=learner,
        ipam=ipam,
        kernel=kernel,
        preparing=preparing,
        aggregates=aggregates,
        policies=policies,
        happened=happened,
    )
    healer = Healer(
        attached=attached,
        attachments=attachments,
        kernel=kernel,
        aggregates=aggregates,
        preparing=preparing,
        happened=happened,
        grace=settings.grace,
    )
    departure = Departure(cache=cache, units=HostUnits(settings.units_dir), bird_room=settings.run_dir / room.ROOM)
    announcer = Announcer(
        attached=attached,
        cache=cache,
        configured=configured,
        preparing=preparing,
        kernel=kernel,
        departure=departure,
        happened=happened,
        state_dir=settings.state_dir,
    )

    def settled(allocation: Allocation) -> None:
        """A pod came or went: announce what it carries, let go of a retired aggregate it was the last in."""
        if allocation.anycast or allocation.addresses:
            announcer.trigger()
        if aggregates.retired:
            healer.trigger()

    attached.subscribe(settled)
    cache.subscribe(configured.take_in)
    configured.subscribe(spare_granted)
    neighbours = Neighbours(aggregates)
    triggers: tuple[tuple[Telling, tuple[Reconciler, ...]], ...] = (
        (cache, (departure, announcer, policies)),
        (configured, (announcer, policies, routing)),
        (preparing, (announcer, policies, routing)),  # the node's own addresses changed
        (aggregates, (healer, routing, neighbours)),
        (departure, (announcer,)),  # the host's units say so, and no object does
        (healer, (announcer,)),
    )
    for telling, triggered in triggers:
        for reconciler in triggered:
            telling.subscribe(reconciler.trigger)
    return Parts(
        happened=happened,
        readiness=readiness,
        cache=cache,
        feeder=feeder,
        configured=configured,
        preparing=preparing,
        aggregates=aggregates,
        ipam=ipam,
        store=store,
        kernel=kernel,
        attached=attached,
        attachments=attachments,
        policies=policies,
        routing=routing,
        departure=departure,
        announcer=announcer,
        healer=healer,
        checker=Checker(
            attached=attached,
            attachments=attachments,
            announcer=announcer,
            healer=healer,
            kernel=kernel,
            policies=policies,
            cache=cache,
            requires_pods=feeder.requires_pods,
            preparing=preparing,
        ),
        neighbours=neighbours,
        connection_limit=ConnectionLimit(
            attached=attached,
            policies=policies,
            configured=configured,
            sysctl=settings.sysctl_dir,
            happened=happened,
        ),
    )
