"""Policies tried on all nodes of a lab at once."""

import json
import subprocess
from pathlib import Path

import pytest
from lab_making import MakeLab

from flock.lab.reach import ping
from harness import BIN

GUARD = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "guard", "namespace": "shop"},
    "spec": {"podSelector": {}, "ingress": []},
}


@pytest.mark.slow
def test_every_node_of_a_lab_tries_a_file_and_tells_of_its_own_pods(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab(plain=False, nodes=2, routers=1)
    for name, node in (("a", "n1"), ("b", "n2")):
        lab.pods.add(name, node=node, namespace="shop", annotations={}, labels={}, ready=True)
    file = tmp_path / "guard.json"
    file.write_text(json.dumps(GUARD))
    command = [BIN / "flockctl", "policy", "try", "--lab", lab.name, "--for", "3", "-o", "json", file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as trying:
        assert trying.stderr is not None and b"trying shop/guard" in trying.stderr.readline()
        for source, target in (("shop/a", "shop/b"), ("shop/b", "shop/a")):
            assert all(answer.reached for answer in ping(lab, source, target))
        told, _ = trying.communicate(timeout=30)
    rows = json.loads(told)["cut"]
    ends = {(row["source"], row["destination"], row["protocol"], row["policies"]) for row in rows}
    assert ends == {(*pair, protocol, "shop/guard") for pair in (("shop/a", "shop/b"), ("shop/b", "shop/a"))
                    for protocol in ("ICMP", "ICMPv6")}  # fmt: skip
