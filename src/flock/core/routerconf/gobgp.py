"""GoBGP as a router: sessions and a table, no BFD and no OSPF."""

from typing import Any

from flock.core.routerconf.speaker import Neighbour, Speaker


def render(speaker: Speaker) -> dict[str, Any]:
    return {
        "global": {
            "config": {"as": speaker.asn, "router-id": speaker.router_id},
            "use-multiple-paths": {"config": {"enabled": True}},
            **_applied(speaker),
        },
        "neighbors": [_neighbour(n) for n in speaker.neighbours],
        **_policies(speaker),
    }


def _applied(speaker: Speaker) -> dict[str, Any]:
    if not any(n.accepted for n in speaker.neighbours):
        return {}
    config = {"import-policy-list": ["nodes"], "default-import-policy": "reject-route"}
    return {"apply-policy": {"config": config}}


def _policies(speaker: Speaker) -> dict[str, Any]:
    """Prefixes of one family to a set, a statement for each."""
    prefixes, statements, neighbours = [], [], []
    for n in speaker.neighbours:
        for family in n.families if n.accepted else ():
            assert n.accepted is not None
            aggregates, hosts = n.accepted.of(family)
            longest = 128 if family == "ipv6" else 32
            patterns = [{"ip-prefix": a, "masklength-range": "{0}..{0}".format(a.split("/")[1])} for a in aggregates]
            patterns += [{"ip-prefix": h, "masklength-range": f"{longest}..{longest}"} for h in hosts]
            name = f"{n.session}_{family}"
            prefixes.append({"prefix-set-name": name, "prefix-list": patterns})
            conditions = {
                "match-prefix-set": {"prefix-set": name, "match-set-options": "any"},
                "match-neighbor-set": {"neighbor-set": n.session, "match-set-options": "any"},
            }
            accept = {"route-disposition": "accept-route"}
            statements.append({"name": name, "conditions": conditions, "actions": accept})
        if n.accepted:
            neighbours.append({"neighbor-set-name": n.session, "neighbor-info-list": [n.address]})
    if not statements:
        return {}
    return {
        "defined-sets": {"prefix-sets": prefixes, "neighbor-sets": neighbours},
        "policy-definitions": [{"name": "nodes", "statements": statements}],
    }


def _neighbour(n: Neighbour) -> dict[str, Any]:
    config: dict[str, Any] = {"neighbor-address": zoned(n.address, n), "peer-as": n.asn}
    if n.password:
        config["auth-password"] = n.password
    neighbour: dict[str, Any] = {
        "config": config,
        "transport": {"config": {"local-address": zoned(n.local_address, n)}},
        "timers": {"config": {"hold-time": n.hold_time, "connect-retry": 1, "idle-hold-time-after-reset": 1}},
        "afi-safis": [{"config": {"afi-safi-name": f"{family}-unicast"}} for family in n.families],
    }
    if n.multihop is not None:
        neighbour["ebgp-multihop"] = {"config": {"enabled": True, "multihop-ttl": n.multihop}}
    if n.ttl_security:
        neighbour["ttl-security"] = {"config": {"enabled": True, "ttl-min": 255}}
    return neighbour


def zoned(address: str, n: Neighbour) -> str:
    return f"{address}%{n.interface}" if n.interface else address
