"""A session that is down, or a family that it does not carry, is said by `status`, and no longer once it is mended."""

import json
from pathlib import Path
from typing import Any

from fabric_parts import (
    MakeLab,
    becomes,
    change_config,
    config_file,
    degraded,
    established,
    eventually,
    flockctl,
    node_configs,
    told,
    write_configs,
)

from flock.lab.fabric import Lab


def test_a_session_that_is_down_is_a_degraded_line(lab: Lab) -> None:
    becomes(lambda: degraded(lab, "n1"), "")
    lab.cut("n1-r1")
    eventually(lambda: degraded(lab, "n1"), lambda text: "the session with r1 is down: " in text)
    shown = flockctl(lab, "n1", "status")
    assert shown.returncode == 0 and "degraded  the session with r1 is down" in shown.stdout
    lab.mend("n1-r1")
    becomes(lambda: degraded(lab, "n1"), "")


def test_a_router_that_is_on_no_network_of_the_host_is_told_as_such(lab: Lab) -> None:
    here = json.loads(config_file(lab, "n1").read_text())["spec"]["bgp"]["peers"][0]["address"]
    own = next(a for port in lab.plan.role("node")[0].ports for a in port.addresses if ":" in a).partition("/")[0]
    for address, said in (
        ("2001:db8:dead::1", "2001:db8:dead::1 is on no network of this host: multihop, or another address"),
        (own, f"{own} is this host's own address"),
    ):
        change_config(lab, "n1", lambda spec, to=address: spec["bgp"]["peers"][0].update(address=to))
        eventually(lambda: degraded(lab, "n1"), lambda text, why=said: f"with r1 is down: Idle, {why}" in text)
        assert said in flockctl(lab, "n1", "bgp").stdout
    change_config(lab, "n1", lambda spec: spec["bgp"]["peers"][0].update(address=here))
    becomes(lambda: degraded(lab, "n1"), "")


def test_a_router_s_address_that_nobody_has_is_told_as_such(lab: Lab) -> None:
    here = json.loads(config_file(lab, "n1").read_text())["spec"]["bgp"]["peers"][0]["address"]
    nobody = f"{here.rpartition(':')[0]}:99"
    change_config(lab, "n1", lambda spec: spec["bgp"]["peers"][0].update(address=nobody))
    said = f"answers for {nobody}: another address, or the router is away"
    eventually(lambda: degraded(lab, "n1"), lambda text: said in text)
    eventually(lambda: flockctl(lab, "n1", "bgp").stdout, lambda text: said in text)
    change_config(lab, "n1", lambda spec: spec["bgp"]["peers"][0].update(address=here))
    becomes(lambda: degraded(lab, "n1"), "")


def test_a_family_that_no_session_carries_is_a_degraded_line(make_lab: MakeLab, tmp_path: Path) -> None:
    """First this end has no IPv4 on the session, then the router has none.  It is established all the while."""
    [config] = node_configs()
    config["spec"]["bgp"]["peers"][0]["families"] = ["ipv6"]
    lab = make_lab(nodeconfigs=write_configs(tmp_path, [config]), nodes=1, routers=1, topology="leaf-spine")
    eventually(
        lambda: degraded(lab, "n1"), lambda text: "no session carries IPv4: no router hears of spec.cidr4" in text
    )

    def both(spec: dict[str, Any]) -> None:
        spec["bgp"]["peers"][0]["families"] = ["ipv6", "ipv4"]

    change_config(lab, "n1", both)
    families = {"ipv6": True, "ipv4": False}
    becomes(lambda: {name: of["up"] for name, of in told(lab, "n1", "bgp")[0]["families"].items()}, families)
    eventually(lambda: degraded(lab, "n1"), lambda text: "the session with r1 carries no IPv4: the router" in text)
    assert established(lab, "n1")
