"""A router that sends more routes than a node takes: the session stays, the rest is passed over, and comes later."""

from pathlib import Path
from typing import Any

import pytest
from fabric_parts import (
    AGGREGATES,
    OWN,
    V6,
    MakeLab,
    becomes,
    eventually,
    node_configs,
    received,
    senders,
    told,
    write_configs,
)

from flock.lab.fabric import Lab

LIMIT = 500
FLOOD = 20_000
EVERYTHING = 6  # else: of each family the way out, the client and a cable of its


def flood(lab: Lab, routes: int) -> None:
    """Make the router announce so many prefixes beside what it has anyway."""
    home = lab.home.of("r1")
    config = home / "bird.conf"
    own = config.read_text().partition("# flood\n")[0]
    lines = "".join(f"route 10.{n >> 9}.{n >> 1 & 255}.{(n & 1) * 128}/25 blackhole;\n" for n in range(routes))
    config.write_text(f"{own}# flood\nprotocol static flood {{ ipv4;\n{lines}}}\n")
    told = lab.host("r1").run(["birdc", "-s", str(home / "bird.ctl"), "configure"], timeout=60)
    assert "econfigur" in told


def session(lab: Lab) -> dict[str, Any]:
    (row,) = told(lab, "n1", "bgp")
    return row


def kernel_routes(lab: Lab) -> int:
    return len(lab.host("n1").run(["ip", "-4", "route", "show", "proto", "bird"]).splitlines())


def limited(make_lab: MakeLab, tmp_path: Path, **peer: Any) -> Lab:
    (config,) = node_configs()
    config["spec"]["bgp"]["peers"][0].update({"holdTime": "90s", **peer})  # the router itself is busy for seconds
    return make_lab(nodes=1, routers=1, topology="leaf-spine", nodeconfigs=write_configs(tmp_path / "c", [config]))


def test_beyond_its_limit_a_node_takes_no_routes_and_stays_announced(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = limited(make_lab, tmp_path, **{"import": "all", "maxPrefixes": LIMIT})
    before = eventually(lambda: session(lab), lambda seen: seen["imported"] == EVERYTHING)
    flood(lab, FLOOD)
    row = eventually(lambda: session(lab), lambda seen: seen["full"] == ["ipv4"])
    assert row["up"] and row["since"] == before["since"] and "maxPrefixes" in row["last_error"]
    becomes(lambda: kernel_routes(lab), LIMIT)
    assert set(received(lab, "n1")) == AGGREGATES["n1"]
    degraded = eventually(lambda: told(lab, "n1", "status")["degraded"], bool)
    assert any("maxPrefixes" in line for line in degraded)

    flood(lab, 10)  # and what was passed over meanwhile, the default route perhaps, is asked for again
    eventually(lambda: session(lab), lambda seen: seen["imported"] == EVERYTHING + 10 and not seen["full"], within=60)
    assert session(lab)["since"] == before["since"]
    eventually(lambda: told(lab, "n1", "status")["degraded"], lambda lines: not lines)


@pytest.mark.slow
def test_while_a_large_table_loads_bird_hears_of_every_change_of_ours(make_lab: MakeLab, tmp_path: Path) -> None:
    """The kernel tells it of each route it puts in itself, too."""
    lab = limited(make_lab, tmp_path, **{"import": "all"})
    lab.pods.add("dns", node="n1", annotations={f"{OWN}/anycast": V6}, ready=True)
    becomes(lambda: senders(lab, V6), {"n1"})
    flood(lab, FLOOD)
    lab.pods.set_ready("dns", False)
    eventually(lambda: kernel_routes(lab), lambda routes: routes > 9_900)
    becomes(lambda: senders(lab, V6), set[str]())
    lab.pods.set_ready("dns", True)
    becomes(lambda: senders(lab, V6), {"n1"})
    assert "dropped some netlink messages" not in (lab.home.of("n1") / "bird.log").read_text()
