"""What a node sends as its bundle is read, or refused in words, whatever it is."""

import gzip
import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flock.cli import bundling
from flock.cli.bundle import packed_by
from flock.cli.bundling import About, pack, unpack
from flock.core.errors import FlockError
from thoroughness import examples

ABOUT = About(version="0", at=1.0, origin="node", anonymous=False, nodes=("n1",))
FILES = {"n1/status.json": b"{}", "n1/log.txt": b"x" * 2000}
GOOD = pack(ABOUT, FILES)
RAW = gzip.decompress(GOOD)


def refused(packed: bytes) -> str:
    with pytest.raises(FlockError) as error:
        unpack(packed)
    return error.value.msg


def test_what_was_packed_is_unpacked() -> None:
    assert unpack(GOOD) == (ABOUT, FILES)


@settings(max_examples=examples(2000), deadline=None)
@given(st.data())
def test_a_damaged_archive_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(data.draw(st.sampled_from([GOOD, RAW])))
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=20)):
        whole[at] = value
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        unpack(gzip.compress(damaged, 1) if len(whole) == len(RAW) else damaged)
    except FlockError as error:
        assert error.msg.startswith("no bundle came: ")


NONE = {
    "nothing": b"",
    "one byte": b"x",
    "without its end": GOOD[:-9],
    "its beginning": GOOD[:40],
    "nothing packed": gzip.compress(b""),
    "no archive": gzip.compress(b"x" * 3000),
}


@pytest.mark.parametrize("packed", NONE.values(), ids=NONE)  # by names: a packed text tells the time
def test_what_is_none_is_refused(packed: bytes) -> None:
    assert refused(packed).startswith("no bundle came: ")


def test_what_would_unfold_to_more_than_a_node_may_send_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "LARGEST", 1 << 20)
    assert "more than 1048576 bytes" in refused(gzip.compress(bytes(1 << 22)))
    huge = tarfile.TarInfo("n1/status.json")
    huge.size = 1 << 40
    assert refused(gzip.compress(huge.tobuf(tarfile.GNU_FORMAT) + bytes(10_240)))


def test_names_that_lead_elsewhere_links_and_what_is_no_text_are_left_out() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("../x", "/etc/x", "n1/../../x", "n\udc80/status.json", "a\nb"):
            archive.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("n1/log.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        about = tarfile.TarInfo("bundle.json")
        content = b'{"version": "0", "at": 1.0, "origin": "node", "anonymous": false, "nodes": ["n1"]}'
        about.size = len(content)
        archive.addfile(about, io.BytesIO(content))
    assert unpack(packed.getvalue()) == (ABOUT, {})


def test_a_node_that_sends_something_else_is_a_note() -> None:
    files = packed_by({"n1": ["printf", "hello"], "n2": ["sh", "-c", "exit 3"]})
    assert files["n1/notes.txt"].startswith(b"nothing could be gathered: no bundle came: ")
    assert files["n2/notes.txt"] == b"nothing could be gathered: \n"
