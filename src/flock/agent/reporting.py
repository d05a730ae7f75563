"""Tells the cluster how this node is: the status of its NodeConfig.

Only with an API server.  Everything here is best effort and rare: the status is written when what it says changed or
the object is another one, and mere numbers (addresses in use), or again what somebody else changed, at most every
NUMBERS_EVERY.  A node that templates alone configure makes itself an empty NodeConfig to report in.
"""

import contextlib
import logging
import time
from datetime import UTC, datetime
from typing import Any

import msgspec

from flock import __version__
from flock.agent.configured import inputs_of
from flock.agent.parts import Parts
from flock.agent.reconciling import Reconciler
from flock.core.configuration import effective
from flock.core.errors import FieldError
from flock.core.kinds import NODE_CONFIGS, NODES
from flock.edge.bird.control import BirdError
from flock.edge.kube.writer import KubeWriter

log = logging.getLogger("report")

LOOK_EVERY = 5.0
NUMBERS_EVERY = 60.0
NUMBERS = ("pools", "pods")  # of a status
SESSION = {"peer": "peer", "address": "address", "state": "state", "since": "since", "lastError": "last_error"}


class Reporter(Reconciler):
    def __init__(self, parts: Parts, writer: KubeWriter) -> None:
        super().__init__(log, "could not report", minor=True, period=LOOK_EVERY, pauses=(LOOK_EVERY, LOOK_EVERY))
        self._parts, self._writer = parts, writer
        self._since: dict[str, tuple[str, str]] = {}  # condition -> (status, when it became so)
        self._written: tuple[str, dict[str, Any]] = ("", {})  # the object's uid, and what was written to it
        self._written_at = 0.0

    async def _reconcile(self) -> str:
        own = self._parts.cache.own(NODE_CONFIGS)
        if own is None:
            if self._configured_by_templates():
                node = self._parts.cache.own(NODES)
                await self._writer.make_place(node_uid=node.metadata.uid if node else "")
            return ""  # the watch tells when there is an object
        with contextlib.suppress(BirdError):
            await self._parts.routing.peers()
        status = self._status()
        uid = str(own["metadata"].get("uid", ""))
        if not self._is_written(uid, status, observed=own.get("status")):
            await self._writer.status(status)
            self._written, self._written_at = (uid, status), time.monotonic()
        return ""

    def _is_written(self, uid: str, status: dict[str, Any], *, observed: Any) -> bool:
        same_object, before = self._written[0] == uid, self._written[1]
        if not same_object or _words(status) != _words(before):
            return False
        if time.monotonic() - self._written_at < NUMBERS_EVERY:
            return True
        return status == before and _words(observed) == _words(status)

    def _configured_by_templates(self) -> bool:
        """A NodeConfig that somebody deleted, and that was all there was, is not made anew: its loss is told."""
        inputs = msgspec.structs.replace(inputs_of(self._parts.cache), own=None)
        try:
            layered = effective(self._parts.configured.node, inputs)
        except FieldError:
            return False
        return layered is not None and self._parts.cache.synced

    def _status(self) -> dict[str, Any]:
        report = self._parts.readiness.report()
        sessions = self._parts.routing.last_seen
        down = [str(s["peer"]) for s in sessions if not s["up"]]
        pools = self._parts.ipam.use(self._parts.aggregates.networks, time.time())
        full = [pool.cidr for pool in pools if pool.full]
        no_bgp, unenforced = not self._parts.configured.speaks, self._parts.policies.problem
        conditions = [
            self._ready(report.ready, "; ".join(report.not_ready)),
            self._condition(
                "BGPEstablished",
                no_bgp or (bool(sessions) and not down),
                "NoSessionsWanted" if no_bgp else "Established",
                "SessionDown",
                f"down: {', '.join(down)}" if down else self._parts.routing.bird_problem,
            ),
            self._condition("PolicyEnforced", not unenforced, "InForce", "NotInForce", unenforced),
            self._condition("AddressesAvailable", not full, "Available", "PoolFull", f"full: {', '.join(full)}"),
        ]
        generation = (self._parts.cache.own(NODE_CONFIGS) or {}).get("metadata", {}).get("generation")
        return {
            **({"observedGeneration": generation} if generation else {}),
            "conditions": conditions,
            "sessions": [{key: str(s.get(name, "")) for key, name in SESSION.items()} for s in sessions],
            "pools": [{"cidr": p.cidr, "size": str(p.size), "used": p.used, "cooling": p.cooling} for p in pools],
            "pods": len(self._parts.attached.entries),
            "version": __version__,
        }

    def _ready(self, ready: bool, problem: str) -> dict[str, str]:
        """A node that serves by the last good configuration is ready, and says so."""
        refused = self._parts.configured.problem
        condition = self._condition("Ready", ready, "LastGoodConfig" if refused else "Serving", "NotReady", problem)
        return condition | {"message": refused} if ready else condition

    def _condition(self, kind: str, good: bool, reason: str, otherwise: str, message: str) -> dict[str, str]:
        status = "True" if good else "False"
        if self._since.get(kind, ("", ""))[0] != status:
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            self._since[kind] = (status, now)
        return {
            "type": kind,
            "status": status,
            "reason": reason if good else otherwise,
            "message": "" if good else message,
            "lastTransitionTime": self._since[kind][1],
        }


def _words(status: Any) -> Any:
    """What a status says, without mere numbers, and without what is empty: servers drop that, or make it null."""
    if isinstance(status, dict):
        return {key: said for key, value in status.items() if key not in NUMBERS and (said := _words(value))}
    return [_words(value) for value in status] if isinstance(status, list) else status
