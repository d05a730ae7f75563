"""What is started on a host can be found there, and so ended, from the moment on at which it was started."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from flock.lab import namespaces
from flock.lab.hosts import Host, end

ROUNDS = 30


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    name = f"flock-hosts{os.getpid()}"
    namespaces.create(name)
    yield Host("h", netns=name, home=tmp_path)
    namespaces.delete(name)


def test_who_ends_all_of_a_host_ends_what_was_just_started(host: Host) -> None:
    """Else it goes on for ever in a namespace that has no name any more."""
    missed = []
    for number in range(ROUNDS):
        host.spawn(f"role{number}", ["sleep", "60"])
        end(namespaces.pids(host.netns))
        if host.running(f"role{number}"):
            missed.append(number)
            host.stop(f"role{number}")
    assert missed == []


def test_a_record_from_before_a_reboot_names_no_process_of_this_one(host: Host) -> None:
    """Its number and the time since boot may both come up again, in a directory that is no tmpfs."""
    host.spawn("role", ["sleep", "60"])
    process = host.process("role")
    assert process is not None and process.boot
    record = host.home / "role.process"
    record.write_bytes(msgspec.json.encode(msgspec.structs.replace(process, boot="another")))
    assert not host.running("role")
    host.stop("role")
    assert namespaces.pids(host.netns) == (process.pid,), "it is left alone"
    end([process.pid])
