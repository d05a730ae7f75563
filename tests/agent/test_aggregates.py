"""Which prefixes a node announces: those configured, and removed ones for as long as they hold pods."""

from ipaddress import ip_network

from telling import tell, told

from flock.agent.aggregates import Aggregates
from flock.agent.configured import Configured
from flock.agent.happened import Happened
from flock.core.model import Allocation
from flock.core.naming import PROTO_POD
from flock.edge.kernel.observe import Observed
from flock.edge.netlink import wire as w
from flock.edge.netlink.route import Route

ONE, TWO, SIX = "192.0.2.0/24", "198.51.100.0/24", "2001:db8:1::/64"


class World:
    """A node whose NodeConfig changes."""

    def __init__(self, *cidrs: str) -> None:
        self._cache = told()
        self._configured = Configured(cache=self._cache, happened=Happened())
        self.aggregates = Aggregates(self._configured)
        self.told = 0
        self.aggregates.subscribe(self._hear)
        if cidrs:
            self.configure(*cidrs)

    def _hear(self) -> None:
        self.told += 1

    def configure(self, *cidrs: str) -> None:
        spec = {"cidr6": [c for c in cidrs if ":" in c], "cidr4": [c for c in cidrs if ":" not in c]}
        tell(self._cache, {"metadata": {"name": "n1"}, "spec": spec})
        self._configured.take_in()

    def look(self, *blackholes: str, pods: tuple[str, ...] = ()) -> Observed:
        seen = observed(*blackholes)
        self.aggregates.take_stock(seen, [pod(address) for address in pods])
        return seen

    @property
    def networks(self) -> list[str]:
        return [str(n) for n in self.aggregates.networks]

    @property
    def announced(self) -> list[str] | None:
        config = self.aggregates.announced_config
        return None if config is None else [str(n) for n in config.aggregates]


def observed(*blackholes: str) -> Observed:
    routes = []
    for network in map(ip_network, blackholes):
        family = w.AF_INET6 if network.version == 6 else w.AF_INET
        dst = network.network_address.packed
        routes.append(Route(family, dst, network.prefixlen, protocol=PROTO_POD, kind=w.RTN_BLACKHOLE))
    return Observed({}, {}, routes, {}, frozenset())


def pod(address: str) -> Allocation:
    key = "ip6" if ":" in address else "ip4"
    return Allocation(container_id=address, namespace="default", pod_name="a", owner_uid="", state="committed",
                      allocated_at="", **{key: address})  # fmt: skip


def test_what_an_earlier_life_announced_is_found_in_the_kernel_and_kept_while_it_holds_a_pod() -> None:
    node = World(ONE)
    assert node.announced is None, "nothing is announced anew before that is known"
    node.look(ONE, TWO, SIX, pods=("198.51.100.7",))
    assert node.networks == node.announced == [ONE, TWO]


def test_a_prefix_taken_out_of_the_configuration_stays_until_its_last_pod_is_gone() -> None:
    node = World(ONE, SIX)
    node.look(ONE, SIX)
    node.configure(TWO)
    assert node.networks == [TWO, ONE, SIX] and node.announced == [SIX, TWO, ONE]
    node.look(ONE, SIX, TWO, pods=("192.0.2.9",))
    assert node.networks == [TWO, ONE]
    node.look(ONE, TWO)
    assert node.networks == [TWO]


def test_a_prefix_that_comes_back_is_not_retired_any_more() -> None:
    node = World(ONE)
    node.look(ONE)
    node.configure(TWO)
    node.configure(ONE)
    assert node.networks == [ONE, TWO]
    node.look(ONE, TWO)
    assert node.networks == [ONE]


def test_who_follows_hears_of_changes_and_of_the_first_look_alone() -> None:
    node = World(ONE)
    before = node.told
    node.look(ONE)
    assert node.told == before + 1, "now BIRD's file may be written"
    node.look(ONE)
    assert node.told == before + 1
    node.configure(TWO)
    node.look(ONE, TWO, pods=("192.0.2.9",))
    assert node.told == before + 2
    node.look(ONE, TWO)
    assert node.told == before + 3


def test_addresses_that_no_aggregate_covers_are_announced_by_themselves() -> None:
    node = World(ONE, SIX)
    both = Allocation(container_id="a", namespace="default", pod_name="a", owner_uid="", state="committed",
                      allocated_at="", ip4="192.0.2.255", ip6="2001:db8:2::1")  # fmt: skip
    assert node.aggregates.uncovered(both) == {"2001:db8:2::1"}
    node.configure("2001:db8:2::/64")
    assert node.aggregates.uncovered(both) == set(), "a retired one covers as well"
    node.look()
    assert node.aggregates.uncovered(both) == {"192.0.2.255"}


def test_every_aggregate_ends_in_a_blackhole_and_nothing_else_does() -> None:
    node = World(ONE)
    seen = node.look(TWO)
    assert [str(d) for d in node.aggregates.differences(seen)] == [
        f"blackhole route of an aggregate missing: {ONE}",
        f"route without allocation: blackhole {TWO}",
    ]
    assert node.aggregates.differences(observed(ONE)) == []
