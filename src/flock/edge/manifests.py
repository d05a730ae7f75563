"""A directory of manifests feeds the cache: no API server, the same YAML.

Files are read when the kernel says that they changed, never by polling, and a file is one unit: what it holds
replaces what it held.  A file that cannot be read as objects keeps all it had, an object that is refused keeps its
last good version (invariant 7); both are shown in `problems` until the file is mended.  Of an object found in several
files the one in the last file by name counts.

A file just being written is left alone until its writer closes it; renames, links and the symbolic links a mounted
ConfigMap is made of (`..data` swapped under unchanged names) are taken at once.  What happens behind a symbolic link
that leads out of the directory is not seen.

When the directory itself goes away, everything stays in force until it is back: that is a lost source, not an order
to forget all pods.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flock.core.errors import FlockError
from flock.core.kinds import NODE_CONFIGS, PODS
from flock.core.manifest import Object, ObjectKey, parse_manifest
from flock.core.model import Pod
from flock.edge import inotify
from flock.edge.cache import Cache, Problem
from flock.edge.inotify import Event, Inotify
from flock.edge.manifestfile import content, is_manifest

log = logging.getLogger("manifests")

CONFIGMAP_LINK = "..data"
# Only while something that is there cannot be watched or read: no notice tells when that has changed.
RETRY_SECONDS = 1.0

GONE = inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.UNMOUNT | inotify.IGNORED
CHANGES = inotify.CLOSE_WRITE | inotify.CREATE | inotify.DELETE | inotify.MOVED_FROM | inotify.MOVED_TO
IN_DIRECTORY = CHANGES | inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.ONLYDIR
IN_PARENT = inotify.CREATE | inotify.MOVED_TO | inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.ONLYDIR


class File(msgspec.Struct, frozen=True):
    """What one file contributes, and by which text."""

    digest: bytes = b""
    objects: Mapping[ObjectKey, Object] = {}
    problems: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # nodes whose NodeConfig is in it
    outdated: str = ""  # why the own NodeConfig is one of an earlier text


NOTHING = File()


class ManifestFeeder:
    """Implements `flock.edge.feeder.Feeder`."""

    requires_pods = False  # a container without a manifest gets the node's defaults

    def __init__(self, cache: Cache, directory: Path) -> None:
        self._cache = cache
        self._kinds = {kind.name: kind for kind in cache.kinds}
        self._own = ObjectKey(NODE_CONFIGS.name, "", cache.node)
        self._directory = directory
        self._files: dict[str, File] = {}
        self._holders: dict[ObjectKey, set[str]] = {}  # the files an object is in
        self._inotify: Inotify | None = None
        self._watch = self._parent_watch = -1
        self._retry: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        self._attach()

    async def pod(self, namespace: str, name: str, *, uid: str) -> Pod | None:
        """Never waits: a manifest finished before the call is taken in, and nothing says that another will come."""
        self.refresh()
        pod = self._cache.table(PODS).get((namespace, name))
        return pod if pod is not None and pod.may_be(uid) else None

    async def secret(self, name: str, key: str) -> str | None:
        """There are no Secrets in a directory: use passwordFile."""
        return None

    async def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify)
            self._inotify.close()
            self._inotify = None

    # --- noticing -------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Everything that has happened until now, as one change."""
        if self._inotify is None:
            return
        there: dict[str, bool] = {}  # the names something happened to, and whether they outlived it
        afresh = False
        for event in self._notices(self._inotify):
            if event.mask & inotify.OVERFLOW:
                afresh = True
            elif event.watch == self._parent_watch:
                afresh |= event.name == self._directory.name or bool(event.mask & GONE)
            elif event.watch != self._watch:
                continue  # the rest of a watch that was given up
            elif event.mask & GONE or event.name == CONFIGMAP_LINK:
                afresh = True
            elif is_manifest(event.name) and not (event.mask & inotify.CREATE and self._has_writer(event.name)):
                there[event.name] = not event.mask & (inotify.DELETE | inotify.MOVED_FROM)
        # Without the directory, a file that was deleted before is told from one that went with it by its notice.
        self._reload({name for name in there if not afresh or not there[name]})
        if afresh:
            self._attach()

    def _notices(self, notices: Inotify) -> list[Event]:
        """If they cannot be had any more, another queue is made, and everything is read anew."""
        try:
            return notices.pending()
        except OSError as error:
            log.error("lost the notices of directory=%s problem=%s", self._directory, error)
            asyncio.get_running_loop().remove_reader(notices)
            with contextlib.suppress(OSError):
                notices.close()
            self._inotify, self._watch, self._parent_watch = None, -1, -1
            self._retry_later()
            return []

    def _has_writer(self, name: str) -> bool:
        """A name that has just appeared: a new file, whose writer will close it, or a link to a finished one?"""
        try:
            status = (self._directory / name).lstat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1

    def _attach(self) -> None:
        """Watch the directory and read all of it, or wait for it."""
        problem = ""
        try:
            if self._inotify is None:
                self._inotify = Inotify()
                asyncio.get_running_loop().add_reader(self._inotify, self.refresh)
            if self._watch_directory(self._inotify):
                present = {entry.name for entry in os.scandir(self._directory) if is_manifest(entry.name)}
                self._reload(present | self._files.keys())
                for kind in self._cache.kinds:
                    self._cache.listed(kind)
            else:
                problem = "no such directory; waiting for it"
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            self._retry_later()
        self._complain("", *filter(None, [problem]))

    def _complain(self, name: str, *problems: str) -> None:
        """Of a file, or of the directory itself."""
        where = str(self._directory / name)
        self._cache.complain(where, *(Problem(where, problem) for problem in problems))

    def _retry_later(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._attach_again)

    def _attach_again(self) -> None:
        self._retry = None
        self._attach()

    def _watch_directory(self, notices: Inotify) -> bool:
        """False if the directory is absent and its parent watched instead; OSError if neither is possible."""
        for watch in (self._watch, self._parent_watch):
            notices.unwatch(watch)
        self._watch = self._parent_watch = -1
        try:
            self._watch = notices.watch(self._directory, IN_DIRECTORY)
        except FileNotFoundError:
            if self._directory.is_symlink():
                raise  # its target appears elsewhere than in the parent
        else:
            return True
        self._parent_watch = notices.watch(self._directory.parent, IN_PARENT)
        try:  # again, for it may have appeared before the parent was watched
            self._watch = notices.watch(self._directory, IN_DIRECTORY)
        except FileNotFoundError:
            return False
        notices.unwatch(self._parent_watch)
        return True

    # --- reading --------------------------------------------------------------------------------------------

    def _reload(self, names: set[str]) -> None:
        for name in sorted(names):
            self._replace(name, self._read(name))

    def _read(self, name: str) -> File:
        """The file's present contribution; NOTHING if it is gone or a folder."""
        last = self._files.get(name, NOTHING)
        try:
            data = content(self._directory / name)
            if data is None:
                return NOTHING
            digest = hashlib.blake2b(data).digest()
            if digest == last.digest:
                return last
            manifest = parse_manifest(data, node=self._cache.node, kinds=self._cache.kinds)
        except OSError as error:
            self._retry_later()
            return self._kept(last, f"cannot be read: {error.strerror}")
        except FlockError as error:
            return self._kept(last, error.msg)
        except Exception as error:  # a mistake of ours concerns this file alone
            log.exception("could not read a manifest file=%s", name)
            return self._kept(last, f"cannot be understood: {error!r:.200}")
        refused = manifest.refused.keys()
        # A refused object without a readable name may be any of its kind.
        kept = {key: value for key, value in last.objects.items() if refused & {key, ObjectKey(key.kind, "", "")}}
        refusals = tuple(f"{key}: {problem}" for key, problem in manifest.refused.items())
        outdated = "; ".join(refusals) if self._own in kept else ""
        return File(digest, {**kept, **manifest.objects}, (*refusals, *manifest.warnings), manifest.others, outdated)

    def _kept(self, last: File, problem: str) -> File:
        return File(objects=last.objects, problems=(problem,), outdated=problem if self._own in last.objects else "")

    def _replace(self, name: str, new: File) -> None:
        """Put a file's contribution in the place of its last one; costs what differs."""
        old = self._files.get(name, NOTHING)
        if new is NOTHING:
            self._files.pop(name, None)
        else:
            self._files[name] = new
        self._complain(name, *new.problems)
        self._cache.pass_over(name, new.others)
        self._cache.keep_config(str(self._directory / name), new.outdated)
        for key in old.objects.keys() | new.objects.keys():
            if old.objects.get(key) != new.objects.get(key):
                holders = self._holders.setdefault(key, set())
                (holders.add if key in new.objects else holders.discard)(name)
                self._settle(key, holders)

    def _settle(self, key: ObjectKey, holders: set[str]) -> None:
        """Let the last file by name decide on the object."""
        kind, slot = self._kinds[key.kind], (key.namespace, key.name)
        *overruled, last = sorted(holders) or [""]
        if holders:
            self._cache.put(kind, slot, self._files[last].objects[key])
        else:
            del self._holders[key]
            self._cache.drop(kind, slot)
        message = f"{key}: also in {', '.join(overruled)}; this file comes last by name and counts"
        contest = [Problem(str(self._directory / last), message)] if overruled else []
        self._cache.complain(key, *contest)
