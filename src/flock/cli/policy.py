"""`flockctl policy`: why a packet passes or not, what applies to a pod, what was dropped."""

import argparse
from typing import Any

import msgspec

from flock.cli.tables import clock, print_json
from flock.core.happenings import Dropped
from flock.edge.rpc_client import ask

NO = 1


def add_commands(commands: Any) -> None:
    policy = commands.add_parser("policy", help="NetworkPolicy: why, show, drops", description=__doc__)
    verbs = policy.add_subparsers(title="verbs", required=True, metavar="VERB")

    why = verbs.add_parser("why", help="does this packet pass, and which policies decide")
    why.add_argument("source", metavar="SRC", help="namespace/pod, or an address")
    why.add_argument("destination", metavar="DST", help="namespace/pod, or an address")
    why.add_argument("port", metavar="PORT/PROTO", help="80/TCP, 53/UDP, icmp")
    why.set_defaults(run=_why)
    show = verbs.add_parser("show", help="the policies that apply to a pod of this node")
    show.add_argument("pod", metavar="NAMESPACE/POD")
    show.set_defaults(run=_show)
    drops = verbs.add_parser("drops", help="packets dropped lately on this node")
    drops.add_argument("-f", "--follow", action="store_true", help="go on showing them as they come")
    drops.set_defaults(run=_drops)
    for verb in (why, show, drops):
        verb.add_argument("-o", "--output", choices=["text", "json"], default="text", help="how to print it")


def _why(arguments: argparse.Namespace) -> int:
    """Exit code 1 if the packet is denied."""
    answer = ask(arguments.run_dir, "policy.why", arguments.source, arguments.destination, arguments.port)
    _print(answer, arguments.output)
    return NO if any(explanation["verdict"] == "deny" for explanation in answer["answers"]) else 0


def _show(arguments: argparse.Namespace) -> int:
    _print(ask(arguments.run_dir, "policy.show", arguments.pod), arguments.output)
    return 0


def _print(answer: dict[str, Any], output: str) -> None:
    if output == "json":
        print_json(answer["answers"])
    else:
        print(answer["text"])


def _drops(arguments: argparse.Namespace) -> int:
    after, wait = 0, list[str]()
    try:
        while True:
            for drop in ask(arguments.run_dir, "policy.drops", str(after), *wait):
                if wait and arguments.output == "text" and (missed := drop["number"] - after - 1):
                    print(f"({missed} more, which are not shown)")
                after = drop["number"]
                if arguments.output == "json":
                    print(msgspec.json.encode(drop).decode(), flush=True)
                else:
                    print(clock(drop["at"]), msgspec.convert(drop, Dropped), flush=True)
            if not arguments.follow:
                return 0
            wait = ["wait"]
    except KeyboardInterrupt:
        return 0
