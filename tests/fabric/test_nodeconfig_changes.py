"""A NodeConfig that changes while pods run: what is announced follows, and nothing else moves."""

import signal
from typing import Any

import pytest
from fabric_parts import (
    AGGREGATES,
    BOTH,
    OWN,
    V6,
    Spec,
    becomes,
    bird_conf,
    change_config,
    config_file,
    degraded,
    established,
    eventually,
    host_prefix,
    kernel_routes,
    received,
    reloads,
    senders,
    start_agent,
    stop_agent,
    told,
    up_since,
)

from flock.lab.fabric import Lab
from flock.lab.reach import ping

NEW6, NEW4 = "2001:db8:1:1::/64", "100.64.101.0/24"


def without_peer(name: str, into: list[Spec]) -> Any:
    def change(spec: Spec) -> None:
        peers = spec["bgp"]["peers"]
        into.extend(p for p in peers if p["name"] == name)
        spec["bgp"]["peers"] = [p for p in peers if p["name"] != name]

    return change


def test_a_peer_removed_and_added_leaves_the_other_session_alone(lab: Lab) -> None:
    since = up_since(lab, "n1")
    gone: list[Spec] = []
    change_config(lab, "n1", without_peer("r2", gone))
    becomes(lambda: established(lab, "n1", "r2"), False)
    becomes(lambda: [row["peer"] for row in told(lab, "n1", "bgp")], ["r1"])
    change_config(lab, "n1", lambda spec: spec["bgp"]["peers"].extend(gone))
    becomes(lambda: established(lab, "n1", "r2"), True)
    becomes(lambda: set(received(lab, "n1", "r2")), AGGREGATES["n1"])
    assert up_since(lab, "n1")["r1"] == since["r1"]


def test_an_added_cidr_is_announced_and_new_pods_use_it(lab: Lab) -> None:
    since = up_since(lab, "n1")
    lab.pods.add("old", node="n1")
    change_config(lab, "n1", lambda spec: spec.update(cidr6=[NEW6, *spec["cidr6"]], cidr4=[NEW4, *spec["cidr4"]]))
    becomes(lambda: set(received(lab, "n1")), AGGREGATES["n1"] | {NEW6, NEW4})
    new = lab.pods.add("new", node="n1")
    assert [a.rpartition(":")[0].startswith("2001:db8:1:1:") or a.startswith("100.64.101.") for a in new.addresses] == [
        True,
        True,
    ]
    for pod in ("old", "new"):
        becomes(lambda p=pod: [answer.reached for answer in ping(lab, "client", p)], [True, True])
    assert set(received(lab, "n1")) == AGGREGATES["n1"] | {NEW6, NEW4}  # and no pod by itself
    assert up_since(lab, "n1") == since


@pytest.mark.parametrize("restarted", [False, True])
def test_a_removed_cidr_is_announced_until_its_last_pod_is_gone(lab: Lab, restarted: bool) -> None:
    for name in ("first", "last"):
        lab.pods.add(name, node="n1")
    change_config(lab, "n1", lambda spec: spec.update(cidr6=[NEW6], cidr4=[NEW4]))
    everything = AGGREGATES["n1"] | {NEW6, NEW4}
    becomes(lambda: set(received(lab, "n1")), everything)
    if restarted:
        stop_agent(lab, "n1", signal.SIGKILL)
        start_agent(lab, "n1")
    new = lab.pods.add("new", node="n1")
    assert new.addresses[0].startswith("2001:db8:1:1:") and new.addresses[1].startswith("100.64.101.")
    lab.pods.delete("first")
    becomes(lambda: [answer.reached for answer in ping(lab, "client", "last")], [True, True])
    assert set(received(lab, "n1")) == everything
    lab.pods.delete("last")
    becomes(lambda: set(received(lab, "n1")), {NEW6, NEW4})
    assert not kernel_routes(lab, "n1")


def test_an_address_that_comes_to_lie_in_an_aggregate_is_no_longer_announced_by_itself(lab: Lab) -> None:
    lab.pods.add("fixed", node="n1", annotations={f"{OWN}/addresses": "2001:db8:54::7"})
    becomes(lambda: senders(lab, "2001:db8:54::7"), {"n1"})
    change_config(lab, "n1", lambda spec: spec["cidr6"].append("2001:db8:54::/120"))
    becomes(lambda: set(received(lab, "n1")), AGGREGATES["n1"] | {"2001:db8:54::/120"})
    becomes(lambda: [p.reached for p in ping(lab, "client", "2001:db8:54::7")], [True])
    change_config(lab, "n1", lambda spec: spec["cidr6"].pop())
    # kept while the pod is in it, then gone with it
    lab.pods.delete("fixed")
    becomes(lambda: set(received(lab, "n1")), AGGREGATES["n1"])


