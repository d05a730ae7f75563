"""A node that steps back (cordon, drain, SIGTERM) and addresses that are not granted any more."""

import json
import signal
import subprocess
from collections.abc import Callable

import pytest
from fabric_flows import Serve, close_all, open_flows
from fabric_parts import (
    AGGREGATES,
    BOTH,
    OWN,
    V4,
    V6,
    Spec,
    becomes,
    change_config,
    eventually,
    flockctl,
    follows,
    host_prefix,
    kernel_routes,
    nexthops,
    received,
    senders,
    start_agent,
    status,
    stop_agent,
    up_since,
    why_not,
)

from flock.lab.cni import CniError
from flock.lab.fabric import Lab
from flock.lab.home import write_object

ANYCAST = {f"{OWN}/anycast": BOTH}
OUTSIDE = "2001:db8:54::9"
EVERYTHING = AGGREGATES["n1"] | {host_prefix(a) for a in (V6, V4, OUTSIDE)}
WITHOUT_ANYCAST = AGGREGATES["n1"] | {host_prefix(OUTSIDE)}


@pytest.fixture
def announcing(lab: Lab) -> Lab:
    """A pod with anycast addresses and one whose primary address is outside the aggregates, both announced by n1."""
    lab.pods.add("any", node="n1", annotations=ANYCAST, ready=True)
    lab.pods.add("fixed", node="n1", annotations={f"{OWN}/addresses": OUTSIDE}, ready=True)
    follows(lambda: set(received(lab, "n1")), EVERYTHING)
    return lab


def withdraw_on_cordon(spec: Spec) -> None:
    spec["anycast"]["withdrawOnCordon"] = True


def test_a_cordoned_node_keeps_announcing_unless_told_otherwise(announcing: Lab) -> None:
    announcing.cordon("n1", True)
    # a later change of the same kind has been taken in, so the cordon has too
    announcing.pods.add("later", node="n1", annotations={f"{OWN}/anycast": "2001:db8:53::2"}, ready=True)
    follows(lambda: set(received(announcing, "n1")), EVERYTHING | {"2001:db8:53::2/128"})


def test_withdraw_on_cordon_withdraws_anycast_alone_and_uncordon_restores_it(announcing: Lab) -> None:
    since = up_since(announcing, "n1")
    change_config(announcing, "n1", withdraw_on_cordon)
    announcing.cordon("n1", True)
    follows(lambda: set(received(announcing, "n1")), WITHOUT_ANYCAST)
    assert why_not(announcing, "n1")["default/any", V6] == "the node is cordoned"
    announcing.cordon("n1", False)
    follows(lambda: set(received(announcing, "n1")), EVERYTHING)
    assert up_since(announcing, "n1") == since


def test_drain_withdraws_anycast_with_the_session_up_until_undrain_even_across_a_restart(announcing: Lab) -> None:
    since = up_since(announcing, "n1")
    shown = flockctl(announcing, "n1", "drain")
    assert (shown.returncode, shown.stdout.count("drained")) == (0, 2)
    follows(lambda: set(received(announcing, "n1")), WITHOUT_ANYCAST)
    for way in (signal.SIGKILL, signal.SIGTERM):
        stop_agent(announcing, "n1", way)
        start_agent(announcing, "n1")
        assert "drained" in status(announcing, "n1")["withdrawn"]
        announcing.pods.set_ready("any", True)
        assert set(received(announcing, "n1")) == WITHOUT_ANYCAST
    assert flockctl(announcing, "n1", "undrain").returncode == 0
    follows(lambda: set(received(announcing, "n1")), EVERYTHING)
    assert up_since(announcing, "n1") == since


