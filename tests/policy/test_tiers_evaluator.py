"""The evaluator of all three tiers: worked examples, fact by fact, and no fact can be turned around unnoticed."""

from dataclasses import replace
from random import Random

import pytest
from evaluator import Object
from tiers_cases import (
    ALL_TCP,
    ANYWHERE,
    DOMAINS,
    EVERYONE,
    NODES_ALL,
    accept,
    admin,
    app,
    baseline,
    cluster,
    deny,
    named,
    namespaced,
    networks,
    of,
    packets,
    said,
    skip,
    tcp,
    zone,
)
from tiers_facts import MISREADINGS, RIGHT
from tiers_worlds import change, packet, world

A, N, B = admin, namespaced, baseline
NO_RULES: list[Object] = []
LETS_DB: list[Object] = [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]

CASES: list[tuple[str, list[Object], str, str]] = [
    # --- order
    ("nothing decides: allowed", [], "web > ledger", "free, free"),
    ("the lower priority goes first", [A("a", 9, out=[deny(EVERYONE)]), A("b", 2, out=[accept(EVERYONE)])],
     "web > ledger", "Admin b/0 allows, free"),
    ("priorities are numbers", [A("a", 10, out=[deny(EVERYONE)]), A("b", 9, out=[accept(EVERYONE)])],
     "web > ledger", "Admin b/0 allows, free"),
    ("the same priority goes by name", [A("b", out=[accept(EVERYONE)]), A("a", out=[deny(EVERYONE)])],
     "web > ledger", "Admin a/0 denies, free"),
    ("names compare byte by byte", [A("p9", out=[accept(EVERYONE)]), A("p10", out=[deny(EVERYONE)])],
     "web > ledger", "Admin p10/0 denies, free"),
    ("rules go in order", [A("a", out=[deny(of("shop")), accept(EVERYONE), deny(EVERYONE)])],
     "web > ledger", "Admin a/1 allows, free"),
    ("Admin goes before Baseline, whatever the priorities",
     [B("b", 0, out=[deny(EVERYONE)]), A("a", 1000, out=[accept(EVERYONE)])],
     "web > ledger", "Admin a/0 allows, free"),
    ("Admin goes before NetworkPolicy", [A("a", into=[accept(EVERYONE)]), N("bank", "Ingress", ingress=[])],
     "web > ledger", "free, Admin a/0 allows"),
    ("and denies what NetworkPolicy allows", [A("a", into=[deny(EVERYONE)]), N("bank", "Ingress", ingress=[{}])],
     "web > ledger", "free, Admin a/0 denies"),
    ("NetworkPolicy goes before Baseline", [B("b", into=[deny(EVERYONE)]), N("bank", "Ingress", ingress=[{}])],
     "web > ledger", "free, NetworkPolicy bank/n allows"),
    ("and is final where none of its rules match",
     [B("b", into=[accept(EVERYONE)]), N("bank", "Ingress", ingress=NO_RULES)],
     "web > ledger", "free, NetworkPolicy bank/n denies"),
    ("Baseline decides for who is not isolated", [B("b", into=[deny(EVERYONE)]), N("shop", "Ingress", ingress=[{}])],
     "web > ledger", "free, Baseline b/0 denies"),
    ("isolation counts per direction: ingress-only leaves Baseline egress in force",
     [B("b", out=[deny(EVERYONE)]), N("shop", "Ingress", ingress=[{}])], "web > ledger", "Baseline b/0 denies, free"),
    ("Pass skips the rules after it", [A("a", out=[skip(EVERYONE), deny(EVERYONE)])], "web > ledger", "free, free"),
    ("Pass skips the policies after it", [A("a", out=[skip(EVERYONE)]), A("b", out=[deny(EVERYONE)])],
     "web > ledger", "free, free"),
    ("Pass leads to NetworkPolicy", [A("a", into=[skip(EVERYONE)]), N("bank", "Ingress", ingress=NO_RULES)],
     "web > ledger", "free, NetworkPolicy bank/n denies"),
    ("and from there to Baseline", [A("a", out=[skip(EVERYONE)]), B("b", out=[deny(EVERYONE)])],
     "web > ledger", "Baseline b/0 denies, free"),
    ("Pass in Baseline leaves nobody to deny", [B("b", out=[skip(EVERYONE), deny(EVERYONE)])],
     "web > ledger", "free, free"),
    ("a subject is not isolated", [A("a", out=[accept(of("shop"))]), B("b", out=[accept(of("shop"))])],
     "web > ledger", "free, free"),
    ("an egress Accept does not open the other end", [A("a", out=[accept(EVERYONE)], into=[deny(EVERYONE)])],
     "web > ledger", "Admin a/0 allows, Admin a/0 denies"),
    # --- who is meant
    ("a subject by namespaces", [A("a", 5, of("bank"), out=[deny(EVERYONE)])], "web > ledger", "free, free"),
    ("a subject by pods of every namespace", [A("a", 5, app("web"), out=[deny(EVERYONE)])],
     "web > ledger", "Admin a/0 denies, free"),
    ("a peer by pods of every namespace", [A("a", out=[deny(app("ledger"))])],
     "web > ledger", "Admin a/0 denies, free"),
    ("a peer by pods of some namespaces",
     [A("a", out=[deny(app("ledger", namespaceSelector={"matchLabels": {"team": "blue"}}))])],
     "web > ledger", "free, free"),
    ("peers by labels are pods: not whoever is outside", [A("a", out=[deny(EVERYONE)])], "web > out", "free, -"),
    ("nor nodes", [A("a", out=[deny(EVERYONE)])], "web > n2", "free, -"),
    ("host-network pods are no peers", [A("a", out=[deny(of("kube"), app("proxy"))])], "db > proxy", "free, -"),
    ("host-network pods are no subjects", [A("a", out=[deny(ANYWHERE)], into=[deny(EVERYONE)])],
     "proxy > out", "-, -"),
    ("nodes mean host-network pods", [A("a", out=[deny(zone("a"))])], "db > proxy", "Admin a/0 denies, -"),
    ("networks mean them too", [A("a", out=[deny(networks("10.9.0.1/32", "fd00:9::1/128"))])],
     "db > proxy", "Admin a/0 denies, -"),
    ("nodes are chosen by labels", [A("a", out=[deny(zone("b"))])], "db > proxy", "free, -"),
    ("nodes mean the addresses in their status", [A("a", out=[deny(NODES_ALL)])], "db > n1+", "free, -"),
    ("networks mean pods", [A("a", out=[deny(ANYWHERE)])], "web > ledger", "Admin a/0 denies, free"),
    ("networks are masked", [A("a", out=[deny(networks("10.0.0.77/24", "fd00::77/64"))])],
     "web > ledger", "Admin a/0 denies, free"),
    ("a container without a namespace is nobody's subject",
     [A("a", out=[deny(ANYWHERE)]), B("b", out=[deny(ANYWHERE)], into=[deny(EVERYONE)])], "bare > out", "free, -"),
    ("nor a peer by labels", [A("a", into=[deny(EVERYONE)])], "bare > web", "free, free"),
    ("a pod that has finished is no peer", [A("a", into=[deny(app("db"))])], "old > web", "free, free"),
    # --- which traffic
    ("no protocols mean ICMP too", [A("a", out=[deny(EVERYONE)])], "web > ledger ICMP", "Admin a/0 denies, free"),
    ("and those nobody knows", [A("a", out=[deny(EVERYONE)])], "web > ledger GRE", "Admin a/0 denies, free"),
    ("ICMP matches no rule with protocols", [A("a", out=[deny(EVERYONE, on=[ALL_TCP, {"udp": {}}, {"sctp": {}}])])],
     "web > ledger ICMP", "free, free"),
    ("a port is one of its protocol", [A("a", out=[deny(EVERYONE, on=[tcp(80)])])],
     "web > ledger UDP 80", "free, free"),
    ("a range has its first port", [A("a", out=[deny(EVERYONE, on=[tcp(80, 90)])])],
     "web > ledger TCP 80", "Admin a/0 denies, free"),
    ("and its last", [A("a", out=[deny(EVERYONE, on=[tcp(80, 90)])])],
     "web > ledger TCP 90", "Admin a/0 denies, free"),
    ("and no more", [A("a", out=[deny(EVERYONE, on=[tcp(80, 90)])])], "web > ledger TCP 91", "free, free"),
    ("a bare protocol means all its ports", [A("a", out=[deny(EVERYONE, on=[ALL_TCP])])],
     "web > ledger TCP 4711", "Admin a/0 denies, free"),
    ("a name means every port of that name", [A("a", into=[deny(EVERYONE, on=[named("http")])])],
     "db > web TCP 8080", "free, Admin a/0 denies"),
    ("in each protocol", [A("a", into=[deny(EVERYONE, on=[named("dns")])])],
     "db > web UDP 53", "free, Admin a/0 denies"),
    ("but in no other", [A("a", into=[deny(EVERYONE, on=[named("http")])])], "db > web UDP 80", "free, free"),
    ("the names are the destination's, for egress too", [A("a", out=[deny(EVERYONE, on=[named("http")])])],
     "web > db TCP 81", "Admin a/0 denies, free"),
    ("a name beside networks never matches by them", [A("a", out=[deny(ANYWHERE, on=[named("http")])])],
     "db > web TCP 80", "free, free"),
    ("the rest of that rule stays: other peers", [A("a", out=[deny(ANYWHERE, EVERYONE, on=[named("http")])])],
     "db > web TCP 80", "Admin a/0 denies, free"),
    ("the rest of that rule stays: other protocols", [A("a", out=[deny(NODES_ALL, on=[named("http"), tcp(22)])])],
     "db > n1 TCP 22", "Admin a/0 denies, -"),
    # --- a pod and itself, and its node
    ("traffic to oneself is not subject", [A("a", out=[deny(ANYWHERE)], into=[deny(EVERYONE)])],
     "web > web", "itself allows, itself allows"),
    ("by a Service it is", [A("a", into=[deny(EVERYONE)])], "web > web by service", "free, Admin a/0 denies"),
    ("where NetworkPolicy keeps what it has",
     [N("shop", "Ingress", "Egress", ingress=NO_RULES), B("b", into=[deny(EVERYONE)])],
     "web > web by service", "NetworkPolicy shop/n allows, NetworkPolicy shop/n allows"),
    ("the own node gets in", [A("a", into=[deny(DOMAINS)])], "n1 > web", "-, own node allows"),
    ("by any of its addresses", [A("a", into=[deny(DOMAINS)])], "n1+ > web", "-, own node allows"),
    ("another node need not", [A("a", into=[deny(DOMAINS)])], "n2 > web", "-, Admin a/0 denies"),
    ("egress to the own node can be denied by nodes", [A("a", out=[deny(NODES_ALL)])],
     "web > n1", "Admin a/0 denies, -"),
    ("and by networks", [B("b", out=[deny(ANYWHERE)])], "web > n1+", "Baseline b/0 denies, -"),
    ("but not by NetworkPolicy, which is final then too", [N("shop", "Egress"), B("b", out=[deny(ANYWHERE)])],
     "web > n1", "NetworkPolicy shop/n allows, -"),
    ("which denies another node", [N("shop", "Egress")], "web > n2", "NetworkPolicy shop/n denies, -"),
    # --- what cannot be read
    ("an Accept with an unknown peer matches nothing", [A("a", out=[accept(EVERYONE, DOMAINS), deny(EVERYONE)])],
     "web > ledger", "Admin a/1 denies, free"),
    ("a Deny with an unknown peer denies everything", [A("a", out=[deny(DOMAINS, of("shop"))])],
     "web > ledger", "Admin a/0 denies, free"),
    ("a Pass with one, too", [A("a", out=[skip({"planets": {}})])], "web > out", "Admin a/0 denies, -"),
    ("whatever its protocols", [A("a", out=[deny({}, on=[tcp(443)])])], "web > out ICMP", "Admin a/0 denies, -"),
    ("even to the own node", [A("a", out=[deny(DOMAINS)])], "web > n1", "Admin a/0 denies, -"),
    ("networks are unknown to ingress", [A("a", into=[accept(ANYWHERE), deny(EVERYONE)])],
     "web > ledger", "free, Admin a/1 denies"),
    ("a Deny that might mean a pod counts", [A("a", 5, app("web"), out=[deny(EVERYONE)])],
     "new > ledger", "Admin a/0 denies, free"),
    ("an Accept that might does not", [A("a", 5, app("web"), out=[accept(EVERYONE)]), A("b", out=[deny(EVERYONE)])],
     "new > ledger", "Admin b/0 denies, free"),
    ("one that surely does, does", [A("a", 5, of("shop"), out=[accept(EVERYONE)]), A("b", out=[deny(EVERYONE)])],
     "new > ledger", "Admin a/0 allows, free"),
    ("so with a peer that might be meant", [A("a", into=[deny(app("web"))])], "new > ledger", "free, Admin a/0 denies"),
    ("whom other nodes do not know at all", [A("a", into=[deny(EVERYONE)])], "new > db", "free, free"),
    ("a Pass that might goes both ways: on",
     [A("a", 4, app("web"), out=[skip(EVERYONE)]), A("b", out=[deny(EVERYONE)])],
     "new > ledger", "Admin b/0 denies, free"),
    ("or down",
     [A("a", 4, app("web"), out=[skip(EVERYONE)]), A("b", out=[accept(EVERYONE)]), B("c", out=[deny(EVERYONE)])],
     "new > ledger", "Baseline c/0 denies, free"),
    ("what is audited does nothing", [A("a", out=[deny(EVERYONE)], audit=True)], "web > ledger", "free, free"),
]  # fmt: skip


