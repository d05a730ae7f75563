"""Whose a namespace of a check is, and which nodes are asked; the rest takes a cluster (`make e2e`)."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flock.cli.check import chosen
from flock.cli.check_cluster import ClusterGround, _is_alive, _whoami
from flock.core.annotations import CHECK
from flock.edge.kubectl import Kubectl, KubectlRefused

NODES = [f"n{i}" for i in range(1, 11)]


def test_so_many_nodes_are_spread_over_all_and_names_are_taken_as_they_are() -> None:
    assert chosen(NODES, "2") == ["n1", "n6"]
    assert chosen(NODES, "99") == NODES
    assert chosen(NODES, "n3,n1") == ["n3", "n1"]


def test_a_check_that_runs_is_alive_and_one_whose_process_is_gone_is_not() -> None:
    assert _is_alive(_whoami(), now=time.time())
    said = f"import sys; sys.path[:0] = {sys.path!r}; from flock.cli.check_cluster import _whoami; print(_whoami())"
    gone = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout.strip()
    assert not _is_alive(gone, now=time.time())


def test_a_check_of_another_machine_is_believed_for_a_while() -> None:
    owner = f"another-boot {os.getpid()} 1 1000"
    assert _is_alive(owner, now=1060) and not _is_alive(owner, now=2000)


def test_what_says_nobody_is_nobodys() -> None:
    assert not _is_alive("", now=0) and not _is_alive("a b c d", now=0)


class Cluster(Kubectl):
    """Namespaces, and what was asked to be deleted."""

    def __init__(self, **owners: str | None) -> None:
        self.deleted: list[str] = []
        self._namespaces = [
            {"metadata": {"name": name, "annotations": {} if owner is None else {CHECK: owner}}}
            for name, owner in owners.items()
        ]

    def get(self, *arguments: str) -> Any:
        return self._namespaces if arguments[0] == "namespaces" else []

    def run(self, *arguments: str, stdin: bytes = b"", patience: float = 0) -> bytes:
        self.deleted.append(arguments[2])
        return b""


def test_of_all_namespaces_with_the_label_only_those_of_checks_that_are_gone_are_removed() -> None:
    gone, alive = f"{_whoami().split()[0]} 1 0 0", _whoami()
    cluster = Cluster(**{"prod": gone, "flock-check-a": gone, "flock-check-b": alive, "flock-check-team": None})
    ClusterGround(cluster, nodes=[], agents={})._remove_leftovers()
    assert cluster.deleted == ["flock-check-a"]


def test_without_kubectl_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KubectlRefused, match="not installed"):
        Kubectl(kubeconfig=None, context="")


def test_what_kubectl_complains_about_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho first >&2; echo 'Error: forbidden' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(KubectlRefused, match="kubectl get: Error: forbidden"):
        Kubectl(kubeconfig=None, context="").get("pods")
