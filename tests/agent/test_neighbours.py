"""A kube-proxy that goes around policies: the node serves on, and says so wherever somebody looks."""

import asyncio
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any

import pytest

from flock.agent.neighbours import Neighbours
from harness import NODE_CONFIG, Node, eventually, run
from namespaces import within

RULES = "*nat\n:KUBE-MARK-MASQ -\n:KUBE-SVC-X -\n-A KUBE-SVC-X {} -d 10.96.0.1 -j KUBE-MARK-MASQ\nCOMMIT\n"
IPVS, MASQUERADES = "IPVS carries Service traffic past NetworkPolicy", "kube-proxy masquerades pods"


def kube_proxy(node: Node, not_local: str) -> None:
    run("nsenter", f"--net=/run/netns/{node.netns}", "iptables-nft-restore", input=RULES.format(not_local))


def degraded(node: Node) -> str:
    status = node.ask("status")
    assert status["ready"]
    return "\n".join(status["degraded"])


def test_ipvs_and_masquerading_are_told_and_keep_no_pod_out(fresh: Node) -> None:
    fresh.ip("link", "add", "kube-ipvs0", "type", "bridge")
    kube_proxy(fresh, "! -s 10.244.0.0/16")
    fresh.start("--http", "127.0.0.1:9465")
    eventually(lambda: IPVS in degraded(fresh) and MASQUERADES in degraded(fresh), what="both are told")
    assert "192.0.2.0/24 is outside its 10.244.0.0/16" in degraded(fresh)
    assert IPVS in fresh.log_text() and MASQUERADES in fresh.log_text()
    metrics = fresh.execute("curl", "-s", "http://127.0.0.1:9465/metrics").stdout
    assert 'flock_kube_proxy_harm{by="ipvs"} 1' in metrics and 'flock_kube_proxy_harm{by="masquerade"} 1' in metrics
    fresh.pod("a")


def test_what_was_mended_is_seen_at_the_next_look(fresh: Node) -> None:
    kube_proxy(fresh, "! -s 10.244.0.0/16")
    fresh.start()
    eventually(lambda: MASQUERADES in degraded(fresh), what="it is told")
    kube_proxy(fresh, "! -i flock+")
    fresh.write("nodeconfig", {**NODE_CONFIG, "spec": {**NODE_CONFIG["spec"], "mtu": 1400}})  # which has it look
    eventually(lambda: MASQUERADES not in degraded(fresh), what="it is not told any more")


def test_a_look_that_fails_changes_nothing_that_was_said(fresh: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    kube_proxy(fresh, "! -s 10.244.0.0/16")
    aggregates: Any = SimpleNamespace(networks=(ip_network("192.0.2.0/24"),))

    async def story() -> None:
        neighbours = Neighbours(aggregates)
        assert await neighbours.reconcile()
        said = neighbours.harm
        assert MASQUERADES in said.masquerade
        with monkeypatch.context() as refusing:
            refusing.setattr("flock.agent.neighbours.look", refuse)
            assert not await neighbours.reconcile()
        assert neighbours.minor and neighbours.problem == "not now" and neighbours.harm == said
        kube_proxy(fresh, "! -i flock+")
        assert await neighbours.reconcile()
        assert not neighbours.problem and not neighbours.harm.masquerade

    within(f"/run/netns/{fresh.netns}", lambda: asyncio.run(story()))


def refuse(_: object) -> None:
    raise OSError("not now")