@pytest.mark.parametrize(("fact", "policies", "asked", "answer"), CASES, ids=[case[0] for case in CASES])
def test_so_it_is(fact: str, policies: list[Object], asked: str, answer: str) -> None:
    found = cluster(policies, {})
    assert [said(found.judge(one)) for one in packets(asked)] == [answer, answer], fact


UNREADABLE: list[tuple[str, dict[str, str], str, str]] = [
    ("it denies what its subject means, in its place", {"a": "rules"},
     "web > ledger", "Baseline a denies, Baseline a denies"),
    ("below NetworkPolicy, if it is of Baseline", {"a": "rules"},
     "web > db", "Baseline a denies, NetworkPolicy shop/n denies"),
    ("and first of all, if its place cannot be read", {"a": "place"}, "web > db", "Admin a denies, Admin a denies"),
    ("the own node gets in even so", {"a": "place"}, "n1 > web", "-, own node allows"),
    ("but is not reached", {"a": "place"}, "web > n1", "Admin a denies, -"),
    ("whose subject cannot be read denies nobody", {"a": "subject"}, "web > ledger", "free, free"),
]  # fmt: skip


@pytest.mark.parametrize(("fact", "unreadable", "asked", "answer"), UNREADABLE, ids=[case[0] for case in UNREADABLE])
def test_a_policy_that_never_could_be_read(fact: str, unreadable: dict[str, str], asked: str, answer: str) -> None:
    found = cluster([B("a", out=[accept(EVERYONE)]), N("shop", "Ingress", ingress=LETS_DB)], unreadable)
    assert [said(found.judge(one)) for one in packets(asked)] == [answer, answer], fact


