"""TCP flows through the fabric that are kept open: who answers them, and do they outlive a change?

Servers and clients are sockets of this process, opened inside the namespaces of pods and client: no program has to be
started, and a socket stays in the namespace it was opened in.
"""

import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

from flock.lab.fabric import Lab
from flock.lab.namespaces import NETNS_DIR
from namespaces import within

PORT = 7070


class Replica:
    """A server in a pod: greets each connection with the pod's name, then sends back what it gets."""

    def __init__(self, lab: Lab, pod: str) -> None:
        self.name = pod
        self._listener = within(NETNS_DIR / lab.pods.get(pod).netns, _listen)
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    if sock is self._stopped:
                        for each in list(selector.get_map().values()):
                            each.fileobj.close()  # type: ignore[union-attr]
                        return
                    if sock is self._listener:
                        accepted, _ = sock.accept()
                        selector.register(accepted, selectors.EVENT_READ)
                        accepted.sendall(self.name.encode())
                    elif not _echo(sock):
                        selector.unregister(sock)
                        sock.close()

    def close(self) -> None:
        with suppress(OSError):
            self._stop.send(b".")
        self._thread.join(10)
        self._stop.close()


Serve = Callable[[Lab, str], Replica]


def _listen() -> socket.socket:
    listener = socket.create_server(("::", PORT), family=socket.AF_INET6, backlog=256, dualstack_ipv6=True)
    listener.setblocking(True)
    return listener


def _echo(sock: socket.socket) -> bool:
    try:
        data = sock.recv(64)
        sock.sendall(data)
    except OSError:
        return False
    return bool(data)


class Flow:
    """One connection.  `replica` is who accepted it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.replica = sock.recv(64).decode()

    def answers(self) -> bool:
        """Does the same replica still answer?  A reset or silence is no answer."""
        try:
            self._sock.sendall(b"?")
            return self._sock.recv(64) == b"?"
        except OSError:
            return False

    def close(self) -> None:
        self._sock.close()


class Conversation:
    """Flows that are asked again and again.  `longest_silence`: seconds for which one of them was asked nothing; what
    it may do then is another matter."""

    def __init__(self, flows: list[Flow]) -> None:
        self.flows = flows
        self.longest_silence = 0.0
        self._asked: dict[Flow, float] = {}

    def goes_on(self) -> bool:
        """All answer."""
        answers = [self._ask(flow) for flow in self.flows]
        return all(answers)

    def _ask(self, flow: Flow) -> bool:
        now = time.monotonic()
        self.longest_silence = max(self.longest_silence, now - self._asked.get(flow, now))
        self._asked[flow] = now
        return flow.answers()


def open_flows(lab: Lab, source: str, address: str, number: int = 1, *, patience: float = 5.0) -> list[Flow]:
    netns = NETNS_DIR / lab.host(source).netns

    def connect() -> list[socket.socket]:
        return [socket.create_connection((address, PORT), timeout=patience) for _ in range(number)]

    return [Flow(sock) for sock in within(netns, connect)]


def count_replicas(lab: Lab, source: str, address: str, number: int) -> Counter[str]:
    """Who answers so many new flows."""
    flows = open_flows(lab, source, address, number)
    close_all(flows)
    return Counter(flow.replica for flow in flows)


def who_answers(lab: Lab, source: str, address: str, *, patience: float = 1.0) -> str:
    """The replica that answers one new flow; empty when nobody does."""
    try:
        (flow,) = open_flows(lab, source, address, patience=patience)
    except OSError:
        return ""
    flow.close()
    return flow.replica


def close_all(things: Iterable[Flow | Replica]) -> None:
    for thing in things:
        thing.close()
