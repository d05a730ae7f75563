"""GC frees what no runtime names any more, and nothing else; STATUS says whether an ADD can be served."""

from pathlib import Path
from typing import Any

import pytest
from looking import addresses_of, assert_sound, failure, flockctl, outcome, undisturbed

from harness import NODE_CONFIG, CniFailure, Node, eventually

VALID = "cni.dev/valid-attachments"


def valid(*containers: str, ifname: str = "eth0") -> dict[str, Any]:
    return {VALID: [{"containerID": c, "ifname": ifname} for c in containers]}


def test_gc_frees_what_is_not_listed_and_nothing_else(node: Node) -> None:
    kept = node.pod("kept")
    for name in ("x", "y", "z"):
        node.pod(name)
    node.remove_namespace("z")
    with undisturbed(node, *addresses_of(kept)):
        assert node.cni("GC", **valid("kept", "unknown")) is None
    assert set(node.allocations()) == {"kept"}
    assert_sound(node)
    assert node.cni("GC", **valid("kept")) is None
    assert node.cni("ADD", "kept") == kept


def test_gc_with_an_empty_list_frees_everything(node: Node) -> None:
    node.pod("a")
    node.cni("GC", **valid())
    assert not node.allocations()
    assert_sound(node)


@pytest.mark.parametrize("conf", [{}, {VALID: None}])
def test_gc_without_the_list_is_code_7_and_frees_nothing(node: Node, conf: dict[str, Any]) -> None:
    node.pod("a")
    failed = failure(node, "GC", **conf)
    assert failed.code == 7 and VALID in failed.msg
    assert set(node.allocations()) == {"a"}


@pytest.mark.parametrize("bad", [[{"ifname": "eth0"}], "all", [7], {"containerID": "a"}])
def test_gc_with_a_malformed_list_is_code_7_and_frees_nothing(node: Node, bad: Any) -> None:
    node.pod("a")
    failed = failure(node, "GC", **{VALID: bad})
    assert failed.code == 7 and VALID in failed.msg
    assert set(node.allocations()) == {"a"}


def test_gc_of_another_network_frees_nothing_of_ours(node: Node) -> None:
    node.pod("a")
    node.cni("GC", name="other", **valid())
    assert set(node.allocations()) == {"a"}


def test_gc_goes_by_interface_too(node: Node) -> None:
    node.pod("a")
    node.cni("GC", **valid("a", ifname="net1"))
    assert not node.allocations()


def test_gc_carries_on_after_an_error_and_tells_of_it(fresh: Node) -> None:
    """The first of three cannot be freed: the others are, and the error names the one that is left."""
    fresh.start()
    for name in ("a", "b", "c"):
        fresh.pod(name)
    fresh.stop()
    fresh.start(fault="journal.make=EIO,store.write=EIO@1")
    failed = failure(fresh, "GC", **valid())
    assert "a" in failed.msg and len(fresh.allocations()) == 1
    fresh.cni("GC", **valid())
    assert not fresh.allocations()
    assert_sound(fresh)


def test_gc_beside_adds_and_dels_spares_what_is_being_attached(node: Node) -> None:
    names = [f"p{n}" for n in range(10)]
    for name in names:
        node.namespace(name)
    for _ in range(5):
        started = [node.cni_start("ADD", name) for name in names[:5]]
        collecting = node.cni_start("GC", **valid(*names[:5]))
        started += [node.cni_start("ADD", name) for name in names[5:]]
        assert not isinstance(outcome(collecting), CniFailure)
        assert not [x for x in map(outcome, started) if isinstance(x, CniFailure)]
        node.cni("GC", **valid(*names[:5]))
        assert set(node.allocations()) == set(names[:5])
        assert_sound(node)
        assert not [x for x in map(outcome, [node.cni_start("DEL", name) for name in names]) if x]


def test_gc_of_five_hundred_attachments_fits_a_frame(node: Node) -> None:
    node.pod("a")
    node.cni("GC", **valid("a", *(f"{n:064x}" for n in range(5000))))
    assert set(node.allocations()) == {"a"}


# --- STATUS ------------------------------------------------------------------------------------------------------


def test_status_of_a_ready_node_is_silent_success(node: Node) -> None:
    assert node.cni("STATUS") is None
    assert flockctl(node, "status").returncode == 0


def test_status_without_an_agent_is_50_at_once(fresh: Node) -> None:
    assert failure(fresh, "STATUS", wait=60).code == 50


def test_status_without_nodeconfig_says_so_by_50(fresh: Node) -> None:
    (fresh.manifests / "nodeconfig.json").unlink()
    fresh.start(wait=False)
    eventually(lambda: (fresh.run_dir / "flock.sock").exists())
    failed = eventually(lambda: next(iter([failure(fresh, "STATUS")])))
    assert failed.code == 50

    def said() -> bool:
        return "NodeConfig" in failure(fresh, "STATUS").msg

    eventually(said)
    fresh.write("nodeconfig", NODE_CONFIG)
    eventually(fresh.is_ready)
    assert fresh.cni("STATUS") is None


def test_status_is_51_when_forwarding_cannot_be_switched_on(fresh: Node, tmp_path: Path) -> None:
    """Running pods suffer from that as well.  It heals by itself once the switch can be set."""
    switches = tmp_path / "sysctl"
    (switches / "ipv4" / "ip_forward").mkdir(parents=True)
    (switches / "ipv6" / "conf" / "all").mkdir(parents=True)
    (switches / "ipv6" / "conf" / "all" / "forwarding").write_text("0")
    fresh.start("--sysctl-dir", str(switches), wait=False)
    eventually(lambda: (fresh.run_dir / "flock.sock").exists())
    eventually(lambda: failure(fresh, "STATUS").code == 51, what="code 51")
    assert "ip_forward" in failure(fresh, "STATUS").msg
    fresh.namespace("a")
    assert failure(fresh, "ADD", "a").code == 11
    assert flockctl(fresh, "status").returncode == 1
    (switches / "ipv4" / "ip_forward").rmdir()
    (switches / "ipv4" / "ip_forward").write_text("0")
    fresh.ip("link", "add", "x0", "type", "veth", "peer", "name", "x1")  # an event; else the next period would do
    eventually(fresh.is_ready, what="the agent heals")
    assert (switches / "ipv4" / "ip_forward").read_text().strip() == "1"


def test_status_takes_any_of_the_versions(node: Node) -> None:
    assert node.cni("STATUS", version="1.1.0") is None
