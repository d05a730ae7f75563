"""Somebody who reads an agent's pages over a socket of their own."""

import json
import re
import socket
from collections.abc import Mapping
from typing import Any

from harness import Node
from namespaces import within

WHERE = ("127.0.0.1", 9465)
HTTP = ("--http", ":".join(map(str, WHERE)))
PATIENCE = 30.0
EVENT = re.compile(rb"(?:id: (\d+)\n)?event: (\w+)\ndata: ([^\r\n]+)")


class Reader:
    """`room`: bytes the kernel keeps for it while it does not read."""

    def __init__(self, node: Node, page: str, *, room: int = 0, **headers: str) -> None:
        def connected() -> socket.socket:
            made = socket.socket()
            made.settimeout(PATIENCE)
            if room:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            made.connect(WHERE)
            return made

        self.socket = within(f"/run/netns/{node.netns}", connected)
        said = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        self.socket.sendall(f"GET {page} HTTP/1.1\r\n{lines}\r\n".encode())
        self.ended = False
        self._unread = b""
        self.last_id = 0

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def head(self) -> tuple[int, Mapping[str, str]]:
        first, *lines = self._until(b"\r\n\r\n").decode().split("\r\n")
        fields = (line.partition(": ") for line in lines)
        return int(first.split(" ")[1]), {name.lower(): value for name, _, value in fields}

    def body(self) -> bytes:
        """All of it: told in chunks, of which the empty one is the last."""
        assert self.head()[1]["transfer-encoding"] == "chunked"
        body = b""
        while size := int(self._until(b"\r\n"), 16):
            while len(self._unread) < size + 2:
                assert self._more(), f"it ended: {self._unread!r}"
            body, self._unread = body + self._unread[:size], self._unread[size + 2 :]
        return body

    def event(self) -> dict[str, Any]:
        """The data of the next one."""
        while True:
            text = self._until(b"\n\n")
            if found := EVENT.fullmatch(text):
                number, kind, data = found.groups()
                decoded: dict[str, Any] = json.loads(data)
                assert decoded["kind"] == kind.decode()
                self.last_id = int(number or self.last_id)
                return decoded
            assert text.startswith((b":", b"retry: ")), text

    def until(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """All events up to this one."""
        found = [self.event()]
        while found[-1]["kind"] != kind or not fields.items() <= found[-1].items():
            found.append(self.event())
        return found

    def _until(self, end: bytes) -> bytes:
        while end not in self._unread:
            assert self._more(), f"it ended: {self._unread!r}"
        text, _, self._unread = self._unread.partition(end)
        return text

    def _more(self) -> bool:
        data = self.socket.recv(1 << 16)
        self._unread += data
        return bool(data)


def status(node: Node) -> dict[str, Any]:
    with Reader(node, "/status.json") as reader:
        decoded: dict[str, Any] = json.loads(reader.body())
        return decoded
