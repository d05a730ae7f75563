"""A process that sends and sends: UDP from many namespaces to many addresses, from before their links exist.

Started as a program with its orders as JSON on stdin: a list of {netns, payload, targets: [[address, port], ...]}.
A round goes over all of them and takes a breath.  Each packet is `payload`, a blank and the number of the round.
Ends when it is killed.
"""

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

BREATH = 0.002
CLONE_NEWNET = 0x40000000
SOL_PACKET, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 263, 23, 33  # for which `socket` has no names


@contextlib.contextmanager
def hammering(orders: list[dict[str, Any]]) -> Iterator[None]:
    """While this lasts, packets fly; the first round is over when it begins."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(orders).encode())
            process.stdin.close()
            assert process.stdout.readline() == b"hammering\n"
            yield
            assert process.poll() is None, "it hammered to the end"
        finally:
            process.kill()


def order(netns: str, payload: str, *targets: tuple[str, int]) -> dict[str, Any]:
    return {"netns": netns, "payload": payload, "targets": targets}


class Tap:
    """Sees every packet that comes into a namespace, from before there is a link in it."""

    def __init__(self, netns: str) -> None:
        with in_namespace(netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        self._socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
        self._socket.setblocking(False)

    def seen(self) -> list[tuple[str, int]]:
        """(payload, round) of each packet of the hammer's since the last call."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = self._socket.recv(2000)
                _, mark, content = packet.partition(b"hammer:")
                if mark:
                    payload, number = content.split()
                    found.append((payload.decode(), int(number)))
        return found

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def in_namespace(path: str) -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    home, there = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(path, os.O_RDONLY)
    try:
        assert libc.setns(there, CLONE_NEWNET) == 0
        try:
            yield
        finally:
            assert libc.setns(home, CLONE_NEWNET) == 0
    finally:
        os.close(home)
        os.close(there)


def _hammer(orders: list[dict[str, Any]]) -> None:
    blows = []
    for one in orders:
        for family, colon in ((socket.AF_INET6, True), (socket.AF_INET, False)):
            targets = [(address, port) for address, port in one["targets"] if (":" in address) == colon]
            if targets:
                with in_namespace(one["netns"]):
                    sender = socket.socket(family, socket.SOCK_DGRAM)
                sender.setblocking(False)
                blows.append((sender, f"hammer:{one['payload']}", targets))
    number = 0
    while True:
        number += 1
        for sender, payload, targets in blows:
            packet = f"{payload} {number}".encode()
            for target in targets:
                with contextlib.suppress(OSError):  # no link yet, or no answer to who has it
                    sender.sendto(packet, target)
        if number == 1:
            print("hammering", flush=True)
        time.sleep(BREATH)


if __name__ == "__main__":
    _hammer(json.load(sys.stdin))
