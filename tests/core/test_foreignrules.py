"""Which packet filters of others drop pods' packets: as `nft -j` tells their rules."""

from ipaddress import ip_network
from typing import Any

import pytest

from flock.core.foreignrules import Chain, dropped

AGGREGATES = (ip_network("2001:db8:1::/64"), ip_network("192.0.2.0/24"))
ACCEPT, DROP, REJECT = {"accept": None}, {"drop": None}, {"reject": {"type": "icmpx", "expr": "admin-prohibited"}}


def match(left: Any, right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": left, "right": right}}


def interface(side: str, name: Any, op: str = "==") -> dict[str, Any]:
    return match({"meta": {"key": f"{side}ifname"}}, name, op)


def address(field: str, prefix: str) -> dict[str, Any]:
    network = ip_network(prefix)
    protocol = "ip6" if network.version == 6 else "ip"
    right = {"prefix": {"addr": str(network.network_address), "len": network.prefixlen}}
    return match({"payload": {"protocol": protocol, "field": field}}, right)


ESTABLISHED = match({"ct": {"key": "state"}}, {"set": ["established", "related"]})
XT = {"xt": {"type": "match", "name": "conntrack"}}
IN, OUT = [interface("i", "flock*"), ACCEPT], [interface("o", "flock*"), ACCEPT]


def verdict(*rules: list[Any], drops: bool = True, family: str = "inet", **chains: list[list[Any]]) -> Any:
    """What pods send, and what they are sent, that is dropped: as the letters s and r."""
    everything = {"through": rules, **chains}

    def listed(name: str) -> list[dict[str, Any]]:
        return [{"handle": n, "expr": expr} for n, expr in enumerate(everything.get(name, ()), start=1)]

    chain = Chain(family=family, table="t", name="through", drops=drops)
    found = dropped(chain, listed, AGGREGATES)
    return "" if found is None else "s" * found.sent + "r" * found.received


@pytest.mark.parametrize(
    ("expected", "rules", "drops"),
    [
        ("", [], False),
        ("sr", [], True),
        ("sr", [[ESTABLISHED, ACCEPT]], True),
        ("sr", [[XT, ACCEPT]], True),
        ("", [[XT, DROP]], False),
        ("", [[ESTABLISHED, ACCEPT], IN, OUT], True),
        ("r", [IN], True),
        ("s", [OUT], True),
        ("sr", [[{"counter": {}}, REJECT]], False),
        ("sr", [[{"log": None}, DROP], IN, OUT], False),
        ("s", [[interface("i", {"set": ["eth1", "flock*"]}), DROP]], False),
        ("", [[interface("i", "eth0"), DROP]], False),
        ("s", [[interface("i", "eth0", "!="), DROP]], False),
        ("", [[match({"ct": {"key": "state"}}, "invalid"), DROP]], False),
        ("", [[{"limit": {"rate": 1}}, DROP]], False),
        ("", [[{"accept": None}]], True),
    ],
)
def test_the_rule_that_speaks_of_pods_decides(expected: str, rules: list[list[Any]], drops: bool) -> None:
    assert verdict(*rules, drops=drops) == expected


def test_an_address_counts_where_it_covers_the_nodes() -> None:
    four, six = address("saddr", "192.0.2.0/24"), address("saddr", "2001:db8::/32")
    assert verdict([four, DROP], drops=False) == "s"
    assert verdict([four, ACCEPT], [six, ACCEPT]) == "r"
    assert verdict([address("saddr", "192.0.2.0/25"), DROP], drops=False) == "", "of some pods, not of pods as such"
    assert verdict([address("daddr", "10.0.0.0/8"), DROP], drops=False) == ""
    assert verdict([address("saddr", "2001:db8::/32"), ACCEPT], family="ip") == "sr"


def test_jumps_are_followed_and_come_back() -> None:
    jump, goto = {"jump": {"target": "more"}}, {"goto": {"target": "more"}}
    assert verdict([jump], drops=False, more=[[REJECT]]) == "sr"
    assert verdict([jump], more=[IN, OUT]) == ""
    assert verdict([jump], [DROP], drops=False, more=[[{"return": None}], [ACCEPT]]) == "sr"
    assert verdict([goto], [DROP], drops=False, more=[]) == ""
    assert verdict([jump], drops=False, more=[[jump]]) == "", "a circle, which the kernel has none of, ends"


def test_the_deciding_rule_is_named() -> None:
    chain = Chain(family="inet", table="firewalld", name="filter_FORWARD", drops=False)
    rules = {"filter_FORWARD": [{"handle": 3, "expr": [{"jump": {"target": "zones"}}]}]}
    rules["zones"] = [{"handle": 9, "expr": [REJECT]}]
    found = dropped(chain, rules.__getitem__, AGGREGATES)
    assert found is not None
    assert (found.whose, found.where, found.handle) == ("firewalld", "zones", 9)
