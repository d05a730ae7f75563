"""The durable record of who holds which address: <state-dir>/allocations.json, the original's file, version 1.

A change is on disk before its caller goes on.  Callers that come while a flush is under way share the next one
(`edge/batching.py`).  Each flush writes `.tmp`, fsyncs it, renames it over the file and fsyncs the directory, so a
reader sees the old or the new state and nothing between, whatever dies when; if any step fails, memory and file keep
the old state and every caller of that flush gets the error.

Entries are kept as encoded fragments: encoding a thousand of them anew for each ADD would cost more than the
kernel work.  The directory is locked for the life of the process, because two agents would give addresses twice.
"""

import contextlib
import fcntl
import ipaddress
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from flock.core.errors import StoreFailure
from flock.core.faults import Point, faults
from flock.core.model import Allocation, Released
from flock.core.naming import POD_INTERFACE, host_interface
from flock.edge.batching import Rounds
from flock.edge.halfdone import HalfDone
from flock.edge.worker import Worker

log = logging.getLogger("store")

FILE = "allocations.json"
VERSION = 1


class _File(msgspec.Struct):
    version: int
    node: str = ""
    allocations: list[Allocation] | None = None
    released: list[Released] | None = None


class _Change(msgspec.Struct):
    container_id: str
    allocation: Allocation | None  # None: forget it
    fragment: bytes
    released: tuple[Released, ...]


class Store:
    """For the event loop's thread; the disk work happens in one thread of its own.

    Readers see durable state, and half-done work over it.  At most one change per container may be under way: the
    verbs' lock sees to it.
    """

    def __init__(self, directory: Path, *, node: str, cooldown: float, half_done: Path) -> None:
        self._path = directory / FILE
        self._half_done = HalfDone(half_done)
        self._marked: dict[str, Allocation] = {}
        self._node = node
        self._cooldown = cooldown
        self._entries: dict[str, Allocation] = {}  # as on disk
        self._view: dict[str, Allocation] = {}  # with half-done work over it
        self._fragments: dict[str, bytes] = {}
        self._released: dict[str, Released] = {}
        self._changes = Rounds(self._flush)
        self._disk = Worker("store")
        self._lock = -1
        self.flushes = 0
        self.last_error = ""

    # --- opening ---

    def load(self) -> None:
        """Lock the directory and read the file.  A missing file is an empty store; anything else that is not
        a readable version 1 file raises StoreFailure, and the file is left as it is for a human to look at."""
        try:
            if self._lock < 0:
                self._lock = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreFailure(f"state directory {self._path.parent} is in use by another agent") from None
        except OSError as error:
            raise StoreFailure(f"cannot open state directory {self._path.parent}: {error.strerror}") from None
        self._marked = {name: _completed(noted) for name, noted in self._half_done.load().items()}
        self._view = dict(self._marked)
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreFailure(f"cannot read {self._path}: {error.strerror}") from None
        content = _decode(raw, self._path)
        for allocation in content.allocations or ():
            self._entries[allocation.container_id] = allocation
            self._fragments[allocation.container_id] = _fragment(allocation)
        self._view = {**self._entries, **self._marked}
        self._released = {r.address: r for r in content.released or ()}

    # --- reading ---

    def get(self, container_id: str) -> Allocation | None:
        return self._view.get(container_id)

    @property
    def entries(self) -> Mapping[str, Allocation]:
        return self._view

    @property
    def released(self) -> Iterable[Released]:
        return self._released.values()

    # --- writing ---

    def mark(self, pending: Allocation) -> None:
        """Note that work on a container has begun: survives the agent's death, needs no flush.

        `put` or `forget` ends it.  StoreFailure if it cannot be noted, and then nothing was changed.
        """
        self._half_done.set(pending)
        self._marked[pending.container_id] = pending
        self._view[pending.container_id] = pending

    def _unmark(self, container_id: str) -> None:
        if self._marked.pop(container_id, None) is not None:
            self._half_done.clear(container_id)
            durable = self._entries.get(container_id)
            if durable is None:
                self._view.pop(container_id, None)
            else:
                self._view[container_id] = durable

    async def put(self, allocation: Allocation) -> None:
        """Durable when this returns; StoreFailure if it could not be, and then nothing was changed."""
        try:
            fragment = _fragment(allocation)  # here, so that what cannot be written fails its own caller alone
        except UnicodeEncodeError as error:
            raise StoreFailure(f"container {allocation.container_id!a} cannot be recorded: {error}") from None
        await self._changes.join(_Change(allocation.container_id, allocation, fragment, ()))
        self._unmark(allocation.container_id)

    async def forget(self, container_id: str, *, released: Iterable[Released]) -> None:
        """Drop the entry; `released` addresses cool down from now on, across restarts."""
        if container_id in self._entries:
            await self._changes.join(_Change(container_id, None, b"", tuple(released)))
        self._unmark(container_id)

    async def close(self) -> None:
        await self._changes.finished()
        self._disk.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- inside ---

    async def _flush(self, batch: list[_Change]) -> None:
        try:
            entries, fragments, released = self._applied(batch)
            content = self._encode(fragments, released)
            await self._disk.run(self._write, content)
        except Exception as error:
            if not isinstance(error, OSError):
                log.exception("could not write the state file")
            reason = error.strerror if isinstance(error, OSError) else None
            self.last_error = f"cannot write {self._path}: {reason or error!r}"
            raise StoreFailure(self.last_error, details="the previous state file is intact") from None
        self._entries, self._fragments, self._released = entries, fragments, released
        self._view = {**entries, **self._marked}
        self.flushes += 1
        self.last_error = ""

    def _applied(self, batch: list[_Change]) -> tuple[dict[str, Allocation], dict[str, bytes], dict[str, Released]]:
        entries, fragments, released = dict(self._entries), dict(self._fragments), dict(self._released)
        for change in batch:
            if change.allocation is None:
                entries.pop(change.container_id, None)
                fragments.pop(change.container_id, None)
            else:
                entries[change.container_id] = change.allocation
                fragments[change.container_id] = change.fragment
                for address in change.allocation.held:
                    released.pop(address, None)
            for entry in change.released:
                released.pop(entry.address, None)
                released[entry.address] = entry
        _drop_cooled(released, self._cooldown)
        return entries, fragments, released

    def _encode(self, fragments: Mapping[str, bytes], released: Mapping[str, Released]) -> bytes:
        """One copy of each fragment: with a thousand pods, this is most of what an ADD costs beyond the kernel."""
        head = b'{\n  "version": 1,\n  "node": %s,\n  "allocations": [' % msgspec.json.encode(self._node)
        resting = msgspec.json.encode(list(released.values()))
        tail = b'%s],\n  "released": %s\n}\n' % (b"\n  " if fragments else b"", resting)
        first = head + b"\n" if fragments else head
        separated = [part for fragment in fragments.values() for part in (b",\n", fragment)][1:]
        return b"".join([first, *separated, tail])

    def _write(self, content: bytes) -> None:
        """In the store's thread, while memory holds the old state.  On any error the file does so too."""
        self._replace(content)
        try:
            faults.reach(Point.STORE_RENAMED)
            os.fsync(self._lock)
        except OSError:
            with contextlib.suppress(OSError):
                self._replace(self._encode(self._fragments, self._released))
            raise

    def _replace(self, content: bytes) -> None:
        """On any error the temporary file is removed and the old one stays."""
        temporary = f"{self._path}.tmp"
        try:
            faults.reach(Point.STORE_WRITE)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.fchmod(fd, 0o600)
                view = memoryview(content)
                while view:
                    view = view[os.write(fd, view) :]
                faults.reach(Point.STORE_SYNC)
                os.fsync(fd)
            finally:
                os.close(fd)
            faults.reach(Point.STORE_RENAME)
            os.rename(temporary, self._path)  # noqa: PTH104
        except OSError:
            _remove_quietly(temporary)
            raise


