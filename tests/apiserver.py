"""An API server small enough to be read, real enough to be listed, watched and lost: HTTP/1.1 with a store in memory.

Lists come in pages, watches as chunked lines with bookmarks; a place that was compacted away is 410.  It can be away,
answer with an error, hold answers back, fall silent in the middle of a watch, and serve what no decoder likes: a value
made by `nested` is sent as that many objects inside each other.

Runs in threads of this process, in the network namespace it is told.
"""

import contextlib
import itertools
import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from flock.edge.kernel import netns

Object = dict[str, Any]
FLOCK = "/apis/flock.fritzlab.net/v1alpha1"
PATHS = {
    "Pod": "/api/v1/pods",
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/networkpolicies",
    "ClusterNetworkPolicy": "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies",
    "NodeConfig": f"{FLOCK}/nodeconfigs",
    "NodeConfigTemplate": f"{FLOCK}/nodeconfigtemplates",
    "Service": "/api/v1/services",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/endpointslices",
    "Event": "/api/v1/events",
    "Secret": "/api/v1/secrets",
}
KINDS = {path: kind for kind, path in PATHS.items()}
OLDER_SLICES = "/apis/discovery.k8s.io/v1beta1/endpointslices"
KINDS[OLDER_SLICES] = "EndpointSlice"
_NESTED = re.compile(rb'"@nested:(\d+)"')
_PLACE = re.compile(
    r"(?P<base>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<ns>[^/]+)(?=/))?/(?P<kind>[^/]+)(?P<rest>.*)"
)
TICK = 0.05  # seconds; how soon a watch notices that it is to end


def nested(levels: int) -> str:
    """To be put anywhere in an object."""
    return f"@nested:{levels}"


