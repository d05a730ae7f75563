"""What `flockctl router-config` prints is taken by the daemon it is for, whatever nodes and peers are called."""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fabric_parts import OWN, MakeLab
from hypothesis import given, settings
from hypothesis import strategies as st

from flock.cli.router_config import RENDERED
from flock.core.errors import FieldError, FlockError
from flock.core.nodeconfig import NodeConfig, parse_node_config
from flock.core.routerconf.asked import routers
from thoroughness import examples

DAEMONS = ("bird", "frr", "openbgpd", "gobgp")


def config(name: str, *peers: dict[str, Any], asn: int = 64601, **spec: Any) -> NodeConfig:
    given = {"cidr6": ["2001:db8:1::/64"], "cidr4": ["192.0.2.0/26"], "bgp": {"asn": asn, "peers": [*peers]}, **spec}
    kind = {"apiVersion": f"{OWN}/v1alpha1", "kind": "NodeConfig"}
    return parse_node_config({**kind, "metadata": {"name": name}, "spec": given})


def six(number: int = 1, **fields: Any) -> dict[str, Any]:
    local = f"2001:db8:ffff::{number}1"
    return {"name": "tor1", "address": "2001:db8:ffff::1", "asn": 64600, "localAddress": local, **fields}


def four(**fields: Any) -> dict[str, Any]:
    return {"name": "four", "address": "198.51.100.1", "asn": 64600, "localAddress": "198.51.100.11", **fields}


def unnumbered(interface: str = "eth0", local: str = "fe80::2", **fields: Any) -> dict[str, Any]:
    return {"name": "tor1", "address": f"fe80::1%{interface}", "asn": 64600, "localAddress": local, **fields}


WIDE = {"allowed": [{"prefixes": ["::/0", "0.0.0.0/0", "203.0.113.1/32", "2001:db8:53::1/128", "192.0.2.0/26"]}]}
NAMES = ("n" * 40, "n" * 63, "9node", "1", "node-1.example.org", "10.0.0.1", "as", "all", f"{'n' * 63}.{'n' * 63}.org")
CASES: dict[str, list[NodeConfig]] = {
    **{f"a node called {name}": [config(name, six(bfd={}, passwordFile="/key"))] for name in NAMES},
    "names alike with other signs": [config("a.b", six()), config("a-b", six(2))],
    "names alike for sixty signs": [config("n" * 60 + "a", six()), config("n" * 60 + "b", six(2))],
    "a router with a long name": [config("node1", six(name="9.tor-1" + "x" * 40))],
    "a router without a name": [config("node1", {k: v for k, v in six().items() if k != "name"})],
    "a link-local peer": [config("node1", unnumbered())],
    "a link-local peer on a VLAN": [config("node1", unnumbered("br-0.100@x", ttlSecurity=True), asn=64600)],
    "both families on a link-local peer": [config("node1", unnumbered(families=["ipv6", "ipv4"], bfd={}))],
    "link-local peers of two nodes": [config("node1", unnumbered()), config("node2", unnumbered(local="fe80::3"))],
    **{
        f"multihop {hops} to AS {asn}": [config("node1", six(multihop=hops, bfd={}), asn=asn)]
        for hops in (1, 2, 255)
        for asn in (64600, 64601)
    },
    **{
        f"import {taken}": [config("node1", six(**{"import": taken}))]
        for taken in ("all", "none", "default", ["10.0.0.0/8", "2001:db8::/32"])  # type: ignore[list-item]
    },
    **{f"AS {asn} at the node": [config("node1", six(), asn=asn)] for asn in (1, 64600, 65536, 4294967294)},
    **{f"AS {asn} at the router": [config("node1", six(asn=asn))] for asn in (1, 65536, 4294967294)},
    "IPv6 alone": [config("node1", six(), cidr4=[])],
    "IPv4 alone": [config("node1", four(), cidr6=[])],
    "IPv4 alone over IPv6": [config("node1", six(families=["ipv4"]), cidr6=[])],
    "both families without a CIDR": [config("node1", six(families=["ipv6", "ipv4"]), cidr6=[], cidr4=[])],
    "both families, all granted": [config("node1", six(families=["ipv6", "ipv4"]), anycast=WIDE, addresses=WIDE)],
    "a peer for each family": [config("node1", six(name="tor1"), four(name="tor1-4"))],
    "communities": [config("node1", six(communities=["1:2", "1:2:3"]), anycast={"communities": ["1:2"]})],
    "the shortest timers": [config("node1", six(holdTime=3, bfd={"interval": "10ms", "multiplier": 1}))],
    "the longest timers": [config("node1", six(holdTime=65535, bfd={"interval": "60s", "multiplier": 255}))],
    "ttlSecurity": [config("node1", six(ttlSecurity=True), four(ttlSecurity=True))],
    "ttlSecurity in one AS": [config("node1", six(ttlSecurity=True), asn=64600)],
    "one AS and another": [config("node1", six(), asn=64600), config("node2", six(2))],
}
# Several links to one router, which `--router` puts together.
TOGETHER = {
    "two links to one router": [config("node1", six(), six(2, name="tor1b", address="2001:db8:fffe::1"))],
    "a link for each family": [config("node1", six(), four())],
    "passwords of two links": [
        config(
            "node1",
            six(passwordFile="/one"),
            six(2, name="tor1b", address="2001:db8:fffe::1", passwordSecretRef={"name": "two", "key": "two"}),
        )
    ],
    "two link-local links": [config("node1", unnumbered(), unnumbered("eth1", "fe80::3", name="tor1b"))],
}


