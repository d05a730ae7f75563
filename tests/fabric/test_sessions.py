"""What routers learn from nodes, whichever daemon they run: exactly what is to be announced, by the right next hop."""

from pathlib import Path

import pytest
from fabric_flows import Serve, count_replicas
from fabric_parts import (
    AGGREGATES,
    BOTH,
    OWN,
    V4,
    V6,
    MakeLab,
    becomes,
    bird_conf,
    change_config,
    established,
    eventually,
    flockctl,
    follows,
    host_prefix,
    kernel_routes,
    node_configs,
    received,
    senders,
    told,
    write_configs,
)

from flock.lab.fabric import Lab
from flock.lab.reach import ping
from thoroughness import slowly

ANYCAST = {host_prefix(V6), host_prefix(V4)}
OUTSIDE = ("2001:db8:54::7", "192.0.2.207")


def test_routers_receive_exactly_aggregates_announced_addresses_and_nothing_of_the_lan(fabric: Lab) -> None:
    """Aggregates are announced though no route leads there, an announced address though its next hop is a pod's own,
    on no connected network, and an address outside the aggregates by itself."""
    fabric.pods.add("plain", node="n1", ready=True)
    fabric.pods.add("any", node="n1", annotations={f"{OWN}/anycast": BOTH}, ready=True)
    fabric.pods.add("fixed", node="n2", annotations={f"{OWN}/addresses": ", ".join(OUTSIDE)})
    fabric.pods.add("waiting", node="n2", annotations={f"{OWN}/anycast": "2001:db8:53::2"})
    for router in ("r1", "r2"):
        becomes(lambda r=router: set(received(fabric, "n1", r)), AGGREGATES["n1"] | ANYCAST)
        becomes(lambda r=router: set(received(fabric, "n2", r)), AGGREGATES["n2"] | set(map(host_prefix, OUTSIDE)))


def test_next_hops_are_the_nodes_global_address_on_the_link(fabric: Lab) -> None:
    """IPv4 prefixes come over the IPv6 session with an IPv6 next hop (RFC 8950)."""
    fabric.pods.add("any", node="n1", annotations={f"{OWN}/anycast": BOTH}, ready=True)
    for number, router in enumerate(("r1", "r2"), start=1):
        routes = eventually(lambda r=router: received(fabric, "n1", r), lambda seen: set(seen) >= ANYCAST)
        assert set(routes.values()) == {f"2001:db8:ff{number}:1::2"}


def test_an_anycast_address_of_two_nodes_has_two_next_hops_and_follows_readiness(fabric: Lab) -> None:
    for name, node in (("a", "n1"), ("b", "n2")):
        fabric.pods.add(name, node=node, annotations={f"{OWN}/anycast": BOTH}, ready=True)
    for address in (V6, V4):
        follows(lambda a=address: senders(fabric, a), {"n1", "n2"})
    fabric.pods.set_ready("a", False)
    for address in (V6, V4):
        follows(lambda a=address: senders(fabric, a), {"n2"})
    fabric.pods.set_ready("b", False)
    for address in (V6, V4):
        follows(lambda a=address: "n2" in senders(fabric, a), False)
    for node in ("n1", "n2"):
        follows(lambda n=node: set(received(fabric, n)), AGGREGATES[node])


def test_pods_of_two_nodes_and_the_client_reach_each_other(forwarding: Lab) -> None:
    for name, node in (("a", "n1"), ("b", "n2")):
        forwarding.pods.add(name, node=node)
    for source, target in (("a", "b"), ("b", "a"), ("client", "a"), ("b", "client")):
        becomes(lambda s=source, t=target: [p.reached for p in ping(forwarding, s, t)], [True, True])


def test_an_address_outside_the_aggregates_is_reachable(forwarding: Lab) -> None:
    forwarding.pods.add("fixed", node="n2", annotations={f"{OWN}/addresses": ", ".join(OUTSIDE)})
    becomes(lambda: [p.reached for p in ping(forwarding, "client", "fixed")], [True, True])
    assert forwarding.pods.get("fixed").addresses == OUTSIDE


@pytest.mark.parametrize("router", ["bird", *slowly("frr", "gobgp")])
def test_a_wrong_password_is_refused_and_seen_and_no_password_is_ever_logged(
    make_lab: MakeLab, tmp_path: Path, router: str
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("Tr0ub4dor\n")
    wrong.write_text("Tr0ub4dor3\n")
    (config,) = node_configs()
    peer = config["spec"]["bgp"]["peers"][0]
    peer["passwordFile"] = str(right)
    lab = make_lab(nodes=1, routers=1, router=router, nodeconfigs=write_configs(tmp_path / "configs", [config]),
                   topology="leaf-spine")  # fmt: skip
    assert established(lab, "n1")
    assert flockctl(lab, "n1", "bgp").returncode == 0

    def use(password: Path) -> None:
        change_config(lab, "n1", lambda spec: spec["bgp"]["peers"][0].update(passwordFile=str(password)))

    use(wrong)
    becomes(lambda: established(lab, "n1"), False)
    (row,) = eventually(lambda: told(lab, "n1", "bgp"), lambda rows: not rows[0]["up"])
    assert (row["peer"], row["state"]) in {("r1", state) for state in ("Active", "Connect", "Idle", "OpenSent")}
    shown = flockctl(lab, "n1", "bgp")
    assert shown.returncode == 1
    assert "Established" not in shown.stdout
    use(right)
    becomes(lambda: established(lab, "n1"), True)

    assert "Tr0ub4dor" in bird_conf(lab, "n1")
    assert (lab.node("n1").bird_dir / "bird.conf").stat().st_mode & 0o777 == 0o600
    told_anywhere = [flockctl(lab, "n1", *each).stdout for each in (["bgp"], ["status", "-o", "json"])]
    told_anywhere += [path.read_text(errors="replace") for path in lab.home.of("n1").glob("*.log")]
    assert not any("Tr0ub4dor" in text for text in told_anywhere)


def test_flows_spread_over_nodes_through_every_router(forwarding: Lab, serve: Serve) -> None:
    for name, node in (("a", "n1"), ("b", "n2")):
        forwarding.pods.add(name, node=node, annotations={f"{OWN}/anycast": BOTH}, ready=True)
        serve(forwarding, name)
    for address in (V6, V4):
        for router in ("r1", "r2"):
            becomes(lambda a=address, r=router: senders(forwarding, a, r), {"n1", "n2"})
        eventually(
            lambda a=address: count_replicas(forwarding, "client", a, 40),
            lambda seen: set(seen) == {"a", "b"} and min(seen.values()) >= 4,
        )
    assert kernel_routes(forwarding, "n1").keys() == {V6, V4}
