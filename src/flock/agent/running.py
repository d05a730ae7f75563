"""The agent as a process: finds what feeds its cache of objects, and lives until it is told to stop."""

import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from flock.agent.agent import Agent
from flock.agent.flags import Settings
from flock.core.errors import FlockError
from flock.core.faults import faults
from flock.edge.cache import Cache
from flock.edge.feeder import Feeder
from flock.edge.loop import Loop
from flock.edge.manifests import ManifestFeeder
from flock.edge.supervising import Supervisor

if TYPE_CHECKING:
    from flock.edge.kube.writer import KubeWriter


def _connect(settings: Settings, cache: Cache, supervisor: Supervisor) -> tuple[Feeder, "KubeWriter | None"]:
    """Where objects come from, and where reports go to if anywhere."""
    if settings.manifests is not None:
        return ManifestFeeder(cache, settings.manifests), None
    # Imported here: TLS and what it needs cost memory that a node without an API server has better use for.
    from flock.edge.kube.access import from_kubeconfig, in_cluster
    from flock.edge.kube.client import KubeClient
    from flock.edge.kube.feeder import KubeFeeder
    from flock.edge.kube.writer import KubeWriter

    if settings.kubeconfig is not None:
        access = from_kubeconfig(settings.kubeconfig, apiserver=settings.apiserver)
    else:
        access = in_cluster(apiserver=settings.apiserver)
    client = KubeClient(access)
    feeder = KubeFeeder(cache, client, supervisor, namespace=settings.namespace, state_dir=settings.state_dir)
    return feeder, KubeWriter(client, node=settings.node)


async def _main(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    supervisor = Supervisor()
    loop.set_exception_handler(supervisor.unexpected)
    cache = Cache(node=settings.node)
    feeder, writer = _connect(settings, cache, supervisor)
    await Agent(settings, cache=cache, feeder=feeder, writer=writer, supervisor=supervisor).run(stop)


def run(settings: Settings) -> None:
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
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(_main(settings))
    except FlockError as error:
        sys.exit(f"flock-agent: {error.msg}")
