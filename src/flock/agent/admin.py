"""What flockctl asks for over the agent's socket."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from flock.agent.checking import Checker
from flock.agent.examination import examine
from flock.agent.explaining import show, why
from flock.agent.happened import Entry
from flock.agent.parts import Parts
from flock.agent.status import Status
from flock.agent.trying import Trying
from flock.core.cni import Request
from flock.core.errors import FieldError
from flock.core.foreignrules import Obstacle
from flock.core.happenings import Share
from flock.core.policy.explain import names_of
from flock.edge.rpc import Handler

BIRD_PATIENCE = 2.0  # then its sessions are told as last seen
WAIT = 20.0  # for something to happen; less than flockctl waits for an answer


class Admin:
    def __init__(self, parts: Parts, status: Status) -> None:
        self._parts = parts
        self._status = status
        self._checker = Checker(parts)
        self._trying = Trying(parts.policies)

    def operations(self) -> dict[str, Handler]:
        """All that can be asked for, by the names `flockctl` asks under."""
        return {
            "status": self.status,
            "pods": self.pods,
            "check": self.check,
            "repair": self.repair,
            "doctor": self.doctor,
            "bgp": self.bgp,
            "anycast": self.anycast,
            "services": self.services,
            "config": self.config,
            "policy.why": self.policy_why,
            "policy.show": self.policy_show,
            "policy.drops": self.policy_drops,
            "policy.audit": self.policy_audit,
            "policy.try": self._trying.begin,
            "happened": self.happened,
            "drain": self.drain,
            "undrain": self.undrain,
        }

    async def status(self, _: Request) -> dict[str, Any]:
        return self._status.short(await self._parts.routing.glance(BIRD_PATIENCE))

    async def pods(self, _: Request) -> list[dict[str, Any]]:
        return [self._status.pod(allocation) for allocation in self._status.allocations]

    async def check(self, _: Request) -> list[dict[str, str]]:
        return await self._checker.audit()

    async def repair(self, request: Request) -> list[dict[str, str]]:
        """Repair what can be repaired, then tell what is left."""
        await self._checker.repair()
        return await self.check(request)

    async def doctor(self, _: Request) -> list[dict[str, Any]]:
        await self._parts.routing.glance(BIRD_PATIENCE)
        return await examine(self._parts)

    async def bgp(self, _: Request) -> list[dict[str, Any]]:
        return await self._parts.routing.peers()

    async def anycast(self, _: Request) -> list[dict[str, Any]]:
        return self._parts.announcer.rows()

    async def services(self, _: Request) -> list[dict[str, Any]]:
        return [*self._parts.services.rows()]

    async def config(self, _: Request) -> dict[str, Any]:
        return self._status.config()

    async def policy_why(self, request: Request) -> dict[str, Any]:
        source, destination, port = _parameters(request, "source", "destination", "port/protocol")
        own = self._parts.preparing.facts.own
        told = why(self._parts.policies, source=source, destination=destination, port=port, node_addresses=own)
        found = await self._parts.neighbours.obstacles()
        rows = [answer | {"others": _others(found, answer, {*map(str, own)})} for answer in told["answers"]]
        others = dict.fromkeys(f"somebody else decides: {obstacle}" for row in rows for obstacle in row["others"])
        return {"answers": rows, "text": "\n".join([told["text"], *others])}

    async def policy_show(self, request: Request) -> dict[str, Any]:
        (pod,) = _parameters(request, "pod")
        return show(self._parts.policies, pod)

    async def policy_drops(self, request: Request) -> dict[str, Any]:
        return await self._happened(request, (Share.DROPS,))

    async def policy_audit(self, request: Request) -> dict[str, Any]:
        """With the pods' names, and how many connections there were in all, told or not, as the kernel counts."""
        answer = await self._happened(request, (Share.AUDIT,))
        ends = {row[end] for row in answer["happened"] for end in ("source", "destination")}
        pods = names_of(self._parts.policies.index, ends)
        for row in answer["happened"]:
            row |= {"from": pods.get(row["source"], ""), "to": pods.get(row["destination"], "")}
        counted = await self._parts.policies.count()
        return answer | {"counted": counted.audited if counted else 0}

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
        """Withdraw all anycast and Services of this node until undrained; tells what became of anycast."""
        await self._parts.announcer.drain()
        await self._parts.services.follow_node()
        return await self.anycast(request)

    async def undrain(self, request: Request) -> list[dict[str, Any]]:
        await self._parts.announcer.undrain()
        await self._parts.services.follow_node()
        return await self.anycast(request)


def _others(obstacles: Iterable[Obstacle], answer: Mapping[str, Any], own: Collection[str]) -> list[str]:
    """Those that decide whatever policies say.  What the node itself sends or is sent, it does not forward."""
    ends = (answer["source"], answer["destination"])
    if any(end["address"] in own for end in ends):
        return []
    sent, received = (bool(end["interface"]) for end in ends)
    return [str(o) for o in obstacles if o.concerns(ends[1]["address"], sent=sent, received=received)]


def _entry(entry: Entry) -> dict[str, Any]:
    said = {"happening": type(entry.what).__name__, "said": str(entry.what)}
    return {"number": entry.number, "at": entry.at, **msgspec.structs.asdict(entry.what), **said}


def _parameters(request: Request, *names: str) -> list[str]:
    given = request.args.split("\n")
    if len(given) != len(names):
        raise FieldError("args", f"expected {', '.join(names)}")
    return given
