"""The agent's life: from nothing to serving, in the order in which its parts become able to work, and to a quiet end.

The socket is there first, and calls wait on it.  Nothing that may heal ends the agent: it waits, says why, and goes on.
SIGTERM ends it and touches no pod.
"""

import asyncio
import gc
import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import flock
from flock.agent.admin import Admin
from flock.agent.conflist import Conflist
from flock.agent.desk import Desk
from flock.agent.feed import Feed
from flock.agent.flags import Settings
from flock.agent.metrics import Metrics
from flock.agent.pages import Pages, for_scrapers, for_the_node
from flock.agent.parts import assemble
from flock.agent.readiness import Readiness
from flock.agent.reconciling import Reconciler
from flock.agent.serving import Serving
from flock.agent.status import Status
from flock.agent.verbs import Verbs
from flock.core.errors import FieldError, StoreFailure, TryAgain
from flock.core.happenings import NodeReady, Started
from flock.core.kinds import NODE_CONFIGS, NODES, TEMPLATES
from flock.edge import rundir
from flock.edge.cache import Cache
from flock.edge.deferred_dels import DeferredDels
from flock.edge.ending import end
from flock.edge.feeder import Feeder
from flock.edge.nft import observe
from flock.edge.rpc import RpcServer
from flock.edge.servingfile import ServingFile
from flock.edge.supervising import Supervisor

if TYPE_CHECKING:
    from flock.edge.kube.writer import KubeWriter

log = logging.getLogger("agent")

LOOK_FOR_OTHERS = 1.0  # between looks whether the other agent has gone
# Objects made and kept until it is looked whether some hold each other.  An ADD makes 3,000, most of which go with it:
# at the usual 700 it was looked four times for each, a twentieth of its time.
CYCLES = 10_000
LAST_CALLS = 10.0  # how long calls under way may take when the agent is told to stop
# What needs no more than the record of pods and is asked for when little else works.
EARLY = frozenset({"DEL", "GC", "status", "pods", "bgp", "config", "happened", "policy.drops", "drain"})


