"""What the matrix makes of files, rules, routes and links before the package came and after it was purged."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from hosting import check_traces
from machine import Failed

BARE = {"/opt", "/etc/systemd/system/multi-user.target.wants/bird.service", "eth0"}


def test_a_host_that_is_as_it_was_is_well() -> None:
    check_traces(bare=BARE, now=set(BARE))


def test_the_distributions_bird_has_to_be_enabled_again() -> None:
    with pytest.raises(Failed, match=r"^gone with it: /etc/systemd/system/.*/bird.service$"):
        check_traces(bare=BARE, now={"/opt", "eth0"})


def test_what_is_left_behind_and_what_is_missing_is_told() -> None:
    with pytest.raises(Failed, match=r"^left behind: /opt/cni$"):
        check_traces(bare=BARE, now={*BARE, "/opt/cni"})
    with pytest.raises(Failed, match=r"^gone with it: /opt$"):
        check_traces(bare=BARE, now=BARE - {"/opt"})
    with pytest.raises(Failed, match=r"^left behind: table inet flock; gone with it: /etc/.*, /opt, eth0$"):
        check_traces(bare=BARE, now={"table inet flock"})
