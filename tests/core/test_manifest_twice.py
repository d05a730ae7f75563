"""A key that is in a manifest twice: neither of the two counts, and the line is named."""

import json

import pytest

from flock.core.decoding import Unreadable
from flock.core.errors import FieldError
from flock.core.manifest import Manifest, ObjectKey, parse_manifest
from flock.core.policy.trial import read_trial

CONFIG = """\
apiVersion: flock.fritzlab.net/v1alpha1
kind: NodeConfig
metadata: {name: node1}
spec:
  cidr6: ["2001:db8:1::/64"]
"""
POLICY = """\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {}
  ingress: []
"""
NODE1 = ObjectKey("NodeConfig", "", "node1")
WEB = ObjectKey("NetworkPolicy", "default", "web")


def parse(text: str) -> Manifest:
    return parse_manifest(text.encode(), node="node1")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("spec: {}\n", "line 6: the key spec is there twice, first in line 4"),
        ("  cidr6: []\n", "line 6: the key cidr6 is there twice, first in line 5"),
        ('  "cidr6": []\n', "line 6: the key cidr6 is there twice, first in line 5"),
        (
            "  bgp: {asn: 1, peers: [{address: 'a', asn: 1}, {asn: 1,\n  x: 1, asn: 2}]}\n",
            "line 7: the key asn is there",
        ),
    ],
    ids=["spec", "below it", "quoted", "in a list"],
)
def test_an_object_with_a_key_twice_is_refused_by_key_and_line(more: str, said: str) -> None:
    manifest = parse(CONFIG + more)
    assert manifest.objects.keys() & {NODE1} == set()
    assert manifest.refused[NODE1].startswith(said)


@pytest.mark.parametrize(
    "text",
    [
        CONFIG + POLICY,
        CONFIG.replace("{name: node1}", "{name: node1, name: node2}"),
        f"kind: List\nitems:\n- {{{', '.join(['kind: Pod'] * 2)}}}\n",
    ],
    ids=["no --- between two", "two names", "in a list of objects"],
)
def test_a_file_in_which_it_is_not_clear_whose_the_key_is_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(Unreadable, match=r"^line \d+: the key \w+ is there twice, first in line \d+$"):
        parse(f"{POLICY}---\n{text}")


def test_others_in_the_file_are_taken_and_a_policy_is_handed_on_as_refused() -> None:
    manifest = parse(f"{CONFIG}---\n{POLICY}  ingress: [{{}}]\n")
    assert NODE1 in manifest.objects
    assert manifest.refused[WEB].startswith("line 13: the key ingress is there twice, first in line 12")
    assert WEB in manifest.objects  # it isolates


def test_json_is_told_alike() -> None:
    spec = '{"cidr6": ["2001:db8:1::/64"]}'
    text = CONFIG_AS_JSON.replace("SPEC", f'{spec},\n"spec": {spec}')
    assert parse(text).refused[NODE1] == "line 2: the key spec is there twice, first in line 1"
    # What YAML cannot read, a tab before a value among it, has no line.
    assert "the key spec is there twice" in refusal(text.replace("\n", "\n\t").replace("}", "\t}"))
    assert NODE1 in parse(CONFIG_AS_JSON.replace("SPEC", spec)).objects


CONFIG_AS_JSON = json.dumps(
    {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "node1"}, "spec": "SPEC"}
).replace('"SPEC"', "SPEC")


def refusal(text: str) -> str:
    try:
        return " ".join(parse(text).refused.values())
    except Unreadable as error:
        return error.msg


def test_merged_keys_may_be_said_again_and_objects_may_have_the_same_keys() -> None:
    anchored = f"kind: Other\nx: &x {{a: b}}\ny: {{<<: *x, a: c}}\nz: [{{a: 1}}, {{a: 2}}]\n---\n{CONFIG}---\n{POLICY}"
    manifest = parse(anchored)
    assert (manifest.refused, {*manifest.objects}) == ({}, {NODE1, WEB})


def test_what_is_tried_is_not_tried_with_half_of_it() -> None:
    with pytest.raises(FieldError, match="line 7: the key ingress is there twice"):
        read_trial(f"{POLICY}  ingress: [{{}}]\n".encode())
