"""The last hour in numbers, for pages that are opened later: what was counted per second, and what statuses told.

Pure, and of a fixed size: of happenings only the latest are kept, how many there were is known for all of the hour.
"""

from array import array
from typing import Any

import msgspec

HOUR = 3600
_LATEST = 4e9  # seconds since the epoch; whoever claims to be later is wrong


class _Seconds:
    """A value for each second of an hour; older ones are overwritten."""

    def __init__(self) -> None:
        self._stamps, self._values = array("q", [-1] * HOUR), array("d", [0.0] * HOUR)
        self.last = 0

    def add(self, second: int, value: float = 1) -> None:
        self.set(second, value + (self.at(second) or 0))

    def set(self, second: int, value: float) -> None:
        if self._stamps[second % HOUR] <= second:
            self._stamps[second % HOUR], self._values[second % HOUR] = second, value
            self.last = max(self.last, second)

    def at(self, second: int) -> float | None:
        return self._values[second % HOUR] if self._stamps[second % HOUR] == second else None


class _Session(msgspec.Struct):
    imported: int = 0
    exported: int = 0


class _Latency(msgspec.Struct):
    count: int = 0
    p50: float | None = None


class _Status(msgspec.Struct):
    sessions: list[_Session] = []
    latencies: dict[str, _Latency] = {}


class History:
    """`drops` and `adds` per second; `p50` of ADD in milliseconds, the nodes' median; `prefixes`, of all sessions."""

    def __init__(self) -> None:
        self._rates = {name: _Seconds() for name in ("drops", "adds", "p50", "prefixes")}
        self._told: dict[str, tuple[float, float | None]] = {}  # node -> prefixes, p50

    def happened(self, kind: object, time: object) -> None:
        rate = {"Dropped": "drops", "Attached": "adds"}.get(str(kind))
        if rate and isinstance(time, int | float) and 0 <= time < _LATEST:
            self._rates[rate].add(int(time))

    def told(self, node: str, status: Any, *, at: float) -> None:
        """What makes no sense, whoever claims it, is left out."""
        try:
            known = msgspec.convert(status, _Status)
            prefixes = float(sum(session.imported + session.exported for session in known.sessions))
        except (msgspec.ValidationError, OverflowError):
            return
        if not 0 <= at < _LATEST:
            return
        adds = known.latencies.get("ADD", _Latency())
        self._told[node] = prefixes, adds.p50 if adds.count else None
        self._rates["prefixes"].set(int(at), sum(prefixes for prefixes, _ in self._told.values()))
        if p50s := sorted(p50 for _, p50 in self._told.values() if p50 is not None):
            self._rates["p50"].set(int(at), 1000 * p50s[len(p50s) // 2])

    def forget(self, node: str) -> None:
        self._told.pop(node, None)

    def of_an_hour(self) -> dict[str, Any]:
        """`from` is the first second about which something is known; null where nothing is."""
        last = max(rate.last for rate in self._rates.values())
        seconds = range(max(0, last - HOUR + 1), last + 1)
        first = next((s for s in seconds if any(rate.at(s) is not None for rate in self._rates.values())), last)
        values = {name: [rate.at(s) for s in range(first, last + 1)] for name, rate in self._rates.items()}
        return {"from": first, **values}
