"""What BIRD tells of its protocols, as values; times that it reckons anew for each answer stay as they are."""

import pytest

from flock.core.birdreplies import Carried, Reply, Session, bfd_states, sessions, unknown_bird


def told(since: str, *, state: str = "up", shown: str = "Established", before: list[Session] | None = None) -> Session:
    lines = ((1002, f"peer_r1 BGP --- {state} {since} {shown}"), (1006, f"  BGP state: {shown}"))
    (session,) = sessions(Reply(lines), before or [])
    return session


@pytest.mark.parametrize("again", ["20:32:58.662", "20:32:59.000", "20:32:57.999"])
def test_a_time_that_is_a_moment_off_is_no_news(again: str) -> None:
    first = told("2026-11-15 20:32:58.661")
    assert told(f"2026-11-15 {again}", before=[first]) == first


def test_it_does_not_wander_off_a_moment_at_a_time() -> None:
    kept = first = told("2026-11-15 20:32:58.661")
    for seconds in range(59, 61):
        kept = told(f"2026-11-15 20:{32 + seconds // 60}:{seconds % 60:02}.000", before=[kept])
    assert kept != first, "two seconds later it is another session"


@pytest.mark.parametrize(("state", "shown"), [("up", "Established"), ("start", "Active")])
def test_a_session_that_came_anew_or_went_is_told(state: str, shown: str) -> None:
    first = told("2026-11-15 20:32:58.661")
    assert told("2026-11-15 20:33:05.000", state=state, shown=shown, before=[first]).since == "2026-11-15 20:33:05"


def test_a_session_that_went_at_once_is_told() -> None:
    first = told("2026-11-15 20:32:58.661")
    assert told("2026-11-15 20:32:59.100", state="start", shown="Active", before=[first]).since == "2026-11-15 20:32:59"


def test_a_time_of_another_form_is_taken_as_it_is() -> None:
    first = told("20:32:58.661")
    assert told("20:32:59.000", before=[first]).since == "20:32:59"


def test_bfd_is_told_by_neighbour_with_its_zone_and_without() -> None:
    lines = (
        (1020, "bfd1:"),
        (1020, "IP address                Interface  State      Since         Interval  Timeout"),
        (1020, "2001:db8::1               eth0       Up         2026-11-16 01:48:02.623    0.100    0.500"),
        (1020, "fe80::1                   eth1       Down       2026-11-16 01:48:02.623    1.000    0.000"),
        (1020, "192.0.2.1                 ---        Init       2026-11-16 01:48:02.623    1.000    0.000"),
        (0, ""),
    )
    states = bfd_states(Reply(lines))
    assert (states["2001:db8::1"], states["fe80::1%eth1"], states["192.0.2.1"]) == ("up", "down", "init")
    assert bfd_states(Reply(((9001, "There is no BFD protocol running"),))) == {}


def test_prefixes_are_counted_by_family_and_in_all() -> None:
    ipv6 = "  Channel ipv6\n    Routes:         2 imported, 3 exported, 1 preferred"
    channels = f"{ipv6}\n  Channel ipv4\n    Routes:         5 imported, 1 filtered, 7 exported, 1 preferred"
    (session,) = sessions(Reply(((1002, "peer_r1 BGP --- up 20:32:58.661 Established"), (1006, channels))))
    assert session.families == {"ipv6": Carried(2, 3), "ipv4": Carried(5, 7)}
    assert (session.imported, session.exported) == (7, 10)


@pytest.mark.parametrize("version", ["2.0.12", "2.17.5", "2.20.0", "v2.15.1"])
def test_every_bird_2_is_known(version: str) -> None:
    assert unknown_bird(Reply(((1, f"BIRD {version} ready."),))) == ""


def test_a_later_bird_is_named_with_what_to_do() -> None:
    assert unknown_bird(Reply(((1, "BIRD 3.1.7 ready."),))) == (
        "it is BIRD 3.1.7, and flock knows BIRD 2 alone (apt install bird2)"
    )
