"""Taking flock off a host: everything of it, and only from a host on which no pod needs it any more.

A host with pods of flock, or with an agent, is left exactly as it is, and the reason said: whoever tries again later
(an init container does) goes on when they are gone.  What is cut short is finished by the next run.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flock.core.errors import FlockError
from flock.edge import deferred_dels, halfdone, rpc, rundir, servingfile
from flock.edge.bird import conffile, room
from flock.edge.conflist import NAME, remove_conflist
from flock.edge.kernel import leftovers
from flock.edge.netlink.socket import Netlink
from flock.edge.nft.tables import remove_tables

SHOWN = 5  # pods that are named; the rest is a number


def uninstall(*, conf_dir: Path, run_dir: Path, bird_dir: Path) -> Iterator[str]:
    """What was done, line by line.  FlockError or OSError, and nothing done, if flock is still needed here.

    The configuration goes first: from then on the runtime gives pods to another plugin, or waits for one."""
    with _without_agent(run_dir), Netlink() as netlink:
        _refuse_if_needed(netlink)
        ours = _has_bird(run_dir=run_dir, bird_dir=bird_dir)
        if remove_conflist(conf_dir):
            yield f"removed {conf_dir / NAME}"
        yield from _end_bird(netlink, run_dir=run_dir, bird_dir=bird_dir, ours=ours)
        for table in remove_tables():
            yield f"removed table {table}"
        yield from _take_away(run_dir, bird=ours)


@contextmanager
def _without_agent(run_dir: Path) -> Iterator[None]:
    """An agent holds the run directory's lock; none starts to work while we hold it."""
    if not run_dir.is_dir():
        yield
        return
    try:
        lock = rundir.take(run_dir)
    except BlockingIOError:
        raise FlockError("flock-agent runs on this host: end it first; nothing was removed") from None
    try:
        yield
    finally:
        os.close(lock)


def _refuse_if_needed(netlink: Netlink) -> None:
    pods = leftovers.attached(netlink)
    if pods:
        named = ", ".join(pods[:SHOWN]) + (f" and {len(pods) - SHOWN} more" if len(pods) > SHOWN else "")
        raise FlockError(f"{len(pods)} pods of flock are on this host; nothing was removed: {named}")


def _has_bird(*, run_dir: Path, bird_dir: Path) -> bool:
    """Other directories have a BIRD too, of the distribution or of an administrator."""
    return conffile.is_ours(bird_dir) or _aside(bird_dir).exists() or any(rpc.own(run_dir))


def _aside(bird_dir: Path) -> Path:
    return bird_dir / f".{conffile.FILE}.removed"


def _end_bird(netlink: Netlink, *, run_dir: Path, bird_dir: Path, ours: bool) -> Iterator[str]:
    """Without its file BIRD does not start again.  Put aside, it says until the end that BIRD's routes are flock's."""
    conf, aside = bird_dir / conffile.FILE, _aside(bird_dir)
    if conffile.is_ours(bird_dir):
        conf.replace(aside)
    elif conf.exists():
        yield f"left alone {conf}: flock did not write it"
    served = aside.exists()
    if ours and room.end(run_dir):
        yield "ended BIRD: routers were told"
    elif served:
        yield "BIRD had ended before: routers may keep this node's prefixes as long as their graceful restart lasts"
    routes, nexthops = leftovers.remove(netlink, of_bird=served)
    if routes or nexthops:
        yield f"removed {routes} routes and {nexthops} next hops"
    if served:
        aside.unlink()
        yield f"removed {conf}"


def made_in(run_dir: Path, *, bird: bool) -> list[Path]:
    """All that flock may have made in a run directory, what is in a directory before that one; `bird`: BIRD's as well.
    The agent's socket is last: as long as it is there, a next run knows BIRD to be flock's."""
    makers = (*([room.own] if bird else []), halfdone.own, deferred_dels.own, servingfile.own, rpc.own)
    return [path for own in makers for path in own(run_dir)]


def _take_away(run_dir: Path, *, bird: bool) -> Iterator[str]:
    """The directory itself goes with the last of it, unless it is a mount."""
    for path in made_in(run_dir, bird=bird):
        rundir.remove(path)
    if not run_dir.is_dir():
        return
    if left := sorted(path.name for path in run_dir.iterdir()):
        yield f"left alone {run_dir}: not flock's are {', '.join(left[:SHOWN])}{' …' * (len(left) > SHOWN)}"
        return
    try:
        run_dir.rmdir()
        yield f"removed {run_dir}"
    except OSError:
        yield f"emptied {run_dir}"
