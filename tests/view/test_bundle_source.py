"""`flockctl view BUNDLE.tar.gz`: that moment on the page; an archive that somebody prepared gets nowhere."""

import gzip
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from viewing import watching

from flock.view import bundle as module
from flock.view.bundle import BadBundle, BundleSource
from flock.view.picture import Picture
from flock.view.source import CannotTell
from looping import looped

STATUS = {"node": "n1", "ready": True, "at": 99.0}
ABOUT = {"version": "0.1.0", "at": 100.5, "origin": "cluster", "anonymous": False, "nodes": ["n1", "n2", "n3"]}
FILES: dict[str, bytes] = {
    "bundle.json": json.dumps(ABOUT).encode(),
    "n1/status.json": json.dumps(STATUS, indent=2).encode(),
    "n1/happenings.jsonl": b'{"number": 4, "time": 98.0, "kind": "SessionDown", "said": "x"}\nnonsense\n\n[]\n'
    b'{"kind": "Dropped", "time": 1e400}\n',
    "n1/check.json": b'[{"type": "leak"}]',
    "n2/check.json": b"[",
    "n1/nft.txt": b"table inet flock {}",
    "n2/status.json": b"<html>",
    "routers/r1.json": b'{"name": "r1", "sessions": []}',
}


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def archive(path: Path, files: dict[str, bytes], *extra: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info in extra:
            tar.addfile(info)
        for name, content in files.items():
            tar.addfile(member(name, size=len(content)), io.BytesIO(content))
    return path


@looped
async def test_a_bundle_is_shown_as_the_moment_it_was_made_in(tmp_path: Path) -> None:
    source = BundleSource(archive(tmp_path / "bundle.tar.gz", FILES))
    async with watching(source) as view:
        await view.until(lambda v: v.node("n1")["reached"], "n1")
    assert view.node("n1")["status"] == STATUS and view.node("n1")["seen"] == 100.5
    assert not view.node("n2")["reached"] and "not JSON" in view.node("n2")["problem"]
    assert not view.node("n3")["reached"] and view.node("n3")["problem"] == "not part of the bundle"
    assert view.happened == [{"number": 4, "time": 98.0, "kind": "SessionDown", "said": "x", "node": "n1"}]
    assert view.router("r1") == {"name": "r1", "sessions": []}
    hello = view.picture.hello(now=1e9, version="0").decode()
    assert '"live":false' in hello and '"at":100.5' in hello
    assert await source.ask("n1", "check") == b'[{"type":"leak"}]'
    for node, *question in (("n2", "check"), ("n3", "check"), ("n1", "policy", "why", "a", "b", "80")):
        with pytest.raises(CannotTell, match="nobody can be asked"):
            await source.ask(node, *question)


@looped
async def test_names_that_lead_elsewhere_and_files_that_are_none_are_left_out(tmp_path: Path) -> None:
    hostile = {
        "../n8/status.json": b"{}",
        "/etc/status.json": b"{}",
        "a/b/status.json": b"{}",
        "n1/../../status.json": b"{}",
        "<img src=x onerror=alert(1)>/status.json": b"{}",
    }
    links = [
        member("n5/status.json", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("n6/status.json", type=tarfile.LNKTYPE, linkname="n1/status.json"),
        member("n7/status.json", type=tarfile.CHRTYPE),
    ]
    source = BundleSource(archive(tmp_path / "bundle.tar.gz", FILES | hostile, *links))
    picture = Picture(origin="bundle", name="", live=False)
    await source.run(picture)
    assert {*picture.nodes} == {"n1", "n2", "n3", "<img src=x onerror=alert(1)>"}
    assert os.listdir(tmp_path) == ["bundle.tar.gz"]  # noqa: PTH208


@looped
async def test_names_that_are_no_text_are_shown_as_far_as_they_are(tmp_path: Path) -> None:
    odd = {
        "n\udc80x/status.json": b"{}",
        "h\udcff/happenings.jsonl": b'{"number": 1}',
        "routers/r\udcfe.json": b'{"name": "r2"}',
    }
    async with watching(BundleSource(archive(tmp_path / "b\udc80.tar.gz", FILES | odd))) as view:
        await view.until(lambda v: v.node("n1")["reached"] and v.node("n\ufffdx")["reached"], "both")
    assert view.picture.name == "b\ufffd.tar.gz" and "b\ufffd" in view.picture.hello(now=0, version="0").decode()
    assert view.node("h\ufffd")["problem"] == "its status is not part of the bundle"
    assert view.router("r2") == {"name": "r2"}


def refused(path: Path) -> str:
    with pytest.raises(BadBundle) as error:
        BundleSource(path)
    return error.value.msg


@pytest.mark.parametrize("content", [b"", b"nothing", gzip.compress(b"", mtime=0), gzip.compress(b"x" * 2000, mtime=0)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(content)
    assert "no bundle" in refused(path)


def test_a_file_that_is_not_there_or_cut_off_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.tar.gz")
    path = archive(tmp_path / "bundle.tar.gz", FILES | {"n1/log.txt": os.urandom(5000)})
    path.write_bytes(path.read_bytes()[:-2000])
    assert "no bundle" in refused(path)
    assert "no bundle.json" in refused(archive(tmp_path / "other.tar.gz", {"n1/status.json": b"{}"}))
    wrong = {"bundle.json": b'{"at": "yesterday"}'}
    assert "no bundle" in refused(archive(tmp_path / "wrong.tar.gz", wrong))


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "bundle.tar.gz", FILES | {"n9/status.json": b"x" * 5000, "n9/log.txt": b"x" * 9000})
    BundleSource(path)
    for limit, value in (("PIECE", 2000), ("WHOLE", 6000), ("MEMBERS", 3), ("NODES", 2)):
        with monkeypatch.context() as limited:
            limited.setattr(module, limit, value)
            assert refused(path), limit


def test_nodes_that_are_only_named_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NODES", 2)
    with pytest.raises(BadBundle, match="more than 2 nodes"):
        BundleSource(archive(tmp_path / "bundle.tar.gz", {"bundle.json": FILES["bundle.json"]}))


@looped
async def test_a_time_that_is_none_keeps_nobody_from_looking(tmp_path: Path) -> None:
    about = json.dumps({**ABOUT, "at": 1e300}).encode()
    async with watching(BundleSource(archive(tmp_path / "bundle.tar.gz", {**FILES, "bundle.json": about}))) as view:
        await view.until(lambda v: v.node("n1")["reached"], "n1")


def test_a_header_that_claims_gigabytes_is_not_believed(tmp_path: Path) -> None:
    huge = member("n1/status.json", size=1 << 40).tobuf(tarfile.GNU_FORMAT)
    extended = member("x", size=1 << 33, type=tarfile.XHDTYPE).tobuf(tarfile.GNU_FORMAT)
    for header in (huge, extended):
        path = tmp_path / "bundle.tar.gz"
        path.write_bytes(gzip.compress(header + bytes(10_240)))
        assert refused(path)