@pytest.mark.parametrize(
    ("field", "break_it"),
    [
        ("spec.bgp.peers[0].address", lambda spec: spec["bgp"]["peers"][0].update(address="2001:db8::1; }")),
        ("spec.bgp.peers[0].name", lambda spec: spec["bgp"]["peers"][0].update(name="} protocol static {")),
        ("spec.bgp.peers[0].communities[0]", lambda spec: spec["bgp"]["peers"][0].update(communities=["1:2)); }"])),
        ("spec.cidr6[0]", lambda spec: spec.update(cidr6=["2001:db8:1::/64 blackhole; }"])),
        ("spec.bgp.asn", lambda spec: spec["bgp"].update(asn="64601; }")),
        ("spec.unknown", lambda spec: spec.update(unknown=True)),
    ],
)
def test_a_bad_nodeconfig_keeps_the_last_good_one_in_force(lab: Lab, field: str, break_it: Any) -> None:
    """A brace in an operator's value never reaches bird.conf; the field is named where people look."""
    conf, since, good = bird_conf(lab, "n1"), up_since(lab, "n1"), config_file(lab, "n1").read_bytes()
    change_config(lab, "n1", break_it)
    eventually(lambda: degraded(lab, "n1"), lambda text: field in text)
    lab.pods.add("a", node="n1", annotations={f"{OWN}/anycast": BOTH}, ready=True)
    becomes(lambda: senders(lab, V6), {"n1"})
    assert bird_conf(lab, "n1") == conf
    config_file(lab, "n1").write_bytes(good)
    becomes(lambda: degraded(lab, "n1"), "")
    assert up_since(lab, "n1") == since


def test_a_deleted_nodeconfig_stays_in_force(lab: Lab) -> None:
    good = config_file(lab, "n1").read_bytes()
    config_file(lab, "n1").unlink()
    try:
        eventually(lambda: degraded(lab, "n1"), lambda text: "was deleted" in text)
        assert lab.pods.add("a", node="n1").addresses
        assert set(received(lab, "n1")) == AGGREGATES["n1"]
    finally:
        config_file(lab, "n1").write_bytes(good)
    becomes(lambda: degraded(lab, "n1"), "")


def test_readiness_and_unchanged_nodeconfigs_never_reload_bird(lab: Lab) -> None:
    """What comes and goes is a kernel route, so nothing of bird.conf's pace applies to it."""
    conf = lab.node("n1").bird_dir / "bird.conf"
    before = reloads(lab, "n1"), conf.stat().st_mtime_ns, conf.stat().st_ino
    lab.pods.add("a", node="n1", annotations={f"{OWN}/anycast": BOTH})
    for ready in (True, False, True):
        lab.pods.set_ready("a", ready)
        becomes(lambda: senders(lab, V6), {"n1"} if ready else set())
    change_config(lab, "n1", lambda spec: spec["bgp"]["peers"].reverse())  # says the same
    change_config(lab, "n1", lambda spec: spec["anycast"].update(withdrawOnCordon=True))  # says nothing to BIRD
    lab.cordon("n1", True)
    becomes(lambda: senders(lab, V6), set())
    assert (reloads(lab, "n1"), conf.stat().st_mtime_ns, conf.stat().st_ino) == before


def test_withdrawals_overtake_a_change_that_waits_for_the_next_reload(lab: Lab) -> None:
    """The first change is taken at once; the second has to wait half a second, and by then a
    pod that is ready, unready, ready and unready again was seen so by a router.  On a machine that is too busy the
    order may be lost: one try in several is enough, and with a debounce none would do."""

    def tag(number: int) -> None:
        change = {"communities": [f"64601:{number}"]}
        change_config(lab, "n1", lambda spec: [peer.update(change) for peer in spec["bgp"]["peers"]])

    def tagged(number: int) -> bool:
        return f"64601, {number})" in bird_conf(lab, "n1")

    lab.pods.add("a", node="n1", annotations={f"{OWN}/anycast": V6})
    overtaken = False
    for attempt in range(1, 20, 2):
        tag(attempt)
        becomes(lambda n=attempt: tagged(n), True)
        tag(attempt + 1)
        for ready in (True, False, True, False):
            lab.pods.set_ready("a", ready)
            becomes(lambda: host_prefix(V6) in received(lab, "n1"), ready)
        overtaken = not tagged(attempt + 1)
        becomes(lambda n=attempt + 1: tagged(n), True)
        if overtaken:
            break
    assert overtaken


def test_a_changed_mtu_counts_for_new_pods_alone(lab: Lab) -> None:
    lab.pods.add("old", node="n1")
    change_config(lab, "n1", lambda spec: spec.update(mtu=1400))
    becomes(lambda: told(lab, "n1", "status")["mtu"], 1400)
    lab.pods.add("new", node="n1")
    mtus = [lab.host(pod).run(["cat", "/sys/class/net/eth0/mtu"]).strip() for pod in ("old", "new")]
    assert mtus == ["1500", "1400"]
