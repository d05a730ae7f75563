"""What is known of the cluster, whatever happens to the API server or on the way to it."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from places import eventually
from watching import NODE, Server, Watcher, pod, watched_server

from flock.core.kinds import CLUSTER_PODS, NODE_CONFIGS, PODS, POLICIES

MANY = 10_000
MOST_MEMORY = 35 << 20  # bytes, for MANY trimmed pods
CROWD, FAT = 1500, 20_000  # pods and bytes in each: more than sockets and the server's buffers take
LONG = 240  # seconds a slow machine may need
NODE_CONFIG = {
    "apiVersion": "flock.fritzlab.net/v1alpha1",
    "kind": "NodeConfig",
    "metadata": {"name": NODE},
    "spec": {"cidr6": ["2001:db8:1::/64"]},
}
POLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed", "namespace": "default"},
    "spec": {"podSelector": {}},
}

pytestmark = pytest.mark.timeout(LONG)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with watched_server() as server:
        server.apply(NODE_CONFIG, POLICY)
        yield server


@pytest.fixture
def watcher(server: Server, tmp_path: Path) -> Iterator[Watcher]:
    """One that knows two pods."""
    server.erase("pods/")
    server.apply(pod("a"), pod("b"))
    with Watcher(server, state_dir=tmp_path) as watcher:
        knows(watcher, "a", "b")
        yield watcher


def knows(watcher: Watcher, *pods: str) -> None:
    """All kinds are listed and watched without trouble, and these are the node's pods."""

    def settled() -> bool:
        return watcher.cache.complete and not watcher.cache.problems and watcher.pods == set(pods)

    eventually(settled, what=f"{pods} alone to be known", patience=LONG / 2)


def delete(server: Server, *names: str) -> None:
    server.kubectl("delete", "pod", "--grace-period=0", "--force", *names)


def lists(watcher: Watcher) -> int:
    return watcher.client.lists["/api/v1/pods"]


def test_changes_arrive_by_the_watch_alone(server: Server, watcher: Watcher) -> None:
    before = lists(watcher)
    server.apply(pod("c"))
    server.apply(pod("elsewhere", node="n2"))
    delete(server, "a")
    knows(watcher, "b", "c")
    server.kubectl("label", "pod", "b", "tier=front")
    eventually(lambda: watcher.cache.table(PODS)["default", "b"].labels == {"tier": "front"}, what="the label")
    assert lists(watcher) == before


def test_a_killed_server_changes_nothing_until_it_is_back(server: Server, watcher: Watcher) -> None:
    server.kill_api_server()
    eventually(lambda: "not reachable" in watcher.problems, what="the watcher to notice")
    assert watcher.pods == {"a", "b"} and watcher.cache.synced
    server.erase("pods/default/a")
    server.start_api_server()
    server.apply(pod("c"))
    knows(watcher, "b", "c")


def test_deletes_missed_before_a_compaction_are_found(server: Server, watcher: Watcher) -> None:
    before = lists(watcher)
    server.kill_api_server()
    server.erase("pods/default/a")
    server.store("pods", [pod("c", uid="c")])
    server.erase("pods/default/c")
    server.store("pods", [pod("d", uid="d")])
    server.compact()
    server.start_api_server()
    knows(watcher, "b", "d")
    assert lists(watcher) > before


def test_a_server_that_cannot_read_its_own_store_is_waited_for(server: Server, watcher: Watcher) -> None:
    """What is no object at all stops the server's own watch of etcd, and every list."""
    server.put("pods/default/broken", "no object")
    eventually(lambda: "/api/v1/pods" in watcher.problems, what="the watcher to suffer")
    assert watcher.pods == {"a", "b"}
    server.erase("pods/default/broken")
    server.apply(pod("c"))
    knows(watcher, "a", "b", "c")


def test_a_partition_is_noticed_and_healed(server: Server, watcher: Watcher) -> None:
    with server.cut_off():
        delete(server, "a")
        eventually(lambda: watcher.problems, what="the silence to be noticed", patience=90)
        assert watcher.pods == {"a", "b"}
    server.apply(pod("c"))
    knows(watcher, "b", "c")


def test_a_watcher_that_was_held_up_catches_up(server: Server, watcher: Watcher) -> None:
    knows(watcher, "a", "b")
    with watcher.held_up():
        crowd = [pod(f"crowd-{i}", uid=f"{i}", annotations={"fat": "x" * FAT}) for i in range(CROWD)]
        server.store("pods", crowd)
        server.apply(pod("last"), pod("far", node="n2"))
        delete(server, "a")
        server.erase(*(f"pods/default/{p['metadata']['name']}" for p in crowd))
    knows(watcher, "b", "last")
    eventually(lambda: set(watcher.cache.table(CLUSTER_PODS)) == {("default", "far")}, what="the same elsewhere")


