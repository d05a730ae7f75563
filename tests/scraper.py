"""A Prometheus that scrapes agents, and what dashboard and alerts ask of it."""

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from harness import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
ADDRESS = "127.0.0.1:9090"
QUERY = """
import json, sys, urllib.parse, urllib.request
def answered(expression):
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://{sys.argv[1]}/api/v1/query?{query}", timeout=20) as answer:
        return json.load(answer)["data"]["result"]
print(json.dumps({expression: answered(expression) for expression in json.loads(sys.argv[2])}))
"""


def alerts() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
    ]


def quantity(expression: str) -> str:
    """What an alert compares: an alert's expression says nothing while nothing is wrong."""
    compared = re.fullmatch(r"(.*) (==|>) [\d.]+", expression)
    assert compared, f"{expression} does not compare a quantity with a number"
    return compared[1]


def panels() -> dict[str, list[str]]:
    """The dashboard's expressions by title, for all nodes."""
    board = json.loads((MONITORING / "dashboard.json").read_text())
    return {
        panel["title"]: [
            target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".+") for target in panel["targets"]
        ]
        for panel in board["panels"]
    }


def expressions() -> list[str]:
    return [quantity(alert["expr"]) for alert in alerts()] + [e for of in panels().values() for e in of]


def command(directory: Path, targets: Iterable[str]) -> list[str]:
    """Prometheus with the alerts, scraping every second."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(MONITORING / "alerts.yaml")],
        "scrape_configs": [{"job_name": "flock", "static_configs": [{"targets": list(targets)}]}],
    }
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
    where = (f"--config.file={directory / 'prometheus.yaml'}", f"--storage.tsdb.path={directory / 'data'}")
    return ["prometheus", *where, f"--web.listen-address={ADDRESS}"]


def answers(run: Callable[..., str], asked: Iterable[str]) -> dict[str, list[Any]]:
    """`run` runs a command where Prometheus is, and returns what it prints: "" while nobody answers."""
    said = run(sys.executable, "-c", QUERY, ADDRESS, json.dumps(sorted(asked)))
    found: dict[str, list[Any]] = json.loads(said) if said else {}
    return found
