"""What running pods may have is asked anew when something it depends on changes, and only then."""

from ipaddress import ip_interface

import pytest

from flock.core import announcing
from flock.core.announcing import Rights
from flock.core.facts import HostAddress, NodeFacts
from flock.core.model import Allocation, Metadata, Namespace
from flock.core.nodeconfig import Kind, NodeConfig, parse_node_config

SERVICE = "2001:db8:53::53"
FACTS = NodeFacts("n1", (HostAddress("eth0", ip_interface("198.51.100.11/24")),))
POD = Allocation(
    container_id="c1", namespace="dns", pod_name="a", owner_uid="", ip6="", ip4="", state="committed", allocated_at=""
)


def config() -> NodeConfig:
    grant = {"prefixes": ["2001:db8:53::/64"], "namespaceSelector": {"matchLabels": {"anycast": "yes"}}}
    spec = {"cidr6": ["2001:db8:1::/64"], "anycast": {"allowed": [grant]}}
    raw = {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "n1"}, "spec": spec}
    return parse_node_config(raw)


def labelled(**labels: str) -> dict[tuple[str, str], Namespace]:
    return {("", "dns"): Namespace(Metadata(name="dns", labels=labels))}


CONFIG = config()


def test_a_namespace_that_the_entry_selects_has_the_right() -> None:
    assert Rights(CONFIG, FACTS, labelled(anycast="yes")).of(POD, "anycast", SERVICE).granted
    assert Rights(CONFIG, FACTS, labelled()).of(POD, "anycast", SERVICE).ungranted


def test_without_a_configuration_nobody_has_any() -> None:
    assert Rights(None, FACTS, labelled(anycast="yes")).of(POD, "anycast", SERVICE).refusal


def test_an_answer_is_taken_over_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Kind] = []
    real = announcing.right
    monkeypatch.setattr(announcing, "right", lambda *args, **kind: asked.append(kind["kind"]) or real(*args, **kind))
    first = Rights(CONFIG, FACTS, labelled(anycast="yes"))
    first.of(POD, "anycast", SERVICE)
    second = Rights(CONFIG, FACTS, labelled(anycast="yes"), before=first)
    assert second.of(POD, "anycast", SERVICE).granted and len(asked) == 1
    relabelled = Rights(CONFIG, FACTS, labelled(), before=second)
    assert relabelled.of(POD, "anycast", SERVICE).ungranted and len(asked) == 2
    configured = Rights(config(), FACTS, labelled(), before=relabelled)
    assert configured.of(POD, "anycast", SERVICE).ungranted and len(asked) == 3
