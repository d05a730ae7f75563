"""What BIRD tells of its protocols, as values; times that it reckons anew for each answer stay as they are."""

import pytest

from flock.core.birdreplies import Reply, Session, sessions


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
