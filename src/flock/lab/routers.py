"""Which daemons can be routers, and what each can do."""

from typing import NamedTuple

from flock.lab.router_bird import BirdRouter
from flock.lab.router_frr import FrrRouter
from flock.lab.router_gobgp import GobgpRouter
from flock.lab.router_openbgpd import OpenbgpdRouter
from flock.lab.speaker import Kind, Router


class Daemon(NamedTuple):
    router: type[Router]
    program: str  # has to be there
    package: str  # Debian's, which it comes with
    knows_bfd: bool = True
    knows_extended: bool = True  # next hops: IPv4 over a session of IPv6


DAEMONS: dict[Kind, Daemon] = {
    "bird": Daemon(BirdRouter, "bird", "bird2"),
    "frr": Daemon(FrrRouter, "/usr/lib/frr/bgpd", "frr"),
    "gobgp": Daemon(GobgpRouter, "gobgpd", "gobgpd", knows_bfd=False),
    "openbgpd": Daemon(OpenbgpdRouter, "/usr/sbin/bgpd", "openbgpd", knows_bfd=False, knows_extended=False),
}
