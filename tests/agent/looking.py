"""Looks at a node independently of the agent's own code: store and kernel against each other, traffic under way."""

import contextlib
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from harness import BIN, CniFailure, Node, cni_outcome, eventually, run
from namespaces import within

HOST_MAC = "02:66:6c:6f:63:6b"
POD_PROTOCOL, ANNOUNCED_PROTOCOL, METRIC = "133", "134", 20
OWN = "flock.fritzlab.net/"


def host_link(node: Node, result: dict[str, Any]) -> dict[str, Any]:
    """The host side of a pod's link, as `ip` shows it."""
    link: dict[str, Any] = node.links()[result["interfaces"][0]["name"]]
    return link


def pod_side(path: str) -> dict[str, set[str]]:
    """Addresses by interface inside a namespace, link-local and loopback ones left out; from /proc, not netlink."""

    def read() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]:
            found[line.split(":")[0].strip()] = set()
        for line in Path("/proc/thread-self/net/if_inet6").read_text().splitlines():
            text, _, _, _, _, name = line.split()
            address = IPv6Address(bytes.fromhex(text))
            if not address.is_link_local and not address.is_loopback:
                found[name].add(str(address))
        tree = Path("/proc/thread-self/net/fib_trie").read_text()
        for address4 in re.findall(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL", tree):
            if not address4.startswith("127."):
                found.setdefault("IPv4", set()).add(address4)
        return found

    return within(path, read)


def pod_routes(node: Node) -> list[dict[str, Any]]:
    """Our routes that lead somewhere; the blackholes of the aggregates are the node's."""
    return [route for route in node.routes() if route.get("type") != "blackhole"]


def assert_sound(node: Node, *, dead: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Invariants 1, 2, 5 and 6 at rest: nothing is pending, and store, host and pods show the same, no more, no less.

    `dead`: containers whose namespace is gone; they have an entry and nothing else.
    """
    entries = node.allocations()
    marks = node.run_dir / "pending"
    assert not marks.exists() or not list(marks.iterdir()), "work is under way or half done"
    holders: dict[str, str] = {}
    links, routes, neighbours = {}, set(), set()
    for container, entry in entries.items():
        assert entry["state"] == "committed", f"{container} is {entry['state']}"
        held = {a for a in (entry.get("ip6"), entry.get("ip4"), *entry.get("addresses", [])) if a}
        for address in held:
            assert holders.setdefault(address, container) == container, f"{address}: {container} and {holders[address]}"
        if container in dead:
            continue
        name = entry["host_interface"]
        links[name] = container
        for address in filter(None, (entry.get("ip6"), entry.get("ip4"))):
            routes.add((address, name, METRIC))
            neighbours.add((address, name, entry["mac"]))
        inside = pod_side(entry["netns"])
        assert entry["ifname"] in inside, f"{container} has no {entry['ifname']}"
        found = inside[entry["ifname"]] | inside["lo"] | inside.get("IPv4", set())
        assert found == held | set(entry.get("anycast", [])), f"{container} has {found}"
    observed = node.links()
    assert set(observed) == set(links), f"links {set(observed) ^ set(links)} are leaked or lost"
    for name, container in links.items():
        assert "UP" in observed[name]["flags"] and f"container={container}" in observed[name]["ifalias"]
    found_routes = [(r["dst"], r["dev"], r["metric"]) for r in pod_routes(node)]
    assert sorted(found_routes) == sorted(routes), f"routes {set(found_routes) ^ routes} are leaked or lost"
    permanent = {(n["dst"], n["dev"], n["lladdr"]) for n in node.ip_json("neigh", "show", "nud", "permanent")}
    assert permanent == neighbours, f"neighbours {permanent ^ neighbours} are leaked or lost"
    for path in node.pod_paths():
        if path not in {e.get("netns") for e in entries.values()}:
            left = pod_side(path)
            assert set(left) <= {"lo"} and not left["lo"], f"{path} is no longer a pod and has {left}"


def settle(node: Node, **how: Any) -> None:
    """`assert_sound`, given a moment: repairs come after two observations."""

    def sound() -> bool:
        with contextlib.suppress(AssertionError):
            assert_sound(node, **how)
            return True
        return False

    with contextlib.suppress(AssertionError):
        eventually(sound)
    assert_sound(node, **how)


class Traffic:
    """A ping that runs from the first answer on until `stop`, which tells how many were sent and which of them were not
    answered.  It ends with an answer as well: pings that nobody answers any more are lost, and not merely the last."""

    def __init__(self, node: Node, address: str, *, interval: float = 0.01, inside: str | None = None) -> None:
        netns = node.netns if inside is None else f"{node.prefix}{inside}"
        command = ["stdbuf", "-oL", "ping", "-n", "-i", str(interval), address]
        command = ["nsenter", f"--net=/run/netns/{netns}", *command]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._said: list[str] = []
        self._seen: set[int] = set()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)
            if answer := re.search(r"bytes from .* icmp_seq=(\d+)", line):
                self._seen.add(int(answer[1]))

    def __enter__(self) -> "Traffic":
        try:
            eventually(lambda: self._seen, what="the first answer")
        except AssertionError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()

    def stop(self) -> tuple[int, list[int]]:
        known = len(self._seen)
        with contextlib.suppress(AssertionError):  # those after the last answer are lost then
            eventually(lambda: len(self._seen) > known, what="an answer")
        answered = len(self._seen) > known
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=20)
        self._reader.join()
        (sent,) = map(int, re.findall(r"(\d+) packets transmitted", "".join(self._said)))
        last = max(self._seen) if answered else sent  # what was still under way when it ended is not lost
        return last, sorted(set(range(1, last + 1)) - self._seen)


@contextlib.contextmanager
def undisturbed(node: Node, *addresses: str) -> Iterator[None]:
    """Pings from the node to all `addresses` run during the block, and none may be lost."""
    with contextlib.ExitStack() as stack:
        flows = [stack.enter_context(Traffic(node, address)) for address in addresses]
        for address in addresses:
            assert node.ping(address)
        yield
        for address, flow in zip(addresses, flows, strict=True):
            sent, lost = flow.stop()
            assert not lost, f"{address}: {len(lost)} of {sent} pings were lost: {lost[:10]}"


def addresses_of(result: dict[str, Any]) -> list[str]:
    return [entry["address"].split("/")[0] for entry in result["ips"]]


def failure(node: Node, verb: str, container: str = "", **how: Any) -> CniFailure:
    """The CNI error with which the verb has to fail."""
    try:
        result = node.cni(verb, container, **how)
    except CniFailure as failed:
        return failed
    raise AssertionError(f"{verb} {container} succeeded: {result}")


def failure_after(node: Node, damage: Callable[[], object], verb: str, container: str, **how: Any) -> CniFailure:
    """The same after `damage`, of which the agent learns with the question.  It may have repaired it all the same
    before it looked: then it is done once more."""
    for _ in range(20):
        assert node.agent is not None
        node.agent.send_signal(signal.SIGSTOP)
        try:
            damage()
            asking = node.cni_start(verb, container, **how)
            eventually(lambda pid=asking.pid: _has_asked(pid), what="the question is on its way")
        finally:
            node.agent.send_signal(signal.SIGCONT)
        if isinstance(found := outcome(asking), CniFailure):
            return found
    raise AssertionError(f"{verb} {container} never failed")


def _has_asked(pid: int) -> bool:
    """It sleeps, and has a connection to wait for an answer on."""
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    sleeps = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    return sleeps and any(str(fd.readlink()).startswith("socket:") for fd in descriptors)


def collect(node: Node, *kept: str) -> None:
    """GC of all but `kept`."""
    conf: dict[str, Any] = {"cni.dev/valid-attachments": [{"containerID": c, "ifname": "eth0"} for c in kept]}
    assert node.cni("GC", **conf) is None


def outcome(process: "subprocess.Popen[bytes]") -> Any:
    """Result of a started verb, or its CniFailure as a value."""
    out, err = process.communicate(timeout=150)
    try:
        return cni_outcome(process.returncode, out, err)
    except CniFailure as failed:
        return failed


def flockctl(node: Node, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run(BIN / "flockctl", "--run-dir", node.run_dir, *arguments, check=False)


def sysctl(node: Node, key: str, value: str | None = None, *, inside: str | None = None) -> str:
    """Read, or set, a switch as the namespace sees it."""
    path = node.path(inside) if inside is not None else f"/run/netns/{node.netns}"
    file = Path("/proc/sys/net") / key

    def work() -> str:
        if value is not None:
            file.write_text(value)
        return file.read_text().strip()

    return within(path, work)
