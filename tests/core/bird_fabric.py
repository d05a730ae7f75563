"""Network namespaces joined by veths, with a BIRD in each: what rendered files are tried on.  Everything made here is
removed by `close`; namespaces are named `fbt<pid>-…`."""

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_SYSCTLS = ("net/ipv6/conf/all/accept_dad=0", "net/ipv6/conf/default/accept_dad=0", "net/ipv6/conf/all/forwarding=1")


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
    return done.stdout


def bird_accepts(conf: Path) -> str:
    """Empty if BIRD takes the file, else what it says."""
    done = subprocess.run(["bird", "-p", "-c", conf], capture_output=True, text=True, timeout=30, check=False)
    return "" if done.returncode == 0 else done.stderr


T = TypeVar("T")


def eventually(look: Callable[[], T], wanted: Callable[[T], bool], *, tries: int = 300) -> T:
    for _ in range(tries):
        seen = look()
        if wanted(seen):
            return seen
        time.sleep(0.1)
    raise AssertionError(f"never came to be; last seen: {seen!r}")


class Router:
    """A namespace, and the BIRD in it once `start` was called."""

    def __init__(self, name: str, directory: Path) -> None:
        self.netns = f"fbt{os.getpid()}-{name}"
        self._conf = directory / f"{name}.conf"
        self._socket = directory / f"{name}.ctl"
        self._log = directory / f"{name}.log"
        self._bird: subprocess.Popen[bytes] | None = None
        run("ip", "netns", "add", self.netns)
        for setting in _SYSCTLS:
            path, _, value = setting.partition("=")
            self.run("sh", "-c", f"echo {value} > /proc/sys/{path}")
        self.ip("link", "set", "lo", "up")

    def run(self, *command: str) -> str:
        return run("ip", "netns", "exec", self.netns, *command)

    def ip(self, *arguments: str) -> str:
        return run("ip", "-n", self.netns, *arguments)

    def start(self, conf: str, *options: str) -> None:
        self._conf.write_text(conf)
        assert bird_accepts(self._conf) == ""
        command = ["ip", "netns", "exec", self.netns, "bird", "-f", *options, "-c", self._conf, "-s", self._socket]
        with self._log.open("ab") as log:
            self._bird = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(self._answers, bool)

    def _answers(self) -> bool:
        """Its socket is there a moment before anybody listens."""
        done = subprocess.run(["birdc", "-r", "-s", self._socket, "show", "status"], capture_output=True, timeout=30)
        return done.returncode == 0

    def kill(self) -> None:
        if self._bird is not None:
            self._bird.kill()
            self._bird.wait(30)
            self._bird = None
            self._socket.unlink(missing_ok=True)

    def birdc(self, command: str) -> str:
        return run("birdc", "-r", "-s", str(self._socket), *command.split())

    def routes(self, arguments: str = "") -> set[str]:
        """Prefixes in BIRD's tables."""
        return set(re.findall(r"^([0-9a-f.:]+/\d+)", self.birdc(f"show route {arguments}"), re.MULTILINE))

    def established(self, protocol: str) -> None:
        eventually(lambda: self.birdc(f"show protocols {protocol}"), lambda text: "Established" in text)

    def log(self) -> str:
        return self._log.read_text()


class Fabric:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._routers: list[Router] = []

    def router(self, name: str) -> Router:
        router = Router(name, self._directory)
        self._routers.append(router)
        return router

    def link(self, one: Router, one_addresses: list[str], other: Router, other_addresses: list[str], name: str) -> None:
        """A veth whose ends have the same name on both sides."""
        run("ip", "link", "add", name, "netns", one.netns, "type", "veth", "peer", name, "netns", other.netns)
        for router, addresses in ((one, one_addresses), (other, other_addresses)):
            for address in addresses:
                router.ip("address", "add", address, "dev", name)
            router.ip("link", "set", name, "up")

    def close(self) -> None:
        for router in self._routers:
            router.kill()
            run("ip", "netns", "delete", router.netns)
