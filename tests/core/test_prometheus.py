"""Numbers in Prometheus' text format."""

import pytest

from flock.core.prometheus import BUCKETS, Histogram, Metric


def test_a_number_without_labels_is_one_line_below_its_explanation() -> None:
    told = Metric("flock_ready", "gauge", "1 if ADD can be served.", lambda: True)
    assert [*told.lines()] == [
        "# HELP flock_ready 1 if ADD can be served.",
        "# TYPE flock_ready gauge",
        "flock_ready 1",
    ]


def test_labels_are_quoted_whatever_is_in_them() -> None:
    told = Metric("flock_x", "counter", "…", lambda: [({"peer": 'a"b\\c\nd'}, 2), ({"peer": "e", "as": "1"}, 0.5)])
    assert [*told.lines()][2:] == [r'flock_x{peer="a\"b\\c\nd"} 2', 'flock_x{peer="e",as="1"} 0.5']


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (1234567, "1234567"),
        (10**15 + 1, "1000000000000001"),
        (1234567.0, "1234567"),
        (0.1, "0.1"),
        (1763431807.123456, "1763431807.123456"),
        (1e-7, "1e-07"),
        (2**64, "18446744073709551616"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_a_number_is_told_to_its_last_digit(number: float, told: str) -> None:
    assert [*Metric("flock_x", "counter", "…", lambda: number).lines()][-1] == f"flock_x {told}"


def test_a_number_is_that_of_the_moment() -> None:
    numbers = iter((1, 2))
    told = Metric("flock_x", "counter", "…", lambda: next(numbers))
    assert [[*told.lines()][-1] for _ in range(2)] == ["flock_x 1", "flock_x 2"]


def test_a_duration_counts_in_its_bucket_and_all_wider_ones() -> None:
    verbs = Histogram("flock_cni_seconds", "Duration of CNI calls.")
    for seconds in (0.0015, 0.002, 99.0):
        verbs.observe(seconds, verb="ADD", outcome="success")
    _, kind, *lines = verbs.lines()
    assert kind == "# TYPE flock_cni_seconds histogram"
    labels = 'outcome="success",verb="ADD"'
    counts = dict(line.rsplit(" ", 1) for line in lines)
    assert counts.pop(f"flock_cni_seconds_sum{{{labels}}}") == "99.003500"
    assert counts.pop(f"flock_cni_seconds_count{{{labels}}}") == "3"
    expected = ["0", "2", *["2"] * (len(BUCKETS) - 2), "3"]
    assert [*counts.values()] == expected
    assert f'flock_cni_seconds_bucket{{{labels},le="+Inf"}}' in counts


def test_each_set_of_labels_is_counted_by_itself() -> None:
    verbs = Histogram("flock_cni_seconds", "…")
    verbs.observe(1.0, verb="ADD")
    verbs.observe(2.0, verb="DEL")
    assert [line for line in verbs.lines() if "_count" in line] == [
        'flock_cni_seconds_count{verb="ADD"} 1',
        'flock_cni_seconds_count{verb="DEL"} 1',
    ]
