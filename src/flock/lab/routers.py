"""Which daemons can be routers, and what each can do."""

from typing import get_args

from flock.lab.hosts import Host
from flock.lab.router_bird import BirdRouter
from flock.lab.router_frr import FrrRouter
from flock.lab.router_gobgp import GobgpRouter
from flock.lab.speaker import Kind, Router, Speaker

KINDS: tuple[Kind, ...] = get_args(Kind)
# The program that has to be there, and the Debian package it comes with.
PROGRAMS: dict[Kind, tuple[str, str]] = {
    "bird": ("bird", "bird2"),
    "frr": ("/usr/lib/frr/bgpd", "frr"),
    "gobgp": ("gobgpd", "gobgpd"),
}


def make(kind: Kind, host: Host, speaker: Speaker) -> Router:
    if kind == "frr":
        return FrrRouter(host, speaker)
    return GobgpRouter(host, speaker) if kind == "gobgp" else BirdRouter(host, speaker)


def knows_bfd(kind: Kind) -> bool:
    return kind != "gobgp"
