"""`flockctl check`: this node's records and kernel; `check lab` and `check cluster`: does the network work?

Exit codes: 0 all works (skipped is fine), 1 something does not, 2 wrong usage, 3 the agent cannot be reached.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flock.cli.answers import NO, Shown, print_json, show
from flock.core.checkup import shown, works
from flock.core.tables import table
from flock.edge.examining import Ground, examine
from flock.lab.checkup import LabGround
from flock.lab.fabric import Lab, locate

MOST_NODES = 5  # unless told otherwise: a minute is enough for them, and two find most


def add_arguments(check: argparse.ArgumentParser) -> None:
    check.add_argument("--repair", action="store_true", help="mend what can be mended, then list what is left")
    grounds = check.add_subparsers(metavar="[lab | cluster]", title="does the network work")
    lab = grounds.add_parser("lab", help="of a lab", description="Does a lab's network work?")
    lab.add_argument("name", nargs="?", metavar="NAME", help="the lab's name (default: lab)")
    lab.set_defaults(run=_lab)
    cluster = grounds.add_parser("cluster", help="of a cluster", description="Does a cluster's network work?")
    cluster.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: as kubectl finds it")
    cluster.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig (default: its current one)")
    cluster.set_defaults(run=_cluster)
    for ground in (lab, cluster):
        # no default: what was said before the word stays
        said = argparse.SUPPRESS
        ground.add_argument("-o", "--output", choices=["table", "json"], default=said, help="how to print it")
        ground.add_argument(
            "--nodes",
            default=str(MOST_NODES),
            help=f"how many nodes at most, or which: n1,n2 (default: {MOST_NODES})",
            metavar="N|NAMES",
        )


def chosen(nodes: Sequence[str], wanted: str) -> list[str]:
    """Of these nodes, as many as wanted, spread over all of them, or those that are named."""
    if not wanted.isdigit():
        return [name for name in wanted.split(",") if name]
    count = min(max(1, int(wanted)), len(nodes))
    return [nodes[len(nodes) * index // count] for index in range(count)]


def _lab(arguments: argparse.Namespace) -> int:
    lab = Lab(locate(name=arguments.name, directory=None, field="lab NAME")[1])
    nodes = chosen([e.name for e in lab.plan.role("node")], arguments.nodes)
    return _examine(LabGround(lab, nodes=nodes), arguments)


def _cluster(arguments: argparse.Namespace) -> int:
    from flock.cli.check_cluster import cluster_ground

    choose = partial(chosen, wanted=arguments.nodes)
    ground = cluster_ground(kubeconfig=arguments.kubeconfig, context=arguments.context, chosen=choose)
    return _examine(ground, arguments)


def _examine(ground: Ground, arguments: argparse.Namespace) -> int:
    try:
        rows = examine(ground)
    except KeyboardInterrupt:
        print("flockctl: interrupted; what the check made is removed", file=sys.stderr)
        return NO
    if arguments.output == "json":
        print_json(rows)
    else:
        print(shown(rows))
    return 0 if works(rows) else NO


def differences(arguments: argparse.Namespace) -> int:
    return show(arguments, _differences, "repair" if arguments.repair else "check")


def _differences(rows: list[dict[str, Any]]) -> Shown:
    cells = [(r["type"], r["pod"] or "-", r["container"][:13] or "-", r["item"]) for r in rows]
    text = table(("TYPE", "POD", "CONTAINER", "ITEM"), cells) if rows else "store, kernel and manifests agree"
    return text, not rows
