"""Links and routes of this namespace as text, for people: by `ip` where it is, else as our own netlink reads them."""

import shutil
import subprocess
from ipaddress import ip_address

from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink

PATIENCE = 10.0
LINKS = (("-s", "-d", "link", "show"), ("address", "show"), ("neighbour", "show"))
ROUTES = (
    ("-6", "route", "show", "table", "all"),
    ("-4", "route", "show", "table", "all"),
    ("nexthop", "show"),
    ("rule",),
)


def links_text() -> str:
    if shutil.which("ip"):
        return "".join(map(_ip, LINKS))
    netlink = Netlink()
    try:
        addresses: dict[int, list[str]] = {}
        for each in netlink.dump(r.dump_addresses(), r.Address.decode):
            addresses.setdefault(each.index, []).append(f"{_text(each.address)}/{each.length}")
        return "".join(
            f"{link.index}: {link.name} {'up' if link.up else 'down'} mtu {link.mtu} kind {link.kind or '-'} "
            f"mac {link.mac.hex(':')} alias {link.alias or '-'} addresses {' '.join(addresses.get(link.index, ()))}\n"
            for link in netlink.dump(r.dump_links(), r.Link.decode)
        )
    finally:
        netlink.close()


def routes_text() -> str:
    if shutil.which("ip"):
        return "".join(map(_ip, ROUTES))
    netlink = Netlink()
    try:
        names = {link.index: link.name for link in netlink.dump(r.dump_links(), r.Link.decode)}
        routes = [
            route for family in (w.AF_INET6, w.AF_INET) for route in netlink.dump(r.dump_routes(family), r.Route.decode)
        ]
        return "".join(f"{_route(route, names)}\n" for route in routes)
    finally:
        netlink.close()


def _route(route: r.Route, names: dict[int, str]) -> str:
    target = f"{_text(route.dst)}/{route.length}" if route.dst else "default"
    via = f" via {_text(route.gateway)}" if route.gateway else ""
    device = f" dev {names.get(route.index, route.index)}" if route.index else ""
    group = f" nhid {route.nexthop}" if route.nexthop else ""
    return f"{target}{via}{device}{group} proto {route.protocol} metric {route.metric} type {route.kind}"


def _text(address: bytes) -> str:
    return str(ip_address(address)) if address else "-"


def _ip(words: tuple[str, ...]) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
    return f"$ ip {' '.join(words)}\n{done.stdout}{done.stderr}\n"