def _decode(raw: bytes, path: Path) -> _File:
    try:
        content = msgspec.json.decode(raw, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreFailure(
            f"cannot parse {path}: {error}", details="repair the file or move it away; the agent looks again by itself"
        ) from None
    if content.version != VERSION:
        raise StoreFailure(f"{path} has version {content.version}, this agent knows version {VERSION}")
    entries = [_canonical(a, path) for a in content.allocations or ()]
    if len({a.container_id for a in entries}) != len(entries):
        raise StoreFailure(f"{path} lists a container twice")
    where = f"{path}: released"
    released = [Released(_canonical_address(r.address, where), r.at, r.namespace) for r in content.released or ()]
    return _File(content.version, content.node, entries, sorted(released, key=lambda r: r.at))


def _canonical(allocation: Allocation, path: Path) -> Allocation:
    """One spelling per address, whoever wrote the file: two spellings of one address once freed a live one."""
    where = f"{path}: container {allocation.container_id}"
    return msgspec.structs.replace(
        _completed(allocation),
        ip6=allocation.ip6 and _canonical_address(allocation.ip6, f"{where}: ip6", ipaddress.IPv6Address),
        ip4=allocation.ip4 and _canonical_address(allocation.ip4, f"{where}: ip4", ipaddress.IPv4Address),
        anycast=tuple(_canonical_address(a, where) for a in allocation.anycast),
        addresses=tuple(_canonical_address(a, where) for a in allocation.addresses),
    )


def _completed(allocation: Allocation) -> Allocation:
    """The original recorded no interfaces: its name for the host's follows from the container."""
    return msgspec.structs.replace(
        allocation,
        ifname=allocation.ifname or POD_INTERFACE,
        host_interface=allocation.host_interface or host_interface(allocation.container_id),
    )


def _canonical_address(
    text: str, where: str, parse: Callable[[str], ipaddress.IPv4Address | ipaddress.IPv6Address] = ipaddress.ip_address
) -> str:
    try:
        return str(parse(text))
    except ValueError:
        raise StoreFailure(f"{where}: {text!r} is not an address of that kind") from None


def _fragment(allocation: Allocation) -> bytes:
    """The entry as it stands in the file: indented, so that a human can read it."""
    text = msgspec.json.format(msgspec.json.encode(allocation), indent=2)
    return b"    " + text.replace(b"\n", b"\n    ")


def _drop_cooled(released: dict[str, Released], cooldown: float) -> None:
    """Entries stand in the order of release; the newest tells the time, so no clock is needed."""
    if not released:
        return
    latest = next(reversed(released.values())).at
    for address, entry in list(released.items()):
        if entry.at + cooldown > latest:
            return
        del released[address]


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108
