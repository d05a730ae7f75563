"""`flockctl view --kubeconfig`, with a kubectl of the tests': more nodes than places, those that cannot be reached, and
no process left.  A real one is asked in e2e."""

import asyncio
import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from viewing import watching

from flock.edge.kubectl import Kubectl, KubectlRefused
from flock.view import cluster as module
from flock.view import turns
from flock.view.cluster import AgentPod, ClusterSource
from flock.view.following import Following
from flock.view.picture import Picture
from flock.view.source import CannotTell
from harness import BIN, eventually
from looping import looped

# Its pods lead to one agent that answers for all; each forward leaves its pid.
KUBECTL = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
*"get pods"*) cat $here/pods.json ;;
*"get nodes"*) cat $here/nodes ;;
*port-forward*dead*) echo "error: unable to forward port because pod is not running" >&2; exit 1 ;;
*port-forward*) touch $here/forwards/$$; echo "Forwarding from 127.0.0.1:$(cat $here/port) -> 9465"; exec sleep 600 ;;
*exec*no-such-pod*) echo "flockctl: there is no pod default/no-such-pod" >&2; exit 1 ;;
*exec*agent-dead*) echo "error: unable to upgrade connection" >&2; exit 1 ;;
*exec*) echo "[\\"$*\\"]"; exit 1 ;;
esac
"""


class Stand:
    """Where that kubectl is, and what it says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "forwards").mkdir()
        (path / "kubectl").write_text(KUBECTL)
        (path / "kubectl").chmod(stat.S_IRWXU)
        self.has(["n1", "n2"])

    def has(self, nodes: list[str], *, without_agent: tuple[str, ...] = (), dressed_up: tuple[str, ...] = ()) -> None:
        pods = [
            {
                "metadata": {"name": f"agent-{node}", "namespace": "flock"},
                "spec": {"nodeName": node, "hostNetwork": True},
                "status": {},
            }
            for node in nodes
            if node not in without_agent
        ]
        pods += [
            {
                "metadata": {"name": f"{node}-dressed-up", "namespace": "tenant", "creationTimestamp": "2040-01-01"},
                "spec": {"nodeName": node},
                "status": {"phase": "Running"},
            }
            for node in dressed_up
        ]
        (self.path / "pods.json").write_text(json.dumps({"items": pods}))
        (self.path / "nodes").write_text("".join(f"node/{node}\n" for node in nodes))

    def leads_to(self, port: int) -> None:
        (self.path / "port").write_text(str(port))

    def forwards(self) -> list[int]:
        """Those that run."""
        pids = (int(name) for name in os.listdir(self.path / "forwards"))  # noqa: PTH208
        return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]  # noqa: PTH110

    def source(self) -> ClusterSource:
        return ClusterSource(kubeconfig=self.path / "kubeconfig", context="here")


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Stand(tmp_path)


async def agent(stand: Stand) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, OSError):  # nobody wants to know any more
            return
        if b"/status.json" in asked:
            writer.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"node": "?", "ready": true}')
        elif b"Last-Event-ID: 7" in asked:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n: alive\n\n")
        else:
            writer.write(b'HTTP/1.1 200 OK\r\n\r\nid: 7\nevent: NodeReady\ndata: {"kind": "NodeReady", "time": 5}\n\n')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    stand.leads_to(server.sockets[0].getsockname()[1])
    return server


@looped
async def test_all_nodes_are_seen_those_that_cannot_be_reached_too(stand: Stand) -> None:
    stand.has(["n1", "n2", "n3", "dead"], without_agent=("n3",))
    async with await agent(stand), watching(stand.source()) as view:
        await view.until(lambda v: v.node("n1")["reached"] and v.node("n2")["reached"], "two nodes")
        await view.until(lambda v: "no agent" in v.node("n3")["problem"], "a node without an agent")
        await view.until(lambda v: "not running" in v.node("dead")["problem"], "one whose pod does not run")
        await view.until(lambda v: len(v.happened) == 2, "what happened, once each")
        assert {row["node"] for row in view.happened} == {"n1", "n2"} and view.happened[0]["number"] == 7
    assert stand.forwards() == []


