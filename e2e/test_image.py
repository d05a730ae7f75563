"""flock's image: everything its pods need is in it, and works on a root file system that nobody can write to."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import image
import pytest
from cluster import Cluster
from places import eventually

_TRY = """
python3 --version
flock-agent --version
flockctl --help > /dev/null && echo flockctl
bird --version 2>&1
nft --version
CNI_COMMAND=VERSION /usr/local/lib/flock/flock < /dev/null; echo
touch /usr/x 2>/dev/null || echo read-only
"""


def trial(image_name: str, *, node: str) -> dict[str, Any]:
    """A pod on the host's network, which needs no other, as flock's own are."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trial", "namespace": "kube-system"},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "trial",
                    "image": image_name,
                    "command": ["sh", "-e", "-c", _TRY],
                    "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


def test_its_programs_run_without_rights_and_without_a_network_of_their_own(bare_cluster: Cluster) -> None:
    plane = bare_cluster.plane
    name, _ = image.flock()
    plane.apply(trial(name, node="n1"))

    def ended() -> bool:
        return plane.get("pod", "trial", "--namespace=kube-system")["status"]["phase"] in ("Succeeded", "Failed")

    eventually(ended, what="the trial to end")
    said = plane.kubectl("logs", "trial", "--namespace=kube-system")
    assert f"Python {image.PYTHON}." in said
    for expected in ("flock-agent ", "flockctl", "BIRD ", "nftables ", '"supportedVersions"', "read-only"):
        assert expected in said


def test_two_builds_with_one_time_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, digests = image.base(), set()
    for place in (tmp_path / "one", tmp_path / "two"):
        place.mkdir()
        shutil.copy(base, place)
        monkeypatch.setenv("FLOCK_E2E_CACHE", str(place))
        _, archive = image.flock(timestamp=1_790_000_000)
        digests.add(hashlib.sha256(archive.read_bytes()).hexdigest())
        shutil.rmtree(place)
    assert len(digests) == 1
