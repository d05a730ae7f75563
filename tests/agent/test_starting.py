"""A start in which one step fails for a while: what an earlier life announced and enforced stays in force throughout,
the reason shown is the step's, and everything comes up by itself when the cause goes."""

import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from anycasting import ANYCAST, announced, route_changes
from clustered import NAMESPACE, UID, Clustered, closed, clustered, pod
from looking import OWN, addresses_of, failure, flockctl, sysctl, undisturbed

from apiserver import nested
from harness import NODE_CONFIG, Node, eventually, run
from thoroughness import slowly

RETIRED, PREFIX = "2001:db8:1::/64", "2001:db8:2::/64"
GRANT = {"allowed": [{"prefixes": ["2001:db8:53::/64"]}]}
TRY_AGAIN = 11


class Earlier:
    """A node whose agent has ended, and its pods: `web` has an anycast address and its own in a prefix that was taken
    away since, and nobody may speak to it; `client` would like to; `old` is to go."""

    def __init__(self, cluster: Clustered, switches: Path) -> None:
        self.cluster, self.node, self.api, self.switches = cluster, cluster.node, cluster.api, switches
        cluster.configure(anycast=GRANT)
        web = pod("web", ready=True, labels={"app": "web"}, annotations={OWN + "anycast": ANYCAST})
        self.api.put(closed(app="web"), web, pod("client"), pod("old"))
        cluster.start()
        self.web, self.client, _ = (addresses_of(cluster.add(name)) for name in ("web", "client", "old"))
        eventually(lambda: announced(self.node), what="the address is announced")
        cluster.configure(anycast=GRANT, cidr6=[PREFIX])
        eventually(lambda: PREFIX in self.node.ip("-6", "route"), what="the new prefix is in force")
        assert self.node.ping(self.client[0], inside="old"), "who is not selected is reached"
        self.node.stop()
        self.rules = self.rules_now()

    def rules_now(self) -> str:
        return self.node.execute("nft", "--stateless", "list", "ruleset").stdout

    def start(self, *, fault: str = "") -> None:
        kubeconfig = self.api.kubeconfig(self.node.directory / "kubeconfig")
        self.node.start("--sysctl-dir", str(self.switches), fault=fault, wait=False, kubeconfig=kubeconfig)

    def not_ready(self) -> list[str]:
        """Why, once somebody answers."""
        try:
            return list(self.node.ask("status")["not_ready"])
        except OSError:
            return []


@pytest.fixture
def switches(tmp_path: Path) -> Iterator[Path]:
    """The node's own, by a way that can be made read-only."""
    directory = tmp_path / "sysctl"
    directory.mkdir()
    run("mount", "--bind", "/proc/sys/net", directory)
    yield directory
    run("umount", directory)


@pytest.fixture
def earlier(switches: Path, fresh: Node) -> Iterator[Earlier]:
    fresh.hurry = {"flock.agent.desk.PATIENCE": 0.5}
    with clustered(fresh) as cluster:
        yield Earlier(cluster, switches)


# --- what may fail: the block is left when the cause goes ---

Failing = Callable[[Earlier], AbstractContextManager[None]]


@contextmanager
def store_unreadable(earlier: Earlier) -> Iterator[None]:
    file = earlier.node.state_dir / "allocations.json"
    kept = file.read_bytes()
    file.write_bytes(b"rubbish")
    earlier.start()
    yield
    file.write_bytes(kept)


@contextmanager
def state_directory_away(earlier: Earlier) -> Iterator[None]:
    directory = earlier.node.state_dir
    aside = directory.rename(directory.with_name("aside"))
    directory.write_text("not a directory")
    earlier.start()
    yield
    directory.unlink()
    aside.rename(directory)


@contextmanager
def nothing_undone(earlier: Earlier) -> Iterator[None]:
    (earlier.node.run_dir / "deferred" / "old:eth0").touch()  # a DEL that found no agent
    earlier.start(fault="del.pending=EIO@1-24")
    yield


@contextmanager
def listing_refused(earlier: Earlier) -> Iterator[None]:
    path = "/apis/networking.k8s.io/v1/networkpolicies"
    earlier.api.errors[path] = 403
    unreadable = pod("tenants")
    unreadable["metadata"]["labels"] = nested(500)
    earlier.api.put(unreadable)  # is told elsewhere: tenants do not write the node's reasons
    earlier.start()
    yield
    assert not any("tenants" in reason for reason in earlier.not_ready())
    earlier.api.delete("Pod", "tenants", NAMESPACE)
    del earlier.api.errors[path]


@contextmanager
def config_invalid(earlier: Earlier) -> Iterator[None]:
    earlier.cluster.configure(anycast=GRANT, cidr6=["2001:db8:2::1/64"])
    earlier.start()
    yield
    earlier.cluster.configure(anycast=GRANT, cidr6=[PREFIX])


@contextmanager
def config_absent(earlier: Earlier) -> Iterator[None]:
    earlier.api.delete("NodeConfig", NODE_CONFIG["metadata"]["name"])
    earlier.start()
    yield
    earlier.cluster.configure(anycast=GRANT, cidr6=[PREFIX])