class Agent:
    def __init__(
        self,
        settings: Settings,
        *,
        cache: Cache,
        feeder: Feeder,
        writer: "KubeWriter | None",
        supervisor: Supervisor,
    ) -> None:
        self._settings = settings
        self._cache, self._feeder = cache, feeder
        self._writer = writer
        self._supervisor = supervisor
        self._readiness = Readiness()
        self._parts = assemble(settings, readiness=self._readiness, cache=cache, feeder=feeder)
        self._metrics = Metrics(self._parts, supervisor)
        self._status = Status(self._parts, latencies=self._metrics.latencies)
        self._serving = Serving(self._readiness, ServingFile(settings.run_dir))
        self._deferred = DeferredDels(settings.run_dir)
        self._desk = Desk(self._readiness)
        self._socket = settings.run_dir / rundir.SOCKET
        self._rpc = RpcServer(self._socket, answer=self._desk.answer, on_call=self._count)
        self._readiness.degraded_by(self._parts.complaints, self._parts.configured.complaints)
        self._readiness.degraded_by(lambda: supervisor.problems)

    async def run(self, stop: asyncio.Event) -> None:
        lock = await self._alone()
        self._parts.happened.note(Started(node=self._settings.node, version=flock.__version__))
        start = asyncio.create_task(self._start(lock))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({start, stopping}, return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping")
        self._serving.note()
        self._parts.happened.close()
        await self._rpc.stop(LAST_CALLS)
        await self._parts.announcer.leave()
        await self._parts.services.leave()
        await end(start, stopping)  # an unexpected end of the start is an error to show
        await self._supervisor.close()
        await self._feeder.close()
        await self._parts.store.close()
        self._parts.kernel.close()
        os.close(lock)

    async def _alone(self) -> int:
        """An agent that is still there keeps its socket: wait for its end, as in an upgrade that overlaps.

        Returns a file descriptor: whoever closes it leaves."""
        run_dir, told = self._settings.run_dir, False
        while True:
            try:
                run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
                return rundir.take(run_dir)
            except BlockingIOError:
                if not told:
                    log.warning("waiting for another agent to leave run_dir=%s", run_dir)
                told = True
            except OSError as error:
                raise FieldError("--run-dir", f"cannot use {run_dir}: {error.strerror}") from None
            await asyncio.sleep(LOOK_FOR_OTHERS)

    async def _start(self, lock: int) -> None:
        """Every step is taken until it is done, and is why the node is not ready until then.  What an earlier life
        announced and enforced stays as it is until its step is reached.  Never returns."""
        settings, parts, step, offer = self._settings, self._parts, self._readiness.step, self._desk.offer
        self._cache.subscribe(self._readiness.look, of=(NODES, NODE_CONFIGS, TEMPLATES))

        self._supervisor.keep("links", lambda: parts.kernel.make_links(lock))

        # Listen: callers wait for what cannot be answered yet.
        self._deferred.open()
        admin = Admin(parts, self._status).operations()
        offer({"STATUS": self._serving.status, "status": admin["status"]})
        if settings.http:
            self._keep(pages=self._pages(settings.http))
        if settings.metrics:
            self._keep(metrics=Pages("--metrics", settings.metrics, for_scrapers(self._metrics)))
        await step("the socket cannot be opened yet", self._rpc.start)
        await parts.routing.reconcile()  # BIRD can be started
        await self._feeder.start()

        await step("the state file is not loaded yet", self._load)
        self._keep(folding=parts.folding)
        await step("half-done work of an earlier run cannot be undone", self._catch_up)
        operations = {**admin, **Verbs(parts, self._deferred).operations()}
        offer({op: handler for op, handler in operations.items() if op in EARLY})
        self._keep(routing=parts.routing, departure=parts.departure, neighbours=parts.neighbours)
        self._report()
        self._supervisor.keep("serving", self._serving.run)

        await step("the first listing is not complete", self._listed)
        await step("no NodeConfig is in force yet", self._is_configured)
        await step("the node's addresses are not known yet", parts.preparing.observe)
        self._rely_on(preparing=parts.preparing)
        await step("the rules are not in force yet", parts.policies.begin)  # first: a link that is healed may be used
        self._rely_on(policies=parts.policies)
        self._keep(limiting=parts.connection_limit)
        await step("the first look at the kernel is not over yet", self._first_look)
        self._keep(healing=parts.healer, announcing=parts.announcer, services=parts.services)
        self._supervisor.keep("health ports", parts.health_ports.run)
        await step("the node is not prepared yet", self._is_prepared)
        await step("no pod can get an address", self._has_addresses)
        self._readiness.needs(lambda: parts.configured.barren)

        self._readiness.started()
        self._serving.note()
        gc.collect()
        gc.freeze()  # what exists now lives as long as the agent: no need to look at it again and again
        gc.set_threshold(CYCLES)
        parts.happened.note(NodeReady(node=settings.node))
        if settings.cni_conf_dir is not None:
            conf_dir, bin_dir = settings.cni_conf_dir, settings.cni_bin_dir
            conflist = Conflist(conf_dir, bin_dir, parts.cni_paths, socket=self._socket, wait=settings.cni_wait)
            self._keep(conflist=conflist)
        offer(operations, last=True)
        await self._supervisor.stay()

    def _pages(self, address: str) -> Pages:
        feed = Feed(self._parts.happened)
        told = for_the_node(readiness=self._readiness, metrics=self._metrics, status=self._status, feed=feed)
        return Pages("--http", address, told)

    def _keep(self, **parts: Reconciler) -> None:
        for name, part in parts.items():
            self._supervisor.keep(name, part.run)
            self._readiness.degraded_by(part.complaints)

    def _rely_on(self, **parts: Reconciler) -> None:
        for name, part in parts.items():
            self._supervisor.keep(name, part.run)
            self._readiness.requires(part)

    def _report(self) -> None:
        """To the API server, where there is one."""
        if self._writer is not None:
            from flock.agent.events import Events
            from flock.agent.reporting import Reporter

            events = Events(happened=self._parts.happened, cache=self._cache, writer=self._writer)
            self._keep(reporting=Reporter(self._parts, self._writer))
            self._supervisor.keep("events", events.run)

    # --- steps ---

    async def _load(self) -> None:
        """The record of pods, and those that run without one, before anybody asks for them or for their addresses.

        Such are there if a state directory was emptied or moved away under running pods.  What is half done has its
        note, is on record by that, and is taken down by whoever resolves notes."""
        parts = self._parts
        parts.attached.load()
        recorded = {allocation.host_interface for allocation in parts.attached.entries}
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        for found in await parts.kernel.unrecorded(recorded=recorded, sources=observe.sources, now=now):
            if parts.attached.of(found.container_id) is None:
                said = (found.pod, found.container_id, found.host_interface)
                log.warning("adopting pod=%s container=%s interface=%s", *said)
                await parts.attached.record(found)
        try:
            await asyncio.gather(*map(parts.attached.record, await parts.kernel.placed(parts.attached.entries)))
        except StoreFailure as failed:  # at the next start, then: they go on as they did
            log.warning("could not record which namespaces pods are in problem=%s", failed)
        parts.ipam.seed(parts.attached.entries, parts.store.released)
        log.info("loaded store allocations=%d", len(parts.attached.entries))

    async def _catch_up(self) -> None:
        """Undo what an earlier life left half done, and do what was asked for when there was no agent."""
        attachments = self._parts.attachments
        await attachments.resolve_pending()
        for container_id, ifname in self._deferred.left():
            log.info("catching up op=DEL container=%s ifname=%s", container_id, ifname)
            await attachments.detach(container_id, ifname=ifname)
            self._deferred.forget(container_id, ifname)

    async def _listed(self) -> None:
        if not self._cache.complete:
            said = "; ".join(f"{p.where}: {p.message}" for p in self._cache.troubles)
            raise TryAgain(f"the first listing is not complete{': ' + said if said else ''}")

    async def _is_configured(self) -> None:
        if missing := self._parts.configured.missing:
            raise TryAgain(missing)

    async def _first_look(self) -> None:
        await self._parts.preparing.reconcile()  # some of its switches are there only now that rules are in force
        await self._parts.healer.look()
        await self._parts.healer.reconcile()

    async def _is_prepared(self) -> None:
        if problem := self._parts.preparing.problem:
            raise TryAgain(problem)

    async def _has_addresses(self) -> None:
        if barren := self._parts.configured.barren:
            raise TryAgain(barren)

    # --- calls ---

    def _count(self, op: str, code: int, seconds: float) -> None:
        """CNI verbs; flockctl's questions are not counted."""
        verb = op if self._desk.knows(op) else "UNKNOWN"
        if verb.isupper():
            self._metrics.count(verb, str(code) if code else "success", seconds)
