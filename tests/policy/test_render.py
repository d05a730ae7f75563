"""Rendering is pure and deterministic; step by step it ends where rendering everything does."""

import os
import random
from ipaddress import ip_network
from pathlib import Path

import pytest
from changing import listing
from playground import Playground, addresses, compiled, group, interface, policy, subject

from flock.core.errors import FlockError
from flock.core.policy import names
from flock.core.policy.compiled import (
    Change,
    Compiled,
    CompiledPolicy,
    Membership,
    NamedMembership,
    NamedPort,
    Peers,
    PortRange,
    Rule,
    Span,
    Subject,
)
from flock.core.policy.elements import statements
from flock.core.policy.numbers import HIGHEST, Numbered, Numbers, PodNumbers
from flock.core.policy.render import Ruleset
from flock.core.policy.rendered import Transaction
from thoroughness import some

GOLDEN = Path(__file__).parent / "golden"
FRIENDS, EVERYBODY, HTTP = group("app=friend"), group(""), NamedPort("http", "TCP")
WEB = policy(
    "web",
    ingress=[
        Rule(peers=Peers(groups=(FRIENDS,)), any_port=False, ports=(PortRange("TCP", 80, 80),), named=(HTTP,)),
        Rule(
            peers=Peers(blocks=tuple(Span.of(ip_network(b)) for b in ("192.0.2.0/25", "2001:db8::/32"))), any_port=True
        ),
    ],
)
OUT = policy("out", egress=[Rule(peers=Peers(groups=(EVERYBODY,)), any_port=False, named=(HTTP,))], strict=True)
STATE = compiled(
    [subject(1, ingress="web", egress="out"), subject(2)],
    [WEB, OUT],
    {FRIENDS: addresses(2), EVERYBODY: addresses(1, 2)},
    {(None, HTTP): [(interface(1), 8080)], (EVERYBODY, HTTP): [(a, 8080) for a in addresses(1)]},
)