def test_sigterm_of_an_agent_withdraws_nothing(announcing: Lab) -> None:
    before = kernel_routes(announcing, "n1"), nexthops(announcing, "n1"), up_since(announcing, "n1")
    stop_agent(announcing, "n1", signal.SIGTERM)
    assert (kernel_routes(announcing, "n1"), nexthops(announcing, "n1")) == before[:2]
    assert set(received(announcing, "n1")) == EVERYTHING
    start_agent(announcing, "n1")
    assert (kernel_routes(announcing, "n1"), nexthops(announcing, "n1"), up_since(announcing, "n1")) == before


def test_sigterm_of_an_agent_on_a_cordoned_node_withdraws_anycast_with_the_session_up(announcing: Lab) -> None:
    since = up_since(announcing, "n1")
    announcing.cordon("n1", True)
    eventually(lambda: status(announcing, "n1"), bool)  # whoever answers has taken in what was written before
    stop_agent(announcing, "n1", signal.SIGTERM)
    assert kernel_routes(announcing, "n1").keys() == {OUTSIDE}
    follows(lambda: set(received(announcing, "n1")), WITHOUT_ANYCAST)
    start_agent(announcing, "n1")
    assert up_since(announcing, "n1") == since


# --- grants -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"anycast": "2001:db8:77::1"}, "spec.anycast.allowed"),
        ({"anycast": "203.0.113.77"}, "spec.anycast.allowed"),
        ({"addresses": V6}, "spec.addresses.allowed"),
        ({"anycast": OUTSIDE}, "spec.anycast.allowed"),
        ({"anycast": "2001:db8:ff1:1::2"}, "belongs to a node"),
        ({"anycast": "2001:db8:ff1:1::1"}, "a router"),
        ({"addresses": "2001:db8:ff1:1::77"}, "their network"),
        ({"anycast": "fe80::53"}, "link-local"),
        ({"anycast": "224.0.0.53"}, "multicast"),
    ],
)
def test_an_address_that_is_not_granted_fails_the_add_with_the_reason(
    lab: Lab, asked: dict[str, str], reason: str
) -> None:
    """Invariant 9."""
    (kind,), (address,) = asked.keys(), asked.values()
    with pytest.raises(CniError) as refused:
        lab.pods.add("greedy", node="n1", annotations={f"{OWN}/{kind}": address}, ready=True)
    assert address in refused.value.msg
    assert f"{OWN}/{kind}" in refused.value.msg
    assert reason in refused.value.msg
    assert set(received(lab, "n1")) == AGGREGATES["n1"]


def test_a_grant_may_be_for_some_namespaces_and_follows_their_labels(lab: Lab) -> None:
    grant = {"prefixes": ["2001:db8:53::/64"], "namespaceSelector": {"matchLabels": {"anycast": "yes"}}}
    change_config(lab, "n1", lambda spec: spec.update(anycast={"allowed": [grant]}))

    def label(labels: dict[str, str]) -> None:
        metadata = {"name": "shop", "labels": labels}
        write_object(
            lab.home.manifests, "namespace-shop", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        )

    label({})
    try:
        wanted = {f"{OWN}/anycast": V6}
        with pytest.raises(CniError, match=r"spec\.anycast\.allowed"):
            lab.pods.add("p", node="n1", namespace="shop", annotations=wanted, ready=True)
        label({"anycast": "yes"})
        lab.pods.add("p", node="n1", namespace="shop", annotations=wanted, ready=True)
        follows(lambda: senders(lab, V6), {"n1"})
        label({})
        follows(lambda: senders(lab, V6), set())
        assert "does not grant" in why_not(lab, "n1")["shop/p", V6]
    finally:
        (lab.home.manifests / "namespace-shop.json").unlink()


def test_an_address_of_the_aggregate_that_is_granted_to_others_is_withdrawn(lab: Lab) -> None:
    inside = "100.64.1.53"
    lab.pods.add("p", node="n1", annotations={f"{OWN}/anycast": inside}, ready=True)
    follows(lambda: senders(lab, inside), {"n1"})
    others = {"prefixes": [f"{inside}/32"], "namespaceSelector": {"matchLabels": {"team": "shop"}}}
    change_config(lab, "n1", lambda spec: spec["addresses"]["allowed"].append(others))
    follows(lambda: senders(lab, inside), set())
    assert why_not(lab, "n1")["default/p", inside] == "spec.anycast.allowed does not grant it any more"
    change_config(lab, "n1", lambda spec: spec["addresses"]["allowed"].remove(others))
    follows(lambda: senders(lab, inside), {"n1"})


