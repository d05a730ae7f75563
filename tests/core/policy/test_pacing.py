"""No namespace's changes keep the kernel from others for more than their share of the time."""

from flock.core.policy.pacing import CREDIT, SHARE, Pacing


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_few_changes_never_wait() -> None:
    clock = Clock()
    pacing = Pacing(clock)
    for _ in range(40):
        assert pacing.wait("shop") == 0
        pacing.charge({"shop": 1}, 0.01)
        clock.now += 0.01


def test_who_changes_all_the_time_gets_its_share_and_others_do_not_notice() -> None:
    clock = Clock()
    pacing = Pacing(clock)
    begun, busy = clock.now, 0.0
    for _ in range(200):
        clock.now += pacing.wait("evil")
        assert pacing.wait("evil") < 1e-6
        assert pacing.wait("shop") == 0
        pacing.charge({"evil": 1}, 0.05)
        clock.now += 0.05
        busy += 0.05
    assert busy / (clock.now - begun) < SHARE + CREDIT / (clock.now - begun) + 0.01


def test_several_who_do_have_one_share_between_them() -> None:
    clock = Clock()
    pacing = Pacing(clock)
    names = [f"evil{number}" for number in range(5)]
    begun, busy = clock.now, 0.0
    while clock.now < begun + 200:
        turn = {name for name in names if not pacing.wait(name)}
        if turn:
            pacing.charge(dict.fromkeys(turn, 1), 0.1)
            busy += 0.1
        clock.now += 0.1
    assert busy < 200 * SHARE * 1.5 + len(names) * CREDIT


def test_who_took_a_little_too_much_does_not_wait_for_the_many_who_took_a_little() -> None:
    """A hundred namespaces get their policies at once, one of them a few hundred."""
    pacing = Pacing(Clock())
    for number in range(100):
        pacing.charge({f"team-{number}": 1}, 0.02)
    pacing.charge({"shop": 1}, CREDIT + 0.1)
    assert pacing.wait("shop") <= 0.1 / SHARE + 1e-6


def test_of_what_was_taken_together_each_pays_for_its_part() -> None:
    clock = Clock()
    pacing = Pacing(clock)
    pacing.charge({"evil": 4000, "shop": 1}, 2 * CREDIT)
    assert pacing.wait("evil") > 0
    assert pacing.wait("shop") == 0


def test_what_was_taken_together_is_paid_together_and_forgotten_in_time() -> None:
    clock = Clock()
    pacing = Pacing(clock)
    pacing.charge({"a": 7, "b": 7}, 2 * CREDIT + 0.2)
    assert pacing.wait("a") == pacing.wait("b") > 0
    clock.now += 100
    assert pacing.wait("a") == 0
    pacing.charge({"c": 1}, 0.01)
    assert set(pacing._balances) == {"c"}
