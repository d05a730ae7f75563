"""What a node of a cluster does while the API server knows less than the kubelet, somebody else, or nothing at all."""

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from clustered import NAMESPACE, UID, Clustered, closed, clustered, pod, primary

from harness import CniFailure, Node, cni_outcome, eventually, run

ANYCAST = "192.0.3.53"
WANTS_ANYCAST = {"flock.fritzlab.net/anycast": ANYCAST}
OTHER_UID = "99999999-2222-4333-8444-555555555555"
CLIENT = "client"


@pytest.fixture
def cluster(fresh: Node) -> Iterator[Clustered]:
    """A node that serves, with a pod to ask others from and a policy that closes `app: web`."""
    fresh.hurry = {"flock.edge.kube.lastknown.RECALL_AFTER": 1.0, "flock.edge.kube.lastknown.SAVE_AFTER": 0.1}
    with clustered(fresh) as cluster:
        cluster.configure(anycast={"allowed": [{"prefixes": ["192.0.3.0/24"]}]})
        cluster.api.put(closed(app="web"), pod(CLIENT))
        cluster.start()
        cluster.add(CLIENT, annotations={})
        yield cluster


def reaches(cluster: Clustered, address: str) -> bool:
    return cluster.node.ping(address, inside=CLIENT)


def asked_directly(cluster: Clustered, name: str) -> bool:
    return bool(cluster.api.asked(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"))


@pytest.mark.parametrize("args", ["", "K8S_POD_NAME=db", "K8S_POD_NAMESPACE=shop"])
def test_a_runtime_that_does_not_name_the_pod_is_refused_whatever_the_conflist_says(
    cluster: Clustered, args: str
) -> None:
    cluster.node.namespace("x")
    with pytest.raises(CniFailure) as refused:
        cluster.node.cni("ADD", "x", args=args, namespace="shop")
    assert refused.value.code == 4 and "K8S_POD_NAMESPACE" in refused.value.msg


# --- labels that are not known yet ---


def test_an_add_waits_for_labels_that_a_policy_asks_for(cluster: Clustered) -> None:
    """The object comes while it waits: the pod is open from its first packet on."""
    cluster.node.namespace("db")
    args = f"K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME=db;K8S_POD_UID={UID}"
    adding = cluster.node.cni_start("ADD", "db", args=args, annotations={})
    eventually(lambda: asked_directly(cluster, "db"), what="the agent to look for the pod")
    assert adding.poll() is None
    cluster.api.put(pod("db", labels={"app": "db"}))
    out, err = adding.communicate(timeout=60)
    assert reaches(cluster, primary(cni_outcome(adding.returncode, out, err)))


def test_a_pod_whose_labels_nobody_knows_is_closed_until_they_are_known(cluster: Clustered) -> None:
    address = primary(cluster.add("db", annotations={}))
    assert not reaches(cluster, address)
    cluster.api.put(pod("db", labels={"app": "db"}))
    eventually(lambda: reaches(cluster, address), what="the pod to be open once it is known not to be selected")


def test_a_pod_that_turns_out_to_be_selected_stays_closed(cluster: Clustered) -> None:
    address = primary(cluster.add("web", annotations={}))
    cluster.api.put(pod("web", labels={"app": "web"}), pod("db", labels={"app": "db"}))
    other = primary(cluster.add("db", annotations={}))
    eventually(lambda: reaches(cluster, other), what="a pod that came later to be open")
    assert not reaches(cluster, address)


# --- namesakes ---


def test_a_namesake_with_another_uid_tells_nothing_about_a_pod(cluster: Clustered) -> None:
    """Its predecessor's labels would open the new pod, whose own are not known yet."""
    cluster.api.put(pod("web", uid=OTHER_UID, labels={"app": "db"}))
    eventually(lambda: knows(cluster, "web"), what="the namesake to be known")
    address = primary(cluster.add("web", annotations={}))
    assert not reaches(cluster, address)
    cluster.api.delete("Pod", "web", NAMESPACE)
    cluster.api.put(pod("web", labels={"app": "db"}))
    eventually(lambda: reaches(cluster, address), what="the pod to be open by its own labels")


def test_a_namesakes_annotations_are_not_the_pods(cluster: Clustered) -> None:
    cluster.api.put(pod("web", uid=OTHER_UID, annotations=WANTS_ANYCAST))
    eventually(lambda: knows(cluster, "web"), what="the namesake to be known")
    with pytest.raises(CniFailure) as refusal:
        cluster.add("web")
    assert refusal.value.code == 11 and "not known yet" in refusal.value.msg


def knows(cluster: Clustered, name: str) -> bool:
    """By what depends on the watch: objects that were put before a policy are taken in before it is in force."""
    before = cluster.node.ask("status")["policies"]
    cluster.api.put(closed(f"marker-of-{name}", app="nobody"))
    eventually(lambda: cluster.node.ask("status")["policies"] > before, what="a later object to be known")
    return True


# --- a watch that lags ---


def test_a_pod_is_asked_for_directly_when_the_watch_lags_behind_the_kubelet(cluster: Clustered) -> None:
    cluster.api.silent = True
    cluster.api.put(pod("db", labels={"app": "db"}, annotations=WANTS_ANYCAST))
    result = cluster.add("db")
    assert asked_directly(cluster, "db")
    assert [a["anycast"] for a in cluster.node.allocations().values() if a["pod_name"] == "db"] == [[ANYCAST]]
    assert reaches(cluster, primary(result))  # its labels are known by the same answer


# --- an API server that is away ---


def announced(cluster: Clustered) -> bool:
    return ANYCAST in cluster.node.ip("-4", "route", "show", "proto", "134")


def test_announcements_are_kept_while_the_api_server_is_away_also_by_an_agent_that_starts_then(
    cluster: Clustered,
) -> None:
    cluster.api.put(pod("db", ready=True, labels={"app": "db"}))
    cluster.add("db", annotations=WANTS_ANYCAST)
    eventually(lambda: announced(cluster), what="the address to be announced")
    remembered(cluster, '"db"')
    cluster.api.stop()
    eventually(lambda: "not reachable" in cluster.problems(), what="the loss to be told")
    assert announced(cluster)
    cluster.node.stop()
    assert announced(cluster)
    cluster.start(wait=False)
    eventually(cluster.node.is_ready, what="the agent to serve by what it remembers", within=40)
    assert "last known state" in cluster.problems() and announced(cluster)
    cluster.api.start()
    cluster.api.put(pod("db", ready=False, labels={"app": "db"}))
    eventually(lambda: not announced(cluster), what="the address to be withdrawn from a pod that is unready", within=40)


def test_a_node_that_boots_without_an_api_server_isolates_by_what_it_remembers(cluster: Clustered) -> None:
    cluster.api.put(pod("web", labels={"app": "web"}), pod("db", labels={"app": "db"}))
    remembered(cluster, '"web"', '"db"', '"closed"')
    cluster.api.stop()
    reboot(cluster)
    cluster.start(wait=False)
    eventually(cluster.node.is_ready, what="the agent to serve by what it remembers", within=40)
    cluster.add(CLIENT, annotations={})
    assert reaches(cluster, primary(cluster.add("db", annotations={})))
    assert not reaches(cluster, primary(cluster.add("web", annotations={})))
    assert not reaches(cluster, primary(cluster.add("unheard-of", annotations={})))


def remembered(cluster: Clustered, *texts: str) -> None:
    file = cluster.node.state_dir / "cluster.json"
    eventually(lambda: file.exists() and all(t in file.read_text() for t in texts), what="the memory")
    json.loads(file.read_text())


def reboot(cluster: Clustered) -> None:
    """Nothing is left of the node but its disk."""
    node = cluster.node
    node.kill()
    for name in [path.rpartition("/")[2].removeprefix(node.prefix) for path in node.pod_paths()]:
        node.remove_namespace(name)
    node.execute("nft", "flush", "ruleset")
    for link in node.links():
        subprocess.run(["ip", "-n", node.netns, "link", "del", link], check=False, capture_output=True)
    run("ip", "-n", node.netns, "route", "flush", "proto", "133")
    shutil.rmtree(node.run_dir)
    node.run_dir.mkdir()
