"""The server side of the agent's socket alone: what becomes of requests and answers that do not come or go at once."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

from flock.core.cni import Request
from flock.edge.rpc import RpcServer
from looping import looped

LARGE = "x" * (4 << 20)  # more than any socket holds


async def large(request: Request) -> Any:
    return LARGE


def exchange(path: Path, *pieces: bytes) -> bytes:
    """In the calling thread: all pieces, one after the other, and whatever comes back."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        for piece in pieces:
            connection.sendall(piece)
        found = b""
        while chunk := connection.recv(1 << 20):
            found += chunk
        return found


@looped
async def test_an_answer_larger_than_a_socket_holds_arrives_whole_and_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    server = RpcServer(path, answer=large, on_call=lambda *_: None)
    await server.start()
    with socket.socket(socket.AF_UNIX) as idle:  # asks, and does not read
        idle.connect(str(path))
        idle.sendall(b'{"op":"a"}\n')
        for _ in range(3):
            found = await asyncio.wait_for(asyncio.to_thread(exchange, path, b'{"op":"b"}\n'), 20)
            assert json.loads(found) == {"result": LARGE}
    await server.stop(5)


@looped
async def test_a_request_that_comes_after_its_connection_is_heard_and_one_that_never_comes_ends_with_the_server(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sock"
    server = RpcServer(path, answer=large, on_call=lambda *_: None)
    await server.start()
    reader, writer = await asyncio.open_unix_connection(str(path))
    await asyncio.sleep(0.05)  # accepted, and nothing to read
    writer.write(b'{"op":')
    await asyncio.sleep(0.05)
    writer.write(b'"a"}\n')
    assert json.loads(await asyncio.wait_for(reader.read(), 20)) == {"result": LARGE}
    writer.close()
    silent, other = await asyncio.open_unix_connection(str(path))
    await asyncio.sleep(0.05)
    await server.stop(5)
    assert await asyncio.wait_for(silent.read(), 20) == b""
    other.close()
