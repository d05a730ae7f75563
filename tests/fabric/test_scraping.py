"""A scraper elsewhere in the fabric, at the address of `--metrics`: dashboard and alerts have data, and alerts fire."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fabric_parts import OWN, V4, MakeLab, eventually

from flock.lab.errors import LabError
from flock.lab.fabric import Lab
from scraper import answers, command, expressions

PORT = 9466
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("prometheus"), reason="no Prometheus here")]


@pytest.fixture
def scraped(make_lab: MakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Two nodes, a pod that comes, stays and goes on each, and a Prometheus on a router."""
    monkeypatch.setenv("FLOCK_METRICS", f"[::]:{PORT}")
    lab = make_lab(nodes=2, routers=2)
    for node in ("n1", "n2"):
        lab.pods.add(f"stays-{node}", node=node, annotations={f"{OWN}/anycast": V4}, ready=True)
    nodes = [f"[{n.address}]:{PORT}" for n in lab.router("r1").speaker.neighbours if n.name in ("n1", "n2")]
    lab.host("r1").spawn("prometheus", command(tmp_path, nodes))
    yield lab
    lab.host("r1").stop("prometheus")


def asked(lab: Lab, *what: str) -> dict[str, list[object]]:
    def run(*argv: str) -> str:
        try:
            return lab.host("r1").run(argv)
        except LabError:
            return ""

    return answers(run, what)


def silent(lab: Lab) -> list[str]:
    """Expressions without data."""
    return [e for e, found in asked(lab, *expressions()).items() if not found] or ([] if asked(lab, "up") else ["all"])


def firing(lab: Lab) -> set[str]:
    found = asked(lab, 'count by (alertname) (ALERTS{alertstate=~"pending|firing"})').values()
    return {row["metric"]["alertname"] for rows in found for row in rows}  # type: ignore[index]


def test_every_expression_has_data_and_a_session_that_is_cut_is_an_alert(scraped: Lab) -> None:
    """But for those about an API server: there is none.  tests/agent/test_scraped_on_the_node.py has one."""
    eventually(lambda: silent(scraped), lambda seen: all("flock_watch" in e for e in seen), within=90)
    eventually(lambda: firing(scraped), lambda seen: not seen, within=90)  # sessions are looked at every so often
    scraped.cut("n1-r2")
    eventually(lambda: firing(scraped), lambda seen: "FlockSessionDown" in seen, within=90)
