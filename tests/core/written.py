"""What operators write: a full NodeConfig, small ones, and ways to change a field."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from flock.core.nodeconfig import NodeConfigError, parse_node_config

FULL = """
apiVersion: flock.fritzlab.net/v1alpha1
kind: NodeConfig
metadata:
  name: node1
  uid: 6f2c
  annotations: {flock.fritzlab.net/ip-algo: "namespace,app,image"}
spec:
  cidr6: ["2001:db8:1::/64"]
  cidr4: ["192.0.2.0/26"]
  defaults: {ipv6: true, ipv4: false}
  mtu: 1500
  routerID: 198.51.100.11
  bgp:
    asn: 64601
    gracefulRestart: {enabled: true, time: 2m}
    peers:
    - name: tor1
      address: 2001:db8:ffff::1
      asn: 64600
      localAddress: 2001:db8:ffff::11
      families: [ipv6, ipv4]
      multihop: 2
      holdTime: 9s
      keepaliveTime: 3s
      passwordFile: /etc/flock/secrets/tor1
      bfd: {enabled: true, interval: 100ms, multiplier: 3}
      communities: ["64601:100", "64601:1:2"]
      allowLocalAS: 1
      connectRetry: 5s
      import: default
    - {address: fe80::1%eth0, asn: 4200000001}
    - {address: 203.0.113.1, asn: 64600, import: ["10.0.0.0/8"]}
  ospf:
    areas:
    - id: 0.0.0.0
      interfaces:
      - name: eth0
        cost: 10
        authentication: {keyID: 7, passwordSecretRef: {name: ospf, key: eth0}}
        bfd: {}
      - {name: eth1}
    - id: 51
  anycast:
    withdrawOnCordon: true
    communities: ["64601:200"]
    allowed:
    - prefixes: ["2001:db8:53::/64", "198.51.100.53/32"]
      namespaceSelector: {matchLabels: {anycast: "yes"}}
    - {prefixes: ["2001:db8:54::/64"]}
  addresses:
    allowed: []
  services:
    allowed:
    - prefixes: ["203.0.113.128/25"]
      namespaceSelector: {matchLabels: {lb: "yes"}}
      serviceSelector: {matchLabels: {public: "yes"}}
    communities: ["64601:300"]
    class: example.com/lb
    exclude: true
  limits: {claimsPerNamespace: 512, poolPercentPerNamespace: 50}
"""


def full() -> dict[str, Any]:
    return yaml.safe_load(FULL)


def minimal(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "flock.fritzlab.net/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {"name": "node1"},
        "spec": {"cidr6": ["2001:db8:1::/64"], "cidr4": ["192.0.2.0/26"], **spec},
    }


def with_peer(**fields: Any) -> dict[str, Any]:
    return minimal(bgp={"asn": 64601, "peers": [{"address": "2001:db8:ffff::1", "asn": 64600, **fields}]})


def with_interface(**fields: Any) -> dict[str, Any]:
    return minimal(ospf={"areas": [{"id": 0, "interfaces": [{"name": "eth0", **fields}]}]})


def problems_of(obj: Any) -> list[tuple[str, str]]:
    with pytest.raises(NodeConfigError) as caught:
        parse_node_config(obj)
    return [(problem.field, problem.problem) for problem in caught.value.problems]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The full example with one field replaced; `path` is as in an error message."""
    obj = full()
    *way, last = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
    place: Any = obj
    for step in way:
        place = place[step]
    place[last] = value
    return obj


# --- what somebody may write instead ---

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
anyhow = st.fixed_dictionaries(
    {}, optional={"metadata": anything, "spec": anything | st.fixed_dictionaries({}, optional={
        "template": anything, "nodeSelector": anything | st.fixed_dictionaries({}, optional={
            "matchLabels": anything, "matchExpressions": anything})})}
)  # fmt: skip
