"""The pages for operators: every message they quote is one of ours, every manifest they name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = (
    "install.md",
    "security.md",
    "flock-installer.md",
    "upgrade.md",
    "migrate-from-calico.md",
    "troubleshooting.md",
    "e2e.md",
)
SOURCE = "\n".join(path.read_text() for path in (*ROOT.glob("src/flock/**/*.py"), *ROOT.glob("cni/*.[ch]")))

# The part of each quoted message that is the same every time.
QUOTED = (
    "has nothing in common with this node's",
    "but this node has no",
    "is outside this node's aggregates and no entry of",
    "belongs to a node, a router or their network",
    "is in use by",
    "no agent listens at",
    "this node cannot take pods yet",
    "is not known yet",
    "no NodeConfig named",
    "must be whole seconds from",
    "the first listing is not complete",
    "is not reachable",
    "half-done work of an earlier run cannot be undone",
    "IPv6 is switched off in this kernel (ipv6.disable=1)",
    "waiting for another agent to leave",
    "is there and is not flock's: move it away",
    "BIRD was not reached yet",
    "BIRD went away",
    "BIRD does not answer at",
    "is on no network of this host: multihop, or another address",
    "is this host's own address",
    "there is one named",
    "is no DNS name (small letters); set FLOCK_NODE in /etc/default/flock",
    "pods get neither IPv6 nor IPv4 on this node",
    "BIRD refuses the new bird.conf",
    "kept the old bird.conf",
    "the password could not be read from",
    "BIRD does not run",
    "the pod is not Ready",
    "the pod is terminating",
    "the pod is not known",
    "the pod's link is gone",
    "FlockBadAnnotation",
    "FlockAddressNotGranted",
    "FlockAddressInUse",
    "FlockPoolExhausted",
    "FlockAddressOfAnotherNamespace",
    "FlockTooManyAddresses",
    "FlockConfigRefused",
    "flock_repairs_total",
)


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_one_the_programs_say(message: str) -> None:
    assert message in (DOCS / "troubleshooting.md").read_text()
    assert message in SOURCE


def test_the_page_on_the_cluster_lists_its_tests() -> None:
    listed = set(re.findall(r"`(test_\w+\.py)`", (DOCS / "e2e.md").read_text()))
    assert listed == {path.name for path in (ROOT / "e2e").glob("test_*.py")}


def test_tests_that_files_speak_of_exist() -> None:
    """Manifests and the chart say which test keeps them true."""
    for file in (*ROOT.glob("deploy/**/*.yaml"), ROOT / "deploy/Dockerfile"):
        for target in re.findall(r"\b(?:tests|e2e)/[\w/]+\.py", file.read_text()):
            assert (ROOT / target).exists(), f"{file.name}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_manifests_that_are_named_exist(page: str) -> None:
    for target in re.findall(r"\bdeploy/[\w./-]+", (DOCS / page).read_text()):
        assert (ROOT / target.rstrip(".")).exists(), target
