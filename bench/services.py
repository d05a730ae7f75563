"""Services: how soon a router knows that one works here, or no longer does, and what a change costs among a thousand.

A health port in the node's namespace stands in for kube-proxy.  Beside it plain BIRD, fed by `ip route`.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from events import RouteEvents, within
from fabrics import FLIPPED, NODE, Fabric, flock_fabric, plain_fabric, router_netns
from flock.lab.home import write_object
from flock.lab.namespaces import NETNS_DIR
from flock.lab.nodes import AGENT
from launching import BenchError
from measuring import Bench, Outcome, Table, Verdict, median, percentile, ratio, show

FLOCK, MANY = "flock", 1000
UP, DOWN, FIRST = "ready → router", "unready → gone", "first 200 → router"
AMONG = f", {MANY} Services"
ADDRESS, PORT = "2001:db8:53::5e", 30500
REST = 0.05  # seconds between changes
GONE_P50, THERE_P50 = 10.0, 50.0  # milliseconds

Times = dict[str, dict[str, list[float]]]


class ServiceChanges:
    name = "services"
    title = "Services: readiness, and one change among a thousand"

    def run(self, bench: Bench) -> Outcome:
        times: Times = {}
        cpu: list[float] = []
        with ExitStack() as stack:
            try:
                flock = stack.enter_context(flock_fabric(bench.world, nodes=1))
                plain = stack.enter_context(plain_fabric(bench.world, nodes=1))
                stage = stack.enter_context(_Stage(flock))
                _flip(bench, stage, [flock, plain], times)
                _first_200(bench, stage, times)
                stage.many()
                cpu = _flip(bench, stage, [flock], times, suffix=AMONG)
            except BenchError as problem:
                bench.complain(str(problem))
        return Outcome([_table(times, cpu)], _verdicts(times), {"ms": times, "cpu_ms": cpu})


class _Stage:
    """The lab's node with grants, a Service, and somebody at its health port."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self._lab = fabric, fabric.lab
        self.says = 200
        with within(NETNS_DIR / fabric.lab.host(NODE).netns):
            self._listener = socket.create_server(("127.0.0.1", PORT))
        threading.Thread(target=self._answer, daemon=True).start()

    def __enter__(self) -> "_Stage":
        name = f"nodeconfig-{NODE}"
        config = msgspec.json.decode((self._lab.home.manifests / f"{name}.json").read_bytes())
        config["spec"]["services"] = {"allowed": [{"prefixes": ["2001:db8:53::/64"]}]}
        self._write(name, config)
        self._write("service-web", _service("web", ADDRESS, "Local"))
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _answer(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                connection.recv(4096)
                connection.sendall(f"HTTP/1.1 {self.says} Said\r\nContent-Length: 0\r\n\r\n".encode())

    def _write(self, name: str, value: dict[str, Any]) -> None:
        write_object(self._lab.home.manifests, name, value)

    def flip(self, ready: bool) -> None:
        self._write("slice-web", _slice("web", ready))

    def many(self) -> None:
        """Services that are announced beside the one that changes."""
        objects = [_service(f"s{n}", f"2001:db8:53:0:1::{n + 1:x}", "Cluster") for n in range(MANY)]
        objects += [_slice(f"s{n}", True) for n in range(MANY)]
        with contextlib.closing(RouteEvents(router_netns(self.fabric))) as heard:
            self._write("many", {"apiVersion": "v1", "kind": "List", "items": objects})
            heard.wait(f"2001:db8:53:0:1::{MANY:x}/128", present=True, patience=60.0)
        time.sleep(2.0)

    @property
    def agent_cpu(self) -> float:
        """Seconds so far."""
        process = self._lab.host(NODE).process(AGENT)
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split() if process else ["0"] * 13
        return (int(fields[11]) + int(fields[12])) / 100


def _service(name: str, address: str, policy: str) -> dict[str, Any]:
    health = {"healthCheckNodePort": PORT} if policy == "Local" else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": policy, **health},
        "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
    }


def _slice(service: str, ready: bool) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": service}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": service, "namespace": "default", "labels": labels},
        "addressType": "IPv6",
        "endpoints": [{"addresses": ["2001:db8:1::7"], "nodeName": NODE, "conditions": {"ready": ready}}],
    }


def _flip(bench: Bench, stage: _Stage, fabrics: Sequence[Fabric], times: Times, *, suffix: str = "") -> list[float]:
    """From before the EndpointSlice is written, or the line given to `ip`, to the route in the router's kernel.

    Returns the agent's CPU time for a change, in milliseconds."""
    heard = {fabric: RouteEvents(router_netns(fabric)) for fabric in fabrics}
    cpu: list[float] = []
    for what, ready in ((UP, True), (DOWN, False)) * bench.effort.flips:
        for fabric in fabrics:
            is_flock = fabric.label == FLOCK
            before, asked = stage.agent_cpu, time.monotonic_ns()
            (stage if is_flock else fabric).flip(ready)
            seen = heard[fabric].wait(f"{ADDRESS if is_flock else FLIPPED}/128", present=ready)
            times.setdefault(what + suffix, {}).setdefault(fabric.label, []).append((seen - asked) / 1e6)
            time.sleep(REST)
            cpu += [1000 * (stage.agent_cpu - before)] if is_flock else []
    for events in heard.values():
        events.close()
    return cpu


def _first_200(bench: Bench, stage: _Stage, times: Times) -> None:
    """From kube-proxy's first 200, while it is waited for."""
    with contextlib.closing(RouteEvents(router_netns(stage.fabric))) as heard:
        for _ in range(max(1, bench.effort.flips // 10)):
            stage.says = 503
            stage.flip(True)
            time.sleep(0.3)
            asked = time.monotonic_ns()
            stage.says = 200
            seen = heard.wait(f"{ADDRESS}/128", present=True)
            times.setdefault(FIRST, {}).setdefault(FLOCK, []).append((seen - asked) / 1e6)
            stage.flip(False)
            heard.wait(f"{ADDRESS}/128", present=False)


def _table(times: Times, cpu: Sequence[float]) -> Table:
    rows = []
    for what, by_label in times.items():
        flock = median(by_label.get(FLOCK, []))
        for label, samples in by_label.items():
            shown = [show(percentile(samples, percent)) for percent in (50, 99, 100)]
            mean = show(sum(cpu) / len(cpu)) if cpu and what.endswith(AMONG) else "-"
            rows.append([what, label, str(len(samples)), *shown, show(ratio(flock, median(samples))), mean])
    return Table(["event", "contender", "runs", "p50 ms", "p99", "max", "flock / it", "agent's CPU ms"], rows)


def _verdicts(times: Times) -> Sequence[Verdict]:
    def found(what: str) -> float | None:
        samples = times.get(what, {}).get(FLOCK, [])
        return percentile(samples, 50) if samples else None

    return [
        Verdict(f"a Service's {UP} where kube-proxy says 200, p50", found(UP), THERE_P50, unit=" ms"),
        Verdict(f"a Service's {FIRST}, p50", found(FIRST), THERE_P50, unit=" ms"),
        Verdict(f"a Service's {DOWN}, p50", found(DOWN), GONE_P50, unit=" ms"),
        Verdict(f"a Service's {DOWN}{AMONG}, p50", found(DOWN + AMONG), GONE_P50, unit=" ms"),
    ]