@looped
async def test_of_many_nodes_all_are_seen_in_turn_and_a_few_processes_run(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLACES", 4)
    monkeypatch.setattr(module, "REST", 0.1)
    names = [f"n{number}" for number in range(16)]
    stand.has([*names, "dead"])
    source, most = stand.source(), 0

    def counted() -> bool:
        nonlocal most
        most = max(most, len(stand.forwards()))
        return True

    async with await agent(stand), watching(source) as view:
        source.look_at(("n15",))
        await view.until(lambda v: counted() and v.node("n15")["reached"], "who is looked at")
        await view.until(lambda v: counted() and all(v.node(name)["reached"] for name in names), "all of them")
        await view.until(lambda v: v.node("dead")["problem"], "the dead one")
    assert 1 <= most <= 4 and stand.forwards() == []


@looped
async def test_a_forward_that_is_killed_is_said_and_made_anew(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PAUSE", 0.5)
    async with await agent(stand), watching(stand.source()) as view:
        await view.until(lambda v: v.node("n1")["reached"] and len(stand.forwards()) == 2, "two forwards")
        killed = stand.forwards()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        await view.until(lambda v: "port-forward ended" in v.node("n1")["problem"], "what became of it")
        await view.until(lambda v: v.node("n1")["reached"] and v.node("n2")["reached"], "both again")
        assert not {*killed} & {*stand.forwards()}
    assert stand.forwards() == []


@looped
async def test_nodes_come_and_go(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED_EVERY", 0.1)
    async with await agent(stand), watching(stand.source()) as view:
        await view.until(lambda v: v.node("n2")["reached"], "n2")
        stand.has(["n1", "n9"])
        await view.until(lambda v: v.node("n9")["reached"] and v.node("n2")["reached"] is None, "n9 for n2")


@looped
async def test_questions_are_asked_in_the_agents_pod(stand: Stand) -> None:
    stand.has(["n1", "dead"])
    source = stand.source()
    async with await agent(stand), watching(source) as view:
        await view.until(lambda v: v.node("n1")["reached"], "n1")
        [asked] = json.loads(await source.ask("n1", "policy", "why", "shop/web", "2001:db8::1", "80/TCP"))
        assert asked.startswith(f"--kubeconfig={stand.path}/kubeconfig --context=here exec --namespace=flock agent-n1 ")
        assert asked.endswith("--container=agent -- flockctl policy why shop/web 2001:db8::1 80/TCP -o json")
        [asked] = json.loads(await source.ask("n1", "check"))
        assert asked.endswith("-- flockctl check -o json")
        with pytest.raises(CannotTell, match="there is no pod default/no-such-pod") as refused:
            await source.ask("n1", "policy", "why", "default/no-such-pod", "::1", "80")
        assert refused.value.wrong
        with pytest.raises(CannotTell, match="is no pod"):
            await source.ask("n1", "policy", "why", "--as=admin", "::1", "80")
        with pytest.raises(CannotTell, match="upgrade connection"):
            await source.ask("dead", "check")
        with pytest.raises(CannotTell, match="no agent"):
            await source.ask("n7", "check")


@looped
async def test_a_tenants_pod_with_an_agents_labels_is_not_asked_for_the_node(stand: Stand) -> None:
    stand.has(["n1", "n2"], without_agent=("n2",), dressed_up=("n1", "n2"))
    source = stand.source()
    async with await agent(stand), watching(source) as view:
        await view.until(lambda v: "no agent" in v.node("n2")["problem"], "a node without an agent")
        [asked] = json.loads(await source.ask("n1", "check"))
        assert "--namespace=flock agent-n1 " in asked
        with pytest.raises(CannotTell, match="no agent"):
            await source.ask("n2", "check")
    agents = Kubectl(kubeconfig=None, context="").agents()
    assert {node: pod["metadata"]["name"] for node, pod in agents.items()} == {"n1": "agent-n1"}


@looped
async def test_without_kubectl_or_rights_it_says_so(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    (stand.path / "kubectl").write_text(
        "#!/bin/sh\necho 'Error from server (Forbidden): pods is forbidden' >&2\nexit 1"
    )
    with pytest.raises(KubectlRefused, match="Forbidden"):
        await stand.source().run(None)  # type: ignore[arg-type]
    monkeypatch.setenv("PATH", str(stand.path / "forwards"))
    with pytest.raises(KubectlRefused, match="not installed"):
        stand.source()


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_however_it_ends(stand: Stand, by: signal.Signals) -> None:
    stand.leads_to(1)
    command = [str(BIN / "flockctl"), "view", "--kubeconfig", str(stand.path / "kubeconfig")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as view:
        eventually(lambda: len(stand.forwards()) == 2, what="two forwards")
        view.send_signal(by)
        _, error = view.communicate(timeout=20)
    assert error == "" and view.returncode == (-by if by == signal.SIGKILL else 0)
    eventually(lambda: not stand.forwards(), what="no forward any more")


@looped
async def test_told_to_end_while_it_lets_go_of_a_node_it_ends(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    following, letting_go, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_go(_: Following) -> None:
        try:
            following.set()
            await asyncio.Event().wait()
        finally:
            letting_go.set()
            await gone.wait()

    monkeypatch.setattr(Following, "run", slow_to_go)
    stand.has(["n1"])
    source = stand.source()
    async with await agent(stand):
        viewing = asyncio.create_task(source.run(Picture(origin="cluster", name="here", live=True)))
        await following.wait()
        os.kill(stand.forwards()[0], signal.SIGTERM)
        await letting_go.wait()
        viewing.cancel()
        await asyncio.sleep(0)
        gone.set()
        await asyncio.wait({viewing}, timeout=10)
        ended = viewing.cancelled()
        viewing.cancel()  # whatever came of it, for the next test
        assert ended
        assert stand.forwards() == []


def test_where_an_agent_serves_its_pages_is_read_from_its_pod() -> None:
    def port(**fields: object) -> int:
        pod = {"metadata": {"name": "a"}, "spec": {"nodeName": "n1", "containers": [{"name": "agent", **fields}]}}
        return module.msgspec.convert(pod, AgentPod).port

    assert port() == 9465
    assert port(env=[{"name": "FLOCK_HTTP", "value": "127.0.0.1:9999"}]) == 9999
    assert port(args=["--http", "[::1]:80"]) == port(command=["flock-agent", "--http=[::1]:80"]) == 80
    assert port(env=[{"name": "FLOCK_HTTP", "value": "off"}]) == 0
