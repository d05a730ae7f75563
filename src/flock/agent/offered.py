"""What Services offer this node, as far as objects and the configuration say: kept up with what changes.

A change of an object costs what it changes; another configuration, or other addresses of the node, all of it.  Of
Services and EndpointSlices is followed what the configuration makes use of: nothing where it grants nothing.
"""

from flock.agent.configured import Configured
from flock.agent.preparing import Preparing
from flock.core.facts import NodeFacts
from flock.core.kinds import ALL, ENDPOINT_SLICES, NAMESPACES, SERVICES, Key
from flock.core.model import EndpointSlice
from flock.core.nodeconfig import NodeConfig
from flock.core.services import Book, Right, extents, offers, rights
from flock.edge.cache import Cache


class Offered:
    def __init__(self, *, cache: Cache, configured: Configured, preparing: Preparing) -> None:
        self._cache, self._configured, self._preparing = cache, configured, preparing
        self._reader = cache.reader(SERVICES, ENDPOINT_SLICES, NAMESPACES)
        self._slices: dict[Key, dict[Key, EndpointSlice]] = {}  # by Service
        self._owners: dict[Key, Key] = {}  # the Service of each slice
        self._judged_by: tuple[NodeConfig | None, NodeFacts | None] = (None, None)
        self._right: Right | None = None  # None: nothing is granted to anybody
        self._depending: set[Key] = set()  # Services whose endpoints matter
        self.book = Book()
        self.listed = False  # at least once, all that is made use of

    def follow(self) -> None:
        """As the configuration says now."""
        config = self._configured.config
        self._cache.need(SERVICES, [ALL] if config is not None and config.services.allowed else [])

    def take_in(self) -> tuple[set[str], set[Key]]:
        """Believe what is known by now.  Returns the addresses it is about, and the Services that changed, or whose
        endpoints did."""
        changed: set[Key] = set()
        for kind, namespace, name in self._reader.changes():
            if kind == SERVICES.name:
                changed.add((namespace, name))
            elif kind == ENDPOINT_SLICES.name:
                changed |= self._file((namespace, name))
            else:
                changed |= {key for key in self._cache.table(SERVICES) if key[0] == name}
        judged, config, facts = changed, self._configured.config, self._preparing.facts
        if self._judged_by[0] is not config or self._judged_by[1] is not facts:
            self._judged_by = (config, facts)
            granting = config is not None and config.services.allowed
            self._right = rights(config, facts, self._cache.table(NAMESPACES)) if config and granting else None
            judged = changed | self._cache.table(SERVICES).keys() | self.book.by_service.keys()
        touched: set[str] = set()
        for key in list(judged):
            if about := self._judge(key, config):
                touched |= about
                changed.add(key)
        self._follow_endpoints(changed)
        lacking = self._cache.lacking(SERVICES) or self._cache.lacking(ENDPOINT_SLICES)
        self.listed = self.listed or not lacking
        return touched, changed

    def _file(self, key: Key) -> set[Key]:
        """A slice, with those of its Service.  Returns the Services it is, and was, about."""
        found, before = self._cache.table(ENDPOINT_SLICES).get(key), self._owners.pop(key, None)
        if before is not None:
            slices = self._slices[before]
            del slices[key]
            if not slices:
                del self._slices[before]
        if found is None:
            return {before} if before else set()
        self._owners[key] = found.service
        self._slices.setdefault(found.service, {})[key] = found
        return {found.service, before or found.service}

    def _judge(self, key: Key, config: NodeConfig | None) -> set[str]:
        service = self._cache.table(SERVICES).get(key)
        if service is None or not service.balances or config is None or self._right is None:
            return self.book.put(key, ())
        slices = self._slices.get(key, {}).values()
        found = offers(service, slices, node=self._cache.node, config=config, right=self._right)
        return self.book.put(key, found) if found != self.book.by_service.get(key) else set()

    def _follow_endpoints(self, changed: set[Key]) -> None:
        """Of Services that depend on them, and may be announced."""
        now = {key for key in changed if any(offer.endpoints for offer in self.book.by_service.get(key, ()))}
        if now - self._depending or (changed - now) & self._depending:
            self._depending = (self._depending - changed) | now
            before = self._cache.needed(ENDPOINT_SLICES)
            self._cache.need(ENDPOINT_SLICES, extents(self._depending, before=before))
