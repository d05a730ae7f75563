"""A node to test on: a network namespace, a real agent, the real CNI executable, pods that are namespaces."""

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from flock.core.journal import replay
from flock.core.statefile import Continued
from flock.edge.unixsocket import connect

ROOT = Path(__file__).resolve().parent.parent
FLOCK = ROOT / "build" / "flock"
HURRIED = ROOT / "tests" / "hurried.py"
BIN = Path(sys.executable).parent
PATIENCE = 30.0  # seconds one wait may last: far above what a busy machine needs, well below a test's time limit
_numbers = itertools.count()
ALIVE: list["Node"] = []  # what a failed test shows

NODE_CONFIG: dict[str, Any] = {
    "apiVersion": "flock.fritzlab.net/v1alpha1",
    "kind": "NodeConfig",
    "metadata": {"name": "n1"},
    "spec": {"cidr6": ["2001:db8:1::/64"], "cidr4": ["192.0.2.0/24"]},
}


def with_spec(**changes: Any) -> dict[str, Any]:
    """The usual NodeConfig with other fields."""
    return {**NODE_CONFIG, "spec": {**NODE_CONFIG["spec"], **changes}}


def run(*command: object, check: bool = True, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=60, **kwargs)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done


def eventually(condition: Any, *, within: float = PATIENCE, what: str = "condition") -> Any:
    """Wait, bounded, until `condition()` is truthy; returns its value."""
    deadline, pause = time.monotonic() + within, 0.01
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {within} s (last: {value!r})")
        time.sleep(pause)
        pause = min(1.2 * pause, 0.1)  # a look costs more than a moment: what takes long is looked at less often


