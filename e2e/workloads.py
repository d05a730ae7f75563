"""Objects that the tests create: pods that tell who they are."""

from collections.abc import Mapping
from typing import Any

from images import TOOLBOX

PORT = 8080
ECHO_PORT = 9000
DNS_PORT = 53
ANSWER = "192.0.2.53"  # what the name server says, whatever it is asked for

# Every HTTP request is answered with the pod's name, and on another port every line is sent back; by either family.
_SERVE = f"""
mkdir -p /tmp/www && hostname > /tmp/www/index.html
trap 'exit 0' TERM
echo serving
nc -ll -p {ECHO_PORT} -e cat &
httpd -f -p '[::]:{PORT}' -h /tmp/www & wait
"""

# The question is sent back with one record, of type A, under the name that was asked for.
_TELL_NAMES = f"""
import socket
names = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
names.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
names.bind(("::", {DNS_PORT}))
while True:
    asked, whom = names.recvfrom(512)
    question = asked[12 : asked.index(0, 12) + 5]
    counts = bytes([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0])
    record = bytes([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]) + socket.inet_aton("{ANSWER}")
    names.sendto(asked[:2] + counts + question + record, whom)
"""


def name_server(name: str, *, namespace: str, image: str) -> dict[str, Any]:
    """A pod with the label `app: <name>` that answers DNS, by either family; the image is one with Python."""
    container = {"name": "names", "image": image, "command": ["python3", "-c", _TELL_NAMES]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }


def deployment(
    name: str,
    *,
    replicas: int,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    host_port: int | None = None,
    node: str | None = None,
    serve_on: int = 0,
) -> dict[str, Any]:
    """Pods with the label `app: <name>` that serve their names, spread over the nodes, ready when they answer.

    Or all on one `node`.  `serve_on` is how many seconds they go on when told to end.
    """
    labels = {"app": name}
    ports: dict[str, Any] = {"containerPort": PORT, **({"hostPort": host_port} if host_port else {})}
    container = {
        "name": "web",
        "image": TOOLBOX,
        "command": ["/bin/sh", "-c", _SERVE],
        "ports": [ports],
        "readinessProbe": {"httpGet": {"port": PORT, "path": "/"}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(serve_on)]}}},
    }
    where = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": dict(annotations or {})},
                "spec": {
                    "containers": [container],
                    "topologySpreadConstraints": [spread],
                    "terminationGracePeriodSeconds": 5 + serve_on,
                    **where,
                },
            },
        },
    }
