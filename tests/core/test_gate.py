"""When a health port is believed, and when it is asked again."""

import pytest

from flock.core.gate import (
    AT_ONCE,
    DOUBTFUL,
    DOUBTFULLY,
    EAGER,
    EAGER_FOR,
    EAGERLY,
    PERIOD,
    SAVED,
    SILENCE,
    AtOnce,
    Gate,
)


def after(*answers: int | None, adopted: bool = False, every: float = 0.0) -> Gate:
    """Endpoints changed at 100, when the first answer came."""
    gate = Gate.new(100.0, adopted=adopted)
    for turn, answer in enumerate(answers):
        gate = gate.heard(answer, 100.0 + turn * every)
    return gate


@pytest.mark.parametrize(
    ("answers", "is_open"),
    [
        ((), False),
        ((200,), True),
        ((503,), False),
        ((200, 503), False),
        ((200, 0), False),
        ((503, 200), True),
        ((None,), False),
        ((200, None), True),
        ((200, None, None), False),
        ((200, None, 200, None), True),
        ((200, None, None, None, 200), True),
        ((200, 503, None), False),
        ((200, None, 503), False),
    ],
)
def test_200_is_yes_another_answer_no_and_silence_no_after_two_in_a_row(
    answers: tuple[int | None, ...], is_open: bool
) -> None:
    assert after(*answers, every=PERIOD).open is is_open


def test_what_an_earlier_life_announced_is_as_if_it_had_said_200() -> None:
    assert after(adopted=True).open and after(None, adopted=True).open
    assert after(None, adopted=True).pause(100.0) == PERIOD
    assert not after(None, None, adopted=True, every=PERIOD).open and not after(503, adopted=True).open


@pytest.mark.parametrize("silent", [1, 2, 10])
def test_a_kube_proxy_that_restarts_after_endpoints_changed_has_as_long_as_any_other(silent: int) -> None:
    gate = after(200, *[None] * silent, every=0.01)
    assert gate.open and gate.pause(101.0) == DOUBTFUL
    assert gate.heard(None, 100.0 + SILENCE).open and not gate.heard(None, 100.02 + SILENCE).open
    assert not gate.after_change(101.0).heard(None, 101.0).heard(None, 101.02).open  # it has not seen this change
    assert SILENCE < PERIOD  # two in a row are enough, for one that is asked every five seconds


def test_it_is_asked_eagerly_until_it_agrees_ten_seconds_long_and_else_every_five() -> None:
    changed = after(200).after_change(100.0)
    assert after(503).pause(100.0) == after(None).pause(109.9) == changed.heard(None, 100.0).pause(100.1) == EAGER
    assert after(503).pause(100.0 + EAGER_FOR) == after(200).pause(100.0 + EAGER_FOR) == PERIOD
    assert 0.01 <= EAGER <= 0.05 and EAGER_FOR == 10 and PERIOD == 5


def test_what_it_says_first_of_new_endpoints_is_doubted_for_as_long_as_it_may_be_behind() -> None:
    assert after(200).pause(100.0) == after(503, 200).pause(109.9) == DOUBTFUL
    assert after(200).heard(200, 105.0).pause(109.9) == DOUBTFUL  # however often it said so
    assert after(200, 503).pause(105.0) == EAGER
    assert 0.1 <= DOUBTFUL <= 0.5


@pytest.mark.parametrize("many", [EAGERLY, DOUBTFULLY, 10, 40, 200, 1000])
def test_however_many_are_waited_for_or_doubted_all_together_are_asked_as_often_as_a_few(many: int) -> None:
    awaited = after(503).pause(100.0, awaited=many, doubted=1)
    assert many / awaited <= max(EAGERLY / EAGER, many / PERIOD) * 1.001
    doubted = after(200).pause(100.0, awaited=1, doubted=many)
    assert many / doubted <= max(DOUBTFULLY / DOUBTFUL, many / PERIOD) * 1.001
    assert after(200).pause(100.0 + EAGER_FOR, awaited=many, doubted=many) == PERIOD


def test_so_many_are_asked_at_once_and_as_many_as_were_not_for_a_while() -> None:
    allowance = AtOnce(100.0)
    assert [allowance.take(100.0) for _ in range(int(SAVED) + 1)].count(True) == SAVED
    assert [allowance.take(101.0) for _ in range(int(SAVED))].count(True) == AT_ONCE
    assert [allowance.take(1000.0) for _ in range(int(SAVED) + 1)].count(True) == SAVED
