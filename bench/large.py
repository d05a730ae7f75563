"""The objects of a large cluster, and their coming and going: in etcd, past the API server, whose work they would be.

Pods are as long as those of a real cluster, managed fields and all: bytes are part of what is measured.  A pod's number
says everything about it: its namespace, its app, its addresses.
"""

import base64
import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from controlplane import Server
from events import within

Object = dict[str, Any]

APPS = 10  # of a namespace
NODE = "node-0000"  # the one that is measured
READY, UNREADY, PENDING = "True", "False", ""
# The model pod's own.
NAME, NAMESPACE, APP, ON = "aaaaa-5d78c9869d-nnnnnn", "team-mmmm", "aaaaa", "node-dddd"
UID, IP6, IP4 = "00000000-0000-4000-8000-uuuuuuuuuuuu", "2001:db8:128::eeee:ffff", "10.251.252.253"
ETCD = ("127.0.0.1", 2379)
AT_ONCE = 100  # puts in a transaction while nobody watches
CREATED = "2026-01-01T00:00:00Z"


class Cluster:
    """`here`: how many of its pods are on the node that is measured, wherever the scheduler found room."""

    def __init__(self, *, pods: int, namespaces: int, here: int) -> None:
        self.pods, self.namespaces = pods, namespaces
        self.here = frozenset(random.Random(1).sample(range(pods), here))

    def namespace(self, number: int) -> str:
        return f"team-{number % self.namespaces:04d}"

    def others(self) -> Iterable[tuple[str, Object]]:
        """What is not a pod, with the keys under which the API server keeps it."""
        for number in range(self.namespaces):
            name = self.namespace(number)
            labels = {"kubernetes.io/metadata.name": name, "tier": f"tier-{number % 10}"}
            yield f"namespaces/{name}", object_of("v1", "Namespace", name, labels=labels)
            for policy in usual_policies(name):
                yield f"networkpolicies/{name}/{policy['metadata']['name']}", policy

    def key(self, number: int) -> str:
        return f"pods/{self.namespace(number)}/{self.words(number)[NAME]}"

    def words(self, number: int, *, life: int = 0) -> dict[str, str]:
        """What takes the place of each word of the model.  `life` counts predecessors, who had other addresses."""
        serial, app = number + life * self.pods, f"app-{number // self.namespaces % APPS}"
        (high, low), (a, bc) = divmod(serial, 50_000), divmod(serial, 150 * 150)
        return {
            NAME: f"{app}-5d78c9869d-{number:06d}",
            NAMESPACE: self.namespace(number),
            APP: app,
            UID: f"00000000-0000-4000-8000-{serial:012d}",
            ON: NODE if number in self.here else f"node-{1 + number % 999:04d}",
            IP6: f"2001:db8:128::{high + 4096:x}:{low + 4096:x}",
            IP4: f"10.{a + 100}.{bc // 150 + 100}.{bc % 150 + 100}",
        }


class Model:
    """One pod as the API server keeps it, in its own binary form; all others are copies with other words in place of
    its own, of the same length."""

    def __init__(self, server: Server, *, status: str) -> None:
        etcd, key = Etcd(server.netns), f"pods/{NAMESPACE}/{NAME}"
        etcd.put(f"namespaces/{NAMESPACE}", _json(object_of("v1", "Namespace", NAMESPACE)))
        etcd.put(key, _json(pod_of(status)))
        server.kubectl(
            "annotate", "pod", NAME, f"--namespace={NAMESPACE}", f"checksum/config={'c' * 64}"
        )  # written anew
        self._stored = etcd.get(key)
        etcd.delete(key)
        etcd.delete(f"namespaces/{NAMESPACE}")

    def __call__(self, words: Mapping[str, str]) -> bytes:
        stored = self._stored
        for mine, word in words.items():
            assert len(mine) == len(word), (mine, word)
            stored = stored.replace(mine.encode(), word.encode())
        return stored


