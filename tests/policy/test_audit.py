"""A policy that is audited, as an operator meets it: it does nothing, tells whom it would cut off, and is enforced by
taking the annotation away."""

import json
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest
from hammer import Tap
from inhabiting import audited, open_flows
from probing import Cell
from realcluster import FAR, NEAR, WEB, RealCluster, flockctl, policy
from siege import NODE_CONFIG, add, besieging
from tiers_cases import admin, deny, networks

from harness import BIN, Node, eventually, run

AUDIT = "flock.fritzlab.net/audit"
SPEC = {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]}
GUARD = policy("guard", SPEC, **{AUDIT: "true"})
MANY = 30  # rounds of packets, to be sure that they come all the time
EVERYBODY = networks("::/0", "0.0.0.0/0")


@pytest.fixture
def cluster(standing: RealCluster) -> RealCluster:
    """With a policy that would keep y/far out of x/web."""
    standing.set_policies([GUARD])
    standing.set_cluster_policies([])
    standing.settle()
    standing.finish_settling()
    return standing


def nft(cluster: RealCluster, *command: str) -> str:
    return run("nsenter", f"--net=/run/netns/{cluster.nodes[0].netns}", "nft", *command).stdout


def chains(cluster: RealCluster) -> str:
    return nft(cluster, "list", "chains")


class Reading:
    """What was told since."""

    def __init__(self, cluster: RealCluster) -> None:
        self._node, self.cursor = cluster.nodes[0], ""
        self.more()

    def more(self) -> list[dict[str, object]]:
        answer = self._node.rpc({"op": "policy.audit", "args": self.cursor})["result"]
        self.cursor = answer["cursor"]
        found: list[dict[str, object]] = answer["happened"]
        return found


def test_it_does_nothing_and_tells_each_connection_once_with_pod_peer_port_and_policy(cluster: RealCluster) -> None:
    reading = Reading(cluster)
    cells = [
        Cell(source, WEB, family, proto, 80) for source in (NEAR, FAR) for family in (4, 6) for proto in ("TCP", "UDP")
    ]
    cluster.assert_reached(cells, expected=cells)
    told: list[dict[str, object]] = []

    def all_told() -> bool:
        told.extend(reading.more())
        return len(told) >= 4

    eventually(all_told, what="each connection is told")
    told += reading.more()
    expected = [(cluster.address(FAR, f), cluster.address(WEB, f), p, 80) for f in (4, 6) for p in ("TCP", "UDP")]
    found = [(row["source"], row["destination"], row["protocol"], row["port"]) for row in told]
    assert sorted(found) == sorted(expected)
    for row in told:
        assert (row["what"], row["pod"], row["policies"], row["happening"]) == ("ingress", WEB, "x/guard", "WouldDrop")
    shown = flockctl(cluster.nodes[0], "policy", "drops", "--audit").stdout
    assert all(text in shown for text in (WEB, cluster.address(FAR, 4), "TCP/80", "would be isolated by x/guard"))
    assert cluster.address(FAR, 4) not in flockctl(cluster.nodes[0], "policy", "drops").stdout


def test_an_unanswered_flow_is_told_once_however_many_packets_it_has(cluster: RealCluster) -> None:
    reading = Reading(cluster)
    with cluster.prober.seats[FAR].inside():
        flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with flow:
        for _ in range(50):
            flow.sendto(b"x", (cluster.address(WEB, 4), 80))
        assert len(eventually(reading.more, what="it is told")) == 1
        sleep(0.1)
        assert reading.more() == []


