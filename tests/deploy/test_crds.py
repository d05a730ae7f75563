"""deploy/crds says what the agent says: what the agent takes passes, what it refuses is refused, as far as a schema
can tell, and what a schema cannot tell is listed here."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flock.core.nodeconfig import NodeConfigError, parse_node_config
from flock.core.nodeconfig import values as v

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from configs import CONTAINERS, FULL, SCALARS, at, node_config, paths, put, without  # noqa: E402
from near import near  # noqa: E402
from structural import complaints, stored  # noqa: E402

import crds  # noqa: E402
from crd.definitions import definitions  # noqa: E402
from crd.patterns import IPV4, IPV6, between, duration, whole  # noqa: E402
from thoroughness import examples, slowly  # noqa: E402

SCHEMA = definitions()["nodeconfigs.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

INTERFACES = ("ospf", "areas", 0, "interfaces", 0)
LABELS = ("anycast", "allowed", 0, "namespaceSelector", "matchLabels")
PEERS = ("bgp", "peers")

# All that the agent alone can tell, since it compares values, sees all layers at once or reads an address as a number:
# what it says, and where in the full configuration which value makes it say so.
AGENT_ALONE: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "aggregates overlap": (" and .* overlap$", ("cidr4",), ["192.0.2.0/26", "192.0.2.0/27"]),
    "an aggregate around what is reserved": (" overlaps ", ("cidr4",), ["64.0.0.0/2"]),
    "the same in two spellings": (" is there twice$", ("cidr6",), ["2001:db8:1::/64", "2001:0DB8:1::/64"]),
    "an import in two spellings": ("names a prefix twice", (*PEERS, 2, "import"), ["10.0.0.0/8", "10.0.0.0/08"]),
    "bits after the length": ("has bits set after its length", ("cidr4",), ["192.0.2.1/26"]),
    "a router among the pods": (r"lies inside spec\.cidr[46]\[", (*PEERS, 2, "address"), "192.0.2.1"),
    "keepaliveTime and holdTime": ("must be less than holdTime", (*PEERS, 0, "keepaliveTime"), 9),
    "deadInterval and helloInterval": ("must be more than helloInterval", (*INTERFACES, "deadInterval"), 10),
    "md5 and IPv6": ("knows no md5 authentication", (*INTERFACES, "authentication", "algorithm"), "md5"),
    "both ends the same": ("is the peer's address", (*PEERS, 0, "localAddress"), "2001:db8:ffff::1"),
    "both ends on one link": ("is on another interface", (*PEERS, 1, "localAddress"), "fe80::2%eth1"),
    "two peers of a name": ("the name tor1 is there twice", (*PEERS, 1, "name"), "tor1"),
    "two peers of an address": ("is there twice", (*PEERS, 2, "address"), "2001:DB8:FFFF::1"),
    "two areas of a number": ("the area 0.0.0.0 is there twice", ("ospf", "areas", 1, "id"), 0),
    "an interface of two areas": ("the interface eth0 is", ("ospf", "areas", 1, "interfaces", 0, "name"), "eth0"),
    "no layer says the AS number": (r"^spec\.bgp\.asn: is required", ("bgp", "asn"), None),
    "no layer says the areas": (r"^spec\.ospf\.areas: is required", ("ospf", "areas"), None),
    "the key of a label": (r"matchLabels: .* is no label key", LABELS, {"a b": "c"}),
    # The API server drops it, and with it the condition.
    "a label without a value": (r"matchLabels: .* must both be strings", LABELS, {"a": None}),
    # 1280 holds only with an IPv6 prefix, which another layer may bring.
    "IPv6 in small packets": (
        r"^spec\.mtu: must be .* 1280 .* not (57[6-9]|5[89].|[6-9]..|1[01]..|12[0-7].)$",
        ("mtu",),
        1279,
    ),
}


def agent_refuses(spec: dict[str, Any]) -> list[str]:
    try:
        parse_node_config(node_config(spec))
    except NodeConfigError as error:
        return [problem.msg for problem in error.problems]
    return []


def schema_refuses(spec: dict[str, Any]) -> list[str]:
    return list(complaints(SCHEMA, node_config(stored(spec))))


def compare(spec: dict[str, Any]) -> None:
    by_agent, by_schema = agent_refuses(spec), schema_refuses(spec)
    if not by_agent:
        assert not by_schema, f"the agent takes it: {spec}"
    elif not all(any(re.search(said, problem) for said, _, _ in AGENT_ALONE.values()) for problem in by_agent):
        assert by_schema, f"the agent refuses it, {by_agent}: {spec}"


def test_the_files_are_up_to_date() -> None:
    for directory in crds.DIRECTORIES:
        assert {path.name for path in directory.iterdir()} == set(definitions())
        for name, definition in definitions().items():
            assert (directory / name).read_text() == crds.render(definition), "run .venv/bin/python scripts/crds.py"


def test_a_definition_reads_back_as_it_was_written() -> None:
    for name, definition in definitions().items():
        assert yaml.safe_load((crds.DIRECTORIES[0] / name).read_text()) == definition


def test_a_full_configuration_passes_both() -> None:
    assert agent_refuses(FULL) == []
    assert list(complaints(SCHEMA, node_config(FULL))) == []


def dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


FIELDS = list(paths(FULL))
SOME = FIELDS[::12]


@pytest.mark.parametrize("path", [*SOME, *slowly(*(p for p in FIELDS if p not in SOME))], ids=dotted)
def test_both_agree_whatever_a_field_is_given(path: tuple[Any, ...]) -> None:
    for value in (*SCALARS, *CONTAINERS):
        compare(put(FULL, path, value))
    compare(without(FULL, path))


@given(st.data())
@settings(max_examples=examples(1000))
def test_both_agree_on_what_is_nearly_right(data: st.DataObject) -> None:
    """In one field, or in several: what one of them breaks, another may hide."""
    spec = FULL
    for _ in range(data.draw(st.sampled_from((1, 1, 1, 2, 3)))):
        path = data.draw(st.sampled_from(list(paths(spec))))
        there = data.draw(st.integers(0, 9))
        spec = put(spec, path, data.draw(near(at(spec, path)))) if there else without(spec, path)
    compare(spec)


@pytest.mark.parametrize("rule", AGENT_ALONE)
def test_a_rule_of_the_agent_alone_is_beyond_the_schema(rule: str) -> None:
    said, path, value = AGENT_ALONE[rule]
    spec = put(FULL, path, value)
    assert schema_refuses(spec) == []
    [problem] = agent_refuses(spec)
    assert re.search(said, problem)


def test_no_field_is_left_out_of_the_comparison() -> None:
    """What the full configuration has not, no test changes."""

    def fields(schema: dict[str, Any], path: str) -> set[str]:
        inside = {f"{path}.{key}": field for key, field in schema.get("properties", {}).items()}
        items = fields(schema["items"], path) if "items" in schema else set()
        return items.union(inside, *(fields(field, path) for path, field in inside.items()))

    compared = {"." + ".".join(key for key in path if isinstance(key, str)) for path in paths(FULL)}
    assert fields(SCHEMA["properties"]["spec"], "") <= compared


def test_a_misspelled_field_is_told() -> None:
    assert list(complaints(SCHEMA, node_config({"cidr": ["2001:db8::/64"]}))) == [".spec.cidr: there is no such field"]


def test_nothing_in_a_section_is_required_or_has_a_default() -> None:
    """Another layer may have the one, and the other would hide what a template says."""

    def look(schema: dict[str, Any], path: str) -> None:
        for key, field in schema.get("properties", {}).items():
            assert "default" not in field, f"{path}.{key}"
            if field.get("type") == "object":
                assert "required" not in field, f"{path}.{key}"
                look(field, f"{path}.{key}")

    look(SCHEMA["properties"]["spec"], "spec")


def test_a_template_takes_what_a_node_config_takes() -> None:
    template = definitions()["nodeconfigtemplates.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = template["properties"]["spec"]["properties"]["template"]
    assert spec["properties"] == SCHEMA["properties"]["spec"]["properties"]
    assert list(complaints(template, {"spec": {"template": {"bgp": {"asn": 64601}}}})) == []


# --- the expressions ----------------------------------------------------------------------------------------


@given(st.integers(0, 70000), st.integers(0, 70000), st.integers(0, 80000), st.integers(0, 3))
@example(0, 0, 0, 3)
def test_between_is_the_numbers_between(one: int, other: int, number: int, zeros: int) -> None:
    low, high = sorted((one, other))
    text = "0" * zeros + str(number)
    expected = low <= number <= high and len(text) <= 6
    assert bool(re.fullmatch(between(low, high, digits=6), text)) == expected


@given(st.integers(0, 10**6), st.sampled_from(["", "ms", "s", "m", "h"]), st.sampled_from([(3, 65535), (1, 4095)]))
def test_a_duration_is_what_the_agent_takes(number: int, unit: str, limits: tuple[int, int]) -> None:
    low, high = limits
    text = f"{number}{unit}"
    assert _takes(v.Seconds(low, high), text) == bool(re.search(duration(low * 1000, high * 1000, step=1000), text))
    assert _takes(v.Milliseconds(10, 60_000), text) == bool(re.search(duration(10, 60_000, step=1), text))


@given(
    st.from_regex(whole(IPV6), fullmatch=True) | st.text("0123456789abF:.", max_size=42) | st.ip_addresses().map(str)
)
def test_an_address_is_what_the_agent_takes(text: str) -> None:
    text = text.removesuffix("\n")
    assert _takes(v._ip, text) == bool(re.fullmatch(f"{IPV4}|{IPV6}", text))


def _takes(parse: Any, value: Any) -> bool:
    try:
        parse(value)
    except ValueError:
        return False
    return True