class Etcd:
    """Of the API server in this namespace, over one connection."""

    def __init__(self, netns: Path) -> None:
        self._connection = http.client.HTTPConnection(*ETCD)
        with within(netns):
            self._connection.connect()

    def fill(self, values: Iterable[tuple[str, bytes]]) -> None:
        """Many in one transaction: for when no API server watches."""
        puts = ({"requestPut": _put(key, value)} for key, value in values)
        for batch in iter(lambda: list(itertools.islice(puts, AT_ONCE)), []):
            self._ask("txn", {"success": batch})

    def get(self, key: str) -> bytes:
        return base64.b64decode(self._ask("range", {"key": _b64(f"/registry/{key}".encode())})["kvs"][0]["value"])

    def put(self, key: str, value: bytes) -> None:
        self._ask("put", _put(key, value))

    def delete(self, key: str) -> None:
        self._ask("deleterange", {"key": _b64(f"/registry/{key}".encode())})

    def _ask(self, method: str, request: Mapping[str, Any]) -> Any:
        self._connection.request("POST", f"/v3/kv/{method}", json.dumps(request))
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise OSError(f"etcd: {answer.status} {said[:200]!r}")
        return json.loads(said)


class Kept:
    """The whole cluster, in the etcd of an API server."""

    def __init__(self, server: Server, cluster: Cluster) -> None:
        self._netns, self._cluster = server.netns, cluster
        self._models = {status: Model(server, status=status) for status in (READY, UNREADY, PENDING)}

    def fill(self) -> None:
        """While no API server watches."""
        cluster, etcd = self._cluster, Etcd(self._netns)
        etcd.fill((key, _json(value)) for key, value in cluster.others())
        etcd.fill((cluster.key(number), self.pod(number)) for number in range(cluster.pods))

    def pod(self, number: int, *, life: int = 0, ready: bool = True) -> bytes:
        """Those here are about to be attached."""
        status = PENDING if number in self._cluster.here else READY if ready else UNREADY
        return self._models[status](self._cluster.words(number, life=life))

    def everybody_is_a_peer(self) -> None:
        """Of a pod here, by one more policy."""
        namespace = self._cluster.namespace(min(self._cluster.here))
        policy = policy_of(namespace, "everybody", {"ingress": [{"from": [{"namespaceSelector": {}}]}]})
        Etcd(self._netns).put(f"networkpolicies/{namespace}/everybody", _json(policy))

    def churn(self, *, rate: int) -> "Churn":
        return Churn(self._cluster, self, Etcd(self._netns), rate=rate)


class Churn:
    """Pods elsewhere become ready and unready, end, and come back as others, `rate` times a second until left."""

    def __init__(self, cluster: Cluster, kept: Kept, etcd: Etcd, *, rate: int) -> None:
        self._cluster, self._kept, self._etcd, self._rate = cluster, kept, etcd, rate
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.done = 0

    def __enter__(self) -> "Churn":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        dice, began = random.Random(2), time.monotonic()
        lives: dict[int, int] = {}
        gone: set[int] = set()
        while not self._ended.wait(max(0.0, began + self.done / self._rate - time.monotonic())):
            number = gone.pop() if len(gone) > 100 else dice.randrange(self._cluster.pods)
            if number in self._cluster.here:
                continue
            if dice.random() < 0.2 and number not in gone:
                gone.add(number)
                lives[number] = lives.get(number, 0) + 1
                self._etcd.delete(self._cluster.key(number))
            else:
                gone.discard(number)
                pod = self._kept.pod(number, life=lives.get(number, 0), ready=dice.random() < 0.5)
                self._etcd.put(self._cluster.key(number), pod)
            self.done += 1


def usual_policies(namespace: str) -> list[Object]:
    """Five that are usual: nothing by default, the own namespace, some apps of it, monitoring, DNS."""
    named, own = "kubernetes.io/metadata.name", [{"podSelector": {}}]
    dns = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}
    ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    apps = {"from": [{"podSelector": {"matchLabels": {"app": f"app-{n}"}}} for n in range(3)], "ports": [{"port": 80}]}
    monitoring = {
        "from": [{"namespaceSelector": {"matchLabels": {named: "team-0000"}}}],
        "ports": [{"port": "metrics"}],
    }
    return [
        policy_of(namespace, "default-deny", {"ingress": [], "egress": []}),
        policy_of(namespace, "own", {"ingress": [{"from": own}], "egress": [{"to": own}]}),
        policy_of(namespace, "apps", {"ingress": [apps]}, selects={"app": "app-1"}),
        policy_of(namespace, "monitoring", {"ingress": [monitoring]}),
        policy_of(namespace, "dns", {"egress": [{"to": [dns], "ports": ports}]}),
    ]  # fmt: skip


