"""A pod that many policies select is judged as if each were asked, and stays so while they change."""

from random import Random

import pytest
from playground import FAMILIES, Playground, addresses, interface
from streams import Stream

from flock.core.policy.crowds import MANY
from flock.core.policy.explain import Party, evaluate
from flock.core.policy.index import PolicyIndex
from flock.core.policy.podfacts import LocalPod
from flock.edge.nft import observe
from thoroughness import slowly

PORTS = (80, 81, 90)
PODS = (1, 2, 3)


def index() -> PolicyIndex:
    made = PolicyIndex()
    made.set_namespace("default", {})
    for number in PODS:
        made.set_local(
            LocalPod(
                interface=interface(number),
                container_id=f"container{number}",
                namespace="default",
                name=f"pod{number}",
                uid="",
                labels={"pod": str(number), f"app{number}": "yes"},
                addresses=addresses(number),
                ports=(),
            )
        )
    return made


def policy(
    name: str, *, direction: str, peers: list[object], port: int | None, strict: bool = False
) -> dict[str, object]:
    field = "from" if direction == "ingress" else "to"
    rule = {field: peers, **({"ports": [{"port": port, "protocol": "UDP"}]} if port else {})}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "namespace": "default",
            "name": name,
            "annotations": {"flock.fritzlab.net/strict": "true"} if strict else {},
        },
        "spec": {
            "podSelector": {"matchLabels": {"pod": "1"}},
            "policyTypes": [direction.capitalize()],
            direction: [rule],
        },
    }


def peer(app: object) -> dict[str, object]:
    return {"podSelector": {"matchLabels": {f"app{app}": "yes"}}}


def fill(made: PolicyIndex, direction: str) -> None:
    """Policies that mean nobody."""
    for number in range(MANY):
        made.set_policy(policy(f"empty{number}", direction=direction, peers=[peer(f"-none{number}")], port=80))


def commit(ground: Playground, made: PolicyIndex) -> None:
    ground.change(made.commit())
    assert ground.do(lambda nft: nft.ask(observe.observe)) == ground.ruleset.expected(made.compiled)


@pytest.mark.parametrize("direction", ["ingress", "egress"])
@pytest.mark.parametrize("seed", [1, *slowly(0)])
def test_random_policies_fare_in_the_kernel_as_they_are_explained(
    ground: Playground, direction: str, seed: int
) -> None:
    random, made, answers = Random(seed), index(), []
    made.commit()
    ground.load(made.compiled)
    fill(made, direction)
    for _ in range(6):
        for name in random.sample("abcdef", 3):
            blocks = [{"ipBlock": {"cidr": f"{ground.at(who, family)}/{32 if family == '4' else 128}"}}
                      for who in (0, *PODS) for family in FAMILIES]  # fmt: skip
            peers = random.sample([peer(2), peer(3), *blocks], random.randint(1, 2))
            made.set_policy(policy(name, direction=direction, peers=peers, port=random.choice((*PORTS, None))))
        made.drop_policy(("default", random.choice("abcdef")))
        commit(ground, made)
        for _ in range(6):
            other, family, port = random.choice((0, 2, 3)), random.choice(FAMILIES), random.choice(PORTS)
            source, to = (other, 1) if direction == "ingress" else (1, other)
            expected = evaluate(
                made.compiled,
                source=party(ground, source, family),
                destination=party(ground, to, family),
                protocol="UDP",
                port=port,
            )
            assert ground.reaches(source, to, family, port) is (expected.verdict == "allow"), str(expected)
            answers.append(expected.verdict)
    assert {*answers} == {"allow", "deny"}
    listing = ground.listing()
    assert f"jump {direction}/default/" not in listing, "none is asked by itself"
    assert f"chain {direction}/default/empty0 " in listing, "and each is there to be read"


def party(ground: Playground, who: int, family: str) -> Party:
    return Party(address=ground.at(who, family), interface=interface(who) if who else "")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_strict_policy_among_many_cuts_what_it_no_longer_allows(ground: Playground, family: str) -> None:
    made = index()
    fill(made, "ingress")
    made.set_policy(policy("in", direction="ingress", peers=[peer(2), peer(3)], port=None, strict=True))
    made.commit()
    ground.load(made.compiled)
    staying = Stream(ground, client=2, server=1, family=family, port=81)
    leaving = Stream(ground, client=3, server=1, family=family, port=82)
    made.set_policy(policy("in", direction="ingress", peers=[peer(2)], port=None, strict=True))
    commit(ground, made)
    assert [staying.flows(), leaving.flows()] == [True, False]
