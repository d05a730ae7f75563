"""A bundle as files: packed, unpacked, and with other names in it.

bundle.json                  version, at, origin, anonymous, nodes
NODE/status.json             as the agent's page tells it
NODE/happenings.jsonl        data of its /happenings, each with its number
NODE/…                       bird.conf, bird.txt, links.txt, routes.txt, nft.txt, log.txt, check.json, versions.txt
NODE/objects/…, objects/…    what is told of objects; the latter of a cluster's
NODE/notes.txt               what could not be had, and why
routers/NAME.json            of a lab
"""

import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from flock.core.errors import FlockError
from flock.core.pseudonyms import Pseudonyms

Files = Mapping[str, bytes]
LARGEST = 256 << 20  # bytes of what a node sends, unfolded
_HOST = re.compile(rb"^Hostname is ([\w.-]+)|://([\w.-]*[A-Za-z][\w.-]*)", re.MULTILINE)
_NAME = re.compile(r"(?:[\w-][\w.:-]*/){0,3}[\w-][\w.:-]*")

# Whatever a file that is no archive of ours makes the libraries raise.
_BROKEN = (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, LookupError, OverflowError, RecursionError)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """bundle.json."""

    version: str
    at: float
    origin: str
    anonymous: bool
    nodes: tuple[str, ...]


def pack(about: About, files: Files) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in {"bundle.json": msgspec.json.encode(about) + b"\n", **files}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), 0o600, int(about.at)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def unpack(packed: bytes) -> tuple[About, Files]:
    """What a node sent.  FlockError if it is no bundle: it comes from another machine."""
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(_unfolded(packed)), mode="r:") as archive:
            for member in archive:
                wanted = member.isreg() and not member.issparse() and _NAME.fullmatch(member.name)
                if wanted and (file := archive.extractfile(member)):
                    files[member.name] = file.read()
        about = msgspec.json.decode(files.pop("bundle.json"), type=About)
    except _BROKEN as error:
        raise FlockError(f"no bundle came: {error or type(error).__name__}") from None
    return about, files


def _unfolded(packed: bytes) -> bytes:
    """Not more than a node may send, whatever it claims to be."""
    stream = zlib.decompressobj(31)
    unfolded = stream.decompress(packed, LARGEST)
    if stream.unconsumed_tail:
        raise ValueError(f"more than {LARGEST} bytes")
    if not stream.eof:
        raise EOFError("it is cut off")
    return unfolded


def write(path: Path, packed: bytes) -> None:
    """For its owner alone, whole or not at all.  What is no file, as a pipe or /dev/null, is written to and stays what
    it is; of a link, what it leads to is replaced."""
    if path.exists() and not path.is_file():
        path.write_bytes(packed)
        return
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(packed)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def anonymous(about: About, files: Files, *, key: bytes, also: Iterable[str] = ()) -> tuple[About, Files]:
    """Other names and addresses in every file and in every file's name; `also`: names that no document tells."""
    pseudonyms = Pseudonyms(key)
    documents = {name: read for name, content in files.items() if (read := _read(name, content)) is not None}
    for node in about.nodes:
        pseudonyms.name(node, "node")
    for name in also:
        pseudonyms.name(name, "name")
    for name in files:
        if name.startswith("routers/"):
            pseudonyms.name(Path(name).stem, "router")
    for document in documents.values():
        pseudonyms.learn(document)
    for name, content in files.items():
        if name not in documents:
            pseudonyms.learn_text(content.decode(errors="replace"))
        for host in (name for found in _HOST.findall(content) for name in found if name):
            pseudonyms.name(host.decode(), "host")
    changed = {}
    for name, content in files.items():
        document = documents.get(name)
        if document is None:
            told = pseudonyms.text(content.decode(errors="replace")).encode()
        elif name.endswith(".jsonl"):
            told = b"".join(msgspec.json.encode(pseudonyms.value(row)) + b"\n" for row in document)
        else:
            told = msgspec.json.encode(pseudonyms.value(document)) + b"\n"
        changed[_renamed(name, about, pseudonyms)] = told
    nodes = tuple(map(pseudonyms.text, about.nodes))
    return msgspec.structs.replace(about, anonymous=True, nodes=nodes), changed


def _renamed(name: str, about: About, pseudonyms: Pseudonyms) -> str:
    first, slash, rest = name.partition("/")
    if first in about.nodes:
        return f"{pseudonyms.text(first)}{slash}{rest}"
    if first == "routers":
        return f"routers/{pseudonyms.text(rest.removesuffix('.json'))}.json"
    return name


def _read(name: str, content: bytes) -> Any:
    try:
        if name.endswith(".jsonl"):
            return [msgspec.json.decode(line) for line in content.splitlines()]
        return msgspec.json.decode(content) if name.endswith(".json") else None
    except msgspec.MsgspecError:
        return None
