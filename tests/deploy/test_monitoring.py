"""What is given to Prometheus and Grafana: rules that hold, lines that lead somewhere, metrics that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import ROOT
from scraper import MONITORING, alerts, expressions, panels

CASES = Path(__file__).with_name("alerts.test.yaml")
needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool here")


def promtool(*arguments: object) -> None:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_alerts_are_rules_that_prometheus_takes() -> None:
    promtool("check", "rules", MONITORING / "alerts.yaml")


@needs_promtool
def test_each_alert_fires_when_it_should_and_not_before() -> None:
    promtool("test", "rules", CASES)


def test_there_is_a_case_for_each_alert() -> None:
    cases = yaml.safe_load(CASES.read_text())["tests"]
    assert [case["name"] for case in cases] == [alert["alert"] for alert in alerts()]
    for case in cases:
        quiet, loud = case["promql_expr_test"]
        assert quiet["exp_samples"] == [] and loud["exp_samples"], case["name"]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_says_what_to_do(alert: dict[str, Any]) -> None:
    said = alert["annotations"]
    assert "{{ $labels.instance }}" in said["summary"] and said["description"]
    page, _, anchor = said["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_dashboard_and_alerts_ask_for_are_metrics_of_the_agent() -> None:
    documented = (ROOT / "docs" / "flock-agent.md").read_text()
    for expression in expressions():
        for metric in re.findall(r"flock_\w+", expression):
            name = re.sub(r"_(bucket|count)$", "", metric)
            assert f"`{name}" in documented, f"{metric} in {expression}"


def test_the_dashboard_asks_for_the_nodes_that_were_chosen() -> None:
    board = json.loads((MONITORING / "dashboard.json").read_text())
    chosen = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert all('instance=~"$instance"' in expression for expression in chosen)
    assert len(panels()) == len(board["panels"]), "no two of one title"