def policy_of(namespace: str, name: str, rules: Object, *, selects: Mapping[str, str] | None = None) -> Object:
    policy = object_of("networking.k8s.io/v1", "NetworkPolicy", name, namespace=namespace)
    selector = {"matchLabels": dict(selects)} if selects else {}
    types = [{"ingress": "Ingress", "egress": "Egress"}[direction] for direction in rules]
    policy["spec"] = {"podSelector": selector, "policyTypes": types, **rules}
    return policy


def object_of(
    version: str, kind: str, name: str, *, namespace: str = "", labels: Mapping[str, str] | None = None
) -> Object:
    metadata: Object = {"name": name, "uid": f"{kind}-{namespace}-{name}", "creationTimestamp": CREATED}
    metadata |= {"namespace": namespace} if namespace else {}
    metadata |= {"labels": dict(labels)} if labels else {}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def pod_of(ready: str) -> Object:
    pod = object_of("v1", "Pod", NAME, namespace=NAMESPACE, labels={"app": APP, "pod-template-hash": "5d78c9869d"})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{APP}-5d78c9869d", "controller": True}
    pod["metadata"] |= {
        "uid": UID,
        "generateName": f"{APP}-5d78c9869d-",
        "annotations": {"kubernetes.io/config.seen": CREATED},
        "ownerReferences": [{**owner, "uid": "11111111-0000-4000-8000-000000000000"}],
        "managedFields": _managed(),
    }
    pod["metadata"]["labels"]["app.kubernetes.io/part-of"] = "shop"
    pod["spec"] = _spec(APP, ON)
    pod["status"] = status_of([{"ip": IP6}, {"ip": IP4}], ready=ready) if ready else {"phase": "Pending"}
    return pod


def _spec(app: str, node: str) -> Object:
    environment = [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(8)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10}
    container = {
        "name": "main",
        "image": f"registry.example/shop/{app}:1.2.3",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"},
                  {"name": "metrics", "containerPort": 9090, "protocol": "TCP"}],
        "env": environment,
        "resources": {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
        "livenessProbe": probe,
        "readinessProbe": probe,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app", "readOnly": True}],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }  # fmt: skip
    taints = ("not-ready", "unreachable")
    return {
        "nodeName": node,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": f"{app}-config", "defaultMode": 420}}],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": app,
        "schedulerName": "default-scheduler",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{taint}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for taint in taints
        ],
    }


def status_of(addresses: list[Object], *, ready: str) -> Object:
    kinds = (("Initialized", "True"), ("Ready", ready), ("ContainersReady", ready), ("PodScheduled", "True"))
    return {
        "phase": "Running",
        "conditions": [{"type": kind, "status": status, "lastTransitionTime": CREATED} for kind, status in kinds],
        "hostIP": "198.51.100.7",
        "podIP": addresses[0]["ip"],
        "podIPs": addresses,
        "startTime": CREATED,
        "containerStatuses": [
            {
                "name": "main",
                "state": {"running": {"startedAt": CREATED}},
                "ready": ready == READY,
                "restartCount": 0,
                "image": "registry.example/shop/app:1.2.3",
                "imageID": "registry.example/shop/app@sha256:" + "a" * 64,
                "containerID": "containerd://" + "b" * 64,
            }
        ],
        "qosClass": "Burstable",
    }


def _managed() -> list[Object]:
    """Who wrote which field: a third of a usual pod."""
    fields = {
        f"f:{name}": {} for name in ("image", "name", "env", "ports", "resources", "livenessProbe", "volumeMounts")
    }
    spec = {"f:containers": {'k:{"name":"main"}': fields}, "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:volumes": {}}
    kinds = ("Initialized", "Ready", "ContainersReady")
    status = {
        "f:conditions": {f'k:{{"type":"{kind}"}}': {"f:status": {}, "f:lastTransitionTime": {}} for kind in kinds}
    }
    return [
        {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": CREATED, "fieldsType": "FieldsV1",
         "fieldsV1": written}
        for manager, written in (
            ("kube-controller-manager", {"f:metadata": {"f:generateName": {}, "f:labels": {}}, "f:spec": spec}),
            ("kubelet", {"f:status": {**status, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:startTime": {}}}),
        )
    ]  # fmt: skip


def _json(value: Object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _put(key: str, value: bytes) -> Object:
    return {"key": _b64(f"/registry/{key}".encode()), "value": _b64(value)}


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
