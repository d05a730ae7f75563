"""The lab's network namespaces and the cables between them, by way of `ip`.

A namespace is called `flocklab.<lab>.<element>`.  A lab's name has no dot, so the prefix alone says what belongs to
it: taking a lab down needs no record of what was built, and works after a crash at any point.

A cable is a veth pair whose far end is a port of a bridge in the switch namespace.  Cutting a link takes that port
off its bridge: nothing passes, yet both ends keep their carrier, so only BFD (or a timer) can notice.
"""

import json
import os
import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from flock.core.errors import FlockError
from flock.edge.kernel.netns import inside, open_netns, own_netns
from flock.lab.errors import LabError
from flock.lab.names import lab_name
from flock.lab.topology import SWITCH, Element, Plan, Port

NETNS_DIR = Path("/run/netns")

# A router forwards, spreads flows (not packets) over equal paths, and lets answers come back another way.
ROUTER_SYSCTLS = {
    "ipv4/ip_forward": 1,
    "ipv6/conf/all/forwarding": 1,
    "ipv4/fib_multipath_hash_policy": 1,
    "ipv6/fib_multipath_hash_policy": 1,
    "ipv4/conf/all/rp_filter": 0,
    "ipv4/conf/default/rp_filter": 0,
    "ipv4/conf/all/send_redirects": 0,
    "ipv4/conf/default/send_redirects": 0,
}
# The switch has ears only on layer 2.
SWITCH_SYSCTLS = {"ipv6/conf/all/disable_ipv6": 1, "ipv6/conf/default/disable_ipv6": 1}


def netns(lab: str, element: str) -> str:
    """FieldError if the lab's is no name: this is also how all of its namespaces are found."""
    lab_name(lab)
    return f"flocklab.{lab}.{element}"


def present(lab: str) -> tuple[str, ...]:
    """The lab's namespaces that exist, whoever made them."""
    return tuple(sorted(p.name for p in NETNS_DIR.glob(netns(lab, "*"))))


def create(name: str) -> None:
    _ip("netns", "add", name)


def delete(name: str) -> None:
    """Deletes the namespace with all interfaces in it; an absent one is fine."""
    if (NETNS_DIR / name).exists():
        _ip("netns", "del", name)


def pids(name: str) -> tuple[int, ...]:
    """Processes that are in the namespace now, but for the one that asks."""
    try:
        wanted = (NETNS_DIR / name).stat()
    except OSError:
        return ()
    everyone = (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit())
    return tuple(pid for pid in everyone if pid != os.getpid() and _inside(pid, wanted))


def is_inside(pid: int, name: str) -> bool:
    return _inside(pid, (NETNS_DIR / name).stat())


def _inside(pid: int, wanted: os.stat_result) -> bool:
    try:
        found = Path(f"/proc/{pid}/ns/net").stat()
    except OSError:  # gone, or a zombie
        return False
    return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)


def tcp_socket(name: str) -> socket.socket:
    """A socket of the namespace; whoever has it may stay outside."""
    try:
        here, there = own_netns(), open_netns(str(NETNS_DIR / name))
    except FlockError:
        raise LabError(f"there is no namespace {name}") from None
    with closing(here), closing(there), inside(there, home=here):
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def build(lab: str, plan: Plan, *, forwarding_nodes: bool) -> None:
    """All elements with their ports and addresses.  Nodes are left as a fresh kernel is, unless told otherwise:
    making them forward is the agent's work."""
    switch = netns(lab, SWITCH)
    create(switch)
    sysctl(switch, SWITCH_SYSCTLS)
    for element in plan.elements:
        create(netns(lab, element.name))
    _batch(switch, [*_bridges(plan.ports), *(line for port in plan.ports for line in _cable(lab, port))])
    for element in plan.elements:
        if element.role != "node" or forwarding_nodes:
            sysctl(netns(lab, element.name), ROUTER_SYSCTLS)
        _batch(netns(lab, element.name), _interfaces(element))


def _bridges(ports: Sequence[Port]) -> Iterable[str]:
    for bridge in dict.fromkeys(port.bridge for port in ports):
        # snooping off: neighbour discovery and OSPF must not wait for membership reports
        yield f"link add {bridge} type bridge mcast_snooping 0 stp_state 0 forward_delay 0"
        yield f"link set {bridge} up"


def _cable(lab: str, port: Port) -> Iterable[str]:
    far = f"peer name {port.ifname} netns {netns(lab, port.owner)}"
    yield f"link add {port.switch_port} type veth {far}"
    yield f"link set {port.switch_port} alias {port.link} master {port.bridge} up"


def _interfaces(element: Element) -> Iterable[str]:
    yield "link set lo up"
    for address in element.loopback:
        yield f"addr add {address} dev lo{' nodad' if ':' in address else ''}"
    for port in element.ports:
        yield f"link set {port.ifname} addrgenmode none"
        yield f"link set {port.ifname} up"
        for address in (f"{port.link_local}/64", *port.addresses):
            yield f"addr add {address} dev {port.ifname}{' nodad' if ':' in address else ''}"


def cut(lab: str, port: Port) -> None:
    _ip("-n", netns(lab, SWITCH), "link", "set", port.switch_port, "nomaster")


def mend(lab: str, port: Port) -> None:
    _ip("-n", netns(lab, SWITCH), "link", "set", port.switch_port, "master", port.bridge)


def cut_links(lab: str, plan: Plan) -> tuple[str, ...]:
    """Names of the links that are cut, read from the switch."""
    attached = {link.get("ifname") for link in _json("-n", netns(lab, SWITCH), "link", "show") if "master" in link}
    return tuple(port.link for port in plan.ports if port.switch_port not in attached)


def sysctl(name: str, values: dict[str, int]) -> None:
    script = "\n".join(f"echo {value} > /proc/sys/net/{key}" for key, value in values.items())
    _checked(["ip", "netns", "exec", name, "sh", "-e"], stdin=script)


def _batch(name: str, lines: Iterable[str]) -> None:
    _checked(["ip", "-n", name, "-batch", "-"], stdin="\n".join(lines))


def _ip(*args: str) -> str:
    return _checked(["ip", *args])


def _json(*args: str) -> list[dict[str, Any]]:
    parsed: list[dict[str, Any]] = json.loads(_ip("-json", *args) or "[]")
    return parsed


def _checked(argv: list[str], *, stdin: str | None = None) -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(argv)} failed", details=done.stderr.strip())
    return done.stdout