@contextmanager
def nft_missing(earlier: Earlier) -> Iterator[None]:
    programs = earlier.node.directory / "programs"
    programs.mkdir()
    for program in ("nsenter", "bird"):
        (programs / program).symlink_to(shutil.which(program) or "")
    with pytest.MonkeyPatch.context() as poor:
        poor.setenv("PATH", str(programs))
        earlier.start()
    yield
    (programs / "nft").symlink_to(shutil.which("nft") or "")


@contextmanager
def look_refused(earlier: Earlier) -> Iterator[None]:
    earlier.start(fault="kernel.look=EIO@2-24")
    yield


@contextmanager
def switches_read_only(earlier: Earlier) -> Iterator[None]:
    sysctl(earlier.node, "ipv4/ip_forward", "0")
    run("mount", "-o", "remount,bind,ro", earlier.switches)
    earlier.start()
    yield
    run("mount", "-o", "remount,bind,rw", earlier.switches)


# What fails, and the words of its step's reason.
STEPS: dict[str, tuple[Failing, str]] = {
    "the state file is rubbish": (store_unreadable, "allocations.json"),
    "the state directory is none": (state_directory_away, "state directory"),
    "a pod cannot be undone": (nothing_undone, "half-done work of an earlier run cannot be undone: [Errno 5]"),
    "a listing is refused": (listing_refused, "networkpolicies"),
    "the NodeConfig is invalid": (config_invalid, "cidr6"),
    "there is no NodeConfig": (config_absent, "no NodeConfig"),
    "nft is not there": (nft_missing, "nft"),
    "the kernel refuses the first look": (look_refused, "first look at the kernel is not over yet: [Errno 5]"),
    "switches are read-only": (switches_read_only, "Read-only file system"),
}
SOME = ["the state file is rubbish", "the NodeConfig is invalid", "nft is not there"]
BEFORE_DEL = {store_unreadable, state_directory_away, nothing_undone}  # who has what is not certain yet


@pytest.mark.parametrize("name", [*SOME, *slowly(*(n for n in STEPS if n not in SOME))])
def test_a_step_that_fails_for_a_while_breaks_nothing_says_why_and_is_taken_when_it_can_be(
    earlier: Earlier, name: str
) -> None:
    failing, word = STEPS[name]
    node = earlier.node
    with route_changes(node) as changes, knocking(earlier), undisturbed(node, ANYCAST, *earlier.client):
        with failing(earlier):
            (reason,) = eventually(lambda: alone(word, earlier.not_ready()), what=f"{word} is the reason")
            everybody_is_told_to_try_again(earlier, word)
            assert earlier.rules_now() == earlier.rules, "rules have changed"
            if failing in BEFORE_DEL:
                assert failure(node, "DEL", "old").code == TRY_AGAIN
            else:
                node.cni("DEL", "old")
                assert set(node.allocations()) == {"web", "client"}
            assert announced(node) and earlier.not_ready() == [reason], "that alone, for as long as it lasts"
        eventually(node.is_ready, what="everything comes up once the cause is gone")
        node.cni("DEL", "old")
        serves(earlier)
        assert announced(node)
    for kept in (ANYCAST, RETIRED, PREFIX, *earlier.web, *earlier.client):
        assert not changes.about(kept), f"{kept}: {changes.about(kept)}"


def alone(word: str, reasons: list[str]) -> list[str]:
    return reasons if len(reasons) == 1 and word in reasons[0] else []


def everybody_is_told_to_try_again(earlier: Earlier, word: str) -> None:
    """At once: each of them waits as long as a start may take."""
    earlier.api.put(pod("new"))
    earlier.node.namespace("new")

    def asked(op: str) -> Any:
        if op == "ADD":
            args = f"K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME=new;K8S_POD_UID={UID}"
            return failure(earlier.node, "ADD", "new", args=args, wait=1).error
        return earlier.node.rpc({"op": op})["error"]

    with ThreadPoolExecutor() as pool:
        for answer in pool.map(asked, ("ADD", "check", "anycast")):
            assert answer["code"] == TRY_AGAIN and word in answer["msg"], answer


def serves(earlier: Earlier) -> None:
    assert earlier.cluster.add_again("new")
    assert [row["address"] for row in earlier.node.ask("anycast")] == [ANYCAST]
    assert earlier.node.ask("status")["degraded"] == []
    assert flockctl(earlier.node, "check").returncode == 0


@contextmanager
def knocking(earlier: Earlier) -> Iterator[None]:
    """The client speaks to whom it may not speak to during the block, and gets no answer."""
    where = f"/run/netns/{earlier.node.prefix}client"
    command = ["nsenter", f"--net={where}", "ping", "-n", "-i", "0.02"]
    pings = [subprocess.Popen([*command, to], stdout=subprocess.PIPE, text=True) for to in (ANYCAST, *earlier.web)]
    said = []
    try:
        yield
    finally:
        for ping in pings:
            ping.send_signal(signal.SIGINT)
            said.append(ping.communicate(timeout=20)[0])
    for text in said:
        assert re.search(r"[1-9]\d* packets transmitted, 0 received", text), text[-500:]