def test_what_is_audited_can_be_judged_as_if_it_were_in_force() -> None:
    found = cluster([A("a", out=[deny(EVERYONE)], audit=True)], {})
    for one in packets("web > ledger"):
        assert found.judge(one).allowed
        assert said(found.judge(one, audited=True)) == "Admin a/0 denies, free"


WORLDS = 300
PACKETS = 40  # of one state of a world


def test_no_fact_can_be_turned_around_without_a_packet_of_the_random_worlds_faring_differently() -> None:
    unnoticed = MISREADINGS
    for seed in range(WORLDS):
        random = Random(seed)
        found = world(random)
        for _ in range(3):
            for one in (packet(random, found) for _ in range(PACKETS)):
                allowed = found.judge(one, at="here").allowed
                unnoticed = {
                    name: facts
                    for name, facts in unnoticed.items()
                    if found.judge(one, at="here", facts=facts).allowed == allowed
                }
            found, _told = change(random, found)
        if not unnoticed:
            break
    assert len(MISREADINGS) >= 25
    assert unnoticed.keys() == set()


def test_without_policies_of_the_cluster_networkpolicy_decides_alone() -> None:
    for seed in range(40):
        random = Random(seed)
        found = replace(world(random), cluster_policies=[])
        for one in (packet(random, found) for _ in range(50)):
            ends = (one.source, one.destination, one.protocol, one.port)
            assert found.judge(one).allowed == all(found.seen_from(node.name).allows(*ends) for node in found.nodes)


def test_random_worlds_give_both_answers_by_every_tier() -> None:
    """So that what agrees with the evaluator there agrees about something."""
    decided: set[tuple[str, bool]] = set()
    for seed in range(20):
        random = Random(seed)
        found = world(random)
        for one in (packet(random, found) for _ in range(100)):
            judgement = found.judge(one, facts=RIGHT)
            decided |= {(end.tier, end.allowed) for end in (judgement.egress, judgement.ingress) if end is not None}
    both = {(tier, allowed) for tier in ("Admin", "NetworkPolicy", "Baseline") for allowed in (True, False)}
    assert decided == both | {("", True), ("itself", True), ("own node", True)}
