"""What flockctl asks for over the agent's socket."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

import flock
from flock.agent.checking import Checker
from flock.agent.happened import Entry
from flock.agent.parts import Parts
from flock.agent.readiness import Readiness
from flock.core.annotations import own_annotations
from flock.core.cni import Request
from flock.core.errors import FieldError
from flock.core.happenings import Repaired, Share
from flock.core.kinds import PODS
from flock.core.model import Allocation, Pod
from flock.edge.bird.control import BirdError
from flock.edge.rpc import Handler

WAIT = 20.0  # for something to happen; less than flockctl waits for an answer


class Admin:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._checker = Checker(parts)

    def operations(self) -> dict[str, Handler]:
        """All that can be asked for, by the names `flockctl` asks under."""
        return {
            "status": self.status,
            "pods": self.pods,
            "check": self.check,
            "repair": self.repair,
            "bgp": self.bgp,
            "anycast": self.anycast,
            "config": self.config,
            "policy.why": self.policy_why,
            "policy.show": self.policy_show,
            "policy.drops": self.policy_drops,
            "happened": self.happened,
            "drain": self.drain,
            "undrain": self.undrain,
        }

    async def status(self, _: Request) -> dict[str, Any]:
        entries = self._parts.attached.entries
        return {
            **base_status(self._parts.configured.node, self._parts.readiness),
            "mtu": self._parts.preparing.mtu,
            "pods": {
                "committed": sum(a.state == "committed" for a in entries),
                "pending": sum(a.state == "pending" for a in entries),
                "dead": len(self._parts.healer.dead),
            },
            "pools": [use._asdict() for use in self._parts.ipam.use(self._parts.aggregates.networks, time.time())],
            "problems": [
                *({"where": p.where, "message": p.message} for p in self._parts.cache.problems),
                *({"where": where, "message": message} for where, message in self._parts.policies.problems.items()),
            ],
            "watches": [msgspec.to_builtins(watch) for watch in self._parts.cache.watches],
            "repairs": self._parts.happened.counts(Repaired),
            "sessions": await self._sessions(),
            "announced": sorted(self._parts.announcer.announced),
            "withdrawn": self._parts.announcer.withdrawn,
            "policies": len(self._parts.policies.index.policies),
            "clusterPolicies": len(self._parts.policies.index.cluster_policies),
            "policiesWaiting": self._parts.policies.waiting,
        }

    async def _sessions(self) -> list[dict[str, Any]]:
        try:
            return await self._parts.routing.peers()
        except BirdError:
            return []  # `degraded` says so already

    async def pods(self, _: Request) -> list[dict[str, Any]]:
        rows = [self._row(a) for a in self._parts.attached.entries]
        return sorted(rows, key=lambda row: (row["namespace"], row["pod"], row["container"]))

    def _row(self, allocation: Allocation) -> dict[str, Any]:
        pod = self._parts.cache.table(PODS).get((allocation.namespace, allocation.pod_name))
        state = "dead" if allocation.container_id in self._parts.healer.dead else allocation.state
        return {
            "namespace": allocation.namespace,
            "pod": allocation.pod_name,
            "container": allocation.container_id,
            "state": state,
            "ready": pod.ready if pod else None,
            "ip6": allocation.ip6,
            "ip4": allocation.ip4,
            "addresses": allocation.addresses,
            "anycast": allocation.anycast,
            "interface": allocation.host_interface,
            "netns": allocation.netns,
            "since": allocation.allocated_at,
            "pending_annotations": _changed(allocation, pod) if pod else [],
        }

    async def check(self, _: Request) -> list[dict[str, str]]:
        return await self._checker.audit()

    async def repair(self, request: Request) -> list[dict[str, str]]:
        """Repair what can be repaired, then tell what is left."""
        await self._checker.repair()
        return await self.check(request)

    async def bgp(self, _: Request) -> list[dict[str, Any]]:
        return await self._parts.routing.peers()

    async def anycast(self, _: Request) -> list[dict[str, Any]]:
        return self._parts.announcer.rows()

    async def config(self, _: Request) -> dict[str, Any]:
        """The configuration in force and who said what."""
        layers = self._parts.configured.layers
        return {
            "node": self._parts.configured.node,
            "problem": self._parts.configured.problem,
            "spec": layers.raw["spec"] if layers else None,
            "origins": layers.origins if layers else {},
        }

    async def policy_why(self, request: Request) -> dict[str, Any]:
        source, destination, port = _parameters(request, "source", "destination", "port/protocol")
        return self._parts.policies.why(source, destination, port, node_addresses=self._parts.preparing.facts.own)

    async def policy_show(self, request: Request) -> dict[str, Any]:
        (pod,) = _parameters(request, "pod")
        return self._parts.policies.show(pod)

    async def policy_drops(self, request: Request) -> dict[str, Any]:
        return await self._happened(request, (Share.DROPS,))

    async def happened(self, request: Request) -> dict[str, Any]:
        """All but drops, which are many."""
        return await self._happened(request, (Share.NODE, Share.PODS))

    async def _happened(self, request: Request, shares: Sequence[Share]) -> dict[str, Any]:
        """What happened after a cursor: the last answer's, or empty.  `wait` asks to be answered once there is
        something, or after WAIT."""
        cursor, *wait = request.args.split("\n")
        told = (int(number) if number.isdecimal() else 0 for number in [*cursor.split("."), "", ""])
        read_to = dict(zip(shares, told, strict=False))
        if wait:
            await self._parts.happened.wait(read_to, WAIT)
        found, missed = [], 0
        for share, number in read_to.items():
            entries, more = self._parts.happened.after(share, number)
            found += entries
            missed += more
            read_to[share] = entries[-1].number if entries else number
        rows = [_entry(entry) for entry in sorted(found, key=lambda entry: entry.at)]
        return {"cursor": ".".join(map(str, read_to.values())), "missed": missed, "happened": rows}

    async def drain(self, request: Request) -> list[dict[str, Any]]:
        """Withdraw all anycast of this node until undrained; tells what became of it."""
        await self._parts.announcer.drain()
        return await self.anycast(request)

    async def undrain(self, request: Request) -> list[dict[str, Any]]:
        await self._parts.announcer.undrain()
        return await self.anycast(request)


def _entry(entry: Entry) -> dict[str, Any]:
    said = {"happening": type(entry.what).__name__, "said": str(entry.what)}
    return {"number": entry.number, "at": entry.at, **msgspec.structs.asdict(entry.what), **said}


def _parameters(request: Request, *names: str) -> list[str]:
    given = request.args.split("\n")
    if len(given) != len(names):
        raise FieldError("args", f"expected {', '.join(names)}")
    return given


def _changed(allocation: Allocation, pod: Pod) -> list[str]:
    """Annotations that were changed after ADD: they take effect with the next pod."""
    now, then = own_annotations(pod.annotations), own_annotations(allocation.annotations)
    return sorted(key for key in {*now, *then} if now.get(key) != then.get(key))


def base_status(node: str, readiness: Readiness) -> dict[str, Any]:
    report = readiness.report()
    return {
        "version": flock.__version__,
        "node": node,
        "ready": report.ready,
        "not_ready": report.not_ready,
        "degraded": report.degraded,
    }
