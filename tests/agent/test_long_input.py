"""What a tenant writes is kept, quoted and logged only as far as it is of use."""

import json

import pytest
from looking import OWN, failure, flockctl

from harness import Node
from thoroughness import some

HUGE = 200_000
LOG_FOR_ONE_CALL = 4_000  # the lines of a call and its warnings, with room


def log_size(node: Node) -> int:
    return node.log.stat().st_size


@pytest.mark.parametrize(
    "text", ["x" * HUGE, "192.0.2.9" + "," * HUGE, "192.0.2.9, " * (HUGE // 11), "é\n" * (HUGE // 2)]
)
@pytest.mark.parametrize("name", some(["ipv4", "cidr4", "cidr6", "addresses", "anycast"]))
def test_an_annotation_of_200_kb_is_refused_in_a_few_words(node: Node, name: str, text: str) -> None:
    node.namespace("a")
    before = log_size(node)
    failed = failure(node, "ADD", "a", annotations={OWN + name: text})
    assert failed.code == 101 and OWN + name in failed.msg
    assert len(json.dumps(failed.error)) < 1_500 and "\n" not in failed.msg
    assert log_size(node) - before < LOG_FOR_ONE_CALL


@pytest.mark.parametrize("text", ["x" * HUGE, "app" + "," * HUGE])
def test_ip_algo_of_200_kb_fails_no_pod_and_is_not_kept(node: Node, text: str) -> None:
    before = log_size(node)
    node.pod("a", annotations={OWN + "ip-algo": text})
    assert log_size(node) - before < LOG_FOR_ONE_CALL
    assert len(json.dumps(node.allocations())) < 10_000


def test_of_a_pods_annotations_only_those_are_kept_that_are_read(node: Node) -> None:
    unknown = {f"{OWN}x-{n}": "y" * 200 for n in range(900)}
    before = log_size(node)
    node.pod("a", annotations={**unknown, OWN + "ipv6": "false", "example.org/z": "z"})
    assert node.allocations()["a"]["annotations"] == {OWN + "ipv6": "false"}
    assert log_size(node) - before < LOG_FOR_ONE_CALL
    assert "no such annotation" in node.log_text() and "x-0" in node.log_text()


def test_what_an_earlier_version_kept_beyond_that_is_not_shown_as_changed(node: Node) -> None:
    meta = {"name": "a", "namespace": "default", "annotations": {OWN + "ipv6": "false"}}
    node.write("pod", {"kind": "Pod", "apiVersion": "v1", "metadata": meta})
    node.pod("a", annotations=meta["annotations"])  # type: ignore[arg-type]
    node.stop()
    path = node.state_dir / "allocations.json"
    content = json.loads(path.read_text())
    content["allocations"][0]["annotations"][OWN + "colour"] = "green"
    path.write_text(json.dumps(content))
    node.start()
    [shown] = json.loads(flockctl(node, "pods", "-o", "json").stdout)
    assert not shown["pending"] if "pending" in shown else "colour" not in json.dumps(shown)


def test_cni_args_of_100_kb_are_refused_in_a_few_words(node: Node) -> None:
    node.namespace("a")
    for args in ("K8S_POD_NAME" + "x" * 100_000, "K8S_POD_NAME=" + "x" * 100_000):
        before = log_size(node)
        failed = failure(node, "ADD", "a", args=args)
        assert failed.code == 4 and len(json.dumps(failed.error)) < 1_500
        assert log_size(node) - before < LOG_FOR_ONE_CALL
