import copy
import ipaddress
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from bird_fabric import bird_accepts
from hypothesis import given, settings
from hypothesis import strategies as st

from flock.core.birdconf import bootstrap_bird_conf, protocol_name, render_bird_conf
from flock.core.errors import FieldError
from flock.core.facts import HostAddress, NodeFacts
from flock.core.nodeconfig import NodeConfig, parse_node_config
from thoroughness import examples

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.yaml"))
UPDATE = "FLOCK_UPDATE_GOLDEN" in os.environ


def facts(*addresses: str) -> NodeFacts:
    """From texts like `eth0 2001:db8:ffff::11/64`."""
    pairs = (text.split() for text in addresses)
    return NodeFacts("node1", tuple(HostAddress(name, ipaddress.ip_interface(address)) for name, address in pairs))


FACTS = facts(
    "eth0 2001:db8:ffff::11/64",
    "eth0 fe80::11/64",
    "eth0 203.0.113.11/24",
    "docker0 10.17.0.1/16",
    "lo 2001:db8::b/128",
)
OWN = {str(own.address.ip) for own in FACTS.addresses}


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())


def node_config(obj: Any = None, **spec: Any) -> NodeConfig:
    return parse_node_config({**load("no-routing"), "spec": spec} if obj is None else obj)


def render(config: NodeConfig, node: NodeFacts = FACTS) -> str:
    return render_bird_conf(config, node, secrets=dict.fromkeys(config.password_sources, "open sesame"))


def one_peer(**fields: Any) -> NodeConfig:
    peer = {"name": "tor1", "address": "2001:db8:ffff::1", "asn": 64600, **fields}
    return node_config(cidr6=["2001:db8:1::/64"], bgp={"asn": 64601, "peers": [peer]})


@pytest.mark.parametrize("name", [*NAMES, "bootstrap"])
def test_the_file_is_the_golden_one_and_bird_takes_it(name: str) -> None:
    text = bootstrap_bird_conf(FACTS) if name == "bootstrap" else render(node_config(load(name)))
    golden = GOLDEN / f"{name}.conf"
    if UPDATE:
        golden.write_text(text)
    assert text == golden.read_text()
    assert bird_accepts(golden) == ""


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        return dict(order.sample([(key, shuffled(item, order)) for key, item in value.items()], len(value)))
    if isinstance(value, list):
        return order.sample([shuffled(item, order) for item in value], len(value))
    return value


@pytest.mark.parametrize("name", NAMES)
def test_order_in_the_node_config_and_of_addresses_changes_nothing(name: str) -> None:
    obj = load(name)
    wanted = (GOLDEN / f"{name}.conf").read_text()
    for seed in range(5):
        order = random.Random(seed)
        node = NodeFacts("node1", tuple(order.sample(FACTS.addresses, len(FACTS.addresses))))
        assert render(node_config(shuffled(copy.deepcopy(obj), order)), node) == wanted


@pytest.mark.parametrize(
    ("bfd", "enabled", "line"),
    [
        (False, True, "graceful restart on;"),
        (True, True, "graceful restart aware;"),
        (False, False, "graceful restart off;"),
        (True, False, "graceful restart off;"),
    ],
)
def test_graceful_restart_is_for_sessions_without_bfd(bfd: bool, enabled: bool, line: str) -> None:
    peer = {"address": "2001:db8:ffff::1", "asn": 64600, "bfd": {"enabled": bfd}}
    text = render(node_config(bgp={"asn": 64601, "gracefulRestart": {"enabled": enabled}, "peers": [peer]}))
    assert line in text
    assert ("graceful restart time" in text) is (line == "graceful restart on;")
    assert ("protocol bfd" in text) is bfd


@pytest.mark.parametrize(
    ("node", "line"),
    [
        (FACTS, "local 2001:db8:ffff::11 as 64601;"),
        (facts("eth0 2001:db8::b/32", "eth0 2001:db8:ffff::15/64"), "local 2001:db8:ffff::15 as 64601;"),
        (facts("eth0 2001:db8:eeee::11/64"), "local as 64601;"),
        (facts(), "local as 64601;"),
    ],
)
def test_the_local_end_is_the_address_in_the_peer_s_subnet(node: NodeFacts, line: str) -> None:
    assert line in render(one_peer(), node)


