"""The pages for operators: every message they quote is one of ours, every link leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = ("install.md", "flock-installer.md", "upgrade.md", "migrate-from-calico.md", "troubleshooting.md")
SOURCE = "\n".join(path.read_text() for path in (*ROOT.glob("src/flock/**/*.py"), *ROOT.glob("cni/*.[ch]")))

# The part of each quoted message that is the same every time.
QUOTED = (
    "has nothing in common with this node's",
    "but this node has no",
    "is outside this node's aggregates and no entry of",
    "belongs to a node, a router or their network",
    "is held by container",
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
    "BIRD refuses the new bird.conf",
    "kept the old bird.conf",
    "BIRD does not run",
    "the pod is not Ready",
    "the pod is terminating",
    "the pod is not known",
    "the pod's link is gone",
    "FlockBadAnnotation",
    "FlockAddressNotGranted",
    "FlockAddressInUse",
    "FlockPoolExhausted",
    "FlockConfigRefused",
    "flock_repairs_total",
)


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_one_the_programs_say(message: str) -> None:
    assert message in (DOCS / "troubleshooting.md").read_text()
    assert message in SOURCE


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (DOCS / page).read_text()):
        assert (DOCS / target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    for target in re.findall(r"\bdeploy/[\w./-]+", (DOCS / page).read_text()):
        assert (ROOT / target.rstrip(".")).exists(), target
