"""The 49 policy tests of Kubernetes itself and fifteen well-known recipes, compiled and evaluated without a kernel.

Each runs with all pods on one node, and with every pod on a node of its own, where both ends' nodes have to agree.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from policy_world import addresses, local, pod

from flock.core.policy.compiled import NamedPort
from flock.core.policy.explain import why
from flock.core.policy.index import PolicyIndex

CASES = Path(__file__).parents[2] / "cases"
E2E = json.loads((CASES / "k8s_e2e_netpol.json").read_text())
RECIPES = json.loads((CASES / "recipes.json").read_text())
FAMILIES = {"IPv4": (4,), "IPv6": (6,), "dual-stack": (4, 6)}
OUTSIDE = {4: "198.51.100.7", 6: "2001:db8:ffff::7"}
PORTS = tuple(
    (NamedPort(f"serve-{number}-{protocol.lower()}", protocol), number)
    for number in (80, 81)
    for protocol in ("TCP", "UDP", "SCTP")
)


class Fabric:
    def __init__(self, pods: dict[str, dict[str, str]], *, spread: bool, families: tuple[int, ...]) -> None:
        self._labels = dict(pods)
        self._addresses = {
            key: [f"10.0.0.{n}" if family == 4 else f"2001:db8::{n}" for family in families]
            for n, key in enumerate(sorted(pods), 1)
        }
        self._families = families
        self._namespaces: dict[str, dict[str, str]] = {}
        places = {key: number if spread else 0 for number, key in enumerate(sorted(pods))}
        self._nodes = [PolicyIndex() for _ in range(max(places.values()) + 1)]
        for key, place in places.items():
            self._nodes[place].set_local(local(key, *self._addresses[key], labels=None))
            self.label_pod(key, {})

    def label_pod(self, key: str, labels: dict[str, str]) -> None:
        self._labels[key] = {**self._labels[key], **labels}
        for node in self._nodes:
            node.set_pod(pod(key, *self._addresses[key], labels=self._labels[key], ports=PORTS))

    def label_namespace(self, name: str, labels: dict[str, str]) -> None:
        self._namespaces[name] = {**self._namespaces.get(name, {}), **labels}
        for node in self._nodes:
            node.set_namespace(name, self._namespaces[name])

    def set_policy(self, obj: dict[str, Any]) -> None:
        for node in self._nodes:
            node.set_policy(self._filled_in(obj))
            assert not node.problems

    def drop_policies(self) -> None:
        for node in self._nodes:
            for key in list(node.policies):
                node.drop_policy(key)

    def allows(self, source: str, destination: str, protocol: str, port: int) -> set[bool]:
        """One answer per family; each is yes if no node says no."""
        for node in self._nodes:
            node.commit()
        found: dict[int, bool] = {}
        for node in self._nodes:
            for family in self._families if "external" in (source, destination) else (0,):
                one, other = (OUTSIDE[family] if end == "external" else end for end in (source, destination))
                for answer in why(node, source=one, destination=other, protocol=protocol, port=port):
                    version = addresses(answer.source.address)[0].version
                    found[version] = found.get(version, True) and answer.verdict == "allow"
        assert set(found) == set(self._families)
        return set(found.values())

    def _filled_in(self, obj: dict[str, Any]) -> Any:
        """`$HOST(pod)` and `$BIG(pod)` are the pod's own address and the /4 around it: once per family."""
        copies = json.loads(json.dumps(obj))
        for rule in (*copies["spec"].get("ingress", ()), *copies["spec"].get("egress", ())):
            for field in ("from", "to"):
                if field in rule:
                    rule[field] = [made for peer in rule[field] for made in self._per_family(peer)]
        return copies

    def _per_family(self, peer: dict[str, Any]) -> list[Any]:
        text = json.dumps(peer)
        if "$" not in text:
            return [peer]
        found = []
        for at, family in enumerate(self._families):
            length = "32" if family == 4 else "128"
            filled = re.sub(r"\$HOST\(([^)]*)\)", lambda m, at=at, to=length: f"{self._addresses[m[1]][at]}/{to}", text)  # type: ignore[misc]
            filled = re.sub(r"\$BIG\(([^)]*)\)", lambda m, at=at: f"{self._addresses[m[1]][at]}/4", filled)  # type: ignore[misc]
            found.append(json.loads(filled))
        return found


@pytest.fixture(params=[False, True], ids=["one node", "a node each"])
def spread(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=FAMILIES.values(), ids=list(FAMILIES))
def families(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("case", E2E, ids=lambda case: f"{case['index']}")
def test_kubernetes_own_case(case: Any, spread: bool, families: tuple[int, ...]) -> None:
    fabric = Fabric({key: {"pod": key.partition("/")[2]} for key in case["pods"]}, spread=spread, families=families)
    for namespace in ("x", "y", "z"):
        fabric.label_namespace(namespace, {"kubernetes.io/metadata.name": namespace})
    for step in case["steps"]:
        for action in step["do"]:
            do(fabric, action)
        probe = step["probe"]
        denied = [tuple(pair) for pair in step["deny"]]
        for source in case["pods"]:
            for destination in case["pods"]:
                answers = fabric.allows(source, destination, probe["protocol"], probe["port"])
                assert answers == {(source, destination) not in denied}, (source, destination, probe)


def do(fabric: Fabric, action: Any) -> None:
    match action["op"]:
        case "create" | "update":
            fabric.set_policy(action["policy"])
        case "deleteAll":
            fabric.drop_policies()
        case "labelNamespace":
            fabric.label_namespace(action["namespace"], action["labels"])
        case "labelPod":
            fabric.label_pod(action["pod"], action["labels"])
        case unknown:
            raise AssertionError(unknown)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["recipe"])
def test_recipe(recipe: Any, spread: bool, families: tuple[int, ...]) -> None:
    fabric = Fabric(recipe["pods"], spread=spread, families=families)
    for name, labels in recipe["namespaces"].items():
        fabric.label_namespace(name, labels)
    for obj in recipe["policies"]:
        fabric.set_policy(obj)
    for probe in recipe["probes"]:
        answers = fabric.allows(probe["from"], probe["to"], probe["protocol"], probe["port"])
        assert answers == {probe["allow"]}, probe


def test_all_cases_are_there() -> None:
    assert [case["index"] for case in E2E] == list(range(1, 50))
    assert len(RECIPES) == 15
