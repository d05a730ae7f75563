"""What a bundle shows (`flockctl bundle`): a moment of some nodes, in the shapes in which agents tell it.

The archive may come from anybody: nothing of it is written to disk, names are only names, links and sparse files are no
files, and sizes are bounded, those that its headers claim and those that its compressed form unfolds to.
"""

import contextlib
import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flock.core.errors import FlockError
from flock.view.picture import Picture
from flock.view.source import CannotTell

WHOLE = 2 << 30  # bytes of an archive, unfolded; 200 nodes with their logs have a quarter of that
PIECE = 32 << 20  # of one file that is read; a node with 1000 pods tells half a MiB
MEMBERS, NODES = 20_000, 2000
_WANTED = re.compile(
    r"(?:\./)?(?:(?P<bundle>bundle)\.json|routers/(?P<router>[^/]+)\.json|(?P<node>[^/]+)/(?P<what>status\.json|happenings\.jsonl|check\.json))"
)

# Whatever a file that is no archive of ours makes the libraries raise.
_BROKEN = (
    tarfile.TarError,
    OSError,
    EOFError,
    zlib.error,
    ValueError,
    LookupError,
    OverflowError,
    RecursionError,
    msgspec.MsgspecError,
)


class BadBundle(FlockError):
    """It is no bundle, or none that anybody made in good faith."""


class _About(msgspec.Struct):
    """bundle.json."""

    at: float = 0.0
    nodes: list[Any] = []


class BundleSource:
    """BadBundle at once if it cannot be read; the picture is complete as soon as `run` returns."""

    origin, live = "bundle", False

    def __init__(self, path: Path) -> None:
        self.name = _text(path.name)
        self._about: _About | None = None
        self._status: dict[str, bytes] = {}
        self._happened: dict[str, bytes] = {}
        self._checks: dict[str, bytes] = {}
        self._routers: dict[str, bytes] = {}
        try:
            self._read(path)
        except _BROKEN as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise BadBundle(f"{_text(str(path))} is no bundle: {_text(reason)}") from None
        if self._about is None:
            raise BadBundle(f"{_text(str(path))} is no bundle: it has no bundle.json")

    async def run(self, picture: Picture) -> None:
        assert self._about is not None
        picture.at = self._about.at
        for name in self._about.nodes:
            if isinstance(name, str):
                picture.expect(name, "not part of the bundle")
        for name, status in self._status.items():
            try:
                picture.status(name, status, at=picture.at)
            except ValueError as error:
                picture.lost(name, f"its status is {error}")
        for name, lines in self._happened.items():
            picture.expect(name, "its status is not part of the bundle")
            for row in _rows(lines):
                picture.happened(name, row.pop("number", 0), row)
        for name, router in self._routers.items():
            with contextlib.suppress(ValueError):
                picture.router(name, router)
        self._status, self._happened, self._routers = {}, {}, {}

    async def ask(self, node: str, *command: str) -> bytes:
        with contextlib.suppress(KeyError, ValueError, RecursionError, msgspec.MsgspecError):
            rows = msgspec.json.decode(self._checks[node], type=list) if command == ("check",) else None
            if rows is not None:
                return msgspec.json.encode(rows)
        raise CannotTell("a bundle shows what was; nobody can be asked", wrong=True)

    def look_at(self, nodes: tuple[str, ...]) -> None:
        """All of it is there."""

    def _read(self, path: Path) -> None:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file) as unfolded:
            for name, content in _files(_Bounded(unfolded)):
                if name["bundle"]:
                    self._about = msgspec.json.decode(content, type=_About)
                elif name["router"]:
                    self._routers[_text(name["router"])] = content
                else:
                    about = {"status.json": self._status, "check.json": self._checks}.get(name["what"], self._happened)
                    about[_text(name["node"])] = content
                named = self._about.nodes if self._about else ()
                if max(map(len, (named, self._status, self._happened, self._checks, self._routers))) > NODES:
                    raise BadBundle(f"more than {NODES} nodes")


def _text(name: str) -> str:
    """A name that can be shown: of what is no text, its bytes are replaced."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


class _Bounded:
    """As much of a file as a bundle may have."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        if size > PIECE:
            raise BadBundle(f"a part of {size} bytes")
        return self._file.read(size)

    def seek(self, position: int) -> int:
        if position > WHOLE:
            raise BadBundle(f"more than {WHOLE} bytes")
        return self._file.seek(position)


def _files(archive: Any) -> Iterator[tuple[re.Match[str], bytes]]:
    with tarfile.open(fileobj=archive, mode="r:") as members:
        for _ in range(MEMBERS):
            if (member := members.next()) is None:
                return
            wanted = _WANTED.fullmatch(member.name)
            plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
            if wanted and plain:
                if member.size > PIECE:
                    raise BadBundle(f"{member.name} has {member.size} bytes")
                file = members.extractfile(member)
                yield wanted, file.read() if file else b""
    raise BadBundle(f"more than {MEMBERS} files")


def _rows(lines: bytes) -> Iterator[dict[str, Any]]:
    """What happened; lines that are none are left out."""
    for line in lines.splitlines():
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            yield msgspec.json.decode(line, type=dict)
