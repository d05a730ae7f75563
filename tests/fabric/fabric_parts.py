"""What the tests of the fabric share: labs that end whatever happens, and eyes for routers, kernels and agents.

What a router received is asked of the router, what a node announces is read with `ip`: never of the code under test.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from flock.edge.rpc_client import AgentError, ask
from flock.lab.fabric import Lab
from flock.lab.home import Home, write_object
from flock.lab.nodeconfigs import generated
from flock.lab.nodes import AGENT
from flock.lab.router_bird import ROLE as BIRD
from flock.lab.router_bird import birdc
from flock.lab.topology import Topology, plan

T = TypeVar("T")
Spec = dict[str, Any]
MakeLab = Callable[..., Lab]

PATIENCE = 20.0  # a busy machine may take long; what is waited for comes within milliseconds or, for sessions, seconds
# BIRD looks through the kernel's routes every ten seconds: what takes longer than this was found, not reported.
UNSCANNED = 6.0
OWN = "flock.fritzlab.net"
ANNOUNCED_PROTOCOL = "134"

V6, V4 = "2001:db8:53::1", "192.0.2.1"
BOTH = f"{V6}, {V4}"
AGGREGATES = {"n1": {"2001:db8:1::/64", "100.64.1.0/24"}, "n2": {"2001:db8:2::/64", "100.64.2.0/24"}}
_numbers = count(1)


def new_name() -> str:
    return f"f{os.getpid()}-{next(_numbers)}"


def remove(name: str) -> None:
    Lab.down(name=name, home=Home.named(name))


def eventually(look: Callable[[], T], wanted: Callable[[T], bool], *, within: float = PATIENCE) -> T:
    """What was seen when it was as wanted; fails with what was seen last."""
    deadline, pause = time.monotonic() + within, 0.01
    while True:
        seen = look()
        if wanted(seen):
            return seen
        assert time.monotonic() < deadline, f"never came to be; last seen: {seen!r}"
        time.sleep(pause)
        pause = min(1.2 * pause, 0.1)  # a look starts programs: what takes long is looked at less often


def becomes(look: Callable[[], T], value: T, *, within: float = PATIENCE) -> None:
    eventually(look, lambda seen: seen == value, within=within)


def follows(look: Callable[[], T], value: T) -> None:
    """Routers follow a change of the kernel's routes because BIRD was told of it."""
    becomes(look, value, within=UNSCANNED)


