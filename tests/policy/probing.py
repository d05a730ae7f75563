"""Many packets at once between namespaces, and which of them arrive.

One process holds all sockets: it steps into a pod's namespace to open one and works with it from outside.  TCP
connects, UDP and ICMP carry the number of their probe; SCTP has no sockets in some kernels, so an INIT is made by hand
and received raw.

What is expected to arrive is waited for patiently; what is not gets `GRACE` more.  That is short because between
namespaces of one machine a packet is delivered before the send returns, or, on a busy machine, in the order of sending.
"""

import contextlib
import errno
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from flock.edge.kernel import netns

GRACE = 0.03
PATIENCE = 30.0
SCTP = 132
MAGIC = b"flock probe"


class Cell(NamedTuple):
    """One probe.  Ends are names of seats; `port` is None for ICMP."""

    source: str
    destination: str
    family: int
    protocol: str
    port: int | None


class Seat:
    """A namespace that probes come from and go to, with one address of each family.

    A second seat in the same namespace, for further addresses, has no `ports`: the first one listens for both.
    """

    def __init__(self, path: str, addresses: dict[int, str], ports: tuple[int, ...]) -> None:
        self.addresses = addresses
        self._netns = netns.open_netns(path)
        self._home = netns.own_netns()
        self.listeners: list[tuple[str, int, socket.socket]] = []
        with self.inside():
            for family in addresses if ports else ():
                for port in ports:
                    self._listen("TCP", family, socket.SOCK_STREAM, 0, port)
                    self._listen("UDP", family, socket.SOCK_DGRAM, 0, port)
                self._listen("SCTP", family, socket.SOCK_RAW, SCTP, 0)
                icmp = socket.IPPROTO_ICMPV6 if family == 6 else socket.IPPROTO_ICMP
                self._listen("ICMP", family, socket.SOCK_RAW, icmp, 0)

    def _listen(self, protocol: str, family: int, kind: int, number: int, port: int) -> None:
        made = open_socket(family, kind, number)
        if family == 6 and kind != socket.SOCK_RAW:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((anywhere(family), port))
        if protocol == "TCP":
            made.listen(1000)
        self.listeners.append((protocol, family, made))

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        with netns.inside(self._netns, home=self._home):
            yield

    def close(self) -> None:
        for _, _, listener in self.listeners:
            listener.close()
        self._netns.close()
        self._home.close()


