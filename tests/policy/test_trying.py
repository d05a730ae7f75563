"""`flockctl policy try`: policies that nobody has applied, tried on real pods; and gone, however it ends."""

import contextlib
import json
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inhabiting import open_flows
from probing import Cell
from realcluster import FAR, NEAR, WEB, RealCluster, flockctl, policy
from tiers_cases import admin, deny, networks

from harness import BIN, eventually, run

SPEC = {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]}
MUTE = {"apiVersion": "policy.networking.k8s.io/v1alpha2", **admin("mute", out=[deny(networks("::/0"))])}


@pytest.fixture
def cluster(standing: RealCluster) -> RealCluster:
    standing.set_policies([])
    standing.settle()
    standing.finish_settling()
    return standing


def rules(cluster: RealCluster) -> list[str]:
    """In an order of their own: the kernel lists what was made last at the end."""
    listed = run("nsenter", f"--net=/run/netns/{cluster.nodes[0].netns}", "nft", "-s", "list", "ruleset").stdout
    whole = re.sub(r"(?s)elements = \{.*?\}", lambda found: str(sorted(re.split(r"[\s,]+", found[0]))), listed)
    return sorted(whole.splitlines())


@contextlib.contextmanager
def trying(cluster: RealCluster, file: Path, *more: str) -> Iterator["subprocess.Popen[str]"]:
    """From when it is tried."""
    before = rules(cluster)
    command = [BIN / "flockctl", "--run-dir", cluster.nodes[0].run_dir, "policy", "try", file, *more, "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None and "trying" in process.stderr.readline()
            yield process
        finally:
            process.kill()
    nothing_is_left(cluster, before)


def written(directory: Path, *objects: dict[str, Any]) -> Path:
    file = directory / "tried.yaml"
    file.write_text("\n---\n".join(map(json.dumps, objects)))
    return file


def summary(process: "subprocess.Popen[str]") -> dict[str, Any]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    told: dict[str, Any] = json.loads(out)
    return told


def rows(told: dict[str, Any]) -> list[tuple[Any, ...]]:
    keys = ("source", "destination", "protocol", "port", "direction", "policies", "count")
    return sorted(tuple(row[key] for key in keys) for row in told["cut"])


def test_it_sums_up_who_would_have_been_cut_off_from_whom_and_how_often(cluster: RealCluster, tmp_path: Path) -> None:
    cells = [Cell(FAR, WEB, 4, "TCP", 80)] * 3 + [Cell(NEAR, WEB, 4, "TCP", 80), Cell(WEB, FAR, 6, "UDP", 53)]
    with trying(cluster, written(tmp_path, policy("guard", SPEC), MUTE)) as process:
        cluster.assert_reached(cells, expected=cells)
        told = summary(process)
    assert told["policies"] == ["mute", "x/guard"]
    assert rows(told) == [
        (WEB, FAR, "UDP", 53, "egress", "Admin mute egress[0]", 1),
        (FAR, WEB, "TCP", 80, "ingress", "x/guard", 3),
    ]
    assert told["connections"] == 4


def test_it_lasts_as_long_as_asked_for_and_speaks_plainly(cluster: RealCluster, tmp_path: Path) -> None:
    file = written(tmp_path, policy("guard", SPEC))
    before, started = rules(cluster), time.monotonic()
    done = flockctl(cluster.nodes[0], "policy", "try", "--for", "0.6", str(file))
    assert time.monotonic() - started >= 0.6
    assert done.stdout == "tried x/guard for 1 s: no connection would have been cut off\n"
    nothing_is_left(cluster, before)


def test_more_than_is_told_is_counted(cluster: RealCluster, tmp_path: Path) -> None:
    with trying(cluster, written(tmp_path, policy("guard", SPEC))) as process:
        open_flows(cluster, FAR, WEB, count=100)
        told = summary(process)
    assert told["connections"] == 100 > sum(row["count"] for row in told["cut"])


def test_killed_it_leaves_nothing_in_force_and_nothing_in_the_table(cluster: RealCluster, tmp_path: Path) -> None:
    with trying(cluster, written(tmp_path, policy("guard", SPEC), MUTE)) as process:
        process.kill()
    cells = [Cell(FAR, WEB, family, "TCP", 80) for family in (4, 6)]
    cluster.assert_reached(cells, expected=cells)
    assert "guard" not in flockctl(cluster.nodes[0], "policy", "show", WEB).stdout
    assert flockctl(cluster.nodes[0], "check").returncode == 0


def test_with_the_agent_it_ends(cluster: RealCluster, tmp_path: Path) -> None:
    node = cluster.nodes[0]
    with trying(cluster, written(tmp_path, policy("guard", SPEC))) as process:
        node.kill()
        _, said = process.communicate(timeout=20)
        assert process.returncode == 3 and "went away" in said
        node.start()


def test_a_version_is_tried_in_the_place_of_the_one_in_force(cluster: RealCluster, tmp_path: Path) -> None:
    cluster.set_policies([policy("guard", SPEC)])
    cluster.settle()
    cluster.finish_settling()
    asked = [Cell(source, WEB, 4, "TCP", 80) for source in (NEAR, FAR)]
    nobody = policy("guard", {"podSelector": {"matchLabels": {"app": "web"}}})
    with trying(cluster, written(tmp_path, nobody)) as process:
        cluster.assert_reached(asked, expected=asked[:1])
        assert (
            "with audited policies in force: deny"
            in flockctl(cluster.nodes[0], "policy", "why", NEAR, WEB, "80/TCP").stdout
        )
        assert rows(summary(process)) == [(NEAR, WEB, "TCP", 80, "ingress", "x/guard", 1)]
    others = policy("guard", {"podSelector": {"matchLabels": {"app": "near"}}})
    with trying(cluster, written(tmp_path, others)) as process:
        cluster.assert_reached(
            [*asked, Cell(WEB, NEAR, 4, "TCP", 80)], expected=[asked[0], Cell(WEB, NEAR, 4, "TCP", 80)]
        )
        assert rows(summary(process)) == [(WEB, NEAR, "TCP", 80, "ingress", "x/guard", 1)]


def test_what_is_tried_already_is_not_tried_twice(cluster: RealCluster, tmp_path: Path) -> None:
    file = written(tmp_path, policy("guard", SPEC))
    with trying(cluster, file):
        done = flockctl(cluster.nodes[0], "policy", "try", str(file), "--for", "1", check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "x/guard: is being tried already" in done.stderr


NOWHERE = {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/33"}}]}]}
BAD = {
    "a field": (json.dumps(policy("bad", NOWHERE)), "NetworkPolicy x/bad: spec.ingress[0].from[0].ipBlock.cidr: "),
    "a tier": (json.dumps({**MUTE, "spec": {**MUTE["spec"], "tier": "Top"}}), "ClusterNetworkPolicy mute: spec.tier: "),
    "YAML": ("kind: [NetworkPolicy", "line 4"),
    "a name": (json.dumps(policy("Bad Name", SPEC)), "metadata.name"),
}
NONE = "there is no NetworkPolicy (networking.k8s.io/v1)"


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_an_error_that_names_the_field_and_changes_nothing(
    cluster: RealCluster, tmp_path: Path, what: str
) -> None:
    text, said = BAD[what]
    refuses(cluster, tmp_path / "bad.yaml", f"{json.dumps(policy('guard', SPEC))}\n---\n{text}", said)


@pytest.mark.parametrize("text", ["kind: Pod\napiVersion: v1\nmetadata: {name: a}\n", ""])
def test_a_file_without_policies_is_refused(cluster: RealCluster, tmp_path: Path, text: str) -> None:
    refuses(cluster, tmp_path / "bad.yaml", text, NONE)


def refuses(cluster: RealCluster, file: Path, text: str, said: str) -> None:
    file.write_text(text)
    before = rules(cluster)
    done = flockctl(cluster.nodes[0], "policy", "try", str(file), "--for", "1", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr and "Traceback" not in done.stderr, done.stderr
    left = Counter(rules(cluster))
    assert left - Counter(before) == Counter(before) - left == Counter()


def test_wrong_usage(cluster: RealCluster) -> None:
    for wrong in (["/nowhere/file"], ["x", "--for", "-1"], ["x", "--for", "soon"]):
        done = flockctl(cluster.nodes[0], "policy", "try", *wrong, check=False)
        assert done.returncode in (1, 2) and done.stderr and "Traceback" not in done.stderr


def nothing_is_left(cluster: RealCluster, before: list[str]) -> None:
    with contextlib.suppress(AssertionError):
        eventually(lambda: rules(cluster) == before)
    left = Counter(rules(cluster))
    assert left - Counter(before) == Counter(before) - left == Counter()
