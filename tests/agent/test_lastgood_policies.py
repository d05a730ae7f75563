"""What is remembered of refused policies, by whom and for how long."""

from pathlib import Path
from typing import Any

import pytest

from flock.agent.lastgood_policies import FILE, LastGoodPolicies, same_object


def policy(name: str, *, uid: str = "", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "x", "name": name, **({"uid": uid} if uid else {})}, "spec": spec}


def key(name: str) -> tuple[str, str]:
    return "x", name


def commit(known: LastGoodPolicies, *refused: str, unheard: str = "") -> bool:
    """Whether anything had to be written."""
    due = known.due({key(name) for name in refused}, unheard=lambda policy: policy == key(unheard))
    return due is not None and known.save(due)


def test_only_what_is_refused_is_written_and_known_to_the_next_life(tmp_path: Path) -> None:
    known = LastGoodPolicies(tmp_path)
    for name in ("a", "b"):
        known.keep(key(name), policy(name))
    assert not commit(known) and not (tmp_path / FILE).exists()
    assert commit(known, "b") and not commit(known, "b")
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    later = LastGoodPolicies(tmp_path)
    assert later.get(key("b")) == policy("b") and later.get(key("a")) is None
    assert not commit(later, "b")
    assert LastGoodPolicies(tmp_path).get(key("b")) == policy("b")


def test_what_became_good_or_went_while_nobody_looked_is_forgotten(tmp_path: Path) -> None:
    known = LastGoodPolicies(tmp_path)
    for name in ("good-again", "gone", "still"):
        known.keep(key(name), policy(name))
    commit(known, "good-again", "gone", "still")
    later = LastGoodPolicies(tmp_path)
    later.keep(key("good-again"), policy("good-again", podSelector={}))
    assert commit(later, "still")
    assert later.get(key("gone")) is None
    assert LastGoodPolicies(tmp_path).get(key("still")) == policy("still")
    assert LastGoodPolicies(tmp_path).get(key("good-again")) is None


def test_of_what_nobody_has_told_yet_nothing_is_forgotten(tmp_path: Path) -> None:
    known = LastGoodPolicies(tmp_path)
    known.keep(key("a"), policy("a"))
    commit(known, "a")
    later = LastGoodPolicies(tmp_path)
    assert not commit(later, unheard="a")
    assert later.get(key("a")) == policy("a") == LastGoodPolicies(tmp_path).get(key("a"))
    assert commit(later) and later.get(key("a")) is None


def test_a_newer_good_version_takes_the_place_of_the_one_on_disk(tmp_path: Path) -> None:
    known = LastGoodPolicies(tmp_path)
    known.keep(key("a"), policy("a"))
    commit(known, "a")
    known.keep(key("a"), policy("a", podSelector={}))  # and refused again, before anything was committed
    assert commit(known, "a")
    assert LastGoodPolicies(tmp_path).get(key("a")) == policy("a", podSelector={})


def test_what_was_deleted_is_forgotten_at_once(tmp_path: Path) -> None:
    known = LastGoodPolicies(tmp_path)
    known.keep(key("a"), policy("a"))
    commit(known, "a")
    later = LastGoodPolicies(tmp_path)
    assert later.get(key("a"))
    later.drop(key("a"))
    assert later.get(key("a")) is None


@pytest.mark.parametrize("content", [b"", b"{}", b'[{"metadata": 7}]', b"[1]", b"[" * 10_000, b"\xff"])
def test_a_spoilt_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    known = LastGoodPolicies(tmp_path)
    assert known.get(key("a")) is None
    known.keep(key("a"), policy("a"))
    assert commit(known, "a")


def test_a_directory_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    known = LastGoodPolicies(tmp_path / "absent")
    known.keep(key("a"), policy("a"))
    assert not commit(known, "a")
    (tmp_path / "absent").mkdir()
    assert commit(known, "a")


def test_a_policy_made_anew_is_another_one_where_uids_tell() -> None:
    assert not same_object(policy("a", uid="1"), policy("a", uid="2"))
    assert same_object(policy("a", uid="1"), policy("a", uid="1"))
    assert same_object(policy("a"), policy("a", uid="1"))
