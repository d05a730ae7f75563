"""A node with the rendered file beside a router with one of its own."""

from ipaddress import ip_interface
from typing import Any

from bird_fabric import Fabric, Router

from flock.core.birdconf import render_bird_conf
from flock.core.facts import HostAddress, NodeFacts
from flock.core.naming import PROTO_ANNOUNCE, PROTO_POD
from flock.core.nodeconfig import parse_node_config

ROUTER = """
log stderr all;
router id 198.51.100.1;
protocol device {{ }}
protocol static {{ ipv6; route ::/0 blackhole; route 2001:db8:77::/48 blackhole;
  route 2001:db8:ffff::/64 blackhole; route 2001:db8:ffff::12/128 blackhole; route 2001:db8:1::/80 blackhole; }}
protocol static {{ ipv4; route 0.0.0.0/0 blackhole; route 10.77.0.0/16 blackhole; route 203.0.113.0/24 blackhole; }}
{sessions}
"""
SESSION = """
protocol bgp {name} {{
  local {local} as 64600; neighbor {neighbor} as 64601; {options}
  connect delay time 1; connect retry time 1; error wait time 1, 1;
  ipv6 {{ import all; export all; next hop self; }};
  ipv4 {{ import all; export all; next hop self; extended next hop on; }};
}}
"""


def session(neighbor: str, *, name: str = "node", local: str = "", options: str = "") -> str:
    return SESSION.format(name=name, neighbor=neighbor, local=local, options=options)


def rendered(*, facts: NodeFacts, number: int = 1, secret: str = "", **spec: Any) -> str:
    metadata = {"name": f"node{number}"}
    cidrs = {"cidr6": [f"2001:db8:{number}::/64"], "cidr4": [f"192.0.2.{64 * (number - 1)}/26"]}
    obj = {
        "apiVersion": "flock.fritzlab.net/v1alpha1",
        "kind": "NodeConfig",
        "metadata": metadata,
        "spec": cidrs | spec,
    }
    config = parse_node_config(obj)
    return render_bird_conf(config, facts, secrets=dict.fromkeys(config.password_sources, secret))


def bgp(**peer: Any) -> dict[str, Any]:
    return {"asn": 64601, "peers": [{"name": "tor", "address": "2001:db8:ffff::1", "asn": 64600, **peer}]}


def node_beside(fabric: Fabric, router: Router, *, number: int = 1, link: str = "eth0") -> tuple[Router, NodeFacts]:
    """A node linked to the router; one of its pods has an address announced in each family, others do not."""
    node = fabric.router(f"node{number}")
    subnet = "ffff" if number == 1 else f"fff{number}"
    own = [f"2001:db8:{subnet}::11/64", f"203.0.{112 + number}.11/24"]
    fabric.link(node, own, router, [f"2001:db8:{subnet}::1/64", f"203.0.{112 + number}.1/24"], link)
    node.ip("link", "add", "pods", "type", "veth", "peer", "name", "pods-far")
    for name in ("pods", "pods-far"):
        node.ip("link", "set", name, "up")
    announce, pod = str(PROTO_ANNOUNCE), str(PROTO_POD)
    for prefix, protocol in (
        ("2001:db8:53::1/128", announce),
        ("198.51.100.53/32", announce),
        (f"2001:db8:{number}::5/128", pod),
        ("192.0.2.5/32", pod),
        ("2001:db8:99::1/128", "static"),
        ("198.51.100.99/32", "static"),
    ):
        node.ip("route", "add", prefix, "dev", "pods", "proto", protocol, "metric", "20")
    return node, NodeFacts(f"node{number}", tuple(HostAddress(link, ip_interface(address)) for address in own))
