"""A node's own configuration, put into a cache by a test."""

from typing import Any

from flock.core.kinds import NODE_CONFIGS
from flock.edge.cache import Cache


def told(own: Any = None) -> Cache:
    """A cache that knows this NodeConfig of n1, or none."""
    cache = Cache(node="n1")
    tell(cache, own)
    return cache


def tell(cache: Cache, own: Any) -> None:
    if own is None:
        cache.drop(NODE_CONFIGS, ("", cache.node))
    else:
        cache.put(NODE_CONFIGS, ("", cache.node), own)
