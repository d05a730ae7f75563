"""Many flows at once, and how many of them the node tracks."""

import contextlib
import socket

from harness import Node
from namespaces import within


def flood(node: Node, pod: str, to: str, *, ports: int) -> None:
    """As many flows as ports; whether anybody listens does not matter."""

    def send() -> None:
        with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM) as client:
            for port in range(1024, 1024 + ports):
                with contextlib.suppress(ConnectionRefusedError):
                    client.sendto(b"x", (to, port))

    within(node.path(pod), send)


def flows(node: Node) -> int:
    return int(node.execute("cat", "/proc/sys/net/netfilter/nf_conntrack_count").stdout)


def flows_of(node: Node, address: str) -> int:
    family = "ipv6" if ":" in address else "ipv4"
    return node.execute("conntrack", "-L", "-f", family, "-p", "udp", check=False).stdout.count(f"src={address} ")
