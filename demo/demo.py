"""`make demo`: one node with pods on this machine, told in chapters.

Each chapter is a function of the stage; its docstring is its title.  A chapter shows something and checks it, so the
demo is a test as well: the exit code is 0 if everything held and nothing was left behind, whatever happened between.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from ipaddress import IPv6Address

from stage import FLOCK, Failed, Stage, bold, eventually, expect, indented, say

NODE_CONFIG = """\
apiVersion: flock.fritzlab.net/v1alpha1
kind: NodeConfig
metadata: {name: node1}
spec:
  cidr6: ["2001:db8:1::/64"]
  cidr4: ["192.0.2.0/26"]
"""
REPLICA = """\
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  namespace: shop
  labels: {pod-template-hash: 6d5f7}
  annotations: {flock.fritzlab.net/ip-algo: "namespace,app,image"}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: cart-6d5f7, uid: "1", controller: true}]
spec:
  containers: [{name: cart, image: "registry.example/cart:1.4"}]
"""
GREEDY = """\
apiVersion: v1
kind: Pod
metadata:
  name: greedy
  namespace: shop
  annotations: {flock.fritzlab.net/anycast: "2001:db8:53::53"}
spec: {containers: [{name: c, image: c}]}
"""
PODS = ("web-0", "web-1", "db-0")
REPLICAS = ("cart-a", "cart-b")
BESIDE = 40  # packets that have to be answered before and after the agent is away


def a_node(stage: Stage) -> None:
    """A node, its router, and the agent"""
    stage.build_node()
    stage.manifest("node1", NODE_CONFIG)
    say("  The node's NodeConfig lies in a directory of manifests; no API server is needed:")
    indented(NODE_CONFIG)
    say(f"  $ {shlex.join(stage.agent_command)}")
    stage.start_agent()
    stage.shown("flockctl", "status")
    say("  The MTU is the uplink's.  The router beside the node has one static route per prefix, and no other trick.")


def pods(stage: Stage) -> None:
    """Pods, attached by the CNI executable as a container runtime calls it"""
    environment = shlex.join(f"{key}={value}" for key, value in stage.cni_environment("ADD", "web-0").items())
    say(f"  $ env {environment} build/flock < {stage.net_conf}")
    for pod in PODS:
        result = stage.attach(pod)
        both = " ".join(entry["address"] for entry in result["ips"])
        expect(len(result["ips"]) == 2, f"{pod}: {both}, exec to exit in {result['ms']:.1f} ms")
    stage.shown("flockctl", "pods")
    for family in ("-6", "-4"):
        routes = stage.shown("ip", "-n", stage.node, family, "route", "show", "proto", "133")
        led = sum(f"dev {row['interface']}" in routes for row in _addresses(stage).values())
        expect(led == len(PODS), f"a host route to each pod, IPv{family[1]}, ours by its protocol number")


def packets(stage: Stage) -> None:
    """Every pod reaches every other, the node and the world; nothing is translated on the way"""
    table = _addresses(stage)
    web0, web1 = stage.netns("web-0"), table["web-1"]
    stage.shown("ip", "netns", "exec", web0, "ping", "-c", "2", "-i", "0.1", "-n", web1["ip6"])
    between = [(stage.netns(a), table[b][ip]) for a in PODS for b in PODS if a != b for ip in ("ip6", "ip4")]
    expect(all(stage.pings(*pair) for pair in between), f"pod to pod, both families: {len(between)} of {len(between)}")
    for whose, name in (("the node", stage.node), ("the router", stage.router)):
        pairs = [(name, table[pod][ip]) for pod in PODS for ip in ("ip6", "ip4")]
        expect(
            all(stage.pings(*pair) for pair in pairs), f"{whose} to pod, both families: {len(pairs)} of {len(pairs)}"
        )
    outside = [(web0, address) for address in ("2001:db8:ffff::1", "198.51.100.1")]
    expect(all(stage.pings(*pair) for pair in outside), "pod to router, by the pod's own addresses")


def annotations(stage: Stage) -> None:
    """A pod asks by annotation: addresses people can read, and a wish that is not granted"""
    say('  Two replicas of a Deployment with flock.fritzlab.net/ip-algo: "namespace,app,image":')
    found = []
    for pod in REPLICAS:
        stage.manifest(pod, REPLICA.replace("NAME", pod))
        found.append(IPv6Address(stage.attach(pod)["ips"][0]["address"].partition("/")[0]))
        say(f"    {pod}  {found[-1].exploded}")
    expect(
        int(found[0]) >> 4 == int(found[1]) >> 4, "they differ in the last digit only: same namespace, app and image"
    )
    stage.manifest("greedy", GREEDY)
    stage.make_namespace("greedy")
    call = stage.cni("ADD", "greedy")
    error = json.loads(call.communicate(timeout=60)[0])
    say("  A pod that wants to announce an address its namespace was not given:")
    indented(textwrap.fill(f"error {error['code']}: {error['msg']}", 100))
    expect(call.returncode == 1 and error["code"] == 102, "refused, with the reason")
    expect("greedy" not in _addresses(stage), "and nothing of it was set up")


def the_agent_dies(stage: Stage) -> None:
    """The agent is killed and restarted under running traffic"""
    target = _addresses(stage)["web-1"]
    running = [_Ping(stage, target[ip]) for ip in ("ip6", "ip4")]
    eventually(lambda: all(ping.received() > BESIDE for ping in running), "pings are running")
    assert stage.agent is not None
    say(f"  $ kill -9 {stage.agent.pid}")
    stage.end_agent(signal.SIGKILL)
    stage.shown("flockctl", "status", code=3)
    stage.make_namespace("late-0")
    started = time.monotonic()
    waiting = stage.cni("ADD", "late-0")
    say("  A runtime calls ADD for late-0 just now: the executable waits for the agent.  The agent is started again.")
    stage.start_agent()
    expect(
        stage.result(waiting)["ips"], f"late-0 is attached, {time.monotonic() - started:.1f} s after it was asked for"
    )
    before = [ping.received() for ping in running]
    eventually(lambda: all(p.received() > n + BESIDE for p, n in zip(running, before, strict=True)), "pings go on")
    for ping, family in zip(running, ("IPv6", "IPv4"), strict=True):
        sent, lost = ping.stop()
        expect(lost == 0, f"{family} from web-0 to web-1, a packet every 20 ms all the while: {sent} sent, {lost} lost")


def a_link_is_deleted(stage: Stage) -> None:
    """Somebody deletes a pod's link by hand"""
    table = _addresses(stage)
    web1, source = table["web-1"], stage.netns("web-0")
    stage.shown("ip", "-n", stage.node, "link", "del", web1["interface"])
    eventually(lambda: stage.pings(source, web1["ip6"]) and stage.pings(source, web1["ip4"]), "web-1 is back")
    indented("\n".join(line.split(" ", 2)[2] for line in stage.log_lines("repaired link")))
    expect(_addresses(stage)["web-1"] == web1, "web-1 answers again: same link name, same addresses, no restart")
    stage.shown("flockctl", "check")


