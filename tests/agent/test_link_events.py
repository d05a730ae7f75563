"""Which of the kernel's notices about a pod's link are losses."""

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from flock.agent.healing import Healer
from flock.core.naming import HOST_MAC
from flock.edge.kernel.monitor import Event
from flock.edge.netlink import wire as w

INDEX, NAME = 7, "flock00000001"


class Told:
    """A healer that is told of one link, whose pod may be on record."""

    def __init__(self) -> None:
        self._on_record: dict[int, str] = {}
        attached: Any = SimpleNamespace(
            owner_of=lambda _: "c", interface_at=self._on_record.get, drop_link=lambda _: None
        )
        rest: Any = SimpleNamespace()
        self._healer = Healer(
            attached=attached,
            attachments=rest,
            kernel=rest,
            aggregates=rest,
            preparing=rest,
            happened=rest,
            grace=1.0,
        )

    def record(self) -> None:
        self._on_record[INDEX] = NAME

    def link(self, *, up: bool, mac: bytes = HOST_MAC) -> bool:
        """Is it looked after?"""
        flags = w.IFF_UP if up else 0
        body = struct.pack("=BxHiII", 0, 0, INDEX, flags, 0) + w.text(w.IFLA_IFNAME, NAME) + w.attr(w.IFLA_ADDRESS, mac)
        self._healer._on_event(Event(w.RTM_NEWLINK, INDEX, body=body))
        return self._healer._triggered.is_set()


@pytest.mark.parametrize("recorded", ["before anything is read", "in between", "after"])
def test_what_an_add_does_is_no_loss_and_what_comes_after_is(recorded: str) -> None:
    """Events are read a moment after they come, and a record is on disk when it is."""

    async def story() -> None:
        told = Told()
        if recorded == "before anything is read":
            told.record()
        assert not told.link(up=False)
        if recorded == "in between":
            told.record()
        assert not told.link(up=True)
        told.record()
        assert told.link(up=False)

    asyncio.run(story())


def test_another_mac_is_a_loss() -> None:
    async def story() -> None:
        told = Told()
        told.record()
        assert not told.link(up=True)
        assert told.link(up=True, mac=bytes(6))

    asyncio.run(story())
