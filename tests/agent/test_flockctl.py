"""`flockctl status`, `pods`, `check [--repair]`: tables, JSON, exit codes."""

import json
import subprocess

from looking import addresses_of, assert_sound, flockctl, sysctl

from flock.edge.rpc_client import ask
from harness import BIN, Node, eventually


def test_without_an_agent_it_says_so_by_an_exit_code_of_its_own(fresh: Node) -> None:
    for command in ("status", "pods", "check"):
        done = flockctl(fresh, command)
        assert done.returncode == 3 and "flock" in done.stderr and "Traceback" not in done.stderr


def test_wrong_usage_is_exit_code_2(fresh: Node) -> None:
    assert flockctl(fresh).returncode == 2
    assert flockctl(fresh, "status", "-o", "xml").returncode == 2
    assert flockctl(fresh, "--help").returncode == 0


def test_status_shows_pods_pools_and_readiness(node: Node) -> None:
    node.pod("a")
    shown = flockctl(node, "status")
    assert shown.returncode == 0
    for text in ("n1", "yes", "1 committed", "192.0.2.0/24", "2001:db8:1::/64", "1500"):
        assert text in shown.stdout
    status = json.loads(flockctl(node, "status", "-o", "json").stdout)
    assert status["ready"] and status["pods"]["committed"] == 1 and status["mtu"] == 1500


def test_pods_shows_every_pod_in_a_row(node: Node) -> None:
    results = {name: node.pod(name) for name in ("b", "a")}
    shown = flockctl(node, "pods").stdout.splitlines()
    assert len(shown) == 3 and shown[1].startswith("default/a") and shown[2].startswith("default/b")
    for line, name in zip(shown[1:], ("a", "b"), strict=True):
        assert all(text in line for text in (*addresses_of(results[name]), "committed"))
    rows = json.loads(flockctl(node, "pods", "-o", "json").stdout)
    assert [r["container"] for r in rows] == ["a", "b"] and rows[0]["state"] == "committed"


def test_pods_of_an_empty_node_is_an_empty_table(node: Node) -> None:
    assert len(flockctl(node, "pods").stdout.splitlines()) == 1
    assert json.loads(flockctl(node, "pods", "-o", "json").stdout) == []


def test_check_of_a_sound_node_is_0(node: Node) -> None:
    node.pod("a")
    done = flockctl(node, "check")
    assert done.returncode == 0 and done.stdout.strip()
    assert json.loads(flockctl(node, "check", "-o", "json").stdout) == []


def test_repair_mends_what_made_no_event(node: Node) -> None:
    name = node.pod("a")["interfaces"][0]["name"]
    sysctl(node, f"ipv4/conf/{name}/proxy_arp", "0")
    sysctl(node, f"ipv6/conf/{name}/forwarding", "0")
    mended = flockctl(node, "check", "--repair")
    assert mended.returncode == 0, mended.stdout
    assert sysctl(node, f"ipv4/conf/{name}/proxy_arp") == "1" and sysctl(node, f"ipv6/conf/{name}/forwarding") == "1"


def test_check_lists_leaks_and_repair_removes_them_at_once(node: Node) -> None:
    name = node.pod("a")["interfaces"][0]["name"]
    node.ip("-4", "route", "add", "192.0.2.200", "dev", name, "proto", "133", "metric", "20")
    node.ip("link", "add", "flockdeadbeef", "type", "veth", "peer", "name", "peer0")
    rows = ask(node.run_dir, "check")  # not by a program that takes longer to start than healing takes to remove them
    leaks = [r["item"] for r in rows if r["type"] == "leak"]
    assert len(rows) == len(leaks) and all(any(x in item for item in leaks) for x in ("192.0.2.200", "flockdeadbeef"))
    assert flockctl(node, "check", "--repair").returncode == 0
    assert_sound(node)


def test_repair_switches_forwarding_of_the_node_on_again(node: Node) -> None:
    node.pod("a")
    sysctl(node, "ipv4/ip_forward", "0")
    sysctl(node, "ipv6/conf/all/forwarding", "0")
    assert flockctl(node, "check", "--repair").returncode == 0
    assert sysctl(node, "ipv4/ip_forward") == "1" and sysctl(node, "ipv6/conf/all/forwarding") == "1"


def test_check_lists_a_dead_pod_as_a_leak(node: Node) -> None:
    node.pod("a")
    node.remove_namespace("a")
    eventually(lambda: "dead" in flockctl(node, "pods").stdout, what="the pod is seen to be dead")
    [row] = json.loads(flockctl(node, "check", "-o", "json").stdout)
    assert (row["type"], row["container"]) == ("leak", "a")
    assert json.loads(flockctl(node, "status", "-o", "json").stdout)["pods"]["dead"] == 1


def test_check_lists_what_is_wrong_inside_a_pod(node: Node) -> None:
    result = node.pod("a")
    node.ip("addr", "del", addresses_of(result)[1] + "/32", "dev", "eth0", inside="a")
    done = flockctl(node, "check")
    assert done.returncode == 1 and addresses_of(result)[1] in done.stdout and "loss" in done.stdout


def test_check_tells_a_pod_that_was_replaced_behind_our_back(node: Node) -> None:
    def manifest(uid: str) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default", "uid": uid}}

    node.write("pods", manifest("1"))
    node.pod("a")
    assert flockctl(node, "check").returncode == 0
    node.write("pods", manifest("2"))
    done = eventually(lambda: (d := flockctl(node, "check")).returncode and d)
    assert "leak" in done.stdout and "uid" in done.stdout


def test_two_repairs_of_a_dead_pod_at_once_both_succeed(fresh: Node) -> None:
    import threading

    fresh.start("--grace", "0")
    for n in range(5):
        fresh.pod(f"p{n}")
        fresh.remove_namespace(f"p{n}")
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(flockctl(fresh, "check", "--repair").returncode))
               for _ in range(6)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(codes) <= {0, 1}, fresh.log_text()
    assert "Traceback" not in fresh.log.read_text()
    eventually(lambda: flockctl(fresh, "check", "--repair").returncode == 0)
    assert not fresh.allocations()


def test_happened_tells_what_the_log_tells_and_what_pods_did(node: Node) -> None:
    node.pod("a")
    node.cni("DEL", "a")
    shown = [line.partition(" ")[2] for line in flockctl(node, "happened").stdout.splitlines()]
    took = next(line for line in shown if line.startswith("took NodeConfig"))
    assert took in node.log.read_text()
    attached, detached = (line for line in shown if "pod=default/a" in line)
    assert attached.startswith("attached") and detached.startswith("detached")
    rows = [json.loads(line) for line in flockctl(node, "happened", "-o", "json").stdout.splitlines()]
    assert [row["said"] for row in rows] == shown
    (row,) = [row for row in rows if row["happening"] == "Attached"]
    assert row["pod"] == "default/a" and row["container"] == "a" and row["number"] == 1


def test_happened_goes_on_as_it_comes_and_does_not_hold_the_agent_up_when_it_ends(node: Node) -> None:
    command = [str(BIN / "flockctl"), "--run-dir", str(node.run_dir), "happened", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        try:
            assert follower.stdout is not None
            assert any("took NodeConfig" in line for line in follower.stdout)
            node.pod("late")
            assert any("attached pod=default/late" in line for line in follower.stdout)
            node.stop()
            assert follower.wait(10) == 3, "there is no agent any more"
        finally:
            follower.kill()