def printed(daemon: str) -> Iterator[tuple[str, str]]:
    for name, configs in CASES.items():
        yield from ((name, RENDERED[daemon](speaker)) for speaker in routers(configs, nodes={}))
    for name, configs in TOGETHER.items():
        peers = [peer.name for c in configs for peer in (c.bgp.peers if c.bgp else ())]
        yield from ((name, RENDERED[daemon](s)) for s in routers(configs, nodes={}, together=peers))


def refusal(daemon: str, text: str) -> str:
    """What the daemon says of it; nothing if it takes it."""
    if daemon == "openbgpd":  # the only one to ask for the interface at once
        text = re.sub(r"INTERFACE-TO-[^ \n]+", "lo", text)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "config"
        file.write_text(text)
        file.chmod(0o600)
        nobody = f"unix://{directory}/api.sock"
        asked = {
            "bird": ["bird", "-p", "-c", str(file)],
            "frr": ["vtysh", "-C", "--vty_socket", directory, "-f", str(file)],
            "openbgpd": ["bgpd", "-n", "-f", str(file)],
            "gobgp": ["gobgpd", "-d", "-t", "json", "--pprof-disable", f"--api-hosts={nobody}", "-f", str(file)],
        }
        done = subprocess.run(asked[daemon], capture_output=True, text=True, timeout=60)
        return f"{done.returncode}: {done.stdout}{done.stderr}" if done.returncode else ""


@pytest.mark.parametrize("daemon", DAEMONS)
def test_every_text_is_taken_by_the_daemon_it_is_for(daemon: str) -> None:
    texts = [*printed(daemon)]
    if daemon == "frr" and not refusal(daemon, "".join(text for _, text in texts)):  # it takes a while to start
        return
    refused = {name: f"{said}\n{text}" for name, text in texts if (said := refusal(daemon, text))}
    assert not refused, "\n".join(f"{name}: {said}" for name, said in refused.items())


NODE_NAMES = st.from_regex(r"\A[a-z0-9]([a-z0-9.-]{0,80}[a-z0-9])?\Z", fullmatch=True).filter(
    lambda name: not re.search(r"[.-]\.|\.[.-]", name)
)
PEERS = st.fixed_dictionaries(
    {},
    optional={
        "holdTime": st.integers(3, 65535),
        "bfd": st.fixed_dictionaries({"interval": st.integers(1, 60), "multiplier": st.integers(1, 255)}),
        "import": st.sampled_from(["all", "none", "default", ["2001:db8::/32"]]),
        "passwordFile": st.just("/key"),
        "families": st.sampled_from([["ipv6"], ["ipv4"], ["ipv6", "ipv4"]]),
    },
)
REACHES = st.sampled_from([{}, {"multihop": 1}, {"multihop": 64}, {"ttlSecurity": True}])
NODES = st.tuples(NODE_NAMES, PEERS, REACHES, st.sampled_from([1, 64600, 64601, 4200000000]))


@given(st.lists(NODES, min_size=1, max_size=3, unique_by=lambda node: node[0]))
@settings(max_examples=examples(100), deadline=None)
def test_texts_for_whatever_nodes_there_are_are_taken(
    nodes: list[tuple[str, dict[str, Any], dict[str, Any], int]],
) -> None:
    configs = [config(name, six(n, **peer, **reach), asn=asn) for n, (name, peer, reach, asn) in enumerate(nodes, 1)]
    (speaker,) = routers(configs, nodes={})
    for daemon in DAEMONS:
        text = RENDERED[daemon](speaker)
        assert not refusal(daemon, text), f"{daemon}:\n{text}"