class Prober:
    def __init__(self) -> None:
        self.seats: dict[str, Seat] = {}
        self._selector = selectors.DefaultSelector()
        self._asked = 0  # probes ever sent: numbers are not used twice
        self._clients: list[socket.socket] = []
        self._got: set[int] = set()

    def add(self, name: str, seat: Seat) -> None:
        self.seats[name] = seat
        receive = {"TCP": self._accept, "UDP": self._datagram, "SCTP": self._sctp, "ICMP": self._icmp}
        for protocol, family, listener in seat.listeners:
            self._selector.register(listener, selectors.EVENT_READ, (receive[protocol], family))

    def remove(self, name: str) -> None:
        seat = self.seats.pop(name)
        for _, _, listener in seat.listeners:
            self._selector.unregister(listener)
        seat.close()

    def close(self) -> None:
        for name in list(self.seats):
            self.remove(name)
        self._selector.close()

    def reached(self, cells: list[Cell], *, expected: Iterable[Cell]) -> set[Cell]:
        """Send all, return those that arrived."""
        first, wanted = self._asked, set(expected)
        self._asked += len(cells)
        numbers = {first + offset: cell for offset, cell in enumerate(cells)}
        awaited = {number for number, cell in numbers.items() if cell in wanted}
        self._got = set()
        for source in {cell.source for cell in cells}:
            with self.seats[source].inside():
                for number, cell in numbers.items():
                    if cell.source == source:
                        self._send(number, cell)
        deadline = time.monotonic() + PATIENCE
        while not awaited <= self._got and time.monotonic() < deadline:
            self._receive(0.05)
        deadline = time.monotonic() + (GRACE if len(awaited) < len(cells) else 0)
        while (left := deadline - time.monotonic()) > 0:
            self._receive(left)
        for client in self._clients:
            with contextlib.suppress(KeyError):
                self._selector.unregister(client)
            client.close()
        self._clients.clear()
        self._receive(0)
        return {numbers[number] for number in self._got if number in numbers}

    # --- sending ---

    def _send(self, number: int, cell: Cell) -> None:
        address, port = self.seats[cell.destination].addresses[cell.family], cell.port or 0
        tag = MAGIC + struct.pack(">I", number)
        match cell.protocol:
            case "TCP":
                client = open_socket(cell.family, socket.SOCK_STREAM)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.bind((self.seats[cell.source].addresses[cell.family], 0))
                assert client.connect_ex((address, port)) in (0, errno.EINPROGRESS)
                self._clients.append(client)
                self._selector.register(client, selectors.EVENT_WRITE, (self._connected(number), cell.family))
            case "UDP":
                self._send_one(cell, socket.SOCK_DGRAM, 0, tag, port)
            case "SCTP":
                self._send_one(cell, socket.SOCK_RAW, SCTP, sctp_init(number, port), 0)
            case "ICMP":
                icmp = socket.IPPROTO_ICMPV6 if cell.family == 6 else socket.IPPROTO_ICMP
                self._send_one(cell, socket.SOCK_RAW, icmp, echo(cell.family, number, tag), 0)
            case unknown:
                raise AssertionError(unknown)

    def _send_one(self, cell: Cell, kind: int, protocol: int, packet: bytes, port: int) -> None:
        with open_socket(cell.family, kind, protocol) as client:
            client.bind((self.seats[cell.source].addresses[cell.family], 0))
            client.sendto(packet, (self.seats[cell.destination].addresses[cell.family], port))

    # --- receiving ---

    def _receive(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            receive, family = key.data
            receive(key.fileobj, family)

    def _connected(self, number: int) -> Callable[[socket.socket, int], None]:
        def done(client: socket.socket, family: int) -> None:
            self._selector.unregister(client)
            problem = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            assert not problem, f"what is denied is dropped, never refused: {errno.errorcode[problem]}"
            self._got.add(number)

        return done

    @staticmethod
    def _accept(listener: socket.socket, family: int) -> None:
        with contextlib.suppress(OSError):
            listener.accept()[0].close()

    def _datagram(self, listener: socket.socket, family: int) -> None:
        for packet in waiting(listener):
            self._tagged(packet)

    def _icmp(self, listener: socket.socket, family: int) -> None:
        for packet in waiting(listener):
            message = packet if family == 6 else packet[20:]
            if message[:1] == (b"\x80" if family == 6 else b"\x08"):
                self._tagged(message[8:])

    def _tagged(self, content: bytes) -> None:
        if content.startswith(MAGIC):
            self._got.add(struct.unpack(">I", content[len(MAGIC) :][:4])[0])

    def _sctp(self, listener: socket.socket, family: int) -> None:
        for packet in waiting(listener):
            message = packet if family == 6 else packet[20:]
            self._got.add(struct.unpack(">I", message[16:20])[0])


def open_socket(family: int, kind: int, protocol: int = 0) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET, kind, protocol)
    made.setblocking(False)
    return made


def anywhere(family: int) -> str:
    return "::" if family == 6 else "0.0.0.0"


def waiting(listener: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        while True:
            yield listener.recv(2000)


def echo(family: int, number: int, tag: bytes) -> bytes:
    kind = 128 if family == 6 else 8
    packet = struct.pack(">BBHHH", kind, 0, 0, number & 0xFFFF, 1) + tag + b"\0"
    if family == 6:
        return packet  # the kernel fills in the checksum
    total = sum(struct.unpack(f">{len(packet) // 2}H", packet))
    total = (total & 0xFFFF) + (total >> 16)
    return packet[:2] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + packet[4:]


def sctp_init(number: int, port: int) -> bytes:
    """With a correct checksum, as connection tracking looks at it; the probe's number is the initiate tag."""
    chunk = struct.pack(">BBHIIHHI", 1, 0, 20, number, 65535, 1, 1, 1)
    packet = struct.pack(">HHII", 1024 + number % 60000, port, 0, 0) + chunk
    return packet[:8] + struct.pack("<I", crc32c(packet)) + packet[12:]


@cache
def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def crc32c(data: bytes) -> int:
    value, table = 0xFFFFFFFF, _crc_table()
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF
