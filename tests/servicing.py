"""Services and their endpoints as objects, and a kube-proxy's health port in a namespace: it says what it is told."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from namespaces import within

V4, V6 = "203.0.113.1", "2001:db8:5e::1"
ALLOWED = [{"prefixes": ["203.0.113.0/25", "2001:db8:5e::/64"]}]
PORT = 30123


def service(
    name: str = "web",
    *addresses: str,
    policy: str = "Local",
    port: int = PORT,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    health = {"healthCheckNodePort": port} if policy == "Local" else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop", "labels": labels or {}},
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": policy, **health, **spec},
        "status": {"loadBalancer": {"ingress": [{"ip": address} for address in addresses or (V4, V6)]}},
    }


def endpoints(name: str = "web", *, node: str = "n1", family: str = "IPv4", **conditions: Any) -> dict[str, Any]:
    """A slice with one endpoint."""
    found = {"addresses": ["192.0.2.7"], "nodeName": node, "conditions": {"ready": True} | conditions}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-{family.lower()}-{node}",
            "namespace": "shop",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": family,
        "endpoints": [found],
    }


def both(name: str = "web", *, node: str = "n1", **conditions: Any) -> list[dict[str, Any]]:
    return [endpoints(name, node=node, family=family, **conditions) for family in ("IPv4", "IPv6")]


class HealthPort:
    """Answers every request with `status`, or not at all where that is 0.  `asked`: when it was."""

    def __init__(self, listener: socket.socket, status: int) -> None:
        self.status = status
        self.asked: list[float] = []
        self._listener = listener
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        held = []  # who is not answered
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.asked.append(time.monotonic())
            if self.status:
                with contextlib.suppress(OSError), connection:
                    connection.settimeout(5)
                    connection.recv(4096)
                    connection.sendall(f"HTTP/1.1 {self.status} Said\r\nContent-Length: 0\r\n\r\n".encode())
            else:
                held.append(connection)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


def open_port(netns: Path | str, *, port: int = PORT, status: int = 200, address: str = "") -> HealthPort:
    """On all addresses of the namespace, or on one."""

    def listen() -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(128)
        return listener

    return HealthPort(within(netns, listen), status)


@contextlib.contextmanager
def health_port(netns: Path | str, **how: Any) -> Iterator[HealthPort]:
    port = open_port(netns, **how)
    try:
        yield port
    finally:
        port.close()
