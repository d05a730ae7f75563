"""An answer in chunks is read as it comes, however the network cut it."""

import asyncio
import random

import pytest

from flock.edge.kube.client import _Chunked, chunks


def on_the_wire(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def read(pieces: list[bytes]) -> list[bytes]:
    async def story() -> list[bytes]:
        reader = asyncio.StreamReader()
        for piece in pieces:
            reader.feed_data(piece)
        reader.feed_eof()
        return [body async for body in chunks(reader, {"transfer-encoding": "chunked"}, patience=60)]

    return asyncio.run(story())


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_pieces_the_body_is_the_same(seed: int) -> None:
    dice = random.Random(seed)
    parts = [bytes(dice.choices(b"ab0\r\n", k=dice.randint(1, 40))) for _ in range(dice.randint(0, 20))]
    wire, chunked, body = on_the_wire(parts), _Chunked(), b""
    while not chunked.over:
        size = dice.randint(1, 30)
        body, wire = body + chunked.take(wire[:size]), wire[size:]
    assert body == b"".join(parts)


def test_what_has_come_together_is_one_piece() -> None:
    assert read([on_the_wire([b"one\n", b"two\n"])]) == [b"one\ntwo\n"]


def test_an_answer_that_breaks_off_is_none() -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        read([on_the_wire([b"one\n"])[:-5]])


@pytest.mark.parametrize("wrong", [b"-5\r\nhello\r\n", b"many\r\nhello\r\n", b"x" * 5000])
def test_what_is_no_chunk_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError):
        read([wrong])