class CniFailure(AssertionError):
    """A verb failed; carries the CNI error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"CNI error {error}")
        self.error = error
        self.code: int = error["code"]
        self.msg: str = error["msg"]


class Node:
    """One node.  Use as a context manager; everything it made is gone afterwards."""

    def __init__(self, directory: Path, *, name: str = "n1", config: dict[str, Any] | None = NODE_CONFIG) -> None:
        self.name = name
        self.prefix = f"ft{os.getpid()}x{next(_numbers)}"
        self.netns = f"{self.prefix}n"
        self.directory = directory
        self.manifests = directory / "manifests"
        self.state_dir = directory / "state"
        self.run_dir = directory / "run"
        self.log = directory / "agent.log"
        self.agent: subprocess.Popen[bytes] | None = None
        self.hurry: dict[str, float] = {}  # waiting times of its agents that are not everybody's, by module and name
        self._pods: list[str] = []
        for path in (self.manifests, self.state_dir, self.run_dir, directory / "bird"):
            path.mkdir(parents=True, exist_ok=True)
        if config is not None:
            self.write("nodeconfig", config)

    def __enter__(self) -> "Node":
        run("ip", "netns", "add", self.netns)
        ALIVE.append(self)
        self.ip("link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        ALIVE.remove(self)
        self.kill()
        for name in [*self._pods, self.netns]:
            run("ip", "netns", "del", name, check=False)

    # --- the agent ---

    def start(self, *flags: str, fault: str = "", wait: bool = True, kubeconfig: Path | None = None) -> None:
        """With a `kubeconfig`, objects come from that API server instead of the manifests."""
        objects = ("--kubeconfig", str(kubeconfig)) if kubeconfig else ("--manifests", str(self.manifests))
        env = {**os.environ, "FLOCK_FAULT": fault}
        program = [str(BIN / "flock-agent")]
        if self.hurry:
            program = [sys.executable, str(HURRIED), *(f"{place}={s}" for place, s in self.hurry.items()), "--"]
        command = ["nsenter", f"--net=/run/netns/{self.netns}", *program, "--node", self.name]
        command += [*objects, "--state-dir", str(self.state_dir)]
        command += ["--run-dir", str(self.run_dir), "--bird-dir", str(self.directory / "bird"), "--http", "", *flags]
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        if wait:
            eventually(self.is_ready, what=f"agent ready\n{self.log_text()}")

    def is_ready(self) -> bool:
        if self.agent is not None and self.agent.poll() is not None:
            raise AssertionError(f"the agent ended with {self.agent.returncode}\n{self.log_text()}")
        with contextlib.suppress(OSError, ValueError, TypeError):
            return bool(self.ask("status")["ready"])
        return False

    def ask(self, op: str) -> Any:
        return self.rpc({"op": op}).get("result")

    def connect(self) -> socket.socket:
        """To the agent, also where many others wait for it."""
        connection = connect(self.run_dir / "flock.sock", within=PATIENCE)
        connection.settimeout(PATIENCE)
        return connection

    def rpc(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.connect() as connection:
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        decoded: dict[str, Any] = json.loads(answer)
        return decoded

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.agent is not None:
            with contextlib.suppress(ProcessLookupError):
                self.agent.send_signal(number)
            self.agent.wait(30)
            self.agent = None

    def log_text(self) -> str:
        return self.log.read_text()[-4000:] if self.log.exists() else ""

    # --- manifests ---

    def write(self, name: str, *objects: dict[str, Any]) -> None:
        temporary = self.manifests / f".{name}.tmp"
        content: object = objects[0] if len(objects) == 1 else {"kind": "List", "apiVersion": "v1", "items": objects}
        temporary.write_text(json.dumps(content))
        temporary.rename(self.manifests / f"{name}.json")

    # --- pods ---

    def namespace(self, name: str) -> str:
        """Make a pod's network namespace; returns its path."""
        full = f"{self.prefix}{name}"
        run("ip", "netns", "add", full)
        self._pods.append(full)
        return f"/run/netns/{full}"

    def remove_namespace(self, name: str) -> None:
        full = f"{self.prefix}{name}"
        run("ip", "netns", "del", full)
        self._pods.remove(full)

    def path(self, name: str) -> str:
        return f"/run/netns/{self.prefix}{name}"

    def pod_paths(self) -> list[str]:
        """Every pod namespace that was made and not removed, attached or not."""
        return [f"/run/netns/{full}" for full in self._pods]

    def cni(self, verb: str, container: str = "", **how: Any) -> Any:
        """Run the CNI executable as a runtime does.  Returns the result, None if it printed none."""
        process = self.cni_start(verb, container, **how)
        out, err = process.communicate(timeout=60)
        return cni_outcome(process.returncode, out, err)

    def cni_start(
        self,
        verb: str,
        container: str = "",
        *,
        netns: str | None = None,
        ifname: str = "eth0",
        args: str | None = None,
        annotations: dict[str, str] | None = None,
        wait: float = 10,
        version: str = "1.1.0",
        **conf: Any,
    ) -> "subprocess.Popen[bytes]":
        """The same, not waited for: `communicate` and `cni_outcome` give the result."""
        config = {"cniVersion": version, "name": "flock", "type": "flock", "wait": wait}
        config |= {"socket": str(self.run_dir / "flock.sock"), **conf}
        if annotations is not None:
            config["runtimeConfig"] = {"io.kubernetes.cri.pod-annotations": annotations}
        env = {"CNI_COMMAND": verb, "CNI_PATH": "/opt/cni/bin", "CNI_IFNAME": ifname}
        if container:
            env["CNI_CONTAINERID"] = container
            env["CNI_NETNS"] = self.path(container) if netns is None else netns
            env["CNI_ARGS"] = f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={container}" if args is None else args
        process = subprocess.Popen(
            [str(FLOCK)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(config).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def pod(self, name: str, **kwargs: Any) -> Any:
        """A fresh namespace, attached."""
        self.namespace(name)
        return self.cni("ADD", name, **kwargs)

    # --- looking ---

    def ip(self, *command: object, inside: str | None = None) -> str:
        netns = self.netns if inside is None else f"{self.prefix}{inside}"
        return run("ip", "-n", netns, *command).stdout

    def ip_json(self, *command: object, inside: str | None = None) -> Any:
        netns = self.netns if inside is None else f"{self.prefix}{inside}"
        return json.loads(run("ip", "-n", netns, "-j", "-d", *command).stdout or "[]")

    def execute(
        self, *command: object, inside: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        netns = self.netns if inside is None else f"{self.prefix}{inside}"
        return run("nsenter", f"--net=/run/netns/{netns}", *command, check=check)

    def ping(self, address: str, *, inside: str | None = None) -> bool:
        return self.execute("ping", "-c1", "-W2", "-n", address, inside=inside, check=False).returncode == 0

    def links(self) -> dict[str, Any]:
        return {x["ifname"]: x for x in self.ip_json("link") if x["ifname"].startswith("flock")}

    def routes(self) -> list[dict[str, Any]]:
        """Our routes to pods, by protocol number; the aggregates' blackholes are not among them."""
        found = [*self.ip_json("-6", "route"), *self.ip_json("-4", "route")]
        return [x for x in found if str(x.get("protocol")) in ("133", "134") and x.get("type") != "blackhole"]

    def allocations(self) -> dict[str, dict[str, Any]]:
        return recorded(self.state_dir)


def recorded(state_dir: Path) -> dict[str, dict[str, Any]]:
    """What the next start would find finished on disk, by container.  The journal is read first: what is folded
    meanwhile is in the file then."""
    journal, path = state_dir / "allocations.journal", state_dir / "allocations.json"
    added = journal.read_bytes() if journal.exists() else b""
    if not path.exists():
        return {}
    content = json.loads(path.read_text())
    found = {a["container_id"]: a for a in content["allocations"]}
    if "journal" in content:
        after = msgspec.convert(content["journal"], Continued)
        for change in itertools.chain.from_iterable(replay(added, after=after, where=str(journal))):
            found.pop(change.container_id, None)
            if change.allocation is not None and not change.unfinished:
                found[change.container_id] = json.loads(msgspec.json.encode(change.allocation))  # lists, as in the file
    return found


def cni_outcome(returncode: int, out: bytes, err: bytes) -> Any:
    if returncode == 0:
        return json.loads(out) if out.strip() else None
    try:
        error = json.loads(out)
    except ValueError:
        raise AssertionError(f"rc={returncode} and no CNI error on stdout: {out!r} {err!r}") from None
    raise CniFailure(error)
