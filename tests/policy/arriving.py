"""Does a packet arrive?  Sockets in namespaces around a node, and the node's rules, which say what they dropped."""

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterator

from flock.edge.kernel import netns
from flock.edge.nft import observe
from flock.edge.nft.socket import NftSocket
from harness import run

PATIENCE = 10  # seconds for what has to come
WAIT = 0.2  # seconds for what may still come, once the rules have dropped something
LOOK = 0.02  # seconds between two questions to the rules


class Socket(socket.socket):
    """One whose packets go through the rules of a node."""

    judge: "Judge"


class Judge:
    """Does something arrive?  The rules of the node say so themselves: what they drop, they count.

    So what has to arrive may take as long as a busy machine needs for it, and what must not is not waited for: it was
    dropped.  What is neither delivered nor counted is given up after PATIENCE."""

    def __init__(self, node: "Place") -> None:
        with node.inside():
            self._rules = NftSocket()
        self._known = 0  # as of the last question

    def close(self) -> None:
        self._rules.close()

    def arrives(self, arrived: Callable[[float], bool]) -> bool:
        """`arrived`: waits for it so many seconds.  Of whatever was sent since the last time this was asked."""
        deadline = time.monotonic() + PATIENCE
        while not (found := arrived(LOOK)) and time.monotonic() < deadline:
            if self._dropped() != self._known:
                found = arrived(WAIT)
                break
        self._known = self._dropped()
        return found

    def _dropped(self) -> int:
        counted = observe.dropped(self._rules)
        return sum(getattr(counted, field) for field in counted.__struct_fields__ if field != "audited")


class Place:
    """A namespace that this process opens sockets in, whose packets `judge` knows of."""

    def __init__(self, name: str, judge: Judge | None = None) -> None:
        self.name = name
        self.judge = judge
        run("ip", "netns", "add", name)
        self._netns = netns.open_netns(f"/run/netns/{name}")
        self._home = netns.own_netns()

    def close(self) -> None:
        self._netns.close()
        self._home.close()
        run("ip", "netns", "del", self.name, check=False)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        with netns.inside(self._netns, home=self._home):
            yield

    def socket(self, family: str, kind: int = socket.SOCK_DGRAM, protocol: int = 0) -> Socket:
        with self.inside():
            made = Socket(socket.AF_INET6 if family == "6" else socket.AF_INET, kind, protocol)
        made.settimeout(WAIT)
        assert self.judge is not None
        made.judge = self.judge
        return made

    def execute(self, *command: object, check: bool = True, **how: str) -> str:
        return run("nsenter", f"--net=/run/netns/{self.name}", *command, check=check, **how).stdout


def received(server: Socket, expected: bytes = b"x", *, ends: bool = False) -> bool:
    """Does it come?  Whatever else does is passed over.  `ends`: what comes ends with it."""

    return server.judge.arrives(lambda seconds: _arrived(server, expected, seconds, ends=ends))


def _arrived(server: Socket, expected: bytes, seconds: float, *, ends: bool = False) -> bool:
    deadline, found = time.monotonic() + seconds, False
    while not found and (left := deadline - time.monotonic()) > 0:
        server.settimeout(left)
        with contextlib.suppress(TimeoutError):
            told = server.recv(65_535)
            found = told == expected or (ends and told.endswith(expected))
    server.settimeout(WAIT)
    return found


def is_idle(server: Socket, expected: bytes = b"x") -> bool:
    """Nothing comes for a moment: of what has arrived elsewhere already, or was not dropped by rules that count."""
    return not _arrived(server, expected, WAIT)


def connected(client: Socket, where: tuple[str, int]) -> bool:
    """Being refused is an error: what is denied must time out."""

    def arrived(seconds: float) -> bool:
        return bool(select.select([], [client], [], seconds)[1])

    client.setblocking(False)
    begun = client.connect_ex(where)
    assert begun in (0, errno.EINPROGRESS), os.strerror(begun)
    found = client.judge.arrives(arrived)
    if found and (failure := client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
        raise OSError(failure, os.strerror(failure))
    client.settimeout(WAIT)
    return found