def matches_golden(name: str, text: str) -> None:
    """FLOCK_UPDATE_GOLDEN=1 writes the files anew; look at the difference before keeping it."""
    path = GOLDEN / name
    if os.environ.get("FLOCK_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_everything() -> None:
    matches_golden("full.nft", Ruleset(Numbers()).full(STATE, {}))


def shown(transaction: Transaction) -> str:
    """What is prepared, and what comes after it."""
    rest = transaction.script or "".join(f"{line}\n" for line in statements(transaction.operations))
    return f"# prepare\n{transaction.prepare}# then\n{rest}"


def test_a_new_policy_has_its_chains_before_its_pods() -> None:
    ruleset = Ruleset(Numbers())
    ruleset.full(STATE, {})
    new = policy("new", ingress=[Rule(peers=Peers(anywhere=True), any_port=False, ports=(PortRange("UDP", 1, 9),))])
    come = ruleset.transaction(Change(policies=(new,), subjects=(subject(2, ingress="new"),)))
    matches_golden("new-policy.nft", shown(come))
    gone = ruleset.transaction(Change(removed_policies=(new.key,), subjects=(subject(2),)))
    assert not gone.prepare
    matches_golden("gone-policy.nft", shown(gone))


def test_a_strict_change_gives_new_numbers_and_rules_for_answers() -> None:
    ruleset = Ruleset(Numbers())
    ruleset.full(STATE, {})
    change = Change(policies=(policy("out", egress=[], strict=True),))
    matches_golden("strict-change.nft", shown(ruleset.transaction(change)))


def test_a_pod_of_known_classes_is_operations_only() -> None:
    ruleset = Ruleset(Numbers())
    ruleset.full(STATE, {})
    transaction = ruleset.transaction(Change(subjects=(subject(3, ingress="web", egress="out"),)))
    assert (transaction.prepare, transaction.script) == ("", "")
    matches_golden("new-pod.nft", "\n".join(statements(transaction.operations)) + "\n")


def test_names_that_nft_cannot_take_are_cut_and_told_apart() -> None:
    long, longer = "a" * 200, "a" * 201
    assert len({names.policy_chain("ingress", ("x", name)) for name in (long, longer)}) == 2
    assert len(names.policy_chain("ingress", ("x", longer))) <= names.LONGEST_NAME
    assert '"' not in names.comment('a "quoted" \\ thing\n')
    assert len(names.comment("x" * 1000)) <= names.LONGEST_COMMENT
    assert len(names.log_prefix("ingress", tuple(("ns", f"policy{n}") for n in range(100)))) <= names.LONGEST_PREFIX


def test_numbers_are_not_given_twice() -> None:
    one = Numbered(HIGHEST)
    numbers = Numbers({"a": PodNumbers(one, one)}, start=HIGHEST)
    assert numbers.of("b").source.current == 1
    numbers.renew("b", "ingress")
    assert numbers.of("b").destination == Numbered(1, (1,)), "no connection is established by an earlier number"
    numbers.settle("b")
    assert numbers.of("b").destination == Numbered(2, (1,))
    assert numbers.of("b").source == Numbered(1)
    numbers.release("a")
    assert numbers.of("c").source.current == 3
    for number in range(HIGHEST - 3):
        numbers.of(f"pod{number}")
    with pytest.raises(FlockError, match=str(HIGHEST)):
        numbers.of("one too many")


class World:
    """Policies, groups and pods that change at random; knows the compiled state and each change of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.state = compiled([], [])
        self.groups = [group(f"app={n}") for n in range(3)]

    def step(self) -> Change:
        old = self.state
        members = {
            g: frozenset(a for n in range(1, 8) if self.random.random() < 0.5 for a in addresses(n))
            for g in self.groups
        }
        candidates = {p.key: p for p in (self._policy(n) for n in range(4)) if self.random.random() < 0.7}
        subjects = {
            s.interface: s for s in (self._subject(n, candidates) for n in range(1, 8)) if self.random.random() < 0.7
        }
        used = {k for s in subjects.values() for k in (*(s.verdicts.ingress or ()), *(s.verdicts.egress or ()))}
        policies = {key: candidates[key] for key in sorted(used)}
        groups = {
            g: members[g]
            for p in policies.values()
            for d in (p.ingress, p.egress)
            for r in d or ()
            for g in r.peers.groups
        }
        named: dict[object, object] = {}
        for p in policies.values():
            for r in p.ingress or ():
                named |= {
                    (None, port): frozenset((i, self.random.choice([80, 8080])) for i in subjects) for port in r.named
                }
        self.state = Compiled(subjects=subjects, policies=policies, groups=groups, named=named)  # type: ignore[arg-type]
        return _difference(old, self.state)

    def _policy(self, number: int) -> CompiledPolicy:
        def rules() -> list[Rule] | None:
            if self.random.random() < 0.3:
                return None
            return [
                Rule(
                    peers=Peers(groups=tuple(self.random.sample(self.groups, self.random.randint(1, 2)))), any_port=True
                ),
                Rule(
                    peers=Peers(anywhere=True), any_port=False, ports=(PortRange("TCP", 1, self.random.randint(1, 9)),)
                ),
            ][: self.random.randint(0, 2)]

        ingress = rules()
        if ingress and self.random.random() < 0.5:
            ingress.append(Rule(peers=Peers(anywhere=True), any_port=False, named=(HTTP,)))
        return policy(f"p{number}", ingress=ingress, egress=rules(), strict=self.random.random() < 0.3)

    def _subject(self, number: int, policies: dict[tuple[str, str], CompiledPolicy]) -> Subject:
        chosen = [p for p in policies.values() if self.random.random() < 0.4]
        found = {d: [p.key[1] for p in chosen if getattr(p, d) is not None] for d in ("ingress", "egress")}
        return subject(number, **{d: ",".join(keys) if keys else None for d, keys in found.items()})


def _difference(old: Compiled, new: Compiled) -> Change:
    nothing: frozenset[object] = frozenset()
    return Change(
        policies=tuple(p for k, p in new.policies.items() if old.policies.get(k) != p),
        removed_policies=tuple(old.policies.keys() - new.policies.keys()),
        subjects=tuple(s for k, s in new.subjects.items() if old.subjects.get(k) != s),
        removed_subjects=tuple(old.subjects.keys() - new.subjects.keys()),
        added=tuple(Membership(g, a - old.groups.get(g, nothing)) for g, a in new.groups.items()),  # type: ignore
        dropped=tuple(Membership(g, a - new.groups.get(g, nothing)) for g, a in old.groups.items()),  # type: ignore
        removed_groups=tuple(sorted(old.groups.keys() - new.groups.keys())),
        added_named=tuple(NamedMembership(*k, e - old.named.get(k, nothing)) for k, e in new.named.items()),  # type: ignore
        dropped_named=tuple(NamedMembership(*k, e - new.named.get(k, nothing)) for k, e in old.named.items()),  # type: ignore
        removed_named=tuple(old.named.keys() - new.named.keys()),
    )


@pytest.mark.parametrize("seed", some(range(3)))
def test_step_by_step_the_kernel_ends_where_rendering_everything_does(seed: int) -> None:
    world = World(seed)
    with Playground(0) as ground:
        ground.load(world.state)
        for _ in range(12):
            ground.change(world.step())
            step_by_step = listing(ground)
            ground.load(world.state)
            assert step_by_step == listing(ground)
