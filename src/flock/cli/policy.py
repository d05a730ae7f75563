"""`flockctl policy`: why a packet passes or not, what applies to a pod, what was dropped."""

import argparse
import time
from datetime import datetime
from typing import Any

import msgspec

from flock.cli.tables import print_json
from flock.edge.asking import ask

NO = 1
FOLLOW_EVERY = 0.3  # how late a drop may show with -f


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
    after = 0
    try:
        while True:
            for drop in ask(arguments.run_dir, "policy.drops", str(after)):
                after = drop["number"]
                if arguments.output == "json":
                    print(msgspec.json.encode(drop).decode(), flush=True)
                else:
                    print(_line(drop), flush=True)
            if not arguments.follow:
                return 0
            time.sleep(FOLLOW_EVERY)
    except KeyboardInterrupt:
        return 0


def _line(drop: dict[str, Any]) -> str:
    at = datetime.fromtimestamp(drop["at"]).strftime("%H:%M:%S.%f")[:-3]
    what = drop["protocol"] + (f"/{drop['port']}" if drop["port"] else "")
    why = f" isolated by {drop['policies']}" if drop["policies"] else ""
    return f"{at} {drop['what']:<8} {drop['pod']}: {drop['source']} -> {drop['destination']} {what}{why}"
