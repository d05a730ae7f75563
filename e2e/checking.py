"""`flockctl check cluster` as an operator calls it, from where kubectl is."""

import json
import sys
from pathlib import Path
from typing import Any

from cluster import Cluster

FLOCKCTL = Path(sys.executable).with_name("flockctl")
PATIENCE = 120.0  # seconds; a check takes less than a minute where nobody else is busy

Rows = list[dict[str, Any]]


def flockctl(cluster: Cluster, *words: str) -> list[str | Path]:
    plane = cluster.plane
    return [
        "env",
        f"PATH={plane.bin}:/usr/sbin:/usr/bin:/sbin:/bin",
        FLOCKCTL,
        *words,
        f"--kubeconfig={plane.kubeconfig}",
    ]


def checked(cluster: Cluster) -> tuple[int, Rows]:
    done = cluster.plane.place.attempt(*flockctl(cluster, "check", "cluster", "-o", "json"), timeout=PATIENCE)
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def red(rows: Rows) -> dict[tuple[str, str], str]:
    return {(r["check"], r["source"].partition("/")[0]): r["said"] for r in rows if r["result"] == "fail"}


def passed(rows: Rows) -> set[str]:
    return {row["check"] for row in rows if row["result"] == "pass"}
