"""Where a bundle is written: a file is replaced as a whole, and nothing else is replaced by a file."""

import os
import stat
import threading
from pathlib import Path

import pytest

from flock.cli.bundling import write


def test_a_file_is_replaced_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_text("an earlier one")
    path.chmod(0o644)
    write(path, b"packed")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"packed", 0o600)
    assert [entry.name for entry in tmp_path.iterdir()] == ["bundle.tar.gz"]


def test_a_device_stays_one(tmp_path: Path) -> None:
    """As /dev/null, which everybody needs."""
    null = tmp_path / "null"
    try:
        os.mknod(null, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        null.write_bytes(b"x")
    except PermissionError:
        pytest.skip("devices cannot be made here")
    write(null, b"packed")
    assert null.is_char_device()
    assert [entry.name for entry in tmp_path.iterdir()] == ["null"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reading = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    reading.start()
    write(pipe, b"packed")
    reading.join(30)
    assert heard == [b"packed"] and pipe.is_fifo()


def test_a_link_stays_and_leads_to_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "latest"
    link.symlink_to("there/bundle.tar.gz")
    for content in (b"first", b"second"):
        write(link, content)
        assert link.is_symlink() and (tmp_path / "there/bundle.tar.gz").read_bytes() == content


def test_a_directory_is_refused_and_nothing_left_in_it(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        write(tmp_path, b"packed")
    assert list(tmp_path.iterdir()) == []
