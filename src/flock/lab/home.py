"""Where a lab keeps what it has to remember: one directory, readable with `cat`.

    lab.json                     what was asked for and the plan; written first, removed last, never changed
    manifests/                   the cluster's objects, what an API server is to a real cluster; all agents watch it
    pods/<namespace>.<pod>.json  what a container runtime remembers of a sandbox
    <element>/                   an element's configuration, sockets, logs and process records

Files are replaced, never rewritten in place, so a reader sees the old or the new one.
"""

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec

from flock.core.errors import FieldError
from flock.edge.rundir import SOCKET
from flock.lab.errors import LabError
from flock.lab.names import lab_name
from flock.lab.speaker import Kind
from flock.lab.topology import Plan

DEFAULT_ROOT = Path("/run/flock-lab")
VERSION = 1
LONGEST_SOCKET = 107  # a unix socket's address has room for this many bytes


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """lab.json."""

    version: int = VERSION
    name: str
    topology: str
    router: Kind
    plain: bool
    cni: str
    plan: Plan


class Home:
    """Paths and files of one lab."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifests = path / "manifests"
        self.pods = path / "pods"
        self._record = path / "lab.json"

    @classmethod
    def named(cls, name: str) -> "Home":
        """Of a lab for which no directory was named.  FieldError if that is no name."""
        return cls(DEFAULT_ROOT / lab_name(name))

    def of(self, element: str) -> Path:
        return self.path / element

    def create(self, record: Record) -> None:
        """Claim the directory, which has to be new or empty."""
        longest = max(len(str(self.of(e.name) / "run" / SOCKET)) for e in record.plan.elements)
        if longest > LONGEST_SOCKET:
            raise FieldError("--dir", f"{self.path} is too long: sockets in it would have {longest} characters")
        self.path.mkdir(parents=True, exist_ok=True)
        if any(self.path.iterdir()):
            raise FieldError(
                "--dir", f"{self.path} is not empty; `flockctl lab down --dir {self.path}` removes a lab that is there"
            )
        write(self._record, msgspec.json.format(msgspec.json.encode(record)))
        self.manifests.mkdir()
        self.pods.mkdir()

    def record(self) -> Record:
        try:
            record = msgspec.json.decode(self._record.read_bytes(), type=Record)
            lab_name(record.name, field="name")
            return record
        except FileNotFoundError:
            raise LabError(f"no lab in {self.path}", details="`flockctl lab up` makes one") from None
        except (msgspec.MsgspecError, FieldError) as error:
            raise LabError(f"{self._record} is not a lab's: {error}") from None

    def exists(self) -> bool:
        return self._record.exists()

    def remove(self) -> None:
        """Everything in it, the claim last, so that an interrupted removal can be repeated.  What nobody claimed is not
        a lab's: LabError, unless there is nothing in it."""
        if not self.path.is_dir():
            return
        if self.exists():
            for child in self.path.iterdir():
                if child.is_dir() and not child.is_symlink():
                    shutil.rmtree(child)
                elif child != self._record:
                    child.unlink()
            self._record.unlink()
        for unfinished in self.path.glob(_temporary(self._record.name, "*")):
            unfinished.unlink()
        if any(self.path.iterdir()):
            raise LabError(f"{self.path} has no {self._record.name}: no lab made it, and it stays as it is")
        self.path.rmdir()
        if self.path.parent == DEFAULT_ROOT and not any(DEFAULT_ROOT.iterdir()):
            DEFAULT_ROOT.rmdir()


def write(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace a file.  The temporary name has no ending that a watcher of manifests takes for an object."""
    temporary = path.with_name(_temporary(path.name, threading.get_native_id()))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def _temporary(name: str, of: int | str) -> str:
    return f".{name}.{of}.tmp"


def write_object(directory: Path, name: str, value: dict[str, Any]) -> None:
    """An object as a manifest, `<name>.json`."""
    write(directory / f"{name}.json", msgspec.json.format(msgspec.json.encode(value)) + b"\n")