def test_they_are_shown_as_they_come(cluster: RealCluster) -> None:
    node = cluster.nodes[0]
    command = [BIN / "flockctl", "--run-dir", node.run_dir, "policy", "drops", "--audit", "-f", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        try:
            cell = Cell(FAR, WEB, 6, "UDP", 53)
            cluster.assert_reached([cell], expected=[cell])
            assert follower.stdout is not None
            assert next(row for row in map(json.loads, follower.stdout) if row["port"] == 53)["policies"] == "x/guard"
        finally:
            follower.kill()


def test_why_tells_what_would_decide_and_show_what_is_only_audited(cluster: RealCluster) -> None:
    node = cluster.nodes[0]
    done = flockctl(node, "policy", "why", FAR, WEB, "80/TCP")
    assert done.stdout.startswith("allow: ")
    assert "with audited policies in force: deny" in done.stdout and "isolated by x/guard" in done.stdout
    (answer, *_) = json.loads(flockctl(node, "policy", "why", FAR, WEB, "80/TCP", "-o", "json").stdout)
    assert (answer["verdict"], answer["audited"]["verdict"]) == ("allow", "deny")
    (answer, *_) = json.loads(flockctl(node, "policy", "why", WEB, FAR, "80/TCP", "-o", "json").stdout)
    assert answer["audited"]["verdict"] == "allow"
    (shown,) = json.loads(flockctl(node, "policy", "show", WEB, "-o", "json").stdout)
    assert shown["ingress"] is None and shown["audited_egress"] == []
    assert shown["audited_ingress"] == ["x/guard: from all pods of namespace x: everything"]
    text = flockctl(node, "policy", "show", WEB).stdout
    assert "not isolated, everything passes" in text and "audited, not in force:" in text


def test_a_connection_that_both_ends_would_refuse_is_told_once(cluster: RealCluster) -> None:
    reading = Reading(cluster)
    mute = admin("mute", out=[deny(EVERYBODY)], into=[deny(EVERYBODY)], audit=True)
    mute["spec"].update(subject={"namespaces": {}})
    del mute["spec"]["ingress"]
    cluster.set_cluster_policies([mute])
    cluster.settle()
    cell = Cell(FAR, WEB, 4, "TCP", 80)
    cluster.assert_reached([cell], expected=[cell])
    (row,) = eventually(reading.more, what="it is told")
    assert (row["what"], row["pod"], row["policies"]) == ("egress", FAR, "Admin mute egress[0]")
    assert reading.more() == []
    done = flockctl(cluster.nodes[0], "policy", "why", FAR, WEB, "80/TCP").stdout
    assert "with audited policies in force: deny" in done and "denied by Admin mute egress[0]" in done


def test_it_goes_on_telling_across_a_restart_of_the_agent(cluster: RealCluster) -> None:
    node, cell = cluster.nodes[0], Cell(FAR, WEB, 4, "UDP", 81)
    before = chains(cluster)
    node.kill()
    assert chains(cluster) == before and "audit-ingress" in before
    node.start()
    assert chains(cluster) == before
    cluster.assert_reached([cell], expected=[cell])
    (row,) = eventually(lambda: node.ask("policy.audit")["happened"], what="it is told")
    assert row["policies"] == "x/guard"


def test_where_nothing_is_audited_there_is_no_chain_for_it_and_what_is_there_compares(cluster: RealCluster) -> None:
    assert "audit-ingress" in chains(cluster)
    assert flockctl(cluster.nodes[0], "check").returncode == 0
    cluster.set_policies([policy("guard", SPEC)])
    cluster.settle()
    cluster.finish_settling()
    assert "audit" not in chains(cluster)
    assert flockctl(cluster.nodes[0], "check").returncode == 0


def test_it_is_counted(cluster: RealCluster) -> None:
    before = audited(cluster)
    open_flows(cluster, FAR, WEB, count=60)  # more than are told
    assert audited(cluster) == before + 60


# --- under fire ---


def locked(audit: bool) -> dict[str, object]:
    """Friends come in, and nobody else."""
    friends = {"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}]}
    annotations = {AUDIT: "true"} if audit else {}
    return policy("guard", {"podSelector": {}, "ingress": [friends]}, namespace="locked", **annotations)


@pytest.fixture
def besieged(tmp_path: Path) -> Iterator[tuple[Node, dict[str, Tap]]]:
    with Node(tmp_path, config=NODE_CONFIG) as node:
        for name in ("locked", "outer"):
            node.write(f"namespace-{name}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        node.write("guard", locked(audit=True))
        node.start()
        add(node, "stranger", 200, namespace="outer", role="stranger")
        add(node, "friend", 100, namespace="locked", role="friend")
        for number in (1, 2, 3):
            add(node, f"victim{number}", number, namespace="locked", role="victim")
        with besieging(node) as seen:
            yield node, seen


def test_under_load_it_drops_nothing_and_without_the_annotation_it_is_in_force_in_one_instant(
    besieged: tuple[Node, dict[str, Tap]],
) -> None:
    node, seen = besieged
    victims = ("victim1", "victim2", "victim3")
    friend: Counter[int] = Counter()
    for _ in range(5):
        strangers = {name: Counter[int]() for name in victims}

        def nobody_gets_in(strangers: dict[str, Counter[int]] = strangers) -> bool:
            """While the friend does, from the same hammer: one that has no turn on a busy machine tells nothing."""
            sleep(0.2)
            heard = {name: seen[name].seen() for name in victims}
            rounds = {number for said, number in heard["victim1"] if said == "friend"}
            friend.update(number for said, number in heard["victim1"] if said == "friend")
            for name, packets in heard.items():
                strangers[name].update(number for said, number in packets if said == "into-a-pod")
            quiet = all(said != "into-a-pod" for packets in heard.values() for said, _ in packets)
            return quiet and len(rounds) > MANY

        eventually(
            lambda came=strangers: not nobody_gets_in() and min(map(len, came.values())) > MANY,
            what="it is not in force",
        )
        node.write("guard", locked(audit=False))
        eventually(nobody_gets_in, what="it is in force")
        for came in strangers.values():
            assert lost(came) == [], "nothing is lost before"
        last = [max(came) for came in strangers.values()]
        assert max(last) - min(last) <= 1, "all of them are closed at once"
        node.write("guard", locked(audit=True))
    assert lost(friend) == []


def lost(rounds: "Counter[int]") -> list[int]:
    """Of which not both families' packets arrived; the first and the last may be cut."""
    assert len(rounds) > MANY
    return [number for number in range(min(rounds) + 1, max(rounds)) if rounds[number] != 2]
