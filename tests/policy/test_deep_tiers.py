"""As many rules of ClusterNetworkPolicies as there may be, each with several peers and several ports, in a kernel that
follows only so many jumps."""

import json
from pathlib import Path
from typing import Any

import pytest
from probing import Cell
from realcluster import RealCluster
from tiers_cases import ANYWHERE, EVERYONE, accept, admin, baseline, deny, named, networks, of, skip, tcp

from thoroughness import some

Object = dict[str, Any]
RULE = {"Accept": accept, "Deny": deny, "Pass": skip}
PORTS = [tcp(80), tcp(90, 99), {"udp": {"destinationPort": {"number": 53}}}, {"sctp": {}}, named("web")]
API = {"apiVersion": "policy.networking.k8s.io/v1alpha2"}


def rules(action: str, *, first: int) -> list[Object]:
    """Of which only the last means anybody here."""
    absent = [(networks(f"10.{first + n}.0.0/16", f"2001:db8:{first + n:x}::/48"), of(f"n{n}")) for n in range(24)]
    return [RULE[action](*peers, on=PORTS) for peers in (*absent, (of("x"), of("y"), networks("203.0.113.0/24")))]


@pytest.mark.parametrize("action", some(["Pass", "Deny", "Accept"]))
def test_25_rules_of_several_policies_are_in_force(action: str, tmp_path: Path) -> None:
    """Those pass what the first of the tier below would deny, or the other way round."""
    decides = [RULE[action](EVERYONE, on=[tcp(81)])]
    other = [accept(ANYWHERE) if action == "Deny" else deny(ANYWHERE)]
    policies = [
        *(admin(f"a{n}", n, out=rules(action, first=40 + n), into=decides) for n in range(3)),
        admin("b", 9, out=other),
        baseline("c", into=[deny(of("nowhere"))]),
    ]
    with RealCluster(tmp_path, ports=(80, 81, 53)) as cluster:
        for name in ("x", "y"):
            cluster.namespace(name)
        cluster.add("x/a", {})
        cluster.add("y/b", {})
        cluster.set_cluster_policies([json.loads(json.dumps(API | policy)) for policy in policies])
        cluster.settle()
        meant = [
            Cell("x/a", "y/b", family, *what) for family in (4, 6) for what in (("TCP", 80), ("UDP", 53), ("SCTP", 7))
        ]
        others = [Cell("x/a", "y/b", family, *what) for family in (4, 6) for what in (("UDP", 80), ("ICMP", None))]
        others += [Cell("x/a", "external", 6, "TCP", 80)]
        passes = meant if action != "Deny" else others
        cluster.assert_reached([*meant, *others], expected=passes)
