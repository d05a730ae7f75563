"""What the matrix makes of a router's log while a host goes down; the words are those of BIRD 2.0.12 and 2.17."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from hosting import check_goodbye
from machine import Failed

WITHDRAWN = "<TRACE> host_6.ipv6 > removed [sole] 2001:db8:53::53/128 0L 5G unicast\n"
CLOSED = "<RMT> host_6: Received: Administrative shutdown\n<TRACE> host_6: State changed to stop\n"
KEPT = "<TRACE> host_6: Neighbor graceful restart detected\n"


def test_anycast_is_withdrawn_and_then_the_session_ends() -> None:
    check_goodbye(WITHDRAWN + CLOSED)


@pytest.mark.parametrize(
    "heard",
    [
        pytest.param(CLOSED + WITHDRAWN, id="the session ends first"),
        pytest.param(CLOSED, id="anycast is never withdrawn"),
        pytest.param(WITHDRAWN, id="the session never ends"),
        pytest.param(WITHDRAWN + KEPT + CLOSED, id="the router keeps the routes"),
    ],
)
def test_anything_else_is_a_failure(heard: str) -> None:
    with pytest.raises(Failed):
        check_goodbye(heard)
