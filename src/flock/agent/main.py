"""flock-agent: puts the parts together, in the order in which they become able to work.

The socket is there first, and calls wait on it; then the store is read, what an earlier life left half done is undone,
and DEL, CHECK and GC are served; ADD is served once the first listing, a valid NodeConfig and forwarding are there.
Nothing that may heal ends the agent: it waits, says why, and goes on.  SIGTERM ends it and touches no pod.
"""

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from flock.agent import gauges
from flock.agent.admin import Admin, base_status
from flock.agent.announcer import Announcer
from flock.agent.attachments import Attachments
from flock.agent.checking import Checker
from flock.agent.flags import Settings, parse
from flock.agent.healing import Healer
from flock.agent.metrics import Metrics
from flock.agent.nodeview import NodeView
from flock.agent.policies import Policies
from flock.agent.readiness import Readiness
from flock.agent.routing import Routing
from flock.agent.verbs import PATIENCE, Verbs
from flock.core.cni import Request
from flock.core.errors import Code, FieldError, FlockError, TryAgain
from flock.core.faults import faults
from flock.core.ipam import Ipam
from flock.core.model import Allocation
from flock.edge.conflist import plugins_present, render_conflist, write_conflist
from flock.edge.http import HttpServer
from flock.edge.kernel.threads import Kernel
from flock.edge.manifests import ManifestSource
from flock.edge.rpc import Handler, RpcServer
from flock.edge.source import Source
from flock.edge.store import Store

if TYPE_CHECKING:
    from flock.agent.reporting import Reporter
    from flock.edge.kube.writer import KubeWriter

log = logging.getLogger("agent")

RETRY = 1.0  # between attempts at what a human has to mend (a missing directory, a broken state file)
LAST_CALLS = 10.0  # how long calls under way may take when the agent is told to stop


# Calls that wait for the agent to be able to answer them; the others say at once what is missing.
WAITING = (
    "ADD",
    "DEL",
    "CHECK",
    "GC",
    "pods",
    "check",
    "repair",
    "bgp",
    "anycast",
    "config",
    "drain",
    "undrain",
    "policy.why",
    "policy.show",
    "policy.drops",
)


