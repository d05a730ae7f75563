"""A pod's life as a kubelet writes it, event by event, into a cache."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from flock.core.decoding import decode_pod
from flock.core.kinds import PODS
from flock.edge.cache import Cache

KEY = ("shop", "dns")
CREATING = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}
RUNNING = {"phase": "Running", "podIPs": [{"ip": "192.0.2.7"}]}
OVER = {"phase": "Succeeded", "podIPs": [{"ip": "192.0.2.7"}]}
# In the order in which they come; each is a watch event.
LIFE: dict[str, tuple[dict[str, Any], str, bool]] = {  # status, Ready, told to end
    "scheduled": ({"phase": "Pending"}, "", False),
    "creating": (CREATING, "False", False),
    "running": (RUNNING, "False", False),
    "ready": (RUNNING, "True", False),
    "going": (RUNNING, "True", True),
    "over": (OVER, "False", True),
    "sandbox gone": ({**OVER, "qosClass": "Burstable"}, "False", True),
}


def told(status: dict[str, Any], ready: str, going: bool) -> bytes:
    kinds = [("PodScheduled", "True")] + ([("Ready", ready), ("ContainersReady", ready)] if ready else [])
    conditions = [{"type": kind, "status": value, "lastTransitionTime": "2026-01-01"} for kind, value in kinds]
    metadata = {"namespace": KEY[0], "name": KEY[1], "uid": "u1", "labels": {"app": "dns"}, "managedFields": [{}]}
    metadata |= {"deletionTimestamp": "2026-01-02"} if going else {}
    return json.dumps({"metadata": metadata, "status": {**status, "conditions": conditions}}).encode()


async def live(cache: Cache) -> AsyncIterator[str]:
    """Each event, with the name of what happened, in a turn of the loop of its own."""
    for name, event in LIFE.items():
        cache.put(PODS, KEY, decode_pod(told(*event)))
        yield name
        await all_is_done()
    cache.drop(PODS, KEY)
    yield "deleted"
    await all_is_done()


async def all_is_done() -> None:
    """Nothing here waits for anything but its turn."""
    for _ in range(20):
        await asyncio.sleep(0)
