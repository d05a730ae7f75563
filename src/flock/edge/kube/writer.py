"""What the agent writes to the API: events for people, and the status of its NodeConfig.  Best effort, never often."""

import logging
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

from flock.core.configuration import AGENT, CREATED_BY
from flock.core.errors import FlockError
from flock.core.kinds import Kind
from flock.core.model import PREFIX
from flock.core.naming import fnv1a64
from flock.edge.kube.client import ApiError, KubeClient

log = logging.getLogger("events")

API_VERSION = f"{PREFIX}/v1alpha1"
REPEAT_AFTER = 300.0  # the same event about the same object: a failing pod is retried every few seconds
BURST, REFILL = 25, 0.2  # all events of a node: so many at once, then one every five seconds
REMEMBERED = 1000
CONFLICT = 409  # there is one of that name
NOWHERE = "default"  # where the events of what has no namespace are


class KubeWriter:
    def __init__(self, client: KubeClient, *, node: str) -> None:
        self._client = client
        self._node = node
        self._told: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._tokens, self._since = float(BURST), time.monotonic()

    async def pod_event(self, *, namespace: str, name: str, uid: str, reason: str, message: str) -> None:
        reference = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}
        await self._event(reference, namespace, reason, message, "Warning")

    async def policy_event(self, *, kind: Kind[Any], namespace: str, name: str, uid: str, message: str) -> None:
        about = {"apiVersion": kind.api_version, "kind": kind.kind}
        reference = {**about, "namespace": namespace, "name": name, "uid": uid}
        await self._event(reference, namespace or NOWHERE, "FlockPolicyRefused", message, "Warning", one=not namespace)

    async def service_event(self, *, namespace: str, name: str, uid: str, message: str) -> None:
        reference = {"apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name, "uid": uid}
        await self._event(reference, namespace, "FlockServiceNotAnnounced", message, "Warning", one=True)

    async def config_event(self, *, reason: str, message: str, uid: str = "") -> None:
        reference = {"apiVersion": API_VERSION, "kind": "NodeConfig", "name": self._node, "uid": uid}
        await self._event(reference, NOWHERE, reason, message, "Warning")

    async def status(self, status: dict[str, Any]) -> None:
        """Raises ApiError; the caller tries again with its next change."""
        path = f"/apis/{API_VERSION}/nodeconfigs/{quote(self._node)}/status"
        await self._client.send("PATCH", path, {"status": status}, content_type="application/merge-patch+json")

    async def make_place(self, *, node_uid: str) -> None:
        """An empty NodeConfig of this node, to have a status to write to.  It goes with the Node.  Raises ApiError."""
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node_uid}
        body = {
            "apiVersion": API_VERSION,
            "kind": "NodeConfig",
            "metadata": {
                "name": self._node,
                "labels": {CREATED_BY: AGENT},
                **({"ownerReferences": [owner]} if node_uid else {}),
            },
            "spec": {},
        }
        await self._client.send("POST", f"/apis/{API_VERSION}/nodeconfigs", body)

    async def _event(
        self,
        reference: dict[str, str],
        namespace: str,
        reason: str,
        message: str,
        kind: Literal["Warning", "Normal"],
        *,
        one: bool = False,
    ) -> None:
        """`one`: of all nodes, as all would tell the same.  It has the same name, and whoever comes first tells it."""
        key = (reference["kind"], namespace, reference["name"], reason, message)
        if not self._allowed(key):
            return
        now = datetime.now(UTC)
        stamp = now.isoformat(timespec="seconds").replace("+00:00", "Z")
        version = reference["uid"] if one else now.isoformat()
        unique = f"{fnv1a64('/'.join((*key, version)).encode()):016x}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{reference['name'][:200]}.{unique}", "namespace": namespace},
            "involvedObject": {k: v for k, v in reference.items() if v},
            "reason": reason,
            "message": message[:1000],
            "type": kind,
            "source": {"component": "flock-agent", "host": self._node},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        try:
            await self._client.send("POST", f"/api/v1/namespaces/{quote(namespace)}/events", event)
        except FlockError as error:
            if not (one and isinstance(error, ApiError) and error.status == CONFLICT):
                log.warning("could not write event reason=%s problem=%s", reason, error)

    def _allowed(self, key: tuple[str, ...]) -> bool:
        now = time.monotonic()
        if now - self._told.get(key, float("-inf")) < REPEAT_AFTER:
            return False
        self._tokens = min(float(BURST), self._tokens + (now - self._since) * REFILL)
        self._since = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        self._told[key] = now
        self._told.move_to_end(key)
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return True
