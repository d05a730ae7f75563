"""Asks through the network and answers: what `flockctl check lab` and `check cluster` run in their pods and on nodes.

`serve NAME` answers every datagram and every connection with its name, from the address that was asked, which may be
one on `lo`; an answer is as long as its question and may not be fragmented either.  `ask` reads a list of `Probe` from
stdin, asks all at once and prints a list of `Reply`.  Neither needs a right beyond sockets: who did not let a packet
pass is told by the kernel in the socket's error queue, also for packets sent with a small hop limit.
Run as `python -m flock.edge.probe`; standard library and msgspec alone.
"""

import argparse
import errno
import os
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from fcntl import ioctl
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

import msgspec

from flock.core.checkup import CLOSED, OPEN, Probe, Reply

AGAIN = 0.5  # seconds until a question without an answer is sent again: one packet may be lost by accident
HOP_PATIENCE = 0.4  # seconds a hop has to say that a packet ended there
MOST_HOPS, SILENT_HOPS = 12, 3  # the way is followed this far, and this far beyond the last one heard of
QUESTION, LARGEST = 64, 65535  # bytes

# of linux/in.h, linux/in6.h, linux/errqueue.h, linux/sockios.h; the socket module of some builds lacks them
IP_PKTINFO, IP_MTU_DISCOVER, IP_RECVERR = 8, 10, 11
IPV6_MTU_DISCOVER, IPV6_RECVERR, IPV6_RECVPKTINFO, IPV6_PKTINFO = 23, 25, 49, 50
PMTUDISC_PROBE = 3  # as large as asked for and not to be fragmented, whatever was learned of the path
MSG_ERRQUEUE, SIOCGIFMTU = 0x2000, 0x8921
_ERROR = struct.Struct("=IBBBBII")  # sock_extended_err: errno, origin, type, code, padding, info (here an MTU), data


class Family(NamedTuple):
    """How one family's sockets are told the same things."""

    number: socket.AddressFamily
    level: int
    any: str
    discover: int
    errors: int
    told: int  # the option by which the asked address is told
    address: int  # the kind of message with it
    hops: int
    headers: int  # bytes of IP and UDP


SIX = Family(
    socket.AF_INET6, socket.IPPROTO_IPV6, "::", IPV6_MTU_DISCOVER, IPV6_RECVERR, IPV6_RECVPKTINFO, IPV6_PKTINFO,
    socket.IPV6_UNICAST_HOPS, 48,
)  # fmt: skip
FOUR = Family(
    socket.AF_INET, socket.IPPROTO_IP, "0.0.0.0", IP_MTU_DISCOVER, IP_RECVERR, IP_PKTINFO, IP_PKTINFO,
    socket.IP_TTL, 28,
)  # fmt: skip


# --- who answers -------------------------------------------------------------------------------------------------


def serve(name: str, ports: Sequence[int], *, duration: float | None = None) -> None:
    """Answers for ever, or so many seconds; both families, or the one there is."""
    with selectors.DefaultSelector() as selector:
        for family in (SIX, FOUR):
            for port in ports:
                with suppress(OSError):  # a node without IPv6, or without IPv4
                    selector.register(_datagrams(family, port), selectors.EVENT_READ, family)
                    selector.register(_connections(family, port), selectors.EVENT_READ)
        end = None if duration is None else time.monotonic() + duration
        while end is None or time.monotonic() < end:
            for key, _ in selector.select(None if end is None else max(0.0, end - time.monotonic())):
                with suppress(OSError):  # an asker that is unreachable now must not end the service
                    _answer(key.fileobj, key.data, name.encode())  # type: ignore[arg-type]


def _answer(asked: socket.socket, family: Family | None, name: bytes) -> None:
    if family is None:
        connection, _ = asked.accept()
        with connection:
            connection.send(name)
        return
    question, ancillary, _, asker = asked.recvmsg(LARGEST, socket.CMSG_SPACE(20))
    # the address that was asked, but not the interface: the way back is the routing table's business
    source = [(level, kind, _without_interface(data)) for level, kind, data in ancillary if kind == family.address]
    answer = question.rstrip(b"\0") + b" " + name
    asked.sendmsg([answer.ljust(len(question), b"\0")], source, 0, asker)


def _without_interface(pktinfo: bytes) -> bytes:
    return pktinfo[:16] + bytes(4) if len(pktinfo) == 20 else bytes(4) + pktinfo[8:12] + bytes(4)


def _datagrams(family: Family, port: int) -> socket.socket:
    made = socket.socket(family.number, socket.SOCK_DGRAM)
    if family is SIX:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.setsockopt(family.level, family.told, 1)
    made.setsockopt(family.level, family.discover, PMTUDISC_PROBE)
    made.bind((family.any, port))
    return made


def _connections(family: Family, port: int) -> socket.socket:
    made = socket.socket(family.number, socket.SOCK_STREAM)
    if family is SIX:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((family.any, port))
    made.listen()
    made.setblocking(False)
    return made


# --- who asks ----------------------------------------------------------------------------------------------------


class Flow(NamedTuple):
    """What one flow heard: who answered, else why nobody did and the way as far as it could be followed."""

    by: str = ""
    refused: bool = False
    error: str = ""
    too_big: int = 0
    teller: str = ""  # who sent an error
    path: tuple[str, ...] = ()


def ask(probes: Sequence[Probe]) -> list[Reply]:
    """All at once, so that it takes as long as the slowest."""
    with ThreadPoolExecutor(max(1, len(probes))) as threads:
        return list(threads.map(_ask, probes))


