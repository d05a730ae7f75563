"""Whatever a runtime or an agent says: one valid answer, under the sanitizers."""

import json
import os
from pathlib import Path

from calling import ENVIRONMENT, VERBS, FakeAgent, config, run
from hypothesis import given, settings
from hypothesis import strategies as st

FUZZ = settings(max_examples=int(os.environ.get("FLOCK_FUZZ", "100")))
KEYS = st.sampled_from(["cniVersion", "socket", "wait", "deferDel", "error", "result"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 9999) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(), inner, max_size=4),
    max_leaves=8,
)
BRUISES = [b"", *(bytes([byte]) for byte in b'{}[]",:\\ u\n-.0eE\x00\xc3\xff')]


@st.composite
def bruised_json(draw: st.DrawFn) -> bytes:
    """JSON text, valid or with a few bytes replaced, removed or put in."""
    text = bytearray(json.dumps(draw(JSON), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass"))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from(BRUISES))
    return bytes(text)


def is_json_object(text: bytes) -> bool:
    def refuse(_: str) -> None:
        raise ValueError

    try:
        return isinstance(json.loads(text.decode(), parse_constant=refuse), dict)
    except ValueError:
        return False


@FUZZ
@given(stdin=bruised_json() | st.binary())
def test_the_scanner_takes_exactly_what_is_json(impatient: Path, stdin: bytes) -> None:
    code = run(impatient, "STATUS", stdin).code  # no generated cniVersion is one of ours: no socket is reached
    assert (code == 6) == (not is_json_object(stdin)) and code in (1, 6, 7)


@FUZZ
@given(
    verb=st.sampled_from([*VERBS, "VERSION"]) | st.text(st.characters(exclude_characters="\0", codec="utf-8")),
    values=st.lists(
        st.binary(max_size=80).map(lambda value: value.replace(b"\0", b"")) | st.just(b"a1"), min_size=5, max_size=5
    ),
)
def test_any_environment_gives_valid_json(impatient: Path, run_dir: Path, verb: str, values: list[bytes]) -> None:
    outcome = run(impatient, verb, config(run_dir / "absent.sock"), env=dict(zip(ENVIRONMENT, values, strict=True)))
    if verb == "VERSION":
        assert outcome.exit_code == 0 and json.loads(outcome.out)
    else:
        assert outcome.code in (4, 11, 50)


@FUZZ
@given(
    verb=st.sampled_from(VERBS),
    answer=bruised_json() | st.binary() | bruised_json().map(lambda text: b'{"error":' + text + b"}"),
)
def test_any_answer_gives_valid_json_or_silence(impatient: Path, run_dir: Path, verb: str, answer: bytes) -> None:
    sock = run_dir / "fuzz.sock"
    with FakeAgent(sock, answer + b"\n"):
        outcome = run(impatient, verb, config(sock))
    assert outcome.exit_code in (0, 1)
    if outcome.exit_code == 1 or verb == "ADD":
        assert isinstance(json.loads(outcome.out), dict)
    else:
        assert outcome.out == b""
