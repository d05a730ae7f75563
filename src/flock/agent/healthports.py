"""Asks kube-proxy about Services: one task for each health port that somebody wants to hear of.

What is believed, and when it is asked next, `core/gate.py` decides.  A port is asked at once when it is wanted, and
when endpoints of its Service changed, unless that happens all the time: then it has its turn among those that are
asked soon.  Nothing is remembered of one that is not wanted any more.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

from flock.agent.preparing import Preparing
from flock.core.gate import AtOnce, Gate
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
        self._at_once = AtOnce(time.monotonic())
        self._awaited: set[_Port] = set()  # among whom turns are shared
        self._doubted: set[_Port] = set()
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
            port = self._ports[service] = _Port(number, Gate.new(now, adopted=adopted))
            self._share(port, now)
            self._wanted.set()
        else:
            port.gate = port.gate.after_change(now)
            self._share(port, now)
            port.news.set()

    def forget(self, service: Key) -> None:
        if (port := self._ports.pop(service, None)) is not None:
            self._awaited.discard(port)
            self._doubted.discard(port)
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
        port.news.set()
        while True:
            await self._turn_of(port)
            answer = await ask(port.number, self._own)
            now = time.monotonic()
            before, port.gate = port.gate, port.gate.heard(answer, now)
            self._share(port, now)
            if before.open != port.gate.open:
                self.on_verdict(service)

    async def _turn_of(self, port: _Port) -> None:
        """Wait until it is to be asked again."""
        asked = now = time.monotonic()
        with contextlib.suppress(TimeoutError):
            while True:
                pause = port.gate.pause(now, awaited=len(self._awaited), doubted=len(self._doubted))
                async with asyncio.timeout(asked + pause - now):
                    await port.news.wait()
                port.news.clear()
                now = time.monotonic()
                if self._at_once.take(now):
                    return

    def _share(self, port: _Port, now: float) -> None:
        """Count it among those that are asked soon, or no more; one that is not any more, when it answers next."""
        (self._awaited.add if port.gate.is_awaited(now) else self._awaited.discard)(port)
        (self._doubted.add if port.gate.is_doubted(now) else self._doubted.discard)(port)

    @property
    def _own(self) -> list[str]:
        """The node's addresses that kube-proxy may listen on."""
        found = self._preparing.facts.addresses
        return [str(a.address.ip) for a in found if a.interface != IPVS_LINK and not a.address.ip.is_link_local]

    @property
    def waiting(self) -> int:
        """How many do not say 200."""
        return sum(not port.gate.open for port in self._ports.values())
