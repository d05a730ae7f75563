"""However many rules others have, a look at them costs the same: tenants decide how many Services there are."""

import subprocess
import tracemalloc
from collections.abc import Iterator
from ipaddress import ip_network

import pytest
from spaces import Space

from flock.core.facts import Network
from flock.edge.nft.foreign import Seen, look
from flock.edge.nft.socket import NftSocket
from looping import PATIENCE
from namespaces import within
from thoroughness import slowly

AGGREGATES: tuple[Network, ...] = (ip_network("192.0.2.0/24"), ip_network("2001:db8:1::/64"))
FORWARD = "chain f { type filter hook forward priority 0; policy %s;\nct state new jump services\n}\n"


def address(number: int) -> str:
    return f"10.96.{number // 256}.{number % 256}"


def by_rules(services: int, policy: str = "accept") -> str:
    """A rule for each Service without endpoints, as kube-proxy has them with iptables."""
    rules = "\n".join(f"ip daddr {address(n)} tcp dport 80 counter reject" for n in range(services))
    return f"table ip filter {{\nchain services {{\n{rules}\n}}\n{FORWARD % policy}}}\n"


def by_elements(services: int, policy: str = "accept") -> str:
    """An element, as it has them with nft."""
    listed = ",\n".join(f"{address(n)} . tcp . 80 : drop" for n in range(services))
    kept = f"map none {{ type ipv4_addr . inet_proto . inet_service : verdict\nelements = {{ {listed} }}\n}}"
    asked = "chain services { ip daddr . meta l4proto . th dport vmap @none; }"
    return f"table ip filter {{\n{kept}\n{asked}\n{FORWARD % policy}}}\n"


@pytest.fixture
def space() -> Iterator[Space]:
    made = Space()
    yield made
    made.remove()


class Cost:
    """Of a look, in datagrams and in bytes, beside such a ruleset."""

    def __init__(self, space: Space, ruleset: str, patch: pytest.MonkeyPatch) -> None:
        command = ["ip", "netns", "exec", space.name, "nft", "-f", "-"]
        subprocess.run(command, input=f"flush ruleset\n{ruleset}", text=True, timeout=PATIENCE, check=True)
        self.datagrams = 0
        receive = NftSocket.receive

        def counted(nft: NftSocket) -> bytes:
            self.datagrams += 1
            return receive(nft)

        with patch.context() as patched:
            patched.setattr(NftSocket, "receive", counted)
            self.seen: Seen = within(f"/run/netns/{space.name}", self._look)

    def _look(self) -> Seen:
        tracemalloc.start()
        try:
            return look(AGGREGATES)
        finally:
            self.bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()


@pytest.mark.parametrize("services", [4000, *slowly(10_000)])
@pytest.mark.parametrize("made", [by_rules, by_elements])
def test_a_look_costs_no_more_beside_more_services(
    space: Space, monkeypatch: pytest.MonkeyPatch, made: object, services: int
) -> None:
    assert callable(made)
    some, many = (Cost(space, made(number), monkeypatch) for number in (2000, services))
    assert many.datagrams <= some.datagrams
    assert many.bytes < 1.2 * some.bytes < 8 << 20
    assert not many.seen.obstacles


def test_what_others_drop_is_told_however_many_rules_come_before(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    [told] = Cost(space, by_rules(1000, "drop"), monkeypatch).seen.obstacles
    assert str(told) == "the chain ip filter f of iptables drops what pods send or are sent: policy drop"


def test_that_not_all_was_read_is_said(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    [unclear] = Cost(space, by_rules(1000), monkeypatch).seen.unclear
    assert "ip filter f may drop" in str(unclear) and "more rules than are read (in services)" in str(unclear)
    assert not Cost(space, by_rules(100), monkeypatch).seen.unclear
