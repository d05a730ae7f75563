"""`/happenings`: what is known first, then what happens, to a handful of readers who cost what they read."""

import sys
import time

from following import HTTP, Reader, status
from looking import addresses_of

from flock.edge.http import READERS
from harness import Node, eventually, run


def follow(node: Node, **headers: str) -> Reader:
    reader = Reader(node, "/happenings", **headers)
    assert reader.head() == (200, reader_head)
    return reader


reader_head = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "connection": "close",
    "x-content-type-options": "nosniff",
}


def test_a_reader_is_told_what_is_known_then_what_happens_and_goes_on_where_it_stopped(fresh: Node) -> None:
    fresh.start(*HTTP)
    with follow(fresh) as reader:
        first = reader.until("NodeReady")
        assert first[0]["kind"] == "Started" and "ConfigTaken" in {event["kind"] for event in first}
        fresh.pod("a", args="K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web")
        (attached,) = reader.until("Attached")
        assert attached["pod"] == "shop/web" and abs(attached["time"] - time.time()) < 60
        assert attached["said"].startswith("attached pod=shop/web ")
        assert attached.items() >= {"container": "a"}.items()
    fresh.cni("DEL", "a")
    with follow(fresh, Last_Event_ID=str(reader.last_id)) as reader:
        assert reader.event()["kind"] == "Detached"
    with Reader(fresh, f"/happenings?after={reader.last_id - 1}") as reader:
        reader.head()
        assert reader.event()["kind"] == "Detached"


def test_who_comes_with_a_number_of_an_earlier_life_gets_everything(fresh: Node) -> None:
    fresh.start(*HTTP)
    with follow(fresh) as reader:
        reader.until("NodeReady")
    fresh.stop()
    fresh.start(*HTTP)
    with follow(fresh, Last_Event_ID=str(reader.last_id)) as again:
        assert again.event()["kind"] == "Started"


def test_a_dropped_packet_is_told_with_the_pods_name_and_summed_by_policy(fresh: Node) -> None:
    spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
    metadata = {"namespace": "shop", "name": "closed"}
    fresh.write(
        "p", {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}
    )
    fresh.start(*HTTP)
    shop = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME="
    address = addresses_of(fresh.pod("web", args=f"{shop}web"))[0]
    fresh.pod("client", args=f"{shop}client")
    asking = [sys.executable, "-c", f"import socket; socket.create_connection(({address!r}, 80), 0.1)"]
    with follow(fresh) as reader:
        run("nsenter", f"--net={fresh.path('client')}", *asking, check=False)
        dropped = reader.until("Dropped")[-1]
        told = {"pod": "shop/web", "what": "ingress", "policies": "shop/closed", "destination": address, "port": 80}
        assert dropped.items() >= told.items()
    row = next(row for row in status(fresh)["dropList"] if row["policies"] == "shop/closed")
    assert row["what"] == "ingress" and row["count"] >= 1


def test_a_drain_is_told_and_its_end(fresh: Node) -> None:
    fresh.start(*HTTP)
    with follow(fresh) as reader:
        fresh.ask("drain")
        assert "drained" in reader.until("Drained")[-1]["reason"]
        fresh.ask("undrain")
        reader.until("Undrained")


def test_one_reader_too_many_is_refused_and_a_place_that_is_left_is_free(fresh: Node) -> None:
    fresh.start(*HTTP)
    readers = [follow(fresh) for _ in range(READERS)]
    with Reader(fresh, "/happenings") as late:
        assert late.head()[0] == 503
    with Reader(fresh, "/healthz") as probe:
        assert probe.head()[0] == 200
    readers[0].socket.close()

    def gets_in() -> bool:
        with Reader(fresh, "/happenings") as another:
            return another.head()[0] == 200

    eventually(gets_in, what="the place that was left")
    for reader in readers[1:]:
        reader.until("NodeReady")
        reader.socket.close()


def test_readers_end_with_the_agent(fresh: Node) -> None:
    fresh.start(*HTTP)
    with follow(fresh) as reader:
        reader.until("NodeReady")
        fresh.stop()
        assert reader.socket.recv(1 << 16) in (b"", b": alive\n\n")
