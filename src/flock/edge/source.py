"""The seam between the agent and wherever cluster objects come from.

Two implementations: a directory of manifests (`manifests.py`) and the Kubernetes API.  The agent only ever sees
this interface, so everything it does works with and without an API server.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from flock.core.model import Namespace, Node, Pod

PodKey = tuple[str, str]
ChangeKey = tuple[str, str, str]  # kind, namespace, name


class Problem(msgspec.Struct, frozen=True):
    """An object or file that was refused; its last good version, if any, stays in force (invariant 7)."""

    where: str
    message: str


class WatchState(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind of object is followed: `heard` is how many seconds ago the other end last said anything, `silences`
    how often it was given up because it said nothing."""

    kind: str
    up: bool
    problem: str
    heard: float
    silences: int


class Source(Protocol):
    """Caches of the objects the agent reads.  All methods are for the event loop's thread.

    The mappings always hold the last good state and are never partially updated.  `node_config` is the raw
    NodeConfig object of this node (validation is the caller's), None while there is none.
    """

    @property
    def requires_pods(self) -> bool:
        """True where every container has to be a known pod; False where one may be attached without."""

    @property
    def synced(self) -> bool:
        """True once the first full listing is in; stays True for good."""

    @property
    def complete(self) -> bool:
        """True while all that is watched has been listed: also what was asked for later, as the cluster's pods."""

    @property
    def pods(self) -> Mapping[PodKey, Pod]:
        """At least this node's."""

    @property
    def cluster_pods(self) -> Mapping[PodKey, Pod]:
        """All that are known: the whole cluster's once `watch_cluster_pods` was called and `complete` is True."""

    def watch_cluster_pods(self) -> None:
        """Policies need the whole cluster's pods.  May be called again and again."""

    @property
    def namespaces(self) -> Mapping[str, Namespace]: ...
    @property
    def network_policies(self) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        """Raw objects by (namespace, name); their metadata is checked, their spec is the policy compiler's."""

    @property
    def node(self) -> Node | None: ...
    @property
    def node_config(self) -> Mapping[str, Any] | None: ...
    @property
    def templates(self) -> tuple[Mapping[str, Any], ...]:
        """NodeConfigTemplates, raw."""

    @property
    def problems(self) -> tuple[Problem, ...]: ...

    @property
    def watches(self) -> tuple[WatchState, ...]:
        """What is followed over a connection that may be lost."""

    def subscribe(self, callback: Callable[[], None]) -> None:
        """`callback` runs on the loop after every change that was taken in; it must not block."""

    def drain_changes(self) -> set[ChangeKey]:
        """What was added, changed or removed since the last call.  For one reader: the policies."""

    async def start(self) -> None:
        """Begin listing and watching; returns once that is under way, never raises for what may heal."""

    def refresh(self) -> None:
        """Take in changes that have happened already and were not noticed yet, without waiting for any."""

    async def pod(self, namespace: str, name: str, *, uid: str) -> Pod | None:
        """The freshest known pod, taking in changes that are already pending.  A pod with another uid than the
        one given (both known) is a namesake and counts as absent.  None after a bounded wait: not found."""

    async def secret(self, name: str, key: str) -> str | None:
        """One value of a Secret in the agent's namespace; None if it cannot be had."""

    async def close(self) -> None: ...
