"""When a health port is believed, and when it is asked again."""

import pytest

from flock.core.gate import EAGER, EAGER_FOR, EAGERLY, PERIOD, Gate


def after(*answers: int | None, adopted: bool = False) -> Gate:
    gate = Gate.new(100.0, adopted=adopted)
    for answer in answers:
        gate = gate.heard(answer)
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
    assert after(*answers).open is is_open


def test_what_an_earlier_life_announced_is_as_if_it_had_said_200() -> None:
    assert after(adopted=True).open and after(None, adopted=True).open
    assert after(None, adopted=True).pause(100.0) == PERIOD
    assert not after(None, None, adopted=True).open and not after(503, adopted=True).open


def test_it_is_asked_eagerly_until_it_agrees_ten_seconds_long_and_else_every_five() -> None:
    assert after(503).pause(100.0) == after(None).pause(109.9) == after(200, None).pause(100.1) == EAGER
    assert after(503).pause(100.0 + EAGER_FOR) == after(200).pause(100.0) == PERIOD
    assert 0.01 <= EAGER <= 0.05 and EAGER_FOR == 10 and PERIOD == 5


@pytest.mark.parametrize("awaited", [EAGERLY, 10, 40, 200, 1000])
def test_however_many_are_waited_for_all_together_are_asked_as_often_as_a_few(awaited: int) -> None:
    pause = after(503).pause(100.0, awaited=awaited)
    assert awaited / pause <= max(EAGERLY / EAGER, awaited / PERIOD) * 1.001
    assert after(200).pause(100.0, awaited=awaited) == PERIOD
