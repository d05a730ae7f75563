"""Following one agent: what it tells, when it goes, and where its stream goes on."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from viewing import Watching, watching

from flock.view import following as module
from flock.view.following import UNKNOWN
from flock.view.node import NodeSource
from flock.view.source import CannotTell
from looping import looped


class Agent:
    """Answers as one would, as long as it is told to."""

    def __init__(self) -> None:
        self.status = {"node": "n1", "policies": 0}
        self.raw = ""  # said in its place
        self.dies_after: int | None = None  # bytes of an answer
        self.happened: list[tuple[int, str]] = [(7, "NodeReady")]
        self.known: list[str] = []  # Last-Event-ID of each reader
        self.places = 1
        self.looks = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._port = 0
        self._server: asyncio.Server | None = None

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await asyncio.sleep(0)

    async def say(self, kind: str, number: int | None = None) -> None:
        await self.send(event(number, kind))

    async def send(self, text: bytes) -> None:
        for writer in self._writers:
            writer.write(text)
            await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if "/status.json" in head:
            self.looks += 1
            said = (self.raw or json.dumps(self.status, indent=2)).encode()
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (said[:20], said[20:], b""))
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks[: self.dies_after])
            writer.close()
        elif len(self._writers) >= self.places:
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            writer.close()
        else:
            last = head.partition("Last-Event-ID: ")[2].partition("\r")[0]
            self.known.append(last)
            news = b"".join(event(number, kind) for number, kind in self.happened if number > int(last or 0))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nretry: 1000\n\n" + news)
            self._writers.add(writer)


def event(number: int | None, kind: str) -> bytes:
    identified = f"id: {number}\n" if number else ""
    return f'{identified}event: {kind}\ndata: {{"time": 5.5, "kind": "{kind}", "said": "x"}}\n\n'.encode()


@contextlib.asynccontextmanager
async def followed(monkeypatch: pytest.MonkeyPatch, agent: Agent) -> AsyncIterator[Watching]:
    """Whose status is read only when something calls for it."""
    monkeypatch.setattr(module, "EVERY", 600.0)
    monkeypatch.setattr(module, "AGAIN", 0.05)
    await agent.start()
    async with watching(NodeSource(run_dir=None, http=agent.http)) as view:  # type: ignore[arg-type]
        await view.until(lambda v: v.node("n1")["reached"] and v.happened, "the agent")
        yield view
    await agent.stop()


@looped
async def test_something_that_happens_makes_the_status_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    async with followed(monkeypatch, agent) as view:
        agent.status = {"node": "n1", "policies": 3}
        await agent.say("PolicyRefused", 8)
        await view.until(lambda v: v.node("n1")["status"]["policies"] == 3, "the new status")
        assert [row["number"] for row in view.happened] == [7, 8]


@looped
async def test_what_nests_too_deep_or_counts_too_high_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    async with followed(monkeypatch, agent) as view:
        deep = '{"a":' * 50_000 + "1" + "}" * 50_000  # Python 3.13 goes down ten thousand
        agent.raw = deep
        await agent.send(f"data: {deep}\n\n".encode() + event(8, "NodeReady"))
        await view.until(lambda v: "no status" in v.node("n1")["problem"], "what is wrong with it")
        agent.raw = f'{{"node": "n1", "policies": 3, "sessions": [{{"imported": {"9" * 400}}}]}}'
        await agent.send(event(9, "NodeReady"))
        await view.until(lambda v: v.node("n1")["status"]["policies"] == 3, "the new status")
        assert [row["number"] for row in view.happened] == [7, 8, 9]


@looped
async def test_a_dropped_packet_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    async with followed(monkeypatch, agent) as view:
        await asyncio.sleep(3 * module.SOON)  # a look after what it remembered
        before = agent.looks
        await agent.say("Dropped", 8)
        await view.until(lambda v: len(v.happened) == 2, "the drop")
        await asyncio.sleep(3 * module.SOON)
        assert agent.looks == before


@looped
async def test_an_agent_that_ends_is_missed_at_once_and_its_stream_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent()
    async with followed(monkeypatch, agent) as view:
        await agent.say("Missed")  # which has no number
        await view.until(lambda v: len(v.happened) == 2, "that some were missed")
        await agent.stop()
        await view.until(lambda v: v.node("n1")["reached"] is False, "its end")
        assert view.node("n1")["seen"]
        await view.until(lambda v: "connection refused" in v.node("n1")["problem"], "why")  # the first was cut off
        agent.happened.append((9, "NodeReady"))
        await agent.start()
        await view.until(lambda v: v.node("n1")["reached"] and len(v.happened) == 3, "its return")
        assert [row["number"] for row in view.happened] == [7, 0, 9] and agent.known == ["", "7"]


@looped
async def test_one_whose_stream_has_no_place_is_shown_with_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY", 0.05)
    monkeypatch.setattr(module, "DEAF_AGAIN", 0.05)
    agent = Agent()
    agent.places = 0
    await agent.start()
    async with watching(NodeSource(run_dir=None, http=agent.http)) as view:  # type: ignore[arg-type]
        await view.until(lambda v: "503" in v.node("n1")["problem"], "what is wrong")
        assert view.node("n1")["reached"] and view.node("n1")["status"]
        agent.places = 1
        await view.until(lambda v: not v.node("n1")["problem"] and v.happened, "all is well")
    await agent.stop()


@looped
async def test_a_node_has_its_agents_name_as_soon_as_that_answers() -> None:
    agent = Agent()
    await agent.start()
    await agent.stop()
    async with watching(NodeSource(run_dir=None, http=agent.http)) as view:  # type: ignore[arg-type]
        await view.until(lambda v: v.node(UNKNOWN)["reached"] is False, "nobody there")
        await agent.start()
        await view.until(lambda v: v.node("n1")["reached"], "n1")
        assert view.picture.nodes == ("n1",)
    await agent.stop()


@pytest.mark.parametrize("says", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 OK\r\n\r\n", b"\r\n\r\n", b"", b"x" * 100_000])
@looped
async def test_something_else_that_listens_there_is_no_agent(says: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        http = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with watching(NodeSource(run_dir=None, http=http)) as view:  # type: ignore[arg-type]
            await view.until(lambda v: v.node(UNKNOWN)["problem"], "what is wrong")
            assert not view.node(UNKNOWN)["reached"]


@pytest.mark.parametrize("http", ["", "9465", "127.0.0.1", "127.0.0.1:http"])
def test_an_address_that_is_none_is_refused(http: str) -> None:
    with pytest.raises(CannotTell, match="HOST:PORT"):
        NodeSource(run_dir=None, http=http)  # type: ignore[arg-type]


@pytest.mark.parametrize("after", [0, 1, 20, 30, 60, -5], ids=str)
@looped
async def test_an_answer_that_breaks_off_is_no_answer(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """As of an agent that is killed over it: before it, within it, and when only its end was not said."""
    agent = Agent()
    async with followed(monkeypatch, agent) as view:
        await view.until(lambda v: v.node("n1")["reached"], "it is reached")
        agent.status |= {"pools": [{"name": "a"}, {"name": "b"}]}
        agent.dies_after = after
        await agent.send(event(8, "NodeReady"))
        await view.until(lambda v: "does not answer" in v.node("n1")["problem"], "that it is missed")
        assert view.node("n1")["status"]["node"] == "n1"