def _ask(probe: Probe) -> Reply:
    if probe.kind == "name":
        return _look_up(probe)
    family = SIX if ":" in probe.address else FOUR
    size = _interface_mtu() - family.headers if probe.kind == "full" else QUESTION
    with ThreadPoolExecutor(probe.flows) as threads:
        flows = list(threads.map(lambda _: _flow(probe, family, size), range(probe.flows)))
    if all(flow.by for flow in flows) and probe.kind == "reach":
        flows.append(_connect(probe))
    failed = next((flow for flow in flows if not flow.by), Flow())
    return Reply(
        asked=len(flows),
        answered=sum(bool(flow.by) for flow in flows),
        by=tuple(sorted({flow.by for flow in flows if flow.by})),
        refused=any(flow.refused for flow in flows),
        error=failed.error,
        size=size + family.headers,
        too_big=failed.too_big,
        teller=failed.teller,
        path=failed.path,
    )


def _flow(probe: Probe, family: Family, size: int) -> Flow:
    """One socket that asks until it is answered, told no, or out of patience; then it follows the way."""
    found = Flow(error="no answer")
    with _asking(probe, family) as asker:
        deadline = time.monotonic() + probe.patience
        while time.monotonic() < deadline:
            try:
                asker.send(b"?".ljust(size, b"\0"))
                answer = asker.recv(LARGEST)
                return Flow(by=answer.rstrip(b"\0").partition(b" ")[2].decode(errors="replace"))
            except TimeoutError:
                continue
            except OSError as error:  # the kernel's, or of somebody on the way; a server may just be starting
                told = _told(asker)
                found = Flow(
                    refused=error.errno == errno.ECONNREFUSED,
                    error=error.strerror or str(error),
                    too_big=told[1] if told and error.errno == errno.EMSGSIZE else 0,
                    teller=told[0] if told else "",
                )
                if error.errno in (errno.EMSGSIZE, errno.EACCES, errno.EPERM):
                    break
                time.sleep(0.1)
        return found if found.teller or not probe.trace else found._replace(path=_path(asker, family, size))


def _path(asker: socket.socket, family: Family, size: int) -> tuple[str, ...]:
    """Who is on the way of these very packets, by hop limits that end there; an empty one did not say."""
    found: list[str] = []
    while len(found) < MOST_HOPS and found[-SILENT_HOPS:] != [""] * SILENT_HOPS:
        asker.setsockopt(family.level, family.hops, len(found) + 1)
        teller = ""
        deadline = time.monotonic() + HOP_PATIENCE
        with suppress(OSError):
            asker.send(b"?".ljust(size, b"\0"))
        while not teller and time.monotonic() < deadline:
            time.sleep(0.02)
            teller = (_told(asker) or ("", 0))[0]
        found.append(teller)
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def _told(asker: socket.socket) -> tuple[str, int] | None:
    """The oldest entry of the error queue: who said it (empty: this kernel), and what MTU."""
    try:
        _, ancillary, _, _ = asker.recvmsg(1, 512, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
    except OSError:
        return None
    for _, _, data in ancillary:
        offender = data[_ERROR.size :]
        number = struct.unpack_from("=H", offender)[0] if len(offender) >= 8 else 0
        if number == socket.AF_INET6:
            return str(IPv6Address(offender[8:24])), _ERROR.unpack_from(data)[5]
        if number == socket.AF_INET:
            return str(IPv4Address(offender[4:8])), _ERROR.unpack_from(data)[5]
        return "", _ERROR.unpack_from(data)[5]
    return None


@contextmanager
def _asking(probe: Probe, family: Family) -> Iterator[socket.socket]:
    with socket.socket(family.number, socket.SOCK_DGRAM) as made:
        made.setsockopt(family.level, family.discover, PMTUDISC_PROBE)
        made.setsockopt(family.level, family.errors, 1)
        made.settimeout(AGAIN)
        with suppress(OSError):  # no route: said by each send
            made.connect((probe.address, probe.port))
        yield made


def _connect(probe: Probe) -> Flow:
    deadline = time.monotonic() + probe.patience
    while True:
        try:
            with socket.create_connection((probe.address, probe.port), timeout=probe.patience) as connection:
                return Flow(by=connection.recv(256).decode(errors="replace"), error="TCP: closed without a word")
        except ConnectionRefusedError as error:
            if time.monotonic() > deadline:
                return Flow(refused=True, error=f"TCP: {error.strerror}")
            time.sleep(0.1)
        except OSError as error:
            return Flow(error=f"TCP: {error.strerror or error}")


def _look_up(probe: Probe) -> Reply:
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:3")
    try:
        found = sorted({str(row[4][0]) for row in socket.getaddrinfo(probe.address, None)})
    except OSError as error:
        return Reply(asked=1, answered=0, error=error.strerror or str(error))
    return Reply(asked=1, answered=1, by=tuple(found))


def _interface_mtu() -> int:
    """Of a pod's eth0; not what the kernel learned of one path."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as any_socket:
        answer = ioctl(any_socket, SIOCGIFMTU, struct.pack("16si12x", b"eth0", 0))
    return int(struct.unpack("16si12x", answer)[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flock.edge.probe", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    server = verbs.add_parser("serve")
    server.add_argument("name")
    server.add_argument("--port", type=int, action="append")
    server.add_argument("--for", dest="duration", type=float, help="end after so many seconds")
    verbs.add_parser("ask")
    arguments = parser.parse_args()
    if arguments.verb == "serve":
        serve(arguments.name, arguments.port or (OPEN, CLOSED), duration=arguments.duration)
    else:
        threading.stack_size(256 * 1024)  # a pod for checks has little memory
        probes = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Probe])
        print(msgspec.json.encode(ask(probes)).decode(), flush=True)


if __name__ == "__main__":
    main()
