"""Whether a namespace is the one a pod was attached in: by inode, cookie and boot, as far as both sides know them."""

import msgspec
import pytest

from flock.core.model import Allocation
from flock.core.whose import Identity, Whose, whose

HERE = Identity("4:99", 17, "boot-1")
ENTRY = Allocation(
    container_id="a",
    namespace="default",
    pod_name="a",
    owner_uid="",
    state="committed",
    allocated_at="2026-01-02T03:04:05Z",
    netns="/run/netns/a",
)


def recorded(**known: str | int) -> Allocation:
    return msgspec.structs.replace(ENTRY, **known)


@pytest.mark.parametrize(
    "entry",
    [
        recorded(**HERE._asdict()),
        recorded(netns_id="4:99"),
        recorded(netns_id="4:99", boot_id="boot-1"),
        recorded(netns_id="4:99", netns_cookie=17),
    ],
)
def test_what_is_on_record_and_agrees_is_its_own(entry: Allocation) -> None:
    assert whose(entry, HERE) is Whose.ITS_OWN


@pytest.mark.parametrize("found", [Identity("4:99", 0, "boot-1"), Identity("4:99", 17, ""), Identity("4:99", 0, "")])
def test_what_the_kernel_does_not_tell_is_not_compared(found: Identity) -> None:
    assert whose(recorded(**HERE._asdict()), found) is Whose.ITS_OWN


@pytest.mark.parametrize(
    "found", [HERE._replace(netns_id="4:98"), HERE._replace(netns_cookie=18), HERE._replace(boot_id="boot-2"), None]
)
def test_one_difference_makes_it_anothers(found: Identity | None) -> None:
    assert whose(recorded(**HERE._asdict()), found) is Whose.ANOTHERS


def test_where_nobody_recorded_an_inode_nothing_is_told() -> None:
    assert whose(ENTRY, HERE) is Whose.UNTOLD
    assert whose(ENTRY, None) is Whose.ANOTHERS
