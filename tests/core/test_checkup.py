"""What a check asks, how it judges what it hears, and the words for it."""

import pytest

from flock.core.checkup import (
    CLOSED,
    FLOWS,
    Asker,
    Look,
    Place,
    Probe,
    Question,
    Reply,
    Row,
    by_family,
    judged,
    node_rows,
    questions,
    rules_trouble,
    session_trouble,
    shown,
    skipped,
    works,
)
from flock.core.policy.elements import TABLES

BOTH = {"a": {"ipv6": "2001:db8::a", "ipv4": "192.0.2.10"}, "b": {"ipv6": "2001:db8::b", "ipv4": "192.0.2.11"}}
ONLY_SIX = {"a": {"ipv6": "2001:db8:1::a"}, "b": {"ipv6": "2001:db8:1::b"}}
ANSWERED = Reply(asked=1, answered=1, by=("b-n2",))
SILENT = Reply(asked=1, answered=0, error="no answer")


def asked(check: str = "pod to pod", *, denied: bool = False, kind: str = "reach") -> Question:
    probe = Probe(address="2001:db8::b", kind=kind, port=CLOSED if denied else 7777)  # type: ignore[arg-type]
    by = "" if denied else "b-n2"
    return Question(
        check=check, asker=Asker("n1", "a"), target="n2/b", family="ipv6", probe=probe, denied=denied, by=by
    )


def row_of(question: Question, reply: Reply) -> Row:
    names = {"2001:db8:ff::1": "r1"}
    (row,) = judged(
        [question], [reply], owner=lambda a: names.get(a, a), look=lambda node, words: f"{node}: {' '.join(words)}"
    )
    return row


def test_every_node_is_asked_inside_and_from_the_next_one_in_both_families() -> None:
    found = questions([Place("n1", BOTH), Place("n2", BOTH), Place("n3", BOTH)])
    seen = {(q.check, q.asker.said, q.target) for q in found if q.family == "ipv4"}
    assert seen == {(q.check, q.asker.said, q.target) for q in found if q.family == "ipv6"}
    for here, there in (("n1", "n2"), ("n2", "n3"), ("n3", "n1")):
        assert ("pod to pod", f"{here}/a", f"{there}/b") in seen
        assert ("full size", f"{here}/a", f"{there}/b") in seen
        assert ("pod to pod", f"{here}/a", f"{here}/b") in seen
        assert ("node to pod", here, f"{here}/b") in seen
        assert ("policy denies", f"{here}/a", f"{here}/b") in seen
        assert ("full size", f"{here}/a", f"{here}/b") in seen


def test_across_nodes_several_flows_try_all_paths() -> None:
    found = questions([Place("n1", BOTH), Place("n2", BOTH)])
    assert {q.probe.flows for q in found if q.asker.pod and not q.target.startswith(q.asker.node)} == {FLOWS}


def test_a_family_that_one_end_lacks_is_not_asked_for() -> None:
    found = questions([Place("n1", BOTH), Place("n2", ONLY_SIX)])
    assert {q.family for q in found if q.asker.node == "n2" or q.target == "n2/b"} == {"ipv6"}


def test_one_node_alone_is_asked_inside_only() -> None:
    assert {q.target for q in questions([Place("n1", BOTH)])} == {"n1/b"}


def test_an_answer_of_the_right_one_is_fine_and_of_another_is_not() -> None:
    assert row_of(asked(), ANSWERED).result == "pass"
    wrong = row_of(asked(), Reply(asked=1, answered=1, by=("b-n3",)))
    assert (wrong.result, wrong.said) == ("fail", "b-n3 answered instead of b-n2")


def test_a_failure_names_who_was_heard_of_last_and_the_command_to_look_further() -> None:
    row = row_of(asked(), Reply(asked=8, answered=5, by=("b-n2",), error="no answer", path=("", "2001:db8:ff::1")))
    assert row.said == "3 of 8 flows: no answer; last heard of is r1 (2001:db8:ff::1), nothing from there on"
    assert row.hop == "r1 (2001:db8:ff::1)"
    assert row.look == "n1: flockctl check"


def test_who_refuses_a_large_packet_is_named_with_what_it_lets_pass() -> None:
    reply = Reply(asked=1, answered=0, error="Message too long", size=1500, too_big=1400, teller="2001:db8:ff::1")
    row = row_of(asked("full size", kind="full"), reply)
    assert row.said == "1500 bytes: r1 (2001:db8:ff::1) lets no packet over 1400 bytes pass"


@pytest.mark.parametrize(
    ("closed", "open_port", "result", "said"),
    [
        (SILENT, ANSWERED, "pass", ""),
        (ANSWERED, ANSWERED, "fail", "does not bite"),
        (Reply(asked=1, answered=0, refused=True), ANSWERED, "fail", "does not bite"),
        (SILENT, SILENT, "fail", "cannot tell"),
    ],
    ids=["denied", "let through", "arrived where nobody listens", "nothing arrives at all"],
)
def test_a_policy_bites_if_the_denied_port_is_silent_and_the_allowed_one_is_not(
    closed: Reply, open_port: Reply, result: str, said: str
) -> None:
    rows = judged(
        [asked(denied=True), asked()], [closed, open_port], owner=lambda a: a, look=lambda node, words: "look"
    )
    assert rows[0].result == result
    assert said in rows[0].said


def test_a_degraded_node_is_told_of_and_one_that_is_not_ready_fails() -> None:
    degraded = Look(status={"not_ready": [], "degraded": ["no page"]})
    unready = Look(status={"not_ready": ["no NodeConfig"], "degraded": []}, sessions="r1: Idle", rules="gone")
    command = "flockctl {}".format
    fine = node_rows("n1", degraded, attach="", command=command)
    assert works(fine) and "degraded: no page" in fine[0].said
    bad = {row.check: row for row in node_rows("n1", unready, attach="refused", command=command)}
    assert {row.result for row in bad.values()} == {"fail"}
    assert bad["sessions"].look == "flockctl bgp"


def test_sessions_that_are_down_are_named_with_their_error() -> None:
    rows = [
        {"peer": "r1", "up": True, "state": "Established"},
        {"peer": "r2", "up": False, "state": "Connect", "last_error": "BFD session down"},
        {"peer": "r3", "up": False, "state": "Idle", "last_error": ""},
    ]
    assert session_trouble(rows) == "r2: Connect, BFD session down; r3: Idle"


def test_a_table_that_is_gone_is_named() -> None:
    there = [f"table {name}" for name in TABLES]
    assert rules_trouble(there) == ""
    assert TABLES[0] in rules_trouble(there[1:])


def test_the_table_marks_each_row_and_counts() -> None:
    rows = [row_of(asked(), ANSWERED), row_of(asked(), SILENT), skipped("names", "there is no DNS")]
    lines = shown(rows).splitlines()
    assert [line[0] for line in lines[1:]] == ["✔", "✘", " ", "–", "1"]
    assert lines[3].strip() == "look: n1: flockctl check"
    assert lines[-1] == "1 work, 1 fail, 1 skipped"
    assert not works(rows)


def test_who_answers_does_not_write_on_the_terminal() -> None:
    row = row_of(asked(), Reply(asked=1, answered=1, by=("\x1b[2Jb-n2\n",)))
    assert row.result == "fail" and "\x1b" not in shown([row]) and len(shown([row]).splitlines()) == 4


def test_the_first_address_of_each_family_counts() -> None:
    assert by_family(["2001:db8::1", "192.0.2.1", "2001:db8::2"]) == {"ipv6": "2001:db8::1", "ipv4": "192.0.2.1"}