@pytest.mark.parametrize(
    ("node", "router_id"),
    [
        # Of the interface towards the peer, though another has a lower address.
        (facts("docker0 10.17.0.1/16", "eth0 203.0.113.11/24", "eth0 2001:db8:ffff::11/64"), "203.0.113.11"),
        (facts("eth0 2001:db8:ffff::11/64", "eth1 203.0.113.11/24", "lo 127.0.0.5/8"), "203.0.113.11"),
        (facts("eth0 169.254.3.4/16"), "16.78.40.116"),
        (facts(), "16.78.40.116"),
    ],
)
def test_the_router_id_is_an_ipv4_of_the_node_or_derived_from_its_name(node: NodeFacts, router_id: str) -> None:
    assert f"\nrouter id {router_id};\n" in render(one_peer(), node)


def test_a_link_local_peer_is_told_a_global_next_hop_if_its_link_has_one() -> None:
    """Some routers refuse routes with a link-local next hop alone."""
    config = one_peer(address="fe80::1%eth0")
    assert "next hop address 2001:db8:ffff::11;" in render(config)
    assert "next hop address" not in render(config, facts("eth0 fe80::11/64", "eth1 2001:db8:ffff::11/64"))


def test_own_aggregates_and_networks_are_never_imported() -> None:
    """Else the LAN would be learned back by BGP."""
    text = render(one_peer(families=["ipv6", "ipv4"], **{"import": "all"}))
    assert "net ~ [ 2001:db8::b/128+, 2001:db8:1::/64+, 2001:db8:ffff::/64+ ];" in text
    assert "net ~ [ 10.17.0.0/16+, 203.0.113.0/24+ ];" in text
    assert "import where !own_ipv6();" in text and "import where !own_ipv4();" in text


def test_prefixes_of_another_family_import_nothing() -> None:
    assert "import none;" in render(one_peer(**{"import": ["10.0.0.0/8"]}))


@pytest.mark.parametrize("secret", ['a"b', "a\nb", "", "x" * 81, "é"])
def test_a_password_bird_cannot_take_is_refused_without_being_shown(secret: str) -> None:
    config = one_peer(passwordFile="/etc/flock/secrets/tor1")
    with pytest.raises(FieldError) as caught:
        render_bird_conf(config, FACTS, secrets={"/etc/flock/secrets/tor1": secret})
    assert caught.value.field == "spec.bgp.peers[tor1].password"
    assert not secret or secret not in caught.value.msg


def test_a_missing_password_is_refused_rather_than_left_out() -> None:
    with pytest.raises(FieldError, match="could not be read from /etc/flock/secrets/tor1"):
        render_bird_conf(one_peer(passwordFile="/etc/flock/secrets/tor1"), FACTS, secrets={})


# --- any valid NodeConfig -----------------------------------------------------------------------------------

names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,46}[A-Za-z0-9])?", fullmatch=True)
interfaces = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}", fullmatch=True)
asns = st.integers(1, 2**32 - 2).filter(lambda number: number not in (23456, 65535))
peers6 = st.integers(1, 2**64 - 1).map(lambda low: str(ipaddress.IPv6Address((0x20010DB8FFFF0000 << 64) + low)))
peers4 = st.integers(1, 254).map(lambda low: f"203.0.113.{low}")
peers_ll = st.tuples(st.integers(1, 2**64 - 1), interfaces).map(
    lambda pair: f"{ipaddress.IPv6Address((0xFE80 << 112) + pair[0])}%{pair[1]}"
)
communities = st.lists(
    st.tuples(*[st.integers(0, 65535)] * 2) | st.tuples(*[st.integers(0, 2**32 - 1)] * 3), max_size=3, unique=True
).map(lambda all_: [":".join(map(str, numbers)) for numbers in all_])
bfds = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "interval": st.sampled_from(["10ms", 1, "60s"]),
        "multiplier": st.integers(1, 255),
    },
)
imports = st.sampled_from(["all", "none", "default", ["10.0.0.0/8"], ["::/0", "2001:db8::/32", "0.0.0.0/0"]])
password_files = st.sampled_from(["/etc/flock/secrets/a", "/b"])


