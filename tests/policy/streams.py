"""Connections on which, once they are made, only the server sends."""

import socket

from arriving import PATIENCE, WAIT, Socket, connected, received
from playground import Playground


class Spoken:
    """What both ends have of a connection; whoever makes it says how."""

    client: socket.socket
    server: socket.socket
    _sent = 0

    def flows(self, mark: bytes = b"") -> bool:
        """Does what the server sends now arrive?"""
        self._sent += 1
        text = mark + b"%06d" % self._sent
        self.server.send(text)
        if isinstance(self.client, Socket):
            return received(self.client, text, ends=True)
        self.client.settimeout(WAIT)
        try:
            return self.client.recv(1000).endswith(text)
        except TimeoutError:
            return False


class Stream(Spoken):
    """A TCP connection."""

    def __init__(self, ground: Playground, *, client: int, server: int, family: str, port: int = 80) -> None:
        with ground.place(server).socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", port))
            listener.listen()
            made = self.client = ground.keep(ground.place(client).socket(family, socket.SOCK_STREAM))
            assert connected(made, (ground.at(server, family), port))
            listener.settimeout(PATIENCE)
            self.server = ground.keep(listener.accept()[0])


class Datagrams:
    """A UDP flow on which, after a first question, only the server sends."""

    def __init__(self, ground: Playground, *, client: int, server: int, family: str, port: int = 53) -> None:
        self.client, self.server = ground.udp(client, family), ground.udp(server, family, port)
        self.client.sendto(b"?", (ground.at(server, family), port))
        self.server.settimeout(PATIENCE)
        _, self._asker = self.server.recvfrom(10)

    def flows(self) -> bool:
        self.server.sendto(b"x", self._asker)
        return received(self.client)
