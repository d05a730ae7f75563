"""Lists all pods of a cluster as the agent does, and prints what that cost.

measure_pods.py STATE_DIR KUBECONFIG COUNT
"""

import asyncio
import gc
import json
import sys
import time
from pathlib import Path

from watching import NODE, PORT, SERVICE

from flock.core.kinds import ALL, CLUSTER_PODS
from flock.edge.cache import Cache
from flock.edge.kube.access import from_kubeconfig
from flock.edge.kube.client import KubeClient
from flock.edge.kube.feeder import KubeFeeder
from flock.edge.supervising import Supervisor

PATIENCE = 120


def resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


async def listed(cache: Cache) -> None:
    async with asyncio.timeout(PATIENCE):
        while not cache.complete:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.05)


async def main(state_dir: Path, kubeconfig: Path, count: int) -> None:
    access = from_kubeconfig(kubeconfig, apiserver=f"https://{SERVICE}:{PORT}")
    supervisor = Supervisor()
    cache = Cache(node=NODE)
    feeder = KubeFeeder(cache, KubeClient(access), supervisor, namespace="default", state_dir=state_dir)
    await feeder.start()
    await listed(cache)
    gc.collect()
    memory, cpu = resident(), time.process_time()
    reader = cache.reader(CLUSTER_PODS)
    cache.need(CLUSTER_PODS, [ALL])
    await listed(cache)
    gc.collect()
    assert len(reader.changes()) == count, len(cache.table(CLUSTER_PODS))
    print(json.dumps({"memory": resident() - memory, "cpu": time.process_time() - cpu}))
    await supervisor.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
