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

from flock.core.crd import definitions
from flock.core.crd.patterns import IPV4, IPV6, between, duration, whole
from flock.core.nodeconfig import NodeConfigError, parse_node_config
from flock.core.nodeconfig import values as v

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import crds  # noqa: E402
from configs import CONTAINERS, FULL, SCALARS, node_config, paths, put, without  # noqa: E402
from structural import complaints  # noqa: E402

SCHEMA = definitions()["nodeconfigs.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

# What only the agent can tell: it compares values, sees all layers at once, or reads an address as a number.
BEYOND_A_SCHEMA = re.compile(
    r"overlap|is there twice|names a prefix twice|has bits set after its length|lies inside this node's own aggregates"
    r"|must be less than holdTime|must be more than helloInterval|knows no md5 authentication|is the peer's address"
    r"|is on another interface|spec\.bgp\.asn: is required|spec\.ospf\.areas: is required"
    r"|matchLabels: .* is no label key"
    # 1280 holds only with an IPv6 prefix, which another layer may bring.
    r"|spec\.mtu: must be a whole number from 1280 to 65535, not (576|6..|7..|8..|9..|1[01]..|12[0-7].)$"
)


def agent_refuses(spec: dict[str, Any]) -> list[str]:
    try:
        parse_node_config(node_config(spec))
    except NodeConfigError as error:
        return [problem.msg for problem in error.problems]
    return []


def compare(spec: dict[str, Any]) -> None:
    by_agent = agent_refuses(spec)
    by_schema = list(complaints(SCHEMA, node_config(spec)))
    if not by_agent:
        assert not by_schema, f"the agent takes it: {spec}"
    elif not all(BEYOND_A_SCHEMA.search(problem) for problem in by_agent):
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


@pytest.mark.parametrize("path", list(paths(FULL)), ids=lambda path: ".".join(map(str, path)))
def test_both_agree_whatever_a_field_is_given(path: tuple[Any, ...]) -> None:
    for value in (*SCALARS, *CONTAINERS):
        compare(put(FULL, path, value))
    compare(without(FULL, path))


@given(st.data())
@settings(max_examples=300)
def test_both_agree_on_several_changes_at_once(data: st.DataObject) -> None:
    spec = FULL
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(list(paths(spec))))
        if data.draw(st.booleans()):
            spec = put(spec, path, data.draw(st.sampled_from((*SCALARS, *CONTAINERS))))
        else:
            spec = without(spec, path)
    compare(spec)


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
    assert _takes(v.seconds(low, high), text) == bool(re.search(duration(low * 1000, high * 1000, step=1000), text))
    assert _takes(v.milliseconds(10, 60_000), text) == bool(re.search(duration(10, 60_000, step=1), text))


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