class Agent:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._readiness = Readiness()
        self._metrics = Metrics()
        self._store = Store(
            settings.state_dir, node=settings.node, cooldown=settings.cooldown, marks=settings.run_dir / "pending"
        )
        self._store_problem = "the state file is not loaded yet"
        self._healed = False
        self._source, self._writer = _connect(settings)
        self._kernel = Kernel(sysctl=settings.sysctl_dir)
        self._view = NodeView(node=settings.node, source=self._source, kernel=self._kernel)
        self._routing = Routing(
            view=self._view,
            source=self._source,
            bird_dir=settings.bird_dir,
            control_socket=settings.run_dir / "bird.ctl",
        )
        self._policies = Policies(
            source=self._source,
            allocations=lambda: self._store.entries.values(),
            strict=settings.strict,
            antispoofing=settings.antispoofing,
        )
        self._announcer: Announcer | None = None
        self._failed: dict[str, str] = {}
        self._readiness.degraded_by(lambda: "; ".join(self._failed.values()))
        self._changed = asyncio.Event()
        self._rpc = RpcServer(settings.run_dir / "flock.sock", self._starting_handlers(), on_call=self._count)
        self._readiness.requires(lambda: self._store_problem)
        self._readiness.requires(self._source_problem)
        self._readiness.requires(self._config_problem)
        self._readiness.requires(lambda: self._view.kernel_problem, pods_suffer=True)
        self._readiness.requires(lambda: self._policies.problem, pods_suffer=True)
        self._readiness.requires(lambda: "" if self._healed else "the first look at the kernel is not over yet")
        self._readiness.degraded_by(lambda: self._view.config_problem if self._view.config else "")
        self._readiness.degraded_by(lambda: self._store.last_error)
        self._readiness.degraded_by(lambda: self._routing.conf_problem)
        self._readiness.degraded_by(lambda: self._routing.bird_problem if self._view.speaks else "")

    async def run(self, stop: asyncio.Event) -> None:
        lock = await self._lock_run_dir()
        http = await self._listen()
        self._source.subscribe(self._changed.set)
        self._routing.start()
        await self._source.start()
        work = asyncio.create_task(self._work())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping")
        await self._rpc.stop(LAST_CALLS)
        if self._announcer is not None:
            await self._announcer.leave()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work  # an unexpected end of the work is an error to show
        if http is not None:
            http.close()
        await self._source.close()
        await self._store.close()
        self._kernel.close()
        os.close(lock)

    async def _lock_run_dir(self) -> int:
        """An agent that is still there keeps its socket: wait for its end, as in an upgrade that overlaps."""
        directory = self._settings.run_dir
        try:
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise FieldError("--run-dir", f"cannot use {directory}: {error.strerror}") from None
        told = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                if not told:
                    log.warning("waiting for another agent to leave run_dir=%s", directory)
                    told = True
                await asyncio.sleep(RETRY)

    async def _listen(self) -> HttpServer | None:
        await self._rpc.start()
        if not self._settings.http:
            return None
        pages = {
            "/healthz": _alive,
            "/readyz": self._readyz,
            "/status.json": self._status_page,
            "/metrics": lambda: (200, "text/plain; version=0.0.4", self._metrics.render().encode()),
        }
        http = HttpServer(self._settings.http, pages)
        try:
            await http.start()
        except OSError as error:  # pods matter more than the status page
            problem = f"cannot listen on --http {self._settings.http}: {error.strerror}"
            log.error("%s", problem)
            self._readiness.degraded_by(lambda: problem)
            return None
        return http

    async def _work(self) -> None:
        await self._load_store()
        ipam = Ipam(cooldown=self._settings.cooldown)
        ipam.seed(self._store.entries.values(), self._store.released)
        policies = self._policies
        attachments = Attachments(store=self._store, ipam=ipam, kernel=self._kernel, view=self._view, policies=policies)
        policies.interface_name = lambda index: attachments.links.get(index, str(index))
        healer = Healer(attachments=attachments, kernel=self._kernel, view=self._view, grace=self._settings.grace)
        checker = Checker(attachments=attachments, healer=healer, kernel=self._kernel, source=self._source)
        announcer = self._announcer = Announcer(
            attachments=attachments,
            source=self._source,
            view=self._view,
            kernel=self._kernel,
            state_dir=self._settings.state_dir,
        )
        await self._resolve_pending(attachments)
        self._readiness.degraded_by(lambda: healer.last_error)
        self._readiness.degraded_by(lambda: announcer.last_error)
        self._readiness.degraded_by(lambda: _full_pools(ipam, self._view))
        reporter = self._reporter(attachments, ipam)
        verbs = Verbs(
            attachments=attachments,
            source=self._source,
            view=self._view,
            checker=checker,
            readiness=self._readiness,
            policies=policies,
            add_failed=reporter.add_failed if reporter else None,
        )
        admin = Admin(
            readiness=self._readiness,
            view=self._view,
            source=self._source,
            attachments=attachments,
            ipam=ipam,
            healer=healer,
            checker=checker,
            routing=self._routing,
            announcer=announcer,
            policies=policies,
        )
        gauges.register(
            self._metrics,
            readiness=self._readiness,
            view=self._view,
            source=self._source,
            attachments=attachments,
            ipam=ipam,
            healer=healer,
            routing=self._routing,
            announcer=announcer,
            policies=policies,
        )
        self._rpc.handlers = _handlers(verbs, admin)
        self._view.subscribe(healer.trigger)
        self._view.subscribe(announcer.trigger)
        self._view.subscribe(self._routing.trigger)
        self._source.subscribe(announcer.trigger)
        self._source.subscribe(policies.trigger)
        attachments.subscribe(lambda allocation: _settled(allocation, announcer, healer, self._view))
        healer.subscribe(announcer.trigger)
        async with asyncio.TaskGroup() as tasks:
            parts = {
                "routing": self._routing.run,
                "source": lambda: self._follow_source(healer, announcer),
                "healing": healer.run,
                "announcing": announcer.run,
                "policies": policies.run,
            }
            if reporter is not None:
                parts["reporting"] = reporter.run
            for name, run in parts.items():
                tasks.create_task(self._keep(name, run))

    async def _keep(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """A bug in one part must not take the others down, nor the pods' only agent: log it, go on."""
        while True:
            try:
                return await run()
            except Exception as error:
                log.exception("part failed name=%s", name)
                self._failed[name] = f"{name} failed and was started again: {error!r}"
                await asyncio.sleep(RETRY)

    def _reporter(self, attachments: Attachments, ipam: Ipam) -> "Reporter | None":
        if self._writer is None:
            return None
        from flock.agent.reporting import Reporter

        return Reporter(
            writer=self._writer,
            readiness=self._readiness,
            view=self._view,
            attachments=attachments,
            ipam=ipam,
            routing=self._routing,
            source=self._source,
        )

    async def _load_store(self) -> None:
        while True:
            try:
                self._store.load()
            except FlockError as error:
                if error.msg != self._store_problem:
                    log.error("could not load the store problem=%s", error.msg)
                self._store_problem = error.msg
                await asyncio.sleep(RETRY)
            else:
                self._store_problem = ""
                log.info("loaded store allocations=%d", len(self._store.entries))
                return

    async def _resolve_pending(self, attachments: Attachments) -> None:
        while True:
            try:
                await attachments.resolve_pending()
                self._store_problem = ""
                return
            except (FlockError, OSError) as error:
                log.error("could not undo half-done work problem=%s", error)
                self._store_problem = f"half-done work of an earlier run cannot be undone: {error}"
                await asyncio.sleep(RETRY)

    async def _follow_source(self, healer: Healer, announcer: Announcer) -> None:
        while True:
            self._changed.clear()
            await self._view.take_in()
            if self._source.network_policies:
                self._source.watch_cluster_pods()
            if self._view.config is not None and self._source.synced and not self._healed:
                if not await self._enforce():
                    continue
                await healer.heal()
                announcer.begin()
                self._healed = True
                gc.collect()
                gc.freeze()  # what exists now lives as long as the agent: no need to look at it again and again
                log.info("ready node=%s", self._settings.node)
                await self._write_conflist()
            await self._changed.wait()

    async def _enforce(self) -> bool:
        """Rules first: a link that is healed may carry packets at once."""
        try:
            await self._policies.begin()
        except FlockError as error:
            self._policies.problem = error.msg
            await asyncio.sleep(RETRY)
            return False
        return True

    async def _write_conflist(self) -> None:
        """Now that ADD can be served, runtimes may find us.  The file stays when the agent goes: callers wait."""
        directory = self._settings.cni_conf_dir
        if directory is None:
            return

        def write() -> bool:
            present = plugins_present(self._settings.cni_bin_dir)
            text = render_conflist(socket=self._settings.run_dir / "flock.sock", wait=30, plugins_present=present)
            return write_conflist(directory, text)

        try:
            if await asyncio.to_thread(write):
                log.info("wrote conflist directory=%s", directory)
        except (FlockError, OSError) as error:
            log.error("could not write the conflist problem=%s", error)
            self._failed["conflist"] = f"the conflist could not be written: {error}"

    # --- before the store is loaded ---

    def _starting_handlers(self) -> Mapping[str, Handler]:
        """Calls wait for the real handlers, and are told to try again if that takes too long."""

        async def wait(request: Request) -> object:
            for _ in range(int(PATIENCE / 0.02)):
                if self._rpc.handlers is not starting:
                    return await self._rpc.handlers[request.op](request)
                await asyncio.sleep(0.02)
            raise TryAgain(f"the agent is starting: {self._store_problem}")

        async def status(_: Request) -> None:
            raise FlockError("; ".join(self._readiness.report().not_ready), code=Code.NOT_AVAILABLE)

        async def admin_status(_: Request) -> dict[str, object]:
            return base_status(self._settings.node, self._readiness)

        starting: dict[str, Handler] = dict.fromkeys(WAITING, wait)
        starting |= {"STATUS": status, "status": admin_status}
        return starting

    def _count(self, op: str, code: int, seconds: float) -> None:
        if op.isupper():  # CNI verbs; flockctl's questions are not counted
            self._metrics.verbs.observe(seconds, verb=op, outcome=str(code) if code else "success")

    # --- readiness ---

    def _source_problem(self) -> str:
        if self._source.synced:
            return ""
        said = "; ".join(f"{p.where}: {p.message}" for p in self._source.problems)
        return f"the first listing is not complete{': ' + said if said else ''}"

    def _config_problem(self) -> str:
        if self._view.config is not None:
            return ""
        return self._view.config_problem or f"no NodeConfig named {self._settings.node}"

    def _readyz(self) -> tuple[int, str, bytes]:
        report = self._readiness.report()
        return (200, "text/plain", b"ok\n") if report.ready else (503, "text/plain", _lines(report.not_ready))

    def _status_page(self) -> tuple[int, str, bytes]:
        content = msgspec.json.encode(base_status(self._settings.node, self._readiness))
        return 200, "application/json", msgspec.json.format(content, indent=2) + b"\n"


def _connect(settings: Settings) -> tuple[Source, "KubeWriter | None"]:
    """Where objects come from, and where reports go to if anywhere."""
    if settings.manifests is not None:
        return ManifestSource(settings.manifests, node=settings.node), None
    # Imported here: TLS and what it needs cost memory that a node without an API server has better use for.
    from flock.edge.kube.access import from_kubeconfig, in_cluster
    from flock.edge.kube.client import KubeClient
    from flock.edge.kube.source import KubeSource
    from flock.edge.kube.writer import KubeWriter

    if settings.kubeconfig is not None:
        access = from_kubeconfig(settings.kubeconfig, apiserver=settings.apiserver)
    else:
        access = in_cluster(apiserver=settings.apiserver)
    client = KubeClient(access)
    source = KubeSource(client, node=settings.node, namespace=settings.namespace)
    return source, KubeWriter(client, node=settings.node)


def _handlers(verbs: Verbs, admin: Admin) -> dict[str, Handler]:
    return {
        "ADD": verbs.add,
        "DEL": verbs.delete,
        "CHECK": verbs.check,
        "GC": verbs.gc,
        "STATUS": verbs.status,
        "status": admin.status,
        "pods": admin.pods,
        "check": admin.check,
        "repair": admin.repair,
        "bgp": admin.bgp,
        "anycast": admin.anycast,
        "config": admin.config,
        "policy.why": admin.policy_why,
        "policy.show": admin.policy_show,
        "policy.drops": admin.policy_drops,
        "drain": admin.drain,
        "undrain": admin.undrain,
    }


def _full_pools(ipam: Ipam, view: NodeView) -> str:
    """Not a reason to report the node as unable: kubelet would evict the pods that fill it."""
    full = [use.cidr for use in ipam.use(view.config.aggregates if view.config else (), time.time()) if use.full]
    return f"no free address in {', '.join(full)}" if full else ""


def _settled(allocation: Allocation, announcer: Announcer, healer: Healer, view: NodeView) -> None:
    """An attachment came or went: announce what it carries, and let go of a retired aggregate it was the last in."""
    if allocation.anycast or allocation.addresses:
        announcer.trigger()
    if view.effective_config is not view.config:
        healer.trigger()


def _alive() -> tuple[int, str, bytes]:
    return 200, "text/plain", b"ok\n"


def _lines(texts: tuple[str, ...]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


async def _main(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await Agent(settings).run(stop)


def main() -> None:
    settings = parse()
    # What a log line could say and ours do not is not looked up either: it is a tenth of an ADD.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(
        level=settings.log_level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        faults.arm(os.environ.get("FLOCK_FAULT", ""))
        asyncio.run(_main(settings))
    except FlockError as error:
        sys.exit(f"flock-agent: {error.msg}")