def test_a_new_token_is_used_when_the_old_one_ends(server: Server, tmp_path: Path) -> None:
    kubeconfig, token_file = _account(server, "rotated", tmp_path)
    server.kubectl("create", "clusterrolebinding", "rotated", "--clusterrole=cluster-admin", _user("rotated"))
    server.erase("pods/")
    with Watcher(server, state_dir=tmp_path, kubeconfig=kubeconfig) as watcher:
        knows(watcher)
        token_file.write_text("not a token")
        server.kill_api_server()
        server.start_api_server()
        eventually(lambda: "401" in watcher.problems, what="the token to be refused")
        server.apply(pod("a"))
        new = tmp_path / "new"
        new.write_text(server.token("rotated"))
        new.replace(token_file)
        knows(watcher, "a")


def test_rights_taken_away_leave_what_is_known_and_given_back_bring_the_rest(server: Server, tmp_path: Path) -> None:
    kubeconfig, _ = _account(server, "restricted", tmp_path)
    grant = ("clusterrolebinding", "restricted")
    server.kubectl("create", *grant, "--clusterrole=cluster-admin", _user("restricted"))
    server.erase("pods/")
    server.apply(pod("a"))
    with Watcher(server, state_dir=tmp_path, kubeconfig=kubeconfig) as watcher:
        knows(watcher, "a")
        server.kubectl("delete", *grant)
        server.kill_api_server()  # a watch that runs is not asked for its rights again
        server.start_api_server()
        server.apply(pod("b"))
        eventually(lambda: "403" in watcher.problems, what="the watcher to be refused")
        assert watcher.pods == {"a"}
        server.kubectl("create", *grant, "--clusterrole=cluster-admin", _user("restricted"))
        knows(watcher, "a", "b")


def test_the_last_known_state_is_in_force_when_the_server_is_away_at_start(
    server: Server, watcher: Watcher, tmp_path: Path
) -> None:
    server.apply(pod("elsewhere", node="n2"))
    file = tmp_path / "cluster.json"
    eventually(lambda: file.exists() and "elsewhere" in file.read_text(), what="the state to be on disk")
    server.kill_api_server()
    with Watcher(server, state_dir=tmp_path) as later:
        eventually(lambda: later.cache.synced, what="the memory to serve")
        assert later.cache.complete and later.pods == {"a", "b"}
        assert ("default", "elsewhere") in later.cache.table(CLUSTER_PODS)
        assert later.cache.own(NODE_CONFIGS) and ("default", "closed") in later.cache.table(POLICIES)
        assert "last known state" in later.problems
        server.erase("pods/default/a")
        server.start_api_server()
        knows(later, "b")


def test_ten_thousand_pods_of_the_cluster_fit_into_little_memory(
    server: Server, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    server.erase("pods/")
    server.store("pods", map(_stored, range(MANY)), at_once=20)
    command = [sys.executable, str(Path(__file__).with_name("measure_pods.py")), str(tmp_path), str(server.kubeconfig)]
    done = subprocess.run(["nsenter", f"--net={server.netns}", *command, str(MANY)], stdout=subprocess.PIPE, check=True)
    used = json.loads(done.stdout)
    spent = f"{MANY} pods: {used['memory'] / (1 << 20):.1f} MiB, {used['cpu']:.2f} s of CPU to list them"
    record_property("measured", spent)
    server.erase("pods/")
    assert used["memory"] <= MOST_MEMORY


# --- what the tests are made of ---


def _account(server: Server, name: str, directory: Path) -> tuple[Path, Path]:
    """A kubeconfig of a new service account, and the file with its token."""
    server.kubectl("create", "serviceaccount", name)
    kubeconfig, token_file = directory / "kubeconfig", directory / "token"
    token_file.write_text(server.token(name))
    server.kubeconfig_with_token(kubeconfig, token_file=token_file)
    return kubeconfig, token_file


def _user(account: str) -> str:
    return f"--serviceaccount=default:{account}"


def _stored(number: int) -> dict[str, Any]:
    """A pod with about as much in it as those of a Deployment have."""
    app = f"shop-{number % 100}"
    made = pod(
        f"{app}-6d4cf56db6-{number:05}",
        node=f"n{number // 100 + 2}",
        uid=f"{number:08x}-0000-4000-8000-{number:012x}",
        creationTimestamp="2030-01-01T00:00:00Z",
        labels={"app": app, "pod-template-hash": "6d4cf56db6", "tier": "front", "version": "1"},
        annotations={"example.net/checksum": "0" * 64},
        ownerReferences=[
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"{number % 100}", "controller": True}
        ],
    )
    made["spec"]["containers"][0] |= {
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"SETTING_{i}", "value": "x" * 20} for i in range(10)],
    }
    addresses = (f"2001:db8:{number >> 8:x}::{number & 255:x}", f"10.0.{number >> 8}.{number & 255}")
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    made["status"] = {
        "phase": "Running",
        "podIP": addresses[0],
        "podIPs": [{"ip": address} for address in addresses],
        "conditions": [{"type": kind, "status": "True"} for kind in kinds],
    }
    return made
