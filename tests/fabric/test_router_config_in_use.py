"""`flockctl router-config frr` on a router that has neighbours already: they stay what they are."""

from pathlib import Path
from typing import Any

import pytest
from fabric_parts import MakeLab, becomes, eventually, node_configs, write_configs
from test_router_config import printed, take, told

from flock.lab.fabric import Lab
from flock.lab.speaker import Router

# A neighbour that FRR neither believes nor tells anything, for nobody has said what: its way since 7.4.
IN_USE = """
no router bgp {asn}
frr defaults traditional
router bgp {asn}
 bgp router-id 198.51.100.1
 neighbor 198.51.100.9 remote-as 64999
"""


def vtysh(router: Router, *arguments: str) -> str:
    return router.host.run(["vtysh", "--vty_socket", str(router.host.home), *arguments])


def asks(router: Router) -> list[str]:
    """What it does whoever the neighbour is."""
    said = vtysh(router, "-c", "show running-config").splitlines()
    return [line for line in said if line.startswith(("frr defaults", " bgp ", " no bgp ", " timers "))]


def with_a_router_in_use(make_lab: MakeLab, tmp_path: Path, **fields: Any) -> tuple[Lab, Router, str]:
    (config,) = node_configs(nodes=1)
    config["spec"]["bgp"]["peers"][0] |= {"localAddress": "2001:db8:ff1:1::2", **fields}
    directory = write_configs(tmp_path / "configs", [config])
    lab = make_lab(nodes=1, routers=1, router="frr", topology="leaf-spine", nodeconfigs=directory, settled=False)
    router = lab.router("r1")
    take(router, IN_USE.format(asn=router.speaker.asn))
    return lab, router, printed("frr", "--manifests", str(directory))


@pytest.mark.slow
@pytest.mark.parametrize("taken", ["default", "all"])
def test_what_it_asks_of_others_stays_and_the_node_gets_in(make_lab: MakeLab, tmp_path: Path, taken: str) -> None:
    lab, router, text = with_a_router_in_use(make_lab, tmp_path, **{"import": taken})
    before = asks(router)
    assert before
    (router.host.home / "printed.conf").write_text(text)
    vtysh(router, "-f", str(router.host.home / "printed.conf"))
    becomes(lambda: told(lab), {"2001:db8:1::/64", "100.64.1.0/24"})
    for family in ("-6", "-4"):
        default = ["ip", family, "route", "show", "default", "proto", "bird"]
        eventually(lambda default=default: lab.host("n1").run(default), bool)  # type: ignore[misc]
    # Several nodes with one anycast address are one prefix over different AS paths.
    assert asks(router) == [*before, " bgp bestpath as-path multipath-relax"]
    assert "Inbound updates discarded due to missing policy" in vtysh(router, "-c", "show bgp neighbors 198.51.100.9")


@pytest.mark.slow
def test_a_session_carries_the_families_of_its_peer_alone(make_lab: MakeLab, tmp_path: Path) -> None:
    lab, router, text = with_a_router_in_use(make_lab, tmp_path, families=["ipv6"])
    (router.host.home / "printed.conf").write_text(text)
    vtysh(router, "-f", str(router.host.home / "printed.conf"))
    becomes(lambda: told(lab), {"2001:db8:1::/64"})
    assert "2001:db8:ff1:1::2" not in vtysh(router, "-c", "show bgp ipv4 unicast summary")
    assert "198.51.100.9" in vtysh(router, "-c", "show bgp ipv4 unicast summary")
