"""Calls of the CNI executable, as a runtime makes them, and a fake agent behind the socket."""

import json
import socket
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VERSIONS = ["0.4.0", "1.0.0", "1.1.0"]
VERBS = ["ADD", "DEL", "CHECK", "GC", "STATUS"]
ENVIRONMENT = {
    "CNI_CONTAINERID": "c0ffee_1.a-b",
    "CNI_NETNS": "/run/netns/blue",
    "CNI_IFNAME": "eth0",
    "CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web",
    "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
}
RESULT = b'{"cniVersion":"1.1.0","ips":[ {"address":"2001:db8::1/128"} ],"odd":"\\u00e4 \xc3\xa4 \\/"}'
SANITIZERS = {
    "ASAN_OPTIONS": "exitcode=99:detect_leaks=0",
    "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99:print_stacktrace=1",
}


class FakeAgent:
    """Takes one line per connection, sends the next of `replies` (the last one again and again), and hangs up.

    A reply of None is silence: the connection stays open until the other side closes it.
    """

    def __init__(self, path: Path, *replies: bytes | None, reads: bool = True) -> None:
        self.path = path
        self.replies = list(replies)
        self.requests: list[bytes] = []
        self._reads = reads
        self._listener = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "FakeAgent":
        self._listener.bind(str(self.path))
        self._listener.listen(128)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._thread.join()
        self._listener.close()
        self.path.unlink()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                if self._reads:
                    self.requests.append(lines.readline())
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                try:
                    if reply is None:
                        lines.read()
                    else:
                        connection.sendall(reply)
                except OSError:
                    pass  # the executable may hang up on a reply it has seen enough of

    def only_request(self) -> dict[str, Any]:
        (line,) = self.requests
        assert line.endswith(b"\n")
        request: dict[str, Any] = json.loads(line)
        return request


@dataclass(frozen=True)
class Outcome:
    exit_code: int
    out: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The CNI error on standard output, after checking that it is one."""
        assert self.exit_code == 1, self
        error: dict[str, Any] = json.loads(self.out)
        assert set(error) == {"cniVersion", "code", "msg", "details"} and error["cniVersion"] in VERSIONS
        return error

    @property
    def code(self) -> int:
        code: int = self.error["code"]
        return code


def run(
    executable: Path, verb: str | None, stdin: bytes | dict[str, Any], env: Mapping[Any, Any] = ENVIRONMENT
) -> Outcome:
    done = subprocess.run(
        [executable],
        input=stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode(),
        env={**SANITIZERS, **({"CNI_COMMAND": verb} if verb is not None else {}), **env},
        capture_output=True,
        timeout=60,
    )
    assert done.stderr == b"", done.stderr.decode()
    return Outcome(done.returncode, done.stdout)


def config(sock: Path, **more: Any) -> dict[str, Any]:
    return {"cniVersion": "1.1.0", "name": "flock", "type": "flock", "socket": str(sock), "wait": 0, **more}


UNREADABLE = ["\0", "\ud800", "9" * 999]  # no C string of a sensible size holds these


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in ENVIRONMENT.items() if name not in names}
