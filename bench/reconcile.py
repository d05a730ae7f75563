"""One pass of the announcer over many addresses: what it costs when all is new, nothing changed, one changed.

Run by `fabric.py` in a namespace of its own.  The announcer and the kernel are the real ones; the node's records are
made up: pods whose links are veth pairs, a hundred of them, sharing the addresses evenly.
Prints milliseconds of wall clock and of CPU, all threads together, by pass.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flock.agent.announcer import Announcer
from flock.agent.happened import Happened
from flock.core import kinds
from flock.core.facts import NodeFacts
from flock.core.model import Allocation, Condition, Metadata, Pod, PodStatus
from flock.core.naming import host_interface
from flock.core.nodeconfig import parse_node_config
from flock.edge.cache import Cache
from flock.edge.kernel.threads import Kernel

PODS = 100
CONFIG = {
    "apiVersion": "flock.fritzlab.net/v1alpha1",
    "kind": "NodeConfig",
    "metadata": {"name": "n1"},
    "spec": {"cidr6": ["2001:db8:1::/64"], "anycast": {"allowed": [{"prefixes": ["2001:db8:53::/64"]}]}},
}
Passes = dict[str, list[tuple[float, float]]]  # wall and CPU, milliseconds


def main() -> None:
    addresses, rounds = (int(word) for word in sys.argv[1:])
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(asyncio.run(_measure(addresses, rounds, Path(directory)))))


async def _measure(addresses: int, rounds: int, state_dir: Path) -> Passes:
    allocations = [_allocation(number, addresses // PODS) for number in range(PODS)]
    links = _make_links(allocations)
    attached = SimpleNamespace(entries=tuple(allocations), links=links, has_link=links.__contains__)
    cache = Cache(node="n1")
    for allocation in allocations:
        cache.put(kinds.PODS, (allocation.namespace, allocation.pod_name), _pod(allocation, ready=True))
    known = SimpleNamespace(config=parse_node_config(CONFIG), facts=NodeFacts(node="n1"))
    kernel = Kernel(sysctl=Path("/proc/sys/net"))
    parts: dict[str, Any] = {"attached": attached, "cache": cache, "kernel": kernel, "happened": Happened()}
    parts |= {"configured": known, "preparing": known, "departure": SimpleNamespace(begun=False)}
    announcer = Announcer(**parts, state_dir=state_dir)
    passes: Passes = {"all new": [await _timed(announcer)], "nothing changed": [], "one pod changed": []}
    for number in range(rounds):
        passes["nothing changed"].append(await _timed(announcer))
        changed = allocations[number // 2 % PODS]
        cache.put(kinds.PODS, (changed.namespace, changed.pod_name), _pod(changed, ready=bool(number % 2)))
        passes["one pod changed"].append(await _timed(announcer))
    kernel.close()
    return passes


async def _timed(announcer: Announcer) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    if not await announcer.reconcile():
        raise SystemExit(f"the kernel refused: {announcer.problem}")
    return 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)


def _allocation(number: int, addresses: int) -> Allocation:
    container = f"{number:064x}"
    return Allocation(
        container_id=container,
        namespace="bench",
        pod_name=f"web-{number}",
        owner_uid="",
        ip6=f"2001:db8:1::{number + 1:x}",
        anycast=tuple(f"2001:db8:53::{number:x}:{n:x}" for n in range(addresses)),
        state="committed",
        allocated_at="2026-01-01T00:00:00Z",
        host_interface=host_interface(container),
    )


def _pod(allocation: Allocation, *, ready: bool) -> Pod:
    status = PodStatus(conditions=(Condition("Ready", "True" if ready else "False"),))
    return Pod(metadata=Metadata(name=allocation.pod_name, namespace=allocation.namespace), status=status)


def _make_links(allocations: list[Allocation]) -> dict[str, int]:
    """Indexes by name."""
    lines = [
        line
        for number, allocation in enumerate(allocations)
        for line in (
            f"link add {allocation.host_interface} type veth peer name pod{number}",
            f"link set {allocation.host_interface} up",
            f"link set pod{number} up",
        )
    ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    shown = subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True)
    names = {a.host_interface for a in allocations}
    return {link["ifname"]: link["ifindex"] for link in json.loads(shown.stdout) if link["ifname"] in names}


if __name__ == "__main__":
    main()
