"""Who answers an anycast address: plain nodes that share one, asked by the client."""

import selectors
import socket
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from flock.lab import traffic
from flock.lab.fabric import Lab
from flock.lab.hosts import wait_until
from flock.lab.reach import ask
from flock.lab.traffic import Exchange, summary

SERVE = [sys.executable, "-m", "flock.lab.traffic", "serve"]
SETTLE = 15.0


@pytest.fixture(params=["2001:db8:53::9", "192.0.2.9"])
def shared_address(request: pytest.FixtureRequest, forwarding: Lab) -> str:
    """An address that both nodes have on `lo`, announce, and answer on."""
    address: str = request.param
    family, length, nodad = ("-6", 128, ["nodad"]) if ":" in address else ("-4", 32, [])
    for name in ("n1", "n2"):
        node = forwarding.host(name)
        node.run(["ip", "addr", "replace", f"{address}/{length}", "dev", "lo", *nodad])
        node.run(["ip", family, "route", "replace", f"{address}/{length}", "dev", "lo", "proto", "static"])
        node.spawn("answer", [*SERVE, name])

    def everywhere() -> bool:
        routes = [forwarding.router(r).routes().get(f"{address}/{length}", ()) for r in ("r1", "r2", "client")]
        return all(len(hops) == 2 for hops in routes)

    assert wait_until(everywhere, timeout=SETTLE)
    assert wait_until(lambda: not summary(ask(forwarding, "client", address, duration=0.1)).lost, timeout=SETTLE)
    return address


def test_new_flows_spread_over_both_replicas_and_none_is_lost(forwarding: Lab, shared_address: str) -> None:
    seen = summary(ask(forwarding, "client", shared_address, every=0.002, duration=0.4))
    assert set(seen.by_replica) == {"n1", "n2"}
    assert seen.lost == 0


def test_a_flow_stays_with_its_replica(forwarding: Lab, shared_address: str) -> None:
    exchanges = list(ask(forwarding, "client", shared_address, every=0.002, duration=0.4, flows=8))
    replicas = {flow: {e.answer for e in exchanges if e.flow == flow} for flow in range(8)}
    assert all(len(names) == 1 for names in replicas.values())


def test_a_summary_counts_and_measures() -> None:
    told = [Exchange(1.0, 0, "a"), Exchange(1.1, 1, None), Exchange(1.25, 2, None), Exchange(1.5, 3, "b")]
    seen = summary(reversed(told))
    assert (seen.asked, seen.lost, seen.by_replica) == (4, 2, {"a": 1, "b": 1})
    assert (seen.longest_silence, seen.lossy) == (0.5, pytest.approx(0.15))


def test_an_asker_that_stalls_has_lost_nothing_that_was_answered() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer_ten_at_once() -> None:
            asked = [server.recvfrom(64) for _ in range(10)]
            for question, whom in asked:
                server.sendto(question + b" me", whom)

        thread = threading.Thread(target=answer_ten_at_once)
        thread.start()
        asking = traffic.ask("127.0.0.1", server.getsockname()[1], every=0.001, duration=0.05, flows=1)
        first = next(asking)
        thread.join()
        time.sleep(2 * traffic.PATIENCE)
        assert [first.answer, *(e.answer for e in asking)][:10] == ["me"] * 10


@pytest.mark.parametrize("flows", [0, 1])
def test_who_answers_when_a_core_is_free_has_lost_nothing(flows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of a second was seen on a machine with ten that want a core.  The asker's clock is the test's."""
    now, looked = [0.0], threading.Event()

    def clock() -> float:
        if now[0]:
            looked.set()
        return now[0]

    monkeypatch.setattr(traffic, "time", SimpleNamespace(monotonic=clock))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer_late() -> None:
            question, whom = server.recvfrom(64)
            now[0] = 0.4
            looked.wait(60)
            server.sendto(question + b" me", whom)

        thread = threading.Thread(target=answer_late)
        thread.start()
        seen = summary(traffic.ask("127.0.0.1", server.getsockname()[1], every=1.0, duration=0.05, flows=flows))
        thread.join()
        assert (seen.asked, seen.lost) == (1, 0)


def test_who_waits_for_the_last_answers_rests_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float | None] = []

    class Counting(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            rests.append(timeout)
            return super().select(timeout)

    monkeypatch.setattr(traffic.selectors, "DefaultSelector", Counting)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        seen = summary(traffic.ask("127.0.0.1", nobody.getsockname()[1], every=0.01, duration=0.03, flows=1))
    assert seen.lost == seen.asked > 0
    assert len(rests) < 30, "it looks when there is something to see"


def test_an_asker_whom_nobody_answers_does_not_run_out_of_descriptors() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        held = len(list(Path("/proc/self/fd").iterdir()))
        most, seen = 0, []
        for exchange in traffic.ask("127.0.0.1", nobody.getsockname()[1], every=0.0001, duration=0.5, flows=0):
            most = max(most, len(list(Path("/proc/self/fd").iterdir())) - held)
            seen.append(exchange)
        assert not any(exchange.answer for exchange in seen)
        assert most <= traffic.WAITING + 2
