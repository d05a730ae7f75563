"""Text of manifests: what is taken, what is refused and by which name."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.core.decoding import Unreadable
from flock.core.documents import MAX_DEPTH
from flock.core.manifest import Manifest, ObjectKey, parse_manifest
from flock.core.model import Pod

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: {flock.fritzlab.net/ipv4: "false"}
spec:
  nodeName: node1
  containers: [{name: web, image: nginx, ports: [{containerPort: 80}]}]
"""
WEB = ObjectKey("Pod", "default", "web")


def parse(text: str) -> Manifest:
    return parse_manifest(text.encode(), node="node1")


def pod(text: str) -> Pod:
    manifest = parse(text)
    assert manifest.refused == {}
    (value,) = manifest.objects.values()
    assert isinstance(value, Pod)
    return value


def test_a_pod_without_a_namespace_is_in_default() -> None:
    assert pod(POD).key == ("default", "web")
    assert pod(POD).annotations == {"flock.fritzlab.net/ipv4": "false"}


def test_documents_lists_and_json_give_the_same_objects() -> None:
    one = parse(POD).objects
    assert parse(f"---\n{POD}---\n").objects == one
    listed = "apiVersion: v1\nkind: List\nitems:\n- " + POD.replace("\n", "\n  ")
    assert parse(listed).objects == one
    container = {"name": "web", "image": "nginx", "ports": [{"containerPort": 80}]}
    as_json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "annotations": {"flock.fritzlab.net/ipv4": "false"}},
        "spec": {"nodeName": "node1", "containers": [container]},
    }
    assert parse(json.dumps(as_json)).objects == one
    assert parse(json.dumps({"apiVersion": "v1", "kind": "List", "items": [as_json]}, indent=2)).objects == one


def test_flow_style_yaml_is_not_mistaken_for_json() -> None:
    assert pod("{apiVersion: v1, kind: Pod, metadata: {name: web}}").key == ("default", "web")


@pytest.mark.parametrize("text", ["", "---\n---\n", "# nothing\n", "apiVersion: v1\nkind: List\n", "kind: Job\n"])
def test_files_without_objects_for_us_are_fine(text: str) -> None:
    assert parse(text) == Manifest({}, {}, ())


def test_the_same_kind_of_another_api_group_is_not_ours() -> None:
    text = "apiVersion: crd.projectcalico.org/v1\nkind: NetworkPolicy\nmetadata: {name: x}\n"
    assert parse(text) == Manifest({}, {}, ())


def test_another_version_of_our_group_is_refused() -> None:
    text = "apiVersion: flock.fritzlab.net/v2\nkind: NodeConfig\nmetadata: {name: node1}\n"
    assert "$.apiVersion" in parse(text).refused[ObjectKey("NodeConfig", "", "node1")]


def test_other_nodes_configurations_are_left_out_even_when_wrong() -> None:
    text = "apiVersion: flock.fritzlab.net/v1alpha1\nkind: NodeConfig\nmetadata: {name: node2, labels: 3}\n"
    assert parse(text) == Manifest({}, {}, (), others=("node2",))


def test_a_kind_that_claims_to_be_ours_and_is_not_known_is_named() -> None:
    text = "apiVersion: flock.fritzlab.net/v1alpha1\nkind: NodeConfigs\nmetadata: {name: node1}\n"
    assert parse(text) == Manifest({}, {}, ("kind NodeConfigs is not known",))


def test_other_nodes_are_told_apart_from_the_own_one() -> None:
    text = "".join(f"apiVersion: v1\nkind: Node\nmetadata: {{name: node{number}}}\n---\n" for number in (1, 2))
    assert set(parse(text).objects) == {ObjectKey("Node", "", "node1"), ObjectKey("ClusterNode", "", "node2")}
    assert {str(key) for key in parse(text).objects} == {"Node node1", "Node node2"}
    everybodys = parse_manifest(text.encode(), node=None)
    assert set(everybodys.objects) == {ObjectKey("Node", "", "node1"), ObjectKey("Node", "", "node2")}


def test_a_policy_of_the_cluster_has_no_namespace_and_is_handed_on_when_refused() -> None:
    head = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n"
    assert set(parse(f"{head}metadata: {{name: a}}\nspec: {{tier: Admin}}\n").objects) == {
        ObjectKey("ClusterNetworkPolicy", "", "a")
    }
    refused = parse(f"{head}metadata: {{name: A B}}\n---\n{head}metadata: {{name: b, labels: 3}}\n")
    assert all(not key.namespace and key.name for key in refused.objects)
    assert len(refused.objects) == len(refused.refused) == 2


def test_policies_and_node_configs_are_kept_as_they_came() -> None:
    manifest = parse(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}}\n---\n"
        "apiVersion: flock.fritzlab.net/v1alpha1\nkind: NodeConfig\nmetadata: {name: node1}\n"
        "spec: {since: 2024-01-01, bgp: {peers: [{communities: [64601:20]}]}}\n"
    )
    policy = manifest.objects[ObjectKey("NetworkPolicy", "default", "deny")]
    assert isinstance(policy, dict)
    assert policy["metadata"] == {"name": "deny", "namespace": "default"}
    config = manifest.objects[ObjectKey("NodeConfig", "", "node1")]
    assert isinstance(config, dict)
    assert config["spec"] == {"since": "2024-01-01", "bgp": {"peers": [{"communities": ["64601:20"]}]}}


