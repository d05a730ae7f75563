"""All nodes of a cluster, by way of kubectl: what is looked at is followed, the rest is visited in turn.

Nothing is installed in the cluster, and nothing listens but kubectl's end of each forwarded port, on loopback.  Each is
a process of tens of MiB, so there are never more than PLACES of them.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec

from flock.core.errors import FlockError
from flock.edge.ending import end
from flock.edge.kubectl import AGENT, AGENTS, KubectlRefused
from flock.view.following import Following
from flock.view.kubectl import Forward, Kubectl
from flock.view.picture import Picture
from flock.view.source import CannotTell, words
from flock.view.turns import Turns

PLACES = 12
LISTED_EVERY = 10.0  # seconds, for every hundred nodes: 1000 pods are 10 MiB
REST = 1.0  # of a place after a visit: to start a kubectl takes a good part of a second of a core
GLANCE = 0.5  # how often a place looks whether its node is to be followed on
GIVE_UP = 5.0  # after this long without an answer a forward is made anew: its pod may have another address
HTTP = "127.0.0.1:9465"


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Container(msgspec.Struct, frozen=True):
    name: str
    args: list[str] = []
    command: list[str] = []
    env: list[_Variable] = []


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    host_network: bool = False
    containers: list[_Container] = []


class _Phase(msgspec.Struct, frozen=True):
    phase: str = ""


class AgentPod(msgspec.Struct, frozen=True):
    """A Pod, of which little matters here."""

    metadata: _Metadata
    spec: _Spec
    status: _Phase = _Phase()

    @property
    def port(self) -> int:
        """Of the agent's pages; 0 if it serves none."""
        address = HTTP
        for container in self.spec.containers:
            if container.name == AGENT:
                address = next((v.value for v in container.env if v.name == "FLOCK_HTTP"), address)
                given = [*container.command, *container.args, ""]
                address = next((b for a, b in pairwise(given) if a == "--http"), address)
                address = next((a.removeprefix("--http=") for a in given if a.startswith("--http=")), address)
        port = address.rpartition(":")[2]
        return int(port) if port.isdecimal() else 0

    @property
    def preference(self) -> tuple[bool, bool, str]:
        """Of several on one node the one to ask is the largest."""
        going = self.metadata.deletion_timestamp is not None
        return not going, self.status.phase == "Running", self.metadata.creation_timestamp


class _Pods(msgspec.Struct, frozen=True):
    items: list[AgentPod]


class ClusterSource:
    """KubectlRefused if there is no kubectl, or if it cannot list the agents' pods at first."""

    origin, live = "cluster", True

    def __init__(self, *, kubeconfig: Path | None, context: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = context or (kubeconfig.stem if kubeconfig else "cluster")
        self._kubectl = Kubectl(kubeconfig=kubeconfig, context=context)
        self._clock = clock
        self._turns = Turns(PLACES)
        self._pods: dict[str, AgentPod] = {}
        self._heard: dict[str, str] = {}  # node -> id of the last happening

    async def run(self, picture: Picture) -> None:
        await self._list(picture)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listing(picture))
            for _ in range(PLACES):
                tasks.create_task(self._place(picture))

    async def ask(self, node: str, *command: str) -> bytes:
        pod = self._pods.get(node)
        if pod is None:
            raise CannotTell(f"no agent runs on {node}")
        self._turns.look((node,), self._clock())
        where = (f"--namespace={pod.metadata.namespace}", pod.metadata.name, f"--container={AGENT}")
        question = (*command[:2], *words(*command[2:]), "-o", "json")
        try:
            code, answer, complaint = await self._kubectl.run("exec", *where, "--", "flockctl", *question)
        except KubectlRefused as error:
            raise CannotTell(error.msg) from None
        if not answer.lstrip().startswith(b"["):
            raise CannotTell(complaint.removeprefix("flockctl: ") or f"ended with {code}", wrong=code == 1)
        return answer

    def look_at(self, nodes: tuple[str, ...]) -> None:
        self._turns.look(nodes, self._clock())

    async def _listing(self, picture: Picture) -> None:
        while True:
            await asyncio.sleep(LISTED_EVERY * max(1.0, len(self._pods) / 100))
            with contextlib.suppress(FlockError):  # what is known stays; who cannot be reached is shown as such
                await self._list(picture)

    async def _list(self, picture: Picture) -> None:
        said = await self._kubectl.output("get", "pods", "--all-namespaces", f"--selector={AGENTS}", "--output=json")
        try:
            pods = msgspec.json.decode(said, type=_Pods).items
        except msgspec.MsgspecError as error:
            raise KubectlRefused(f"kubectl get pods: {error}") from None
        names = set[str]()
        with contextlib.suppress(KubectlRefused):  # may be forbidden; nodes with an agent are known anyway
            listed = await self._kubectl.output("get", "nodes", "--output=name")
            names = {name.partition("/")[2] for name in listed.decode().split()}
        # Whoever may make pods may give them an agent's labels: only one in the node's own network can be its agent.
        ours = sorted((pod for pod in pods if pod.spec.host_network), key=lambda pod: pod.preference)
        self._pods = {pod.spec.node_name: pod for pod in ours if pod.spec.node_name}
        names |= self._pods.keys()
        for name in self._turns.know(names):
            picture.gone(name)
            self._heard.pop(name, None)
        for name in names:
            picture.expect(name, "not asked yet")

    async def _place(self, picture: Picture) -> None:
        """One forward at a time, for whoever's turn it is."""
        while True:
            name = self._turns.take(self._clock())
            if name is None:
                await asyncio.sleep(GLANCE)
                continue
            try:
                await self._turn(picture, name)
            except FlockError as error:
                picture.lost(name, error.msg)
            finally:
                if not self._turns.done(name, self._clock()):
                    picture.gone(name)

    async def _turn(self, picture: Picture, name: str) -> None:
        pod = self._pods.get(name)
        if pod is None or not pod.port:
            raise FlockError("no agent runs there" if pod is None else "its agent serves no pages")
        where = {"namespace": pod.metadata.namespace, "pod": pod.metadata.name}
        async with self._kubectl.forward(**where, port=pod.port) as forward:
            connect = lambda: asyncio.open_connection("127.0.0.1", forward.port)  # noqa: E731
            following = Following(picture, connect, name=name, after=self._heard.get(name, ""))
            try:
                if self._turns.stays(name, self._clock()):
                    await self._follow(following, forward, pod)
                else:
                    await following.visit()
                    await asyncio.sleep(REST)
            finally:
                self._heard[name] = following.last

    async def _follow(self, following: Following, forward: Forward, pod: AgentPod) -> None:
        task = asyncio.create_task(following.run())
        try:
            answered = self._clock()
            while self._turns.stays(following.name, self._clock()) and not forward.ended and not task.done():
                await asyncio.sleep(GLANCE)
                answered = self._clock() if following.answered else answered
                other = self._pods.get(following.name)
                if self._clock() - answered > GIVE_UP or other is None or other.metadata.name != pod.metadata.name:
                    break
        finally:
            await end(task)
        if forward.ended:
            raise FlockError(f"kubectl port-forward ended: {forward.words or 'without a word'}")
