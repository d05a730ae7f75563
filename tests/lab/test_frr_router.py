"""FRR's daemons as the lab starts them."""

import signal

from lab_making import MakeLab

from flock.core.routerconf.frr import DAEMONS


def test_a_router_that_was_started_answers_whatever_its_predecessor_left(make_lab: MakeLab) -> None:
    """One that was killed leaves the files of its sockets, at which nobody listens."""
    lab = make_lab(nodes=1, routers=1, router="frr", settled=False)
    router = lab.router("r1")
    for daemon in reversed(DAEMONS):
        router.host.stop(daemon, by=signal.SIGKILL)
    assert (router.host.home / "bgpd.vty").is_socket()
    router.start()
    assert [session.peer for session in router.sessions()] == ["n1", "client"]