def the_end(stage: Stage) -> None:
    """The pods go, and nothing of them stays"""
    for pod in _addresses(stage):
        stage.result(stage.cni("DEL", pod))
        stage.result(stage.cni("DEL", pod, CNI_NETNS=""))  # again, as containerd does
    stage.shown("flockctl", "status")
    links = [link["ifname"] for link in json.loads(stage.run("ip", "-n", stage.node, "-j", "link"))]
    expect(links == ["lo", "eth0"], "no link of ours on the node, no route through one")
    state = json.loads((stage.state / "allocations.json").read_text())
    expect(state["allocations"] == [], "no allocation in the state file; released addresses rest before they return")
    expect(stage.end_agent(signal.SIGTERM) == 0, "the agent stops when told to")


CHAPTERS: list[Callable[[Stage], None]] = [
    a_node,
    pods,
    packets,
    annotations,
    the_agent_dies,
    a_link_is_deleted,
    the_end,
]


def _addresses(stage: Stage) -> dict[str, dict[str, str]]:
    rows = json.loads(stage.run("flockctl", "pods", "-o", "json"))
    return {row["pod"]: {key: row[key] for key in ("ip6", "ip4", "interface")} for row in rows}


class _Ping:
    """A ping from web-0 that runs until it is stopped.  Lost is what lies before the last answer and has none."""

    def __init__(self, stage: Stage, address: str) -> None:
        self._file = stage.directory / f"ping-{address}"
        with self._file.open("wb") as out:
            command = ("nsenter", f"--net=/run/netns/{stage.netns('web-0')}", "ping", "-n", "-i", "0.02", address)
            self._process = stage.start(*command, stdout=out, stderr=subprocess.STDOUT)

    def _answered(self) -> set[int]:
        return set(map(int, re.findall(r"icmp_seq=(\d+) ttl=", self._file.read_text())))

    def received(self) -> int:
        return len(self._answered())

    def stop(self) -> tuple[int, int]:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(10)
        answered = self._answered()
        return max(answered), max(answered) - len(answered)


def tell(stage: Stage, *, hold: bool) -> None:
    say(bold("flock on one node, in network namespaces and a directory that are gone afterwards."))
    say(f"  $ export FLOCK_RUN_DIR={stage.run_dir}")
    for number, chapter in enumerate(CHAPTERS, 1):
        say()
        say(bold(f"{number}. {(chapter.__doc__ or '').strip()}"))
        if hold and chapter is the_end:
            with contextlib.suppress(EOFError):
                input("  Look around; Enter goes on. ")
        chapter(stage)


def main() -> int:
    parser = argparse.ArgumentParser(description="One node with pods on this machine, told in chapters.")
    parser.add_argument("--hold", action="store_true", help="wait for Enter before the last chapter, to look around")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not FLOCK.exists():
        print("demo: needs root and build/flock; `make demo` sees to it", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    stage = Stage()
    code = 1
    try:
        tell(stage, hold=arguments.hold)
        code = 0
    except KeyboardInterrupt:
        say("\ninterrupted; clearing up")
        code = 130
    except (Failed, subprocess.SubprocessError, OSError) as error:
        say(f"  ✗ {error}")
        if stage.log.exists():
            say("  the agent's last lines:")
            indented("\n".join(stage.log.read_text().splitlines()[-10:]))
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # clearing up is not to be cut short
        stage.clear()
    left = stage.leftovers()
    for item in left:
        say(f"  ✗ left behind: {item}")
    if code == 0 and not left:
        say()
        say(bold(f"Everything held, in {time.monotonic() - started:.1f} s; nothing is left behind."))
    return code or int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
