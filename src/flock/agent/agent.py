"""The agent's life: from nothing to serving, in the order in which its parts become able to work, and to a quiet end.

The socket is there first, and calls wait on it; then the store is read, what an earlier life left half done is undone,
what was asked for in between is done, and DEL, CHECK and GC are served; ADD is served once the first listing, a valid
NodeConfig, the rules and forwarding are there.  Nothing that may heal ends the agent: it waits, says why, and goes on.
SIGTERM ends it and touches no pod.
"""

import asyncio
import contextlib
import gc
import logging
import os
from typing import TYPE_CHECKING

from flock.agent.admin import Admin, base_status
from flock.agent.adopting import adopt
from flock.agent.aggregates import Aggregates
from flock.agent.attached import Attached
from flock.agent.attachments import Attachments
from flock.agent.configured import Configured
from flock.agent.conflist import Conflist
from flock.agent.flags import Settings
from flock.agent.happened import Happened
from flock.agent.locks import alone_in
from flock.agent.metrics import Metrics, told
from flock.agent.pages import pages
from flock.agent.parts import Parts, assemble
from flock.agent.policies import Policies
from flock.agent.preparing import Preparing
from flock.agent.readiness import Readiness
from flock.agent.routing import Routing
from flock.agent.serving import Serving
from flock.agent.verbs import PATIENCE, Verbs
from flock.core.cni import Request
from flock.core.errors import Code, FlockError, TryAgain
from flock.core.happenings import NodeReady
from flock.edge.cache import Cache
from flock.edge.deferred_dels import DeferredDels
from flock.edge.feeder import Feeder
from flock.edge.http import HttpServer
from flock.edge.kernel.threads import Kernel
from flock.edge.rpc import RpcServer
from flock.edge.servingfile import ServingFile
from flock.edge.store import Store
from flock.edge.supervising import Run, Supervisor

if TYPE_CHECKING:
    from flock.edge.kube.writer import KubeWriter

log = logging.getLogger("agent")

