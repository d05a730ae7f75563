"""The demo's chapter about Services.  It runs no kube-proxy: somebody who says 200 at its health port plays it."""

import json
import sys
import time
from typing import Any

from stage import PATIENCE, Stage, eventually, expect, say
from watching import milliseconds

from flock.lab.home import write_object

NODES = ("n1", "n2", "n3")
FRONT = "192.0.2.80"
KUBE_PROXY = """
import http.server

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

http.server.HTTPServer(("127.0.0.1", 30080), Answer).serve_forever()
"""


def a_service(stage: Stage) -> None:
    """A LoadBalancer Service: announced where an endpoint is ready and kube-proxy, played here, says it delivers"""
    for node in NODES:
        config = json.loads((stage.home.manifests / f"nodeconfig-{node}.json").read_text())
        config["spec"]["services"] = {"allowed": [{"prefixes": [f"{FRONT}/32"]}]}
        write_object(stage.home.manifests, f"nodeconfig-{node}", config)
        stage.node(node).host.spawn("kube-proxy", [sys.executable, "-c", KUBE_PROXY])
    write_object(stage.home.manifests, "service-front", _service())
    for node in ("n1", "n3"):
        write_object(stage.home.manifests, f"slice-{node}", _endpoint(node, ready=True))

    def senders() -> set[str]:
        return {stage.lab.owner(hop) for hop in stage.lab.router("r1").routes().get(f"{FRONT}/32", ())}

    eventually(lambda: senders() == {"n1", "n3"}, "both nodes with an endpoint announce it")
    say(f"  ✓ r1 sends {FRONT} to n1 and n3, which have endpoints; n2 has none, and says so:")
    stage.flockctl("n2", "services")
    at = time.monotonic()
    write_object(stage.home.manifests, "slice-n1", _endpoint("n1", ready=False))
    eventually(lambda: senders() == {"n3"}, "n1 withdraws it")
    gone = time.monotonic() - at
    expect(gone < PATIENCE, f"its endpoint on n1 turns unready: r1 knows n3 alone {milliseconds(gone)} later")
    stage.note(at, "endpoint of a Service on n1 unready", f"gone from r1 {milliseconds(gone)} later")


def _service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "front", "namespace": "shop"},
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30080},
        "status": {"loadBalancer": {"ingress": [{"ip": FRONT}]}},
    }


def _endpoint(node: str, *, ready: bool) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"front-{node}", "namespace": "shop", "labels": {"kubernetes.io/service-name": "front"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["100.64.1.9"], "nodeName": node, "conditions": {"ready": ready}}],
    }
