"""Depth is bounded before anything recurses, and nothing else is changed."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.core.nesting import MAX_DEPTH, STAND_IN, shallow

STOOD_IN = json.loads(STAND_IN)


def nested(levels: int, opening: bytes = b'{"f:a":', closing: bytes = b"}") -> bytes:
    return opening * levels + b"{}" + closing * levels


@pytest.mark.parametrize("levels", [900, 1_500, 9_000, 10_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b'{"f:a":', b"}"), (b"[", b"]"), (b'[{"\\\\":[', b"]}]")])
def test_what_is_deep_is_cut_out_and_the_rest_is_read(levels: int, opening: bytes, closing: bytes) -> None:
    data = b'{"metadata":{"managedFields":[%s],"name":"web"},"spec":{"a":[1]}}' % nested(levels, opening, closing)
    found = msgspec.json.decode(shallow(data))
    assert found["metadata"]["name"] == "web" and found["spec"] == {"a": [1]}
    assert STAND_IN in shallow(data)


def test_brackets_in_text_are_text() -> None:
    value = {"a": "[{" * 500, "b": '"]}\\', '{"': ["\\", '\\"[', {"c": "\n"}]}
    data = json.dumps(value).encode()
    assert shallow(data) == data


def test_several_deep_places_are_cut_out_each() -> None:
    found = json.loads(shallow(b'{"a":%s,"b":1,"c":%s}' % (nested(2_000), nested(2_000))))
    assert found["b"] == 1 and depth(found["a"]) == depth(found["c"]) == MAX_DEPTH - 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=30,
)


@given(JSON, st.booleans())
def test_what_is_not_deep_stays_byte_for_byte(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    assert shallow(data) == data


@given(JSON, st.integers(1, 300))
def test_nothing_is_deeper_than_it_may_be_and_what_is_above_stays(value: Any, levels: int) -> None:
    text = b"[" * levels + json.dumps(value).encode() + b"]" * levels
    found = json.loads(shallow(text))
    assert depth(found) <= MAX_DEPTH + 1
    if levels + depth(value) <= MAX_DEPTH:
        assert json.dumps(found).encode() == text


@given(st.binary())
def test_any_bytes_are_taken(data: bytes) -> None:
    shallow(data)


@pytest.mark.parametrize("filling", [b"{},", b"[[]],", b'{"a":{"b":1}},', b'"\\"",', b"[" * 50 + b"]" * 50 + b","])
def test_it_takes_time_linear_in_the_size(filling: bytes) -> None:
    """By steps that are taken, not by the clock: a quadratic one would not end within the test's time."""
    shallow(b"[" + filling * (400_000 // len(filling)) + b"0]")
    shallow(b'"' + b"\\" * 200_000)
    shallow(b"[" * 200_000)
    shallow(b'{"' * 100_000)


def depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level:
        containers = [v for v in level if isinstance(v, dict | list)]
        deepest += bool(containers)
        level = [below for v in containers for below in (v.values() if isinstance(v, dict) else v)]
    return deepest
