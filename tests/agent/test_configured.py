"""The configuration in force: taken in when the objects change, told to who follows it, kept when it is taken away."""

from typing import Any

from looking import addresses_of
from telling import tell, told

from flock.agent.configured import Configured
from flock.agent.happened import Happened
from flock.edge.cache import Cache
from harness import Node, eventually


def config(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "spec": {"cidr4": ["192.0.2.0/24"], **spec}}


def configured() -> tuple[Configured, Cache]:
    cache = told()
    return Configured(cache=cache, happened=Happened()), cache


def test_who_follows_hears_of_another_configuration_once_and_finds_it_in_force() -> None:
    owner, cache = configured()
    heard: list[Any] = []
    owner.subscribe(lambda: heard.append(owner.config and owner.config.mtu))
    for own in (
        None,
        config(mtu=1400),
        config(mtu=1400),
        config(mtu="large"),
        None,
        config(mtu=1400),
        config(mtu=9000),
    ):
        tell(cache, own)
        owner.take_in()
        owner.take_in()
    assert heard == [1400, 9000]


def test_nothing_in_force_has_a_reason_and_something_in_force_may_have_a_problem() -> None:
    owner, cache = configured()
    owner.take_in()
    assert (owner.missing, owner.problem) == ("no NodeConfig named n1", "")
    tell(cache, config(mtu="large"))
    owner.take_in()
    assert "spec.mtu" in owner.missing and owner.missing == owner.problem
    tell(cache, config())
    owner.take_in()
    assert (owner.missing, owner.problem) == ("", "")
    tell(cache, None)
    owner.take_in()
    assert owner.missing == "" and "deleted" in owner.problem and owner.config is not None


def test_a_pod_cidr_that_is_none_is_shown_and_the_last_good_configuration_serves(fresh: Node) -> None:
    fresh.write("nodeconfig", {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig",
                               "metadata": {"name": "n1"}, "spec": {"mtu": 1400}})  # fmt: skip

    def node_object(cidr: str) -> None:
        fresh.write("node", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
                             "spec": {"podCIDRs": [cidr]}})  # fmt: skip

    node_object("192.0.2.0/24")
    fresh.start()
    node_object("192.0.2.0/33")
    eventually(lambda: "Node spec.podCIDRs" in " ".join(fresh.ask("status")["degraded"]), what="the refusal is shown")
    assert addresses_of(fresh.pod("a"))[0].startswith("192.0.2.")
    node_object("198.51.100.0/24")
    eventually(lambda: "podCIDRs" not in str(fresh.ask("status")["degraded"]), what="the refusal is over")
    assert addresses_of(fresh.pod("b"))[0].startswith("198.51.100.")