def test_an_unquoted_timestamp_stays_the_text_it_is() -> None:
    text = POD.replace("name: web\n", "name: web\n  deletionTimestamp: 2026-01-02T03:04:05Z\n", 1)
    assert pod(text).metadata.deletion_timestamp == "2026-01-02T03:04:05Z"
    assert pod(text).terminating


def test_keys_without_a_value_count_as_absent() -> None:
    assert not pod(POD + "status:\n").ready
    assert pod("apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: , labels: }\n").key == ("default", "web")


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('"false"', "false", "$.metadata.annotations['flock.fritzlab.net/ipv4']"),
        ('"false"', "null", "$.metadata.annotations['flock.fritzlab.net/ipv4']"),
        ("annotations: {", "labels: {1: x, ", "$.metadata.labels[1]"),
        ("nodeName: node1", "nodeName: 1", "$.spec.nodeName"),
        ("image: nginx", "image: 1.27", "$.spec.containers[0].image"),
        ("containerPort: 80", "containerPort: http", "$.spec.containers[0].ports[0].containerPort"),
        ("apiVersion: v1", "apiVersion: v2", "$.apiVersion"),
        ("apiVersion: v1\n", "", "$.apiVersion"),
    ],
)
def test_a_wrong_type_is_refused_with_object_and_path(old: str, new: str, path: str) -> None:
    manifest = parse(f"{POD.replace(old, new, 1)}---\n{POD.replace('web', 'good')}")
    assert path in manifest.refused[WEB]
    assert list(manifest.objects) == [ObjectKey("Pod", "default", "good")]


@pytest.mark.parametrize(
    "metadata",
    ["{}", "[]", "{name: 3}", "{name: Web}", "{name: 'a b'}", "{name: a, namespace: ../x}", "{generateName: w}"],
)
def test_an_object_without_a_proper_name_is_refused_as_one_of_its_kind(metadata: str) -> None:
    manifest = parse(f"apiVersion: v1\nkind: Pod\nmetadata: {metadata}\n")
    assert list(manifest.refused) == [ObjectKey("Pod", "", "")]
    assert manifest.objects == {}


def test_a_name_that_is_none_is_told_with_what_is_wrong_with_it() -> None:
    (said,) = parse("apiVersion: v1\nkind: Pod\nmetadata: {name: MyHost}\n").refused.values()
    assert said == "'MyHost' is not a DNS name (small letters) - at `$.metadata.name`"


def test_a_repeat_in_one_file_is_a_warning_and_the_last_counts() -> None:
    manifest = parse(f"{POD}---\n{POD.replace('node1', 'node2')}")
    value = manifest.objects[WEB]
    assert isinstance(value, Pod) and value.spec.node_name == "node2"
    assert len(manifest.warnings) == 1 and "Pod default/web" in manifest.warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        "just words", "- a\n- b\n", "apiVersi", "apiVersion: v1\nmeta", "kind: [Pod]", "kind: List\nitems: 3\n",
        "kind: List\nitems: [3]\n", "kind: List\nitems: [{}]\n", "a: *b", "\0", "key: [", "!!bool x", "!!int ''",
        "!!timestamp x", "!!python/object/apply:os.getcwd []", "1" * 5000, "\tx",
    ],
)  # fmt: skip
def test_what_is_not_objects_is_refused_as_a_whole_in_one_line(text: str) -> None:
    with pytest.raises(Unreadable) as error:
        parse(text)
    assert "\n" not in error.value.msg


def test_an_error_in_yaml_names_its_line() -> None:
    with pytest.raises(Unreadable, match="line 5"):
        parse(POD.replace("annotations: {", "annotations: {a: b: "))


LEVELS = "abcdefghijk"


def grown(link: str) -> str:
    """Ten levels of nine aliases each: under a kilobyte of text, three billion values."""
    return "".join(f"{this}: &{this} {link % ', '.join([f'*{last}'] * 9)}\n" for last, this in pairwise(LEVELS))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "- " * 100_000,
        "{" * 100_000,
        "{a: " * (MAX_DEPTH + 1),
        "a: &a [*a]\n",
        "a: &a [x]\n" + grown("[%s]"),
        "a: &a {x: y}\n" + grown("{<<: [%s]}"),
    ],
    ids=["brackets", "dashes", "braces", "mappings", "itself", "aliases", "merges"],
)
def test_bombs_are_refused_before_anything_is_built(text: str) -> None:
    with pytest.raises(Unreadable):
        parse(text)


def test_ordinary_anchors_work() -> None:
    text = f"kind: Other\nx: &labels {{app: web}}\ny: {{<<: *labels}}\n---\n{POD}"
    assert WEB in parse(text).objects


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_manifest(text.encode("utf-8", "surrogatepass"), node="node1")
    except Unreadable as error:
        assert "\n" not in error.msg


@given(st.integers(0, len(POD)), st.integers(0, 20), st.text(st.characters(codec="utf-8"), max_size=10))
def test_a_damaged_manifest_is_read_or_refused(at: int, cut: int, noise: str) -> None:
    try:
        manifest = parse(POD[:at] + noise + POD[at + cut :])
    except Unreadable:
        return
    assert all(key.name and key.namespace for key in manifest.objects if key.kind == "Pod")
