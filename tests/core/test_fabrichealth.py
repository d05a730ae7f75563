"""Sessions family by family: which state of them is worth a word, and which is not."""

from typing import Any

import pytest

from flock.core.birdreplies import Carried, Reply, Session, sessions
from flock.core.fabrichealth import fabric_complaints
from flock.core.nodeconfig import NodeConfig, parse_node_config

UP = Carried(up=True, imported=1, exported=2)
EMPTY, DOWN = Carried(), Carried(up=False)


def config(**peer: Any) -> NodeConfig:
    peers = [{"name": "r1", "address": "2001:db8:f::1", "asn": 64600, "families": ["ipv6", "ipv4"], **peer}]
    spec = {"cidr6": ["2001:db8:1::/64"], "cidr4": ["192.0.2.0/24"], "bgp": {"asn": 64601, "peers": peers}}
    api = {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "n1"}}
    return parse_node_config({**api, "spec": spec})


def session(*, up: bool = True, error: str = "", **families: Carried) -> dict[str, Session]:
    state = "Established" if up else "Active"
    told = Session(name="r1", kind="BGP", up=up, state=state, since="", families=families, last_error=error)
    return {"r1": told}


@pytest.mark.parametrize(
    ("given", "found", "said"),
    [
        (config(), session(ipv6=UP, ipv4=UP), []),
        (config(), session(ipv6=UP, ipv4=EMPTY), ["no IPv4 route is taken from r1"]),
        (config(), session(ipv6=UP, ipv4=DOWN), ["the session with r1 carries no IPv4"]),
        (config(), session(ipv6=UP), ["the session with r1 carries no IPv4"]),
        (
            config(),
            session(up=False, error="Socket: Connection refused"),
            ["the session with r1 is down: Active, Sock"],
        ),
        (config(**{"import": "none"}), session(ipv6=EMPTY, ipv4=EMPTY), []),
        (config(families=["ipv6"]), session(ipv6=UP), ["no session carries IPv4: no router hears of spec.cidr4"]),
        (config(), {}, []),
    ],
)
def test_what_is_wrong_is_said_once(given: NodeConfig, found: dict[str, Session], said: list[str]) -> None:
    told = [*fabric_complaints(given, {name.replace("r1", _protocol()): s for name, s in found.items()})]
    assert len(told) == len(said) and all(text.startswith(start) for text, start in zip(told, said, strict=True)), told


def _protocol() -> str:
    from flock.core.birdconf import protocol_name

    return protocol_name("r1")


def test_families_are_read_from_what_bird_says() -> None:
    lines = (
        (1002, "peer_r1 BGP --- up 2026-11-15 20:32:58.661 Established"),
        (1006, "  BGP state:          Established"),
        (
            1006,
            "  Channel ipv6\n    State:          UP\n    Routes:         1 imported, 2 exported",
        ),
        (1006, "  Channel ipv4\n    State:          DOWN\n    Table:          master4"),
    )
    [found] = sessions(Reply(lines))
    assert found.families == {"ipv6": UP, "ipv4": DOWN}
    assert (found.imported, found.exported) == (1, 2)