def encoded(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    return _NESTED.sub(lambda found: b'{"f:a":' * int(found[1]) + b"{}" + b"}" * int(found[1]), text)


class ApiServer:
    """Use as a context manager.  `requests` is what was asked, in order: method, path with query, headers."""

    def __init__(self, *, namespace: Path | None = None, address: str = "127.0.0.1", bookmarks: float = 0.2) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bookmarks = bookmarks  # seconds between them
        self.silent = False  # watches say nothing, as if the way to them were cut
        self.errors: dict[str, int] = {}  # a path's beginning -> the status it is answered with
        self.dribble = 0.0  # seconds between the bytes of an answer
        self.held = threading.Event()  # answers wait until it is set
        self.held.set()
        self._namespace, self._address = namespace, address
        self._port = 0
        self._changed = threading.Condition()
        self._version = itertools.count(1)
        self._now = self._oldest = next(self._version)
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._log: list[tuple[int, str, Object | None, Object | None]] = []  # version, kind, before, after
        self._server: _Server | None = None

    def __enter__(self) -> "ApiServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.held.set()
        self.stop()

    # --- the server's life ---

    @property
    def url(self) -> str:
        return f"http://{self._address}:{self._port}"

    def kubeconfig(self, path: Path, **user: Any) -> Path:
        cluster = {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": user}]
        content = {"current-context": "x", "contexts": [context], "clusters": [cluster], "users": users}
        path.write_text(json.dumps(content))
        return path

    def start(self) -> None:
        """Also again, after `stop`, with the objects of before and at the same address."""
        with self._inside():
            self._server = _Server((self._address, self._port), self)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(TICK,), daemon=True).start()

    def stop(self) -> None:
        """Every connection ends; nobody listens."""
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.server_close()
            server.hang_up(server.connections)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self.start()

    def hang_up(self) -> None:
        """End all watches, and go on listening: whoever waits for an answer gets it."""
        assert self._server is not None
        self._server.hang_up(self._server.watches)

    def _inside(self) -> contextlib.AbstractContextManager[None]:
        if self._namespace is None:
            return contextlib.nullcontext()
        home, there = netns.open_netns("/proc/thread-self/ns/net"), netns.open_netns(str(self._namespace))
        return netns.inside(there, home=home)

    # --- objects ---

    def put(self, *objects: Object) -> None:
        """Create or replace; a namesake of what was deleted gets a uid of its own."""
        for given in objects:
            with self._changed:
                key = _key(given)
                before = self._objects.get(key)
                metadata = dict(given["metadata"])
                metadata["uid"] = (
                    metadata.get("uid") or (before or {}).get("metadata", {}).get("uid") or f"u{self._now}"
                )
                obj = {**given, "metadata": metadata}
                self._change(key, "MODIFIED" if before else "ADDED", obj)

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        with self._changed:
            key = (kind, namespace, name)
            self._change(key, "DELETED", self._objects[key])

    def forget(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete so that no watch is told, and no watch can go on from before."""
        with self._changed:
            del self._objects[kind, namespace, name]
        self.compact()

    def compact(self) -> None:
        """What happened before is not told any more."""
        with self._changed:
            self._now = self._oldest = next(self._version)
            self._log.clear()
            self._changed.notify_all()

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        with self._changed:
            return self._objects.get((kind, namespace, name))

    def all(self, kind: str) -> list[Object]:
        with self._changed:
            return [obj for key, obj in self._objects.items() if key[0] == kind]

    def asked(self, beginning: str, method: str = "GET") -> list[str]:
        return [path for verb, path, _ in self.requests if verb == method and path.startswith(beginning)]

    def _change(self, key: tuple[str, str, str], what: str, obj: Object) -> None:
        self._now = next(self._version)
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._now)}}
        before = self._objects.pop(key, None)
        if what != "DELETED":
            self._objects[key] = obj
        self._log.append((self._now, key[0], before, self._objects.get(key)))
        self._changed.notify_all()

    # --- what handlers ask for ---

    def page(self, kind: str, query: dict[str, str]) -> Object:
        with self._changed:
            found = [o for (k, *_), o in sorted(self._objects.items()) if k == kind and _selected(o, query)]
            version = str(self._now)
        start, size = int(query.get("continue") or 0), int(query.get("limit") or 0) or len(found) or 1
        metadata = {"resourceVersion": version}
        if start + size < len(found):
            metadata["continue"] = str(start + size)
        return {"kind": f"{kind}List", "metadata": metadata, "items": found[start : start + size]}

    def events(self, kind: str, query: dict[str, str], *, ended: threading.Event) -> Iterator[Object]:
        """As a watch tells them, until the server ends or the watch's own time is over."""
        seen = int(query.get("resourceVersion") or 0)
        until = time.monotonic() + float(query.get("timeoutSeconds") or 300)
        bookmark = time.monotonic() + self.bookmarks
        while not ended.is_set() and time.monotonic() < until:
            with self._changed:
                if seen < self._oldest:
                    yield {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
                    return
                news = [entry for entry in self._log if entry[0] > seen]
                if not news or self.silent:
                    self._changed.wait(TICK)
                now = self._now
            if self.silent:
                continue
            for version, its_kind, before, after in news:
                seen = version
                was, is_ = (its_kind == kind and o is not None and _selected(o, query) for o in (before, after))
                if is_:
                    yield {"type": "MODIFIED" if was else "ADDED", "object": after}
                elif was and before is not None:  # gone, or not selected any more
                    metadata = {**before["metadata"], "resourceVersion": str(version)}
                    yield {"type": "DELETED", "object": {**before, "metadata": metadata}}
            if time.monotonic() > bookmark and not news:
                bookmark = time.monotonic() + self.bookmarks
                yield {"type": "BOOKMARK", "object": {"kind": kind, "metadata": {"resourceVersion": str(now)}}}

    def patch(self, key: tuple[str, str, str], change: Object) -> Object | None:
        with self._changed:
            before = self._objects.get(key)
            if before is None:
                return None
            self._change(key, "MODIFIED", {**before, **change})
            return self._objects[key]


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], api: ApiServer) -> None:
        self.api = api
        self.ended = threading.Event()
        self.connections: set[socket.socket] = set()
        self.watches: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        self.watches.discard(request)
        super().shutdown_request(request)

    def shutdown(self) -> None:
        self.ended.set()
        super().shutdown()

    def hang_up(self, on: set[socket.socket]) -> None:
        for connection in list(on):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections break off in these tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """`requests` is the log."""

    def _begin(self) -> tuple[str, str, dict[str, str], str]:
        """The kind, its namespace, the query and what follows the kind in the path."""
        api = self.server.api
        api.requests.append((self.command, self.path, dict(self.headers)))
        api.held.wait()
        self.close_connection = True
        url = urlsplit(self.path)
        found = _PLACE.fullmatch(url.path)
        kind = KINDS.get(f"{found['base']}/{found['kind']}", "") if found else ""
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        if found and found["ns"]:
            query["namespace"] = found["ns"]
        return kind, (found["ns"] or "") if found else "", query, found["rest"] if found else ""

    def _refused(self) -> bool:
        for beginning, status in list(self.server.api.errors.items()):
            if self.path.startswith(beginning) or (beginning in self.path and "?" in beginning):
                self._answer(status, {"kind": "Status", "code": status, "message": f"refused by the test: {status}"})
                return True
        return False

    def _answer(self, status: int, value: Any) -> None:
        body = encoded(value)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for start in range(0, len(body), 1 if self.server.api.dribble else len(body)):
            time.sleep(self.server.api.dribble)
            self.wfile.write(body[start : start + 1 if self.server.api.dribble else None])

    def do_GET(self) -> None:
        kind, namespace, query, rest = self._begin()
        api = self.server.api
        if self._refused():
            return
        if query.get("watch") == "true":
            self._watch(kind, query)
        elif not kind:
            self._answer(404, {"message": "not found"})
        elif rest:
            obj = api.get(kind, rest[1:], namespace)
            self._answer(200 if obj else 404, obj or {"message": "not found"})
        else:
            self._answer(200, api.page(kind, query))

    def _watch(self, kind: str, query: dict[str, str]) -> None:
        self.server.watches.add(self.connection)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in self.server.api.events(kind, query, ended=self.server.ended):
            line = encoded(event) + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def do_POST(self) -> None:
        kind, namespace, _, _ = self._begin()
        body = self._body()
        if self._refused():
            return
        body = {**body, "kind": kind}
        if namespace:
            body["metadata"] = {**body["metadata"], "namespace": namespace}
        if self.server.api.get(*_key(body)[::2], namespace=_key(body)[1]) is not None:
            self._answer(409, {"message": "already there"})
            return
        self.server.api.put(body)
        self._answer(201, body)

    def do_PATCH(self) -> None:
        kind, namespace, _, rest = self._begin()
        body = self._body()
        if self._refused():
            return
        done = self.server.api.patch((kind, namespace, rest.split("/")[1]), body)
        self._answer(200 if done else 404, done or {"message": "not found"})


def _key(obj: Object) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _selected(obj: Object, query: dict[str, str]) -> bool:
    """By namespace, one field, and labels that have to be equal, there, or not there (`!`)."""
    if query.get("namespace", obj["metadata"].get("namespace")) != obj["metadata"].get("namespace"):
        return False
    labels = obj["metadata"].get("labels", {})
    for term in filter(None, query.get("labelSelector", "").split(",")):
        label, is_equal, value = term.partition("=")
        if labels.get(label) != value if is_equal else (label.lstrip("!") in labels) == term.startswith("!"):
            return False
    field, _, wanted = query.get("fieldSelector", "").partition("=")
    field, is_other = field.rstrip("!"), field.endswith("!")
    value: Any = obj
    for part in field.split(".") if field else ():
        value = value.get(part) if isinstance(value, dict) else None
    return not field or (value == wanted) != is_other
