"""The seam between the agent and wherever objects come from: a directory of manifests, or the Kubernetes API.

A feeder fills the cache (`cache.py`), and everything the agent does works with either.  Besides it answers the few
questions that no table can: those about what is not there yet, and about what is not to be kept.
"""

from typing import Protocol

from flock.core.model import Pod


class Feeder(Protocol):
    """All methods are for the event loop's thread."""

    @property
    def requires_pods(self) -> bool:
        """True where every container has to be a known pod; False where one may be attached without."""

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
