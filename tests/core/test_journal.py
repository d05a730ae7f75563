"""Records of the journal: what is read of a file that was torn, damaged or partly overwritten, in any way at all."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flock.core.errors import StoreFailure
from flock.core.journal import BLOCK, MAGIC, encode, finishing_at, replay
from flock.core.model import Allocation, Released
from flock.core.statefile import Change, Continued

OWNER, OTHER = "00000000000000aa", "00000000000000bb"
FIRST = 8  # the file has what came before


def change(name: str, *, blocks: int = 1) -> Change:
    fields = {"namespace": "n", "pod_name": name, "owner_uid": "", "state": "committed", "allocated_at": ""}
    text = "x" * (BLOCK * (blocks - 1))
    return Change(name, Allocation(container_id=name, annotations={"long": text}, **fields))  # type: ignore[arg-type]


def written(count: int, *, first: int = FIRST, owner: str = OWNER, blocks: int = 1) -> list[bytes]:
    return [encode([change(f"c{n}", blocks=blocks)], owner=owner, number=n) for n in range(first, first + count)]


def read(raw: bytes, *, through: int = FIRST - 1) -> list[str]:
    rounds = replay(raw, after=Continued(OWNER, through), where="the journal")
    return [change.container_id for changes in rounds for change in changes]


def named(*numbers: int) -> list[str]:
    return [f"c{n}" for n in numbers]


def told_by(record: bytes) -> int:
    """Bytes of it that are checked; whether changes are finished stands behind them."""
    return finishing_at(record) - 8


def test_rounds_come_back_as_they_were_in_the_order_of_their_numbers() -> None:
    rounds = [[change("a"), Change("b", None, (Released("192.0.2.1", 5.0, "ns"),))], [change("c", blocks=3)], []]
    raw = b"".join(encode(changes, owner=OWNER, number=n) for n, changes in enumerate(rounds, FIRST))
    assert list(replay(raw, after=Continued(OWNER, FIRST - 1), where="")) == rounds
    last, *others = written(3)[::-1]
    assert read(b"".join([last, bytes(BLOCK), *others])) == named(8, 9, 10)


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_a_record_fills_whole_blocks(blocks: int) -> None:
    [record] = written(1, blocks=blocks)
    assert len(record) == blocks * BLOCK


@pytest.mark.parametrize("raw", [b"", b"\0", bytes(BLOCK * 3), MAGIC, b"\xff" * BLOCK, b"rubbish" * 5000])
def test_what_was_never_written_says_nothing(raw: bytes) -> None:
    assert read(raw) == []


def test_what_the_file_has_is_left_out_however_much_of_it_is_there() -> None:
    for overwritten in range(4):
        assert read(b"".join(written(5)[overwritten:]), through=FIRST + 2) == named(11, 12)


def test_records_of_another_file_say_nothing() -> None:
    assert read(b"".join(written(3, owner=OTHER))) == []
    assert read(b"".join([*written(2), *written(3, first=FIRST + 1, owner=OTHER)])) == named(8, 9)


def test_a_file_that_is_older_than_the_journal_is_an_error_that_names_both_numbers() -> None:
    with pytest.raises(StoreFailure, match=r"the journal .* change 12 and not change 8"):
        read(b"".join(written(3, first=12)))


def test_a_record_that_says_nothing_we_know_is_an_error_that_names_it() -> None:
    raw = encode(["rubbish"], owner=OWNER, number=FIRST)  # type: ignore[list-item]
    with pytest.raises(StoreFailure, match="change 8 in the journal"):
        read(raw)


def test_nothing_that_a_pod_can_put_into_a_record_looks_like_one() -> None:
    """The first block of a torn record is lost, and the second begins with what a tenant wrote there."""
    [forged] = written(1)
    text = forged.decode("latin-1")
    for shift in range(64):
        hidden = encode([Change("x" * shift + text)], owner=OWNER, number=FIRST + 1)
        assert MAGIC not in hidden[1:]
        assert read(hidden[BLOCK:]) == []


@given(data=st.data(), blocks=st.integers(1, 4), stale=st.booleans())
@settings(max_examples=200)
def test_a_torn_last_record_is_left_out_whichever_of_its_parts_reached_the_disk(
    data: st.DataObject, blocks: int, stale: bool
) -> None:
    """Sectors of 512 bytes are written in any order, over zeros or over what was there before."""
    whole = b"".join(written(2))
    [last] = written(1, first=FIRST + 2, blocks=blocks)
    before = b"".join(written(blocks, first=1)) if stale else bytes(len(last))
    sectors = len(last) // 512
    told = -(-told_by(last) // 512)  # those that say something
    reached = data.draw(st.sets(st.integers(0, sectors - 1)))
    lost = data.draw(st.integers(0, told - 1))
    torn = b"".join((last if n in reached - {lost} else before)[n * 512 : (n + 1) * 512] for n in range(sectors))
    assert read(whole + torn) == named(8, 9)
    assert read((whole + last)[: len(whole) + lost * 512]) == named(8, 9)


@given(bit=st.integers(0, 4 * BLOCK * 8 - 1))
@settings(max_examples=300)
def test_a_flipped_bit_is_noticed_where_others_follow_and_is_a_torn_end_where_not(bit: int) -> None:
    raw = bytearray(b"".join(written(4)))
    raw[bit // 8] ^= 1 << bit % 8
    hit = FIRST + bit // 8 // BLOCK
    beyond = bit // 8 % BLOCK >= told_by(written(1, first=hit)[0])
    if beyond:
        assert read(bytes(raw)) == named(8, 9, 10, 11)
    elif hit == FIRST + 3:
        assert read(bytes(raw)) == named(8, 9, 10)
    else:
        with pytest.raises(StoreFailure, match=f"not change {hit}"):
            read(bytes(raw))
    assert read(bytes(raw), through=FIRST + 3) == [], "what the file has may rot"


def mangled(rng: random.Random, records: Sequence[bytes]) -> bytes:
    raw = bytearray(b"".join(records))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(raw))
        raw[at : at + rng.randrange(200)] = rng.randbytes(rng.randrange(200))
    return bytes(raw)


@given(seed=st.integers(0, 2**32))
def test_any_content_is_a_beginning_of_what_was_written_or_an_error(seed: int) -> None:
    rng = random.Random(seed)
    try:
        found = read(mangled(rng, written(6)))
    except StoreFailure as failure:
        assert "the journal" in failure.msg
    else:
        assert found == named(8, 9, 10, 11, 12, 13)[: len(found)]
