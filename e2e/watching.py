"""An API server in a network namespace of its own, and watchers beside it that can be cut off.

Watchers reach the server by the address of the Service `kubernetes`, everybody else by loopback: so a rule in that
namespace parts them from it as a broken network would, without a word to either side.  A watcher's event loop runs in
a thread inside the namespace; what it knows is read from the test's own.
"""

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from control_plane import ControlPlane, b64
from places import Place

from flock.core.kinds import ALL, CLUSTER_PODS, PODS
from flock.edge.cache import Cache
from flock.edge.kernel import netns
from flock.edge.kube.access import Access, from_kubeconfig
from flock.edge.kube.client import KubeClient
from flock.edge.kube.feeder import KubeFeeder
from flock.edge.supervising import Supervisor

NODE = "n1"
CRDS = Path(__file__).parents[1] / "deploy" / "crds"
SERVICE = "10.96.0.1"  # in the API server's certificate
PORT = 6443
ETCD_PORT = 2379
_CUT = f"""
table inet cut {{
  chain in {{ type filter hook input priority 0; ip saddr {SERVICE} drop; ip daddr {SERVICE} drop; }}
}}
"""

T = TypeVar("T")


class Server(ControlPlane):
    """The API server with flock's CRDs.  `kubectl` is not touched by `cut_off`."""

    def __init__(self, place: Place, netns_path: Path) -> None:
        super().__init__(place, address="127.0.0.1", port=PORT, etcd_port=ETCD_PORT, controllers=False)
        self.netns = netns_path

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """No packet passes between the server and watchers."""
        self.place.run("nft", "-f", "-", stdin=_CUT)
        try:
            yield
        finally:
            self.place.run("nft", "delete", "table", "inet", "cut")

    # --- past the API server: it reads objects in JSON as well as in its own form ---------------------------

    def store(self, prefix: str, objects: Iterable[Mapping[str, Any]], *, at_once: int = 1) -> None:
        """Put objects straight into etcd.  The API server itself writes one `at_once`, and watches rely on it."""
        puts = (
            {
                "requestPut": {
                    "key": b64(f"/registry/{prefix}/{o['metadata']['namespace']}/{o['metadata']['name']}"),
                    "value": b64(json.dumps(o)),
                }
            }
            for o in objects
        )
        batches = iter(lambda: list(itertools.islice(puts, at_once)), [])
        self.ask_etcd("kv/txn", ({"success": batch} for batch in batches))

    def put(self, key: str, value: str) -> None:
        self.ask_etcd("kv/put", [{"key": b64(f"/registry/{key}"), "value": b64(value)}])


class Counting(KubeClient):
    """Knows how often it was asked for a list, by path."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.lists: Counter[str] = Counter()

    async def get(self, path: str) -> bytes:
        self.lists[path.partition("?")[0]] += 1
        return await super().get(path)


class Watcher:
    """A cache that the API server feeds, in a thread of its own, inside the server's namespace.  Somebody reads the
    cluster's pods of it.  Use as a context manager."""

    def __init__(self, server: Server, *, state_dir: Path, kubeconfig: Path | None = None) -> None:
        self._server = server
        self._kubeconfig = kubeconfig or server.kubeconfig
        self._state_dir = state_dir
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live)
        self._supervisor = Supervisor()
        self.cache: Cache

    def __enter__(self) -> "Watcher":
        self._thread.start()
        self.call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._supervisor.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the watcher's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """The loop does nothing, and so reads nothing, for a while."""
        release = threading.Event()
        self._loop.call_soon_threadsafe(release.wait)
        try:
            yield
        finally:
            release.set()

    @property
    def pods(self) -> set[str]:
        return {name for _, name in list(self.cache.table(PODS))}

    @property
    def problems(self) -> str:
        return "; ".join(f"{p.where}: {p.message}" for p in self.cache.problems)

    async def _start(self) -> None:
        access = from_kubeconfig(self._kubeconfig, apiserver=f"https://{SERVICE}:{PORT}")
        self.client = Counting(access)
        self.cache = Cache(node=NODE)
        self.cache.need(CLUSTER_PODS, [ALL])
        feeder = KubeFeeder(self.cache, self.client, self._supervisor, namespace="default", state_dir=self._state_dir)
        await feeder.start()

    def _live(self) -> None:
        home, there = netns.open_netns("/proc/thread-self/ns/net"), netns.open_netns(str(self._server.netns))
        with netns.inside(there, home=home):
            self._loop.run_forever()
        home.close()
        there.close()


@contextmanager
def watched_server() -> Iterator[Server]:
    name = f"flock-watch-{os.getpid()}"
    path = Path("/run/netns") / name
    directory = Path(tempfile.mkdtemp(prefix="flock-watch-"))
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        setup = f"ip link set lo up && ip address add {SERVICE}/32 dev lo"
        with Place("api-server", directory=directory, netns=path, setup=setup) as place:
            server = Server(place, path)
            server.start()
            server.kubectl("apply", "-f", CRDS)
            server.kubectl("wait", "--for=condition=Established", "--timeout=60s", "--all", "crd")
            yield server
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
        shutil.rmtree(directory)


def pod(name: str, *, node: str = NODE, **metadata: Any) -> dict[str, Any]:
    """As a user would write it; nobody runs it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "nobody/runs-it:1"}]},
    }