RETRY = 1.0  # between attempts at what a human has to mend (a missing directory, a broken state file)
LAST_CALLS = 10.0  # how long calls under way may take when the agent is told to stop


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
        self._supervisor = supervisor
        self._cache, self._feeder = cache, feeder
        self._writer = writer
        self._happened = Happened()
        self._readiness = Readiness()
        self._metrics = Metrics()
        self._store = Store(
            settings.state_dir, node=settings.node, cooldown=settings.cooldown, half_done=settings.run_dir / "pending"
        )
        self._attached = Attached(self._store)
        self._store_problem = "the state file is not loaded yet"
        self._deferred = DeferredDels(settings.run_dir)
        self._kernel = Kernel(sysctl=settings.sysctl_dir)
        self._configured = Configured(cache=cache, happened=self._happened)
        self._aggregates = Aggregates(self._configured)
        self._preparing = Preparing(configured=self._configured, kernel=self._kernel)
        self._routing = Routing(
            configured=self._configured,
            aggregates=self._aggregates,
            preparing=self._preparing,
            feeder=feeder,
            happened=self._happened,
            bird_dir=settings.bird_dir,
            run_dir=settings.run_dir,
        )
        self._policies = Policies(
            cache=cache,
            requires_pods=feeder.requires_pods,
            configured=self._configured,
            preparing=self._preparing,
            happened=self._happened,
            attached=self._attached,
            state_dir=settings.state_dir,
            strict=settings.strict,
            antispoofing=settings.antispoofing,
        )
        self._parts: Parts | None = None
        self._healed = False
        self._failed: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._followed = asyncio.Event()  # the cache's changes are taken in
        self._serving = Serving(self._readiness, ServingFile(settings.run_dir))
        socket = settings.run_dir / "flock.sock"
        self._conflist = Conflist(
            conf_dir=settings.cni_conf_dir, bin_dir=settings.cni_bin_dir, socket=socket, wait=settings.cni_wait
        )
        self._rpc = RpcServer(
            socket,
            {"STATUS": self._serving.status, "status": self._short_status},
            otherwise=self._wait_for_handler,
            on_call=self._count,
        )
        self._declare_readiness()

    def _declare_readiness(self) -> None:
        requires, degraded_by = self._readiness.requires, self._readiness.degraded_by
        requires(lambda: self._store_problem)
        requires(self._listing_problem)
        requires(lambda: self._configured.missing)
        requires(lambda: self._preparing.problem, pods_suffer=True)
        requires(lambda: "" if self._policies.begun else self._policies.problem)
        requires(lambda: self._policies.problem if self._policies.begun else "", pods_suffer=True)
        requires(lambda: "" if self._healed else "the first look at the kernel is not over yet")
        degraded_by(lambda: self._configured.problem if self._configured.config else "")
        degraded_by(lambda: self._store.last_error)
        degraded_by(lambda: self._kernel.stuck)
        degraded_by(lambda: self._routing.problem)
        degraded_by(lambda: self._routing.bird_problem if self._configured.speaks else "")
        degraded_by(lambda: self._routing.import_problem)
        degraded_by(lambda: self._conflist.problem)
        degraded_by(lambda: self._conflist.failing)
        degraded_by(lambda: "; ".join((*self._failed.values(), *self._supervisor.problems)))

    async def run(self, stop: asyncio.Event) -> None:
        lock = await alone_in(self._settings.run_dir)
        http = await self._listen()
        self._cache.subscribe(self._changed.set)
        await self._routing.reconcile()
        await self._feeder.start()
        work = asyncio.create_task(self._work())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping")
        self._serving.note()
        self._happened.close()
        await self._rpc.stop(LAST_CALLS)
        if self._parts is not None:
            await self._parts.announcer.leave()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work  # an unexpected end of the work is an error to show
        await self._supervisor.close()
        if http is not None:
            http.close()
        await self._feeder.close()
        await self._store.close()
        self._kernel.close()
        os.close(lock)

    async def _listen(self) -> HttpServer | None:
        self._deferred.open()
        await self._rpc.start()
        if not self._settings.http:
            return None
        status = lambda: base_status(self._settings.node, self._readiness)  # noqa: E731
        http = HttpServer(self._settings.http, pages(self._readiness, self._metrics, status=status))
        try:
            await http.start()
        except OSError as error:  # pods matter more than the status page
            self._failed["http"] = f"cannot listen on --http {self._settings.http}: {error.strerror}"
            log.error("%s", self._failed["http"])
            return None
        return http

    async def _work(self) -> None:
        await self._load_store()
        parts = self._parts = assemble(
            self._settings,
            happened=self._happened,
            readiness=self._readiness,
            cache=self._cache,
            feeder=self._feeder,
            configured=self._configured,
            preparing=self._preparing,
            aggregates=self._aggregates,
            store=self._store,
            attached=self._attached,
            kernel=self._kernel,
            policies=self._policies,
            routing=self._routing,
        )
        await self._catch_up(parts.attachments)
        self._readiness.degraded_by(lambda: parts.healer.problem)
        self._readiness.degraded_by(lambda: parts.healer.unrecorded_problem)
        self._readiness.degraded_by(lambda: parts.announcer.problem)
        self._readiness.degraded_by(lambda: parts.departure.problem)
        self._readiness.degraded_by(lambda: parts.full_pools)
        self._readiness.degraded_by(lambda: parts.neighbours.harm.ipvs)
        self._readiness.degraded_by(lambda: parts.neighbours.harm.masquerade)
        self._readiness.degraded_by(lambda: parts.connection_limit.restricted)
        self._metrics.others = told(parts, self._supervisor)
        self._rpc.otherwise = None
        verbs = Verbs(parts, self._deferred)
        self._rpc.handlers = {**verbs.operations(), **Admin(parts).operations(), "STATUS": self._serving.status}
        runs: dict[str, Run] = {
            "routing": parts.routing.run,
            "source": self._follow_cache,
            "preparing": parts.preparing.run,
            "healing": lambda: self._heal(parts),
            "announcing": parts.announcer.run,
            "departure": parts.departure.run,
            "policies": parts.policies.run,
            "neighbours": parts.neighbours.run,
            "limiting": parts.connection_limit.run,
        }
        runs |= {"serving": self._serving.run, "conflist": self._conflist.run} | self._reports(parts)
        for name, run in runs.items():
            self._supervisor.keep(name, run)
        await self._supervisor.stay()

    def _reports(self, parts: Parts) -> dict[str, Run]:
        if self._writer is None:
            return {}
        from flock.agent.events import Events
        from flock.agent.reporting import Reporter

        events = Events(happened=self._happened, cache=self._cache, writer=self._writer)
        return {"reporting": Reporter(parts, self._writer).run, "events": events.run}

    async def _load_store(self) -> None:
        while True:
            try:
                self._attached.load()
                await adopt(self._attached, self._kernel)
            except (FlockError, OSError) as error:
                if str(error) != self._store_problem:
                    log.error("could not load the store problem=%s", error)
                self._store_problem = str(error)
                await asyncio.sleep(RETRY)
            else:
                self._store_problem = ""
                log.info("loaded store allocations=%d", len(self._attached.entries))
                return

    async def _catch_up(self, attachments: Attachments) -> None:
        """Undo what an earlier life left half done, and do what was asked for when there was no agent."""
        while True:
            try:
                await attachments.resolve_pending()
                for container_id, ifname in self._deferred.left():
                    log.info("catching up op=DEL container=%s ifname=%s", container_id, ifname)
                    await attachments.detach(container_id, ifname=ifname)
                    self._deferred.forget(container_id, ifname)
                self._store_problem = ""
                return
            except (FlockError, OSError) as error:
                log.error("could not catch up problem=%s", error)
                self._store_problem = f"half-done work of an earlier run cannot be undone: {error}"
                await asyncio.sleep(RETRY)

    async def _follow_cache(self) -> None:
        while True:
            self._changed.clear()
            self._configured.take_in()
            self._followed.set()
            await self._changed.wait()

    async def _heal(self, parts: Parts) -> None:
        if not self._healed:
            await self._begin(parts)
        await parts.healer.run()

    async def _begin(self, parts: Parts) -> None:
        """From a known configuration to serving.  Each step is tried until it is done: before a look at the kernel that
        succeeded, what an earlier life announced and enforced stays as it is."""
        while not await self._enforce():
            await self._next_change()
        await self._preparing.reconcile()  # some of its switches are there only now that rules are in force
        await parts.healer.reconcile()
        while not parts.healer.looked:
            await self._next_change()
            await parts.healer.reconcile()
        parts.announcer.begin()
        self._healed = True
        self._serving.note()
        gc.collect()
        gc.freeze()  # what exists now lives as long as the agent: no need to look at it again and again
        self._happened.note(NodeReady(node=self._settings.node))
        self._conflist.begin()

    async def _next_change(self) -> None:
        """Of what is known; or RETRY later, for what nobody tells."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY):
                await self._followed.wait()
        self._followed.clear()

    async def _enforce(self) -> bool:
        """Rules first: a link that is healed may carry packets at once."""
        if self._configured.config is None or not self._cache.complete:
            return False
        await self._preparing.reconcile()
        if not self._preparing.looked:  # what pods may have depends on the node's own addresses
            return False
        try:
            await self._policies.begin()
        except FlockError as error:
            self._policies.problem = error.msg
            return False
        return True

    # --- before the store is loaded ---

    async def _wait_for_handler(self, request: Request) -> object:
        """The real handlers are not there yet; told to try again if that takes too long."""
        for _ in range(int(PATIENCE / 0.02)):
            if self._rpc.otherwise is None:
                handler = self._rpc.handlers.get(request.op)
                if handler is None:
                    raise FlockError(f"op: unknown operation {request.op!r}", code=Code.INVALID_ENVIRONMENT)
                return await handler(request)
            await asyncio.sleep(0.02)
        raise TryAgain(f"the agent is starting: {self._store_problem}")

    async def _short_status(self, _: Request) -> dict[str, object]:
        return base_status(self._settings.node, self._readiness)

    def _count(self, op: str, code: int, seconds: float) -> None:
        if op.isupper():  # CNI verbs; flockctl's questions are not counted
            self._metrics.verbs.observe(seconds, verb=op, outcome=str(code) if code else "success")

    # --- readiness ---

    def _listing_problem(self) -> str:
        if self._cache.synced:
            return ""
        said = "; ".join(f"{p.where}: {p.message}" for p in self._cache.problems)
        return f"the first listing is not complete{': ' + said if said else ''}"
