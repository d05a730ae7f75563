"""Asks kube-proxy about Services: one task for each health port that somebody wants to hear of.

What is believed, and when it is asked next, `core/gate.py` decides.  A port is asked at once when it is wanted, and
when endpoints of its Service changed.  Nothing is remembered of one that is not wanted any more.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

from flock.agent.preparing import Preparing
from flock.core.gate import Gate
from flock.core.kinds import Key
from flock.core.services import IPVS_LINK
from flock.edge.healthport import ask


class _Port:
    """One that is asked."""

    def __init__(self, number: int, gate: Gate) -> None:
        self.number, self.gate = number, gate
        self.news = asyncio.Event()


class HealthPorts:
    def __init__(self, *, preparing: Preparing) -> None:
        self._preparing = preparing
        self._ports: dict[Key, _Port] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._wanted = asyncio.Event()
        self.on_verdict: Callable[[Key], None] = lambda _: None  # runs when it is another one

    def is_open(self, service: Key) -> bool:
        """kube-proxy delivers it here."""
        port = self._ports.get(service)
        return port is not None and port.gate.open

    def want(self, service: Key, number: int, *, adopted: bool = False) -> None:
        """Ask about the Service at this port from now on, and now: its endpoints changed.  `adopted`: it is announced,
        and nobody was asked yet."""
        port, now = self._ports.get(service), time.monotonic()
        if port is None or port.number != number:
            self.forget(service)
            self._ports[service] = _Port(number, Gate.new(now, adopted=adopted))
            self._wanted.set()
        else:
            port.gate = port.gate.after_change(now)
            port.news.set()

    def forget(self, service: Key) -> None:
        self._ports.pop(service, None)
        if (task := self._tasks.pop(service, None)) is not None:
            task.cancel()

    async def run(self) -> None:
        """Until cancelled.  Begun again, all are asked anew; what was said holds."""
        async with asyncio.TaskGroup() as group:
            self._tasks.clear()
            while True:
                self._wanted.clear()
                for service in self._ports.keys() - self._tasks.keys():
                    self._tasks[service] = group.create_task(self._follow(service, self._ports[service]))
                await self._wanted.wait()

    async def _follow(self, service: Key, port: _Port) -> None:
        while True:
            port.news.clear()
            answer = await ask(port.number, self._own)
            before, port.gate = port.gate, port.gate.heard(answer)
            if before.open != port.gate.open:
                self.on_verdict(service)
            now = time.monotonic()
            awaited = sum(other.gate.is_awaited(now) for other in self._ports.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(port.gate.pause(now, awaited=awaited)):
                    await port.news.wait()

    @property
    def _own(self) -> list[str]:
        """The node's addresses that kube-proxy may listen on."""
        found = self._preparing.facts.addresses
        return [str(a.address.ip) for a in found if a.interface != IPVS_LINK and not a.address.ip.is_link_local]

    @property
    def waiting(self) -> int:
        """How many do not say 200."""
        return sum(not port.gate.open for port in self._ports.values())
