"""Answers as kubectl prints them: plain text tables for people, JSON for scripts."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [tuple(head), *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def clock(at: float) -> str:
    """Today's time, to the millisecond."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S.%f")[:-3]
