"""Sums of dropped packets: exact for those that count, in bounded room."""

from msgspec.structs import replace

from flock.core.dropsums import MOST, DropSums
from flock.core.happenings import Dropped

DROP = Dropped(
    what="ingress", pod="a/b", source="192.0.2.1", destination="192.0.2.2", protocol="TCP", port=80, policies="a/p"
)


def test_drops_are_summed_by_policies_and_what_the_largest_first() -> None:
    sums = DropSums()
    sums.add(replace(DROP, what="egress"), untold=0, at=1.0)
    sums.add(DROP, untold=0, at=2.0)
    sums.add(DROP, untold=7, at=3.0)
    assert sums.rows() == [
        {"policies": "", "what": "untold", "count": 7, "last": 3.0},
        {"policies": "a/p", "what": "ingress", "count": 2, "last": 3.0},
        {"policies": "a/p", "what": "egress", "count": 1, "last": 1.0},
    ]


def test_names_that_are_made_up_push_out_each_other_and_nobody_who_counts() -> None:
    sums = DropSums()
    for _ in range(2):
        sums.add(DROP, untold=0, at=1.0)
    for number in range(10 * MOST):
        sums.add(replace(DROP, policies=f"evil/{number}"), untold=0, at=2.0)
    rows = sums.rows()
    assert len(rows) == MOST
    assert rows[0] == {"policies": "a/p", "what": "ingress", "count": 2, "last": 1.0}
