"""Addresses of Services in their kernel table: what is there, what changes, and what goes with flock."""

import os
from ipaddress import ip_address

import pytest

from flock.core.naming import SERVICE_TABLE
from flock.edge.kernel import leftovers, services
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink
from namespaces import within

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces")

ONE, OTHER = ip_address("203.0.113.1").packed, ip_address("2001:db8:5e::1").packed
FOREIGN = r.Route(w.AF_INET, ip_address("203.0.113.9").packed, 32, kind=w.RTN_BLACKHOLE, table=SERVICE_TABLE)


def main_table(netlink: Netlink) -> list[r.Route]:
    return [
        route for family in (w.AF_INET6, w.AF_INET) for route in netlink.dump(r.dump_routes(family), r.Route.decode)
    ]


def test_they_come_and_go_one_by_one_whatever_was_there() -> None:
    def story() -> None:
        netlink = Netlink()
        before = main_table(netlink)
        assert services.announced(netlink) == frozenset()  # the table does not exist yet
        services.change(netlink, announce=[ONE, OTHER], withdraw=[])
        services.change(netlink, announce=[ONE], withdraw=[OTHER])
        services.change(netlink, announce=[ONE], withdraw=[OTHER])
        assert services.announced(netlink) == {ONE} and main_table(netlink) == before

    within(None, story)


def test_whoever_takes_flock_off_the_node_takes_ours_and_leaves_others() -> None:
    def story() -> None:
        netlink = Netlink()
        netlink.run([r.add_route(FOREIGN)])
        services.change(netlink, announce=[ONE, OTHER], withdraw=[])
        assert leftovers.remove(netlink, of_bird=True) == (2, 0)
        assert services.announced(netlink) == frozenset()
        everything = netlink.dump(r.dump_routes(w.AF_INET, table=SERVICE_TABLE), r.Route.decode)
        assert [route.dst for route in everything] == [FOREIGN.dst]

    within(None, story)
