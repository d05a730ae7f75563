"""Who is attached: the containers on record, under which host interface and link, being worked on by whom.

The one owner of these facts.  Everybody may ask; only the verbs (`attachments`) change them, each under the lock of the
container it works on, in the order that `attachments` tells.  What is on record survives in the store: a note about
work that has begun outlives the agent, a record the machine.  Names follow from it; links are learned from the kernel.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from flock.core.model import Allocation, Released
from flock.core.naming import host_interface
from flock.edge.store import Store


class Attached:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks = KeyedLocks()
        self._owners: dict[str, str] = {}  # containers by host interface, those whose ADD is under way among them
        # Links of committed containers.  Work on one takes its link out first, so events about a link that is in here
        # are somebody else's doing.
        self._indexes: dict[str, int] = {}  # by host interface
        self._interfaces: dict[int, str] = {}  # the reverse
        self._listeners: list[Callable[[Allocation], None]] = []

    def load(self) -> None:
        """Read the store: StoreFailure if it cannot be read, and then this may be called again."""
        self._store.load()
        self._owners = {a.host_interface: a.container_id for a in self.entries}

    # --- asking ---

    @property
    def entries(self) -> tuple[Allocation, ...]:
        """Everything on record, `pending` or `committed`, as it is now."""
        return tuple(self._store.entries.values())

    def of(self, container_id: str) -> Allocation | None:
        return self._store.get(container_id)

    def owner_of(self, interface: str) -> str | None:
        """The container that uses a host interface, including one whose ADD is under way."""
        return self._owners.get(interface)

    def name_for(self, container_id: str) -> str:
        """Two containers whose names hash alike get different interfaces; the loser's name is hashed again."""
        attempt = 0
        while self._owners.get(host_interface(container_id, attempt), container_id) != container_id:
            attempt += 1
        return host_interface(container_id, attempt)

    def is_busy(self, container_id: str) -> bool:
        """Does somebody work on it, or wait to?"""
        return self._locks.held(container_id)

    @property
    def links(self) -> Mapping[str, int]:
        """Indexes by host interface, as they are now."""
        return self._indexes.copy()

    def has_link(self, interface: str) -> bool:
        return interface in self._indexes

    def interface_at(self, index: int) -> str | None:
        return self._interfaces.get(index)

    def pod_on(self, interface: str) -> str:
        """For people: the pod behind a host interface, else the interface itself."""
        known = self.of(self._owners.get(interface, ""))
        return known.pod if known else interface

    def pod_at(self, index: int) -> str:
        """The same by the link's index."""
        return self.pod_on(self._interfaces.get(index, str(index)))

    def subscribe(self, listener: Callable[[Allocation], None]) -> None:
        """`listener` runs after each attachment and detachment, and when a detachment begins."""
        self._listeners.append(listener)

    # --- links, as the kernel tells of them ---

    def note_links(self, observed: Mapping[int, str]) -> None:
        """Links that an earlier life of the agent, or the original, made: host interfaces by index."""
        for index, interface in observed.items():
            known = self.of(self._owners.get(interface, ""))
            newer = index > self._indexes.get(interface, 0)  # what was observed may be gone, and made anew since
            if known is not None and known.state == "committed" and newer:
                self._note_link(interface, index)

    def drop_link(self, index: int) -> None:
        """The kernel has it no more."""
        interface = self._interfaces.get(index)
        if interface is not None:
            self._take_out(interface)

    # --- changing: for the verbs ---

    def hold(self, container_id: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Whoever works on a container does so alone."""
        return self._locks.hold(container_id)

    def begin(self, pending: Allocation) -> None:
        """Work on a container begins, or goes on; `record` or `forget` ends it.  StoreFailure changes nothing."""
        self._store.mark(pending)
        self._owners.setdefault(pending.host_interface, pending.container_id)
        self._take_out(pending.host_interface)

    def record_ahead(self, committed: Allocation) -> None:
        """Begin to write what will be true; it is `pending` until `record` or `forget`."""
        self._store.put_ahead(committed)

    async def record(self, committed: Allocation, *, link: int | None = None) -> None:
        """Durable when this returns.  `link`: its index, where it is known.  StoreFailure changes nothing."""
        await self._store.put(committed)
        self._owners.setdefault(committed.host_interface, committed.container_id)
        if link is not None:
            self._note_link(committed.host_interface, link)

    async def forget(self, allocation: Allocation, *, released: Iterable[Released]) -> None:
        """Gone for good when this returns, `released` addresses at rest.  StoreFailure changes nothing."""
        await self._store.forget(allocation.container_id, released=released)
        if self._owners.get(allocation.host_interface) == allocation.container_id:
            del self._owners[allocation.host_interface]
            self._take_out(allocation.host_interface)

    def tell(self, allocation: Allocation) -> None:
        for listener in self._listeners:
            listener(allocation)

    def _note_link(self, interface: str, index: int) -> None:
        self.drop_link(index)
        self._take_out(interface)
        self._indexes[interface] = index
        self._interfaces[index] = interface

    def _take_out(self, interface: str) -> None:
        index = self._indexes.pop(interface, None)
        if index is not None:
            del self._interfaces[index]


class KeyedLocks:
    """One at a time for each key; those of different keys run side by side."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]

    def held(self, key: str) -> bool:
        return key in self._locks