@pytest.mark.slow
def test_a_running_frr_takes_them_too(make_lab: MakeLab) -> None:
    """It checks lengths and values only when it is told them."""
    router = make_lab(nodes=1, routers=1, router="frr", settled=False).router("r1")
    vtysh = ["vtysh", "--vty_socket", str(router.host.home)]
    file = router.host.home / "printed.conf"
    router.host.run([*vtysh, "-c", "configure", "-c", f"no router bgp {router.speaker.asn}"])
    for name, text in printed("frr"):
        file.write_text(text)
        assert "%" not in router.host.run([*vtysh, "-f", str(file)]).replace("%eth", ""), f"{name}:\n{text}"
        router.host.run([*vtysh, "-c", "configure", "-c", f"no {re.search(r'^router bgp .*', text, re.MULTILINE)[0]}"])  # type: ignore[index]


def names_of(text: str) -> Iterator[list[str]]:
    told = json.loads(text)
    (policy,) = told["policy-definitions"]
    yield [statement["name"] for statement in policy["statements"]]
    yield [entry["prefix-set-name"] for entry in told["defined-sets"]["prefix-sets"]]
    yield [entry["neighbor-set-name"] for entry in told["defined-sets"]["neighbor-sets"]]


def test_gobgps_sets_and_statements_have_a_name_each() -> None:
    """It would run without its policy, and say so in its log alone."""
    for name, text in printed("gobgp"):
        for names in names_of(text):
            assert len({*names}) == len(names), f"{name}: {sorted(names)}"
        neighbours = [n["config"]["neighbor-address"] for n in json.loads(text)["neighbors"]]
        assert len({*neighbours}) == len(neighbours), name


def test_each_session_has_a_list_of_its_own_in_frr() -> None:
    for name, text in printed("frr"):
        lists = re.findall(r"neighbor (\S+) prefix-list (\S+)-in in", text)
        assert len({to for to, _ in lists}) == len({called for _, called in lists}), f"{name}:\n{text}"
        assert max(len(called) for _, called in lists) < 60, name


# --- what no text can say -----------------------------------------------------------------------------------


def asked(*configs: NodeConfig, together: tuple[str, ...] = ()) -> Callable[[], Any]:
    return lambda: routers(configs, nodes={}, together=together)


@pytest.mark.parametrize(
    ("ask", "first", "second"),
    [
        (asked(config("node1", six()), config("node2", six())), "node1", "node2"),
        (
            asked(config("node1", six(), six(name="tor1b", address="2001:db8:fffe::1")), together=("tor1", "tor1b")),
            "node1",
            "peers[tor1b]",
        ),
    ],
    ids=["of two nodes", "of two links of one node"],
)
def test_one_address_for_two_sessions_is_refused_by_its_field(ask: Callable[[], Any], first: str, second: str) -> None:
    with pytest.raises(FieldError, match="localAddress") as refused:
        ask()
    assert first in str(refused.value)
    assert second in str(refused.value)


def test_frr_is_not_told_of_two_links_with_one_address() -> None:
    """It tells neighbours apart by their address alone."""
    (speaker,) = routers([config("node1", unnumbered()), config("node2", unnumbered("eth1"))], nodes={})
    with pytest.raises(FlockError, match=r"fe80::2.*node1.*node2"):
        RENDERED["frr"](speaker)
    for daemon in ("bird", "gobgp"):
        assert not refusal(daemon, RENDERED[daemon](speaker))


def test_where_the_routers_interface_goes_a_word_stands_for_each_link() -> None:
    """A NodeConfig has the node's own name for the link."""
    (speaker,) = routers(TOGETHER["two link-local links"], nodes={}, together=("tor1", "tor1b"))
    for daemon in DAEMONS:
        text = RENDERED[daemon](speaker)
        assert {*re.findall(r"INTERFACE-TO-[\w-]+", text)} == {"INTERFACE-TO-node1-eth0", "INTERFACE-TO-node1-eth1"}


def test_links_with_passwords_of_their_own_have_a_word_each() -> None:
    (speaker,) = routers(TOGETHER["passwords of two links"], nodes={}, together=("tor1", "tor1b"))
    words = {n.password for n in speaker.neighbours}
    assert words == {"PASSWORD-OF-node1-tor1", "PASSWORD-OF-node1-tor1b"}


def test_openbgpd_sends_a_node_that_imports_all_more_than_the_default_route() -> None:
    texts = {name: text for name, text in printed("openbgpd") if name.startswith("import")}
    assert {name for name, text in texts.items() if "export default-route" in text} == {"import none", "import default"}


def test_a_link_local_address_is_no_sign_of_one_router() -> None:
    """Every router may have fe80::1 on each of its links."""
    peers = [unnumbered(), unnumbered("eth1", name="tor2", asn=64700)]
    assert [s.name for s in routers([config("node1", *peers)], nodes={})] == ["tor1", "tor2"]
