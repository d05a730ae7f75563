"""A cache fed by a played API server, and objects for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from apiserver import ApiServer, nested
from flock.core.kinds import KINDS, PODS, Kind
from flock.edge.cache import Cache
from flock.edge.kube.access import from_kubeconfig
from flock.edge.kube.client import KubeClient
from flock.edge.kube.feeder import KubeFeeder
from flock.edge.supervising import Supervisor

NODE = "n1"
PATIENCE = 20.0


@contextlib.asynccontextmanager
async def started(server: ApiServer, state_dir: Path, *more: Kind[Any]) -> AsyncIterator[tuple[Cache, KubeFeeder]]:
    access = from_kubeconfig(server.kubeconfig(state_dir / "kubeconfig"))
    supervisor = Supervisor()
    cache = Cache(node=NODE, kinds=(*KINDS, *more))
    feeder = KubeFeeder(cache, KubeClient(access), supervisor, namespace="flock-system", state_dir=state_dir)
    await feeder.start()
    try:
        yield cache, feeder
    finally:
        await supervisor.close()


async def until(condition: Callable[[], object], what: str) -> None:
    async def waiting() -> None:
        while not condition():  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)

    try:
        await asyncio.wait_for(waiting(), PATIENCE)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {PATIENCE} s") from None


def pod(name: str, *, deep: int = 0, **labels: str) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": _metadata(name, deep, labels), "spec": {"nodeName": NODE}}


def policy(name: str, *, deep: int = 0, **spec: Any) -> dict[str, Any]:
    return {"kind": "NetworkPolicy", "metadata": _metadata(name, deep, {}), "spec": {"podSelector": {}, **spec}}


def _metadata(name: str, deep: int, labels: dict[str, str]) -> dict[str, Any]:
    managed = [{"manager": "tenant", "fieldsV1": nested(deep)}] if deep else []
    return {"name": name, "namespace": "evil", "labels": labels, "managedFields": managed}


def names(known: Cache) -> set[str]:
    return {name for _, name in known.table(PODS)}


def problems(known: Cache) -> str:
    return "; ".join(f"{p.where}: {p.message}" for p in known.problems)
