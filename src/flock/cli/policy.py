"""`flockctl policy`: why a packet passes or not, what applies to a pod, what was dropped, what a file would drop."""

import argparse
from typing import Any

from flock.cli import trying
from flock.cli.answers import NO, print_json, show_happened
from flock.edge.rpc_client import ask


def add_commands(commands: Any) -> None:
    policy = commands.add_parser("policy", help="policies: why, show, drops, try", description=__doc__)
    verbs = policy.add_subparsers(title="verbs", required=True, metavar="VERB")

    why = verbs.add_parser("why", help="does this packet pass, and which policies decide")
    why.add_argument("source", metavar="SRC", help="namespace/pod, or an address")
    why.add_argument("destination", metavar="DST", help="namespace/pod, or an address")
    why.add_argument("port", metavar="PORT/PROTO", help="80/TCP, 53/UDP, icmp")
    why.set_defaults(run=lambda given: _show(given, "policy.why", given.source, given.destination, given.port))
    show = verbs.add_parser("show", help="the policies that apply to a pod of this node")
    show.add_argument("pod", metavar="NAMESPACE/POD")
    show.set_defaults(run=lambda given: _show(given, "policy.show", given.pod))
    drops = verbs.add_parser("drops", help="packets dropped lately on this node")
    drops.add_argument("-f", "--follow", action="store_true", help="go on showing them as they come")
    drops.add_argument("--audit", action="store_true", help="connections that audited policies would have cut off")
    drops.set_defaults(run=lambda given: show_happened(given, "policy.audit" if given.audit else "policy.drops"))
    attempt = verbs.add_parser(
        "try", help="tell what policies of a file would cut off, and drop nothing", description=trying.__doc__
    )
    trying.add_arguments(attempt)
    for verb in (why, show, drops, attempt):
        verb.add_argument("-o", "--output", choices=["text", "json"], default="text", help="how to print it")


def _show(arguments: argparse.Namespace, op: str, *parameters: str) -> int:
    """Exit code 1 if a packet is denied, by whomever."""
    answer = ask(arguments.run_dir, op, *parameters)
    if arguments.output == "json":
        print_json(answer["answers"])
    else:
        print(answer["text"])
    denied = op == "policy.why" and any(row["verdict"] == "deny" or row["others"] for row in answer["answers"])
    return NO if denied else 0