def host_prefix(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


# --- routers ------------------------------------------------------------------------------------------------


def senders(lab: Lab, address: str, router: str = "r1") -> set[str]:
    """The elements a router sends an address to."""
    return {lab.owner(hop) for hop in lab.router(router).routes().get(host_prefix(address), ())}


def sent_to(lab: Lab, nodes: set[str]) -> None:
    """Every router sends both families to exactly these nodes."""
    for address in (V6, V4):
        for router in ("r1", "r2"):
            # with no node left, the routers forget it too
            follows(lambda a=address, r=router: senders(lab, a, r) & {"n1", "n2"}, nodes)


def received(lab: Lab, node: str, router: str = "r1") -> dict[str, str]:
    """All a router holds from a node, best or not: prefix -> next hop.  A global one, where it was given two."""
    made = lab.router(router)
    neighbour = next(n for n in made.speaker.neighbours if n.name == node)
    host, home = lab.host(router), lab.home.of(router)
    found: dict[str, str] = {}
    if lab.record.router == "bird":
        prefix = ""
        for line in birdc(host, home / "bird.ctl", f"show route protocol {neighbour.session} all").splitlines():
            if line[:1].isalnum() and "/" in line:
                prefix = line.split()[0]
            elif line.startswith("\tBGP.next_hop:"):
                found[prefix] = line.split()[1]
    elif lab.record.router == "frr":
        for family in neighbour.families:
            show = f"show bgp {family} unicast neighbors {neighbour.address} routes json"
            table = json.loads(host.run(["vtysh", "--vty_socket", str(home), "-c", show]))
            for prefix, paths in table.get("routes", {}).items():
                hops = paths[0]["nexthops"]
                found[prefix] = min(hops, key=lambda hop: hop.get("scope") == "link-local")["ip"]
    else:
        address = f"{neighbour.address}%{neighbour.interface}" if neighbour.interface else neighbour.address
        for family in neighbour.families:
            asked = ["gobgp", "--target", f"unix://{home / 'api.sock'}", "-j", "neighbor", address]
            for prefix, paths in dict(json.loads(host.run([*asked, "adj-in", "-a", family]) or "{}")).items():
                attributes = {a["type"]: a for a in paths[0]["attrs"]}
                found[prefix] = attributes.get(3, {}).get("nexthop") or attributes[14]["nexthop"]
    return found


def session_states(lab: Lab, router: str = "r1") -> dict[str, str]:
    return {session.peer: session.state for session in lab.router(router).sessions()}


def established(lab: Lab, node: str, router: str = "r1") -> bool:
    return any(s.peer == node and s.up for s in lab.router(router).sessions())


# --- nodes --------------------------------------------------------------------------------------------------


def node_birdc(lab: Lab, node: str, command: str) -> str:
    return birdc(lab.host(node), lab.node(node).run_dir / "bird.ctl", command)


class Moment(datetime):
    """As BIRD tells it, who reckons it anew for each answer: a second more or less is the same moment."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, datetime) and abs(self - other) <= timedelta(seconds=1)

    __hash__ = None  # type: ignore[assignment]


def up_since(lab: Lab, node: str) -> dict[str, Moment]:
    """When BIRD's sessions came up: the same moment means that they never went down."""
    return {row["peer"]: Moment.fromisoformat(row["since"]) for row in told(lab, node, "bgp") if row["up"]}


def told(lab: Lab, node: str, op: str) -> Any:
    """What the agent answers to flockctl."""
    return ask(lab.node(node).run_dir, op)


def status(lab: Lab, node: str) -> dict[str, Any]:
    """The agent's status; empty while it does not answer."""
    try:
        answer: dict[str, Any] = told(lab, node, "status")
    except AgentError:
        return {}
    return answer


def degraded(lab: Lab, node: str) -> str:
    return "; ".join(status(lab, node).get("degraded", ["no answer"]))


def why_not(lab: Lab, node: str) -> dict[tuple[str, str], str]:
    """(pod, address) -> the reason flockctl gives for not announcing it; empty when it does."""
    return {(row["pod"], row["address"]): row["reason"] for row in told(lab, node, "anycast")}


def flockctl(lab: Lab, node: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("flockctl")
    command = [str(program), "--run-dir", str(lab.node(node).run_dir), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def kernel_routes(lab: Lab, node: str) -> dict[str, list[str]]:
    """Routes with the announcing protocol number, by `ip`: address -> the interfaces it leads to, sorted."""
    found: dict[str, list[str]] = {}
    for family in ("-6", "-4"):
        command = ["ip", "-json", family, "route", "show", "proto", ANNOUNCED_PROTOCOL]
        for route in json.loads(lab.host(node).run(command) or "[]"):
            hops = route.get("nexthops") or [route]
            found[route["dst"]] = sorted(hop["dev"] for hop in hops)
    return found


def blackholes(lab: Lab, node: str) -> set[str]:
    """The aggregates the kernel knows of."""
    shown = [lab.host(node).run(["ip", family, "route", "show", "type", "blackhole"]) for family in ("-6", "-4")]
    return {line.split()[1] for line in "".join(shown).splitlines()}


def nexthops(lab: Lab, node: str) -> list[dict[str, Any]]:
    command = ["ip", "-json", "nexthop", "show", "proto", ANNOUNCED_PROTOCOL]
    rows: list[dict[str, Any]] = json.loads(lab.host(node).run(command) or "[]")
    return rows


def loose_nexthops(lab: Lab, node: str) -> set[int]:
    """Next hops and groups of ours that nothing leads to: leaks."""
    shown = [json.loads(lab.host(node).run(["ip", "-json", f, "route", "show"]) or "[]") for f in ("-6", "-4")]
    led_to = {route.get("nhid") for table in shown for route in table}
    ours = nexthops(lab, node)
    grouped = {member["id"] for row in ours if row["id"] in led_to for member in row.get("group", ())}
    return {row["id"] for row in ours} - led_to - grouped


def host_interface(lab: Lab, pod: str) -> str:
    record = lab.pods.get(pod)
    name: str = next(row["interface"] for row in told(lab, record.node, "pods") if row["container"] == record.container)
    return name


def stop_agent(lab: Lab, node: str, signal: Any) -> None:
    lab.node(node).host.stop(AGENT, by=signal)


def start_agent(lab: Lab, node: str) -> None:
    lab.node(node).start_agent()
    lab.node(node).wait_ready()


def reloads(lab: Lab, node: str) -> int:
    """How often BIRD was told to configure, by its own log."""
    return (lab.home.of(node) / "bird.log").read_text().count("Reconfiguration requested")


# --- NodeConfigs --------------------------------------------------------------------------------------------


def node_configs(*, nodes: int = 1, routers: int = 1, topology: Topology = "leaf-spine", bfd: bool = False) -> Any:
    """Those a lab of that shape would have, to be altered and given to it."""
    return generated(plan(nodes=nodes, routers=routers, topology=topology), bfd=bfd)


def patient(config: dict[str, Any]) -> dict[str, Any]:
    """With BFD that a busy machine does not take for dead: three times 300 ms, still far below any hold time."""
    for peer in config["spec"]["bgp"]["peers"]:
        if "bfd" in peer:
            peer["bfd"]["interval"] = "300ms"
    return config


def write_configs(directory: Path, configs: Iterable[dict[str, Any]]) -> Path:
    directory.mkdir(exist_ok=True)
    for config in configs:
        write_object(directory, f"nodeconfig-{config['metadata']['name']}", config)
    return directory


def config_file(lab: Lab, node: str) -> Path:
    return lab.home.manifests / f"nodeconfig-{node}.json"


def change_config(lab: Lab, node: str, change: Callable[[Spec], object]) -> None:
    """Alter the spec of a NodeConfig in force, as `kubectl edit` would."""
    config = json.loads(config_file(lab, node).read_bytes())
    change(config["spec"])
    write_object(lab.home.manifests, f"nodeconfig-{node}", config)


def bird_conf(lab: Lab, node: str) -> str:
    return (lab.node(node).bird_dir / "bird.conf").read_text()


# --- putting a shared lab back as it was ---------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """How the nodes of a shared lab were at first."""

    configs: dict[str, bytes]
    bird_confs: dict[str, str]

    @staticmethod
    def of(lab: Lab) -> "Origin":
        names = [node.name for node in lab.nodes()]
        return Origin({n: config_file(lab, n).read_bytes() for n in names}, {n: bird_conf(lab, n) for n in names})


def restore(lab: Lab, origin: Origin) -> None:
    """No pods, the first NodeConfigs, every agent and BIRD alive, nothing drained or cordoned, all sessions up."""
    for node in origin.configs:
        if not lab.node(node).host.running(BIRD):
            lab.node(node).start_bird()
        if not lab.node(node).host.running(AGENT):
            start_agent(lab, node)
    for pod in list(lab.pods):
        lab.pods.delete(pod.key)
    for node, config in origin.configs.items():
        config_file(lab, node).write_bytes(config)
        lab.cordon(node, False)
        told(lab, node, "undrain")
    for node, conf in origin.bird_confs.items():
        becomes(lambda n=node: kernel_routes(lab, n), {})
        becomes(lambda n=node: bird_conf(lab, n), conf)
        becomes(lambda n=node: blackholes(lab, n), AGGREGATES[node])
    lab.wait()