@st.composite
def peers(draw: st.DrawFn) -> dict[str, Any]:
    peer = draw(
        st.fixed_dictionaries(
            {"name": names, "address": peers6 | peers4 | peers_ll, "asn": asns},
            optional={
                "holdTime": st.integers(3, 65535),
                "passwordFile": password_files,
                "bfd": bfds,
                "communities": communities,
                "allowLocalAS": st.integers(0, 10),
                "connectRetry": st.integers(1, 3600),
                "import": imports,
            },
        )
    )
    address = str(peer["address"])
    if ":" in address:
        peer["families"] = draw(st.lists(st.sampled_from(["ipv6", "ipv4"]), min_size=1, unique=True))
    reach = draw(st.sampled_from(["near", "ttlSecurity", "multihop"]))
    if reach == "ttlSecurity":
        peer["ttlSecurity"] = True
    elif reach == "multihop" and "%" not in address:
        peer["multihop"] = draw(st.integers(1, 255))
        if address in OWN:  # beside which there is no other
            peer["bfd"] = {"enabled": False}
    return peer


authentications = st.fixed_dictionaries(
    {"passwordFile": password_files},
    optional={
        "algorithm": st.sampled_from(["hmac-sha1", "hmac-sha256", "hmac-sha384", "hmac-sha512"]),
        "keyID": st.integers(1, 255),
    },
)
ospf_interfaces = st.fixed_dictionaries(
    {"name": interfaces},
    optional={
        "cost": st.integers(1, 65535),
        "type": st.sampled_from(["broadcast", "ptp"]),
        "passive": st.booleans(),
        "helloInterval": st.integers(1, 65534),
        "authentication": authentications,
        "bfd": bfds,
    },
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        spec["cidr6"] = ["2001:db8:1::/64", "fd00:1::/112"]
    if draw(st.booleans()):
        spec["cidr4"] = ["192.0.2.0/26", "10.0.0.0/16"]
    if draw(st.booleans()):
        by_address = st.lists(peers(), max_size=4, unique_by=(lambda p: p["name"], lambda p: p["address"]))
        spec["bgp"] = {"asn": draw(asns), "peers": draw(by_address)}
    if draw(st.booleans()):
        listed = draw(st.lists(ospf_interfaces, max_size=4, unique_by=lambda interface: interface["name"]))
        middle = len(listed) // 2
        areas = [
            {"id": 0, "interfaces": listed[:middle]},
            {"id": draw(st.integers(1, 2**32 - 1)), "interfaces": listed[middle:]},
        ]
        spec["ospf"] = {"areas": areas, "import": draw(imports)}
    spec["anycast"] = {"communities": draw(communities)}
    return spec


@pytest.mark.parametrize("address", ["198.51.100.1", "2001:db8:77::1", "203.0.113.11"])
def test_bfd_over_several_hops_needs_to_know_our_end(address: str) -> None:
    """BIRD would refuse the whole file."""
    peer = {"name": "far", "address": address, "asn": 64600, "multihop": 3, "bfd": {"enabled": True}}
    with pytest.raises(FieldError, match="BFD over several hops needs it") as caught:
        render_bird_conf(node_config(bgp={"asn": 64601, "peers": [peer]}), FACTS, secrets={})
    assert caught.value.field == "spec.bgp.peers[far].localAddress"
    for told in ({"localAddress": "2001:db8::b" if ":" in address else "10.17.0.1"}, {"bfd": {"enabled": False}}):
        render_bird_conf(node_config(bgp={"asn": 64601, "peers": [peer | told]}), FACTS, secrets={})


@settings(max_examples=examples(150))
@given(
    specs(),
    st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"'), min_size=1, max_size=80),
)
def test_bird_takes_the_file_of_any_valid_node_config(spec: dict[str, Any], secret: str) -> None:
    config = node_config(**spec)
    text = render_bird_conf(config, FACTS, secrets=dict.fromkeys(config.password_sources, secret))
    for peer in config.bgp.peers if config.bgp else ():
        assert f"protocol bgp '{protocol_name(peer.name)}' {{" in text
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(text)
        file.flush()
        assert bird_accepts(Path(file.name)) == ""
