"""What the agent is made of, in one place for whoever needs to ask around, and who hears of whose changes."""

import random
import time
from collections.abc import Iterable

from flock.agent.aggregates import Aggregates
from flock.agent.announcer import READ as ANNOUNCER_READS
from flock.agent.announcer import Announcer
from flock.agent.attached import Attached
from flock.agent.attachments import Attachments
from flock.agent.configured import Configured
from flock.agent.departure import Departure
from flock.agent.flags import Settings
from flock.agent.folding import Folding
from flock.agent.happened import Happened
from flock.agent.healing import Healer
from flock.agent.healthports import HealthPorts
from flock.agent.intake import READ as POLICIES_READ
from flock.agent.limiting import ConnectionLimit
from flock.agent.neighbours import Neighbours
from flock.agent.offered import Offered
from flock.agent.podinfo import Learner
from flock.agent.policies import Policies
from flock.agent.preparing import Preparing
from flock.agent.readiness import Readiness
from flock.agent.reconciling import Reconciler, Telling
from flock.agent.routing import Routing
from flock.agent.services import Services
from flock.core.fabrichealth import lan_complaints
from flock.core.ipam import Ipam
from flock.core.kinds import ENDPOINT_SLICES, NAMESPACES, NODE_CONFIGS, NODES, SERVICES, TEMPLATES
from flock.core.model import Allocation
from flock.core.nodeconfig import set_aside
from flock.edge import halfdone
from flock.edge.bird import room
from flock.edge.cache import Cache
from flock.edge.cnipaths import CniPaths
from flock.edge.feeder import Feeder
from flock.edge.hostunits import HostUnits
from flock.edge.kernel.threads import Kernel
from flock.edge.store import Store


class Parts:
    """Made one after the other, each of those before it.  Nothing is begun."""

    def __init__(self, settings: Settings, *, readiness: Readiness, cache: Cache, feeder: Feeder) -> None:
        self.settings, self.readiness, self.cache, self.feeder = settings, readiness, cache, feeder
        self.happened = Happened()
        self.cni_paths = CniPaths(settings.state_dir)
        self.store = Store(
            settings.state_dir,
            node=settings.node,
            cooldown=settings.cooldown,
            half_done=settings.run_dir / halfdone.FOLDER,
        )
        self.folding = Folding(self.store)
        self.ipam = Ipam(rng=random.SystemRandom(), cooldown=settings.cooldown)
        self.attached = Attached(self.store)
        self.kernel = Kernel(sysctl=settings.sysctl_dir)
        self.configured = Configured(cache=cache, happened=self.happened)
        self.aggregates = Aggregates(self.configured)
        self.neighbours = Neighbours(self.aggregates, settings.run_dir)
        self.preparing = Preparing(configured=self.configured, kernel=self.kernel)
        self.routing = Routing(
            configured=self.configured,
            aggregates=self.aggregates,
            preparing=self.preparing,
            feeder=feeder,
            happened=self.happened,
            bird_dir=settings.bird_dir,
            run_dir=settings.run_dir,
        )
        self.policies = Policies(
            cache=cache,
            requires_pods=feeder.requires_pods,
            configured=self.configured,
            preparing=self.preparing,
            happened=self.happened,
            attached=self.attached,
            sender=self.kernel.transactions,
            state_dir=settings.state_dir,
            strict=settings.strict,
            antispoofing=settings.antispoofing,
            on_others=self.neighbours.heard,
        )
        self.connection_limit = ConnectionLimit(
            attached=self.attached,
            policies=self.policies,
            configured=self.configured,
            sysctl=settings.sysctl_dir,
            happened=self.happened,
        )
        self.attachments = Attachments(
            attached=self.attached,
            learner=Learner(cache=cache, feeder=feeder, preparing=self.preparing, policies=self.policies),
            ipam=self.ipam,
            kernel=self.kernel,
            preparing=self.preparing,
            aggregates=self.aggregates,
            policies=self.policies,
            happened=self.happened,
        )
        self.healer = Healer(
            attached=self.attached,
            attachments=self.attachments,
            kernel=self.kernel,
            aggregates=self.aggregates,
            preparing=self.preparing,
            happened=self.happened,
            grace=settings.grace,
        )
        units = HostUnits(settings.units_dir)
        self.departure = Departure(cache=cache, units=units, bird_room=settings.run_dir / room.ROOM)
        self.announcer = Announcer(
            attached=self.attached,
            cache=cache,
            configured=self.configured,
            preparing=self.preparing,
            kernel=self.kernel,
            departure=self.departure,
            happened=self.happened,
            state_dir=settings.state_dir,
        )
        self.health_ports = HealthPorts(preparing=self.preparing)
        self.services = Services(
            cache=cache,
            configured=self.configured,
            offered=Offered(cache=cache, configured=self.configured, preparing=self.preparing),
            attached=self.attached,
            ipam=self.ipam,
            announcer=self.announcer,
            ports=self.health_ports,
            kernel=self.kernel,
            happened=self.happened,
        )

    def complaints(self) -> Iterable[str]:
        """What is not as it should be with what runs by nobody's doing.  That a pool is full is no reason to report the
        node as unable: kubelet would evict the pods that fill it."""
        yield self.store.last_error
        yield self.kernel.stuck
        config = self.configured.config
        yield from lan_complaints(config, self.preparing.facts) if config else ()
        networks = config.aggregates if config else ()
        if full := [use.cidr for use in self.ipam.use(networks, time.time()) if use.full]:
            yield f"no free address in {', '.join(full)}"


def assemble(settings: Settings, *, readiness: Readiness, cache: Cache, feeder: Feeder) -> Parts:
    """Make all of them, and let them hear of each other's changes."""
    parts = Parts(settings, readiness=readiness, cache=cache, feeder=feeder)
    configured, aggregates, announcer, healer = parts.configured, parts.aggregates, parts.announcer, parts.healer

    def spare_granted() -> None:
        """Pools give out nothing that the configuration in force keeps for somebody."""
        parts.ipam.set_aside(set_aside(configured.config) if configured.config else ())

    def settled(allocation: Allocation) -> None:
        """A pod came or went: announce what it carries, let go of a retired aggregate it was the last in."""
        if allocation.anycast or allocation.addresses:
            announcer.trigger()
        if aggregates.retired:
            healer.trigger()

    parts.attached.subscribe(settled)
    parts.attached.subscribe(parts.services.settled)
    cache.subscribe(configured.take_in, of=(NODES, NODE_CONFIGS, TEMPLATES))
    cache.subscribe(parts.departure.trigger, of=(NODES,))
    cache.subscribe(announcer.consider, of=ANNOUNCER_READS)
    cache.subscribe(parts.policies.consider, of=POLICIES_READ)
    cache.subscribe(parts.services.consider, of=(SERVICES, ENDPOINT_SLICES, NAMESPACES, NODES))
    configured.subscribe(spare_granted)
    configured.subscribe(parts.services.follow)
    triggers: tuple[tuple[Telling, tuple[Reconciler, ...]], ...] = (
        (configured, (parts.preparing, announcer, parts.policies, parts.routing)),
        (
            parts.preparing,
            (announcer, parts.policies, parts.routing, parts.services),
        ),  # the node's own addresses changed
        (aggregates, (healer, parts.routing, parts.neighbours)),
        (parts.departure, (announcer, parts.services)),  # the host's units say so, and no object does
        (healer, (announcer, parts.services)),
    )
    for telling, triggered in triggers:
        for reconciler in triggered:
            telling.subscribe(reconciler.trigger)
    return parts