@pytest.mark.parametrize("kind", ["anycast", "addresses"])
def test_a_grant_taken_away_withdraws_and_given_back_restores(lab: Lab, kind: str) -> None:
    extra = {"anycast": V6, "addresses": OUTSIDE}[kind]
    asked = V6 if kind == "anycast" else f"2001:db8:1::77, {OUTSIDE}"  # the first one is the primary
    lab.pods.add("p", node="n1", annotations={f"{OWN}/{kind}": asked}, ready=True)
    follows(lambda: senders(lab, extra), {"n1"})
    allowed: list[Spec] = []
    change_config(lab, "n1", lambda spec: allowed.extend(spec[kind].pop("allowed")))
    follows(lambda: senders(lab, extra), set())
    assert why_not(lab, "n1")["default/p", extra] == f"spec.{kind}.allowed does not grant it any more"
    assert f"spec.{kind}.allowed" in flockctl(lab, "n1", "anycast").stdout
    change_config(lab, "n1", lambda spec: spec[kind].update(allowed=allowed))
    follows(lambda: senders(lab, extra), {"n1"})


# --- conntrack ----------------------------------------------------------------------------------------------

TRACKING = "table inet tracking { chain c { type filter hook forward priority 0; ct state established accept; }; }"


@pytest.fixture
def tracked(lab: Lab) -> Callable[[], set[str]]:
    """n1 tracks connections; what is returned tells the destinations it knows."""
    lab.host("n1").run(["nft", "-f", "-"], stdin=TRACKING)

    def destinations() -> set[str]:
        said = ""
        for family in ("ipv6", "ipv4"):
            command = lab.host("n1").inside(["conntrack", "-L", "-f", family, "-p", "tcp", "-o", "xml"])
            said += subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        return {part.split("<")[0] for part in said.split("<dst>")[1:]}

    yield destinations
    lab.host("n1").run(["nft", "delete", "table", "inet", "tracking"])


@pytest.mark.parametrize("how", ["unready", "delete"])
def test_connections_of_a_withdrawn_address_are_forgotten_and_others_are_not(
    lab: Lab, serve: Serve, tracked: Callable[[], set[str]], how: str
) -> None:
    lab.pods.add("a", node="n1", annotations=ANYCAST, ready=True)
    lab.pods.add("b", node="n1")
    for name in ("a", "b"):
        serve(lab, name)
    for router in ("r1", "r2"):
        becomes(lambda r=router: senders(lab, V4, r) & senders(lab, V6, r), {"n1"})
    other = lab.pods.get("b").addresses[0]
    flows = [flow for address in (V6, V4, other) for flow in open_flows(lab, "client", address)]
    try:
        assert {V6, V4, other} <= tracked()
        if how == "unready":
            lab.pods.set_ready("a", False)
        else:
            lab.pods.delete("a")
        becomes(lambda: tracked() & {V6, V4, other}, {other})
        assert flows[-1].answers()
    finally:
        close_all(flows)


def test_flockctl_anycast_shows_who_announces_what_and_why_not(announcing: Lab) -> None:
    announcing.pods.add("waiting", node="n1", annotations={f"{OWN}/anycast": V6})
    rows = json.loads(flockctl(announcing, "n1", "anycast", "-o", "json").stdout)
    told = {(row["pod"], row["address"]): (row["announced"], row["reason"]) for row in rows}
    assert told == {
        ("default/any", V6): (True, ""),
        ("default/any", V4): (True, ""),
        ("default/waiting", V6): (False, "the pod is not Ready"),
    }
