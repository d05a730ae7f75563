"""What a routing daemon of the lab tells, whichever daemon it is.

`mirror` makes `Speaker`s from NodeConfigs, `core/routerconf` translates them into each daemon's configuration, and the
`router_*` modules run the daemons and turn their tables into `Routes` and `Session`s.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from flock.core.routerconf.speaker import Speaker
from flock.lab.hosts import Host

Kind = Literal["bird", "frr", "gobgp", "openbgpd"]

# Prefix -> next hops of its best routes, sorted; what the daemon learned from others, not what it originates.
Routes = Mapping[str, tuple[str, ...]]


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One BGP session as its daemon sees it."""

    peer: str  # the element at the other end
    address: str
    up: bool
    state: str  # the daemon's word: Established, Active, Connect ...
    received: int = 0  # prefixes
    bfd: str = ""  # up, down ...; empty where there is no BFD
    since: str = ""  # in the daemon's words, where it tells
    last_error: str = ""

    @property
    def settled(self) -> bool:
        """Up, watched by BFD where that is asked for, and the first routes are in."""
        return self.up and self.bfd in ("", "up") and self.received > 0


class Router(ABC):
    """A routing daemon in its namespace.  Starting a running one and stopping a stopped one change nothing."""

    def __init__(self, host: Host, speaker: Speaker) -> None:
        self.host = host
        self.speaker = speaker

    @abstractmethod
    def start(self) -> None:
        """Write the configuration and run the daemon; returns when it answers, raises LabError when it does not."""

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def routes(self) -> Routes: ...

    @abstractmethod
    def sessions(self) -> tuple[Session, ...]: ...

    def _write(self, name: str, text: str) -> Path:
        """A file of the daemon's, which may hold passwords."""
        self.host.home.mkdir(parents=True, exist_ok=True)
        path = self.host.home / name
        path.write_text(text)
        path.chmod(0o600)
        return path
