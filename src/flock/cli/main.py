"""flockctl: asks the agent on this node, and says what it answers in words a human or a script can use.

Exit codes: 0 fine, 1 the answer is "no" (not ready, differences found, denied, refused), 2 wrong usage, 3 the agent
cannot be reached.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flock import __version__
from flock.cli import bundle, check, config, doctor, lab, policy, router_config, view
from flock.cli.answers import NO, Shown, show, show_happened
from flock.cli.speaking import speaking
from flock.core.errors import FieldError, FlockError
from flock.core.tables import table
from flock.edge.rpc_client import AgentError

WRONG_USAGE = 2
OF_USAGE = ("--", "FILE", "lab NAME")  # how fields begin that somebody got wrong on the command line
INTERRUPTED = 130  # by Ctrl-C, as shells say it


def main(argv: Sequence[str] | None = None) -> None:
    with speaking("flockctl"):
        _main(argv)


def _main(argv: Sequence[str] | None) -> None:
    try:
        arguments = _parser().parse_args(argv)
        sys.exit(arguments.run(arguments))
    except AgentError as error:
        print(f"flockctl: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except FlockError as error:
        print(f"flockctl: {error.msg}", *filter(None, [error.details]), sep="\n", file=sys.stderr)
        of_usage = isinstance(error, FieldError) and error.field.startswith(OF_USAGE)
        sys.exit(WRONG_USAGE if of_usage else NO)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flockctl",
        description="Look at and mend the network of this node's pods.",
        epilog="Exit codes: 0 fine, 1 not ready or differences found, 2 wrong usage, 3 agent not reached.",
    )
    parser.add_argument("--version", action="version", version=f"flockctl {__version__}")
    parser.add_argument(
        "--run-dir",
        type=Path,
        default=Path(os.environ.get("FLOCK_RUN_DIR", "/run/flock")),
        help="where the agent's socket is (default: $FLOCK_RUN_DIR or /run/flock)",
        metavar="DIR",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.add_argument("-o", "--output", choices=["table", "json"], default="table", help="how to print it")
        sub.set_defaults(run=run)
        return sub

    def question(op: str, words: Callable[[Any], Shown], text: str) -> argparse.ArgumentParser:
        """A command whose answer is printed as it is, or in words."""
        return command(op, partial(show, words=words, op=op), text)

    question("status", _status, "can this node take pods, and if not, why")
    question("pods", _pods, "the pods attached on this node and their addresses")
    check.add_arguments(
        command("check", check.differences, "compare store, kernel and manifests; or try a lab's or cluster's network")
    )
    command("doctor", doctor.run, "what around flock on this host will hurt, why, and the cure")
    question("bgp", _bgp, "the sessions of this node's BIRD with its routers")
    question("anycast", _anycast, "who announces which address here, and why not")
    question("services", _services, "which addresses of Services this node announces, and why not")
    config.add_arguments(
        command("config", config.run, "the configuration in force on a node, and where each value came from")
    )
    router_config.add_arguments(
        command("router-config", router_config.run, "what the routers have to be told, from the NodeConfigs")
    )
    happened = command(
        "happened", partial(show_happened, op="happened"), "what happened on this node since its agent started"
    )
    happened.add_argument("-f", "--follow", action="store_true", help="go on showing it as it comes")
    question("drain", _anycast, "withdraw all anycast and Services of this node until undrain; sessions and pods stay")
    question("undrain", _anycast, "announce this node's anycast and Services again")
    policy.add_commands(commands)
    view.add_command(commands)
    bundle.add_command(commands)
    lab.add_commands(commands)
    return parser


def _status(status: dict[str, Any]) -> Shown:
    lines = [
        f"node      {status['node']} (flock {status['version']})",
        f"ready     {'yes' if status['ready'] else 'no'}",
    ]
    for label, key in (("not ready", "not_ready"), ("degraded", "degraded")):
        lines += [f"{label:<10}{text}" for text in status[key]]
    lines += [f"problem   {problem['where']}: {problem['message']}" for problem in status.get("problems", ())]
    if "pods" in status:
        lines.append(f"pods      {', '.join(f'{count} {state}' for state, count in status['pods'].items())}")
        lines.append(f"mtu       {status['mtu']}")
        rows = [(p["cidr"], p["used"], p["cooling"], _size(p["size"])) for p in status["pools"]]
        lines.append(table(("POOL", "USED", "COOLING", "SIZE"), rows))
        lines += [f"session   {session['peer']} {session['state']}" for session in status["sessions"]]
        if status["withdrawn"]:
            lines.append(f"anycast   withdrawn: {status['withdrawn']}")
        elif status["announced"]:
            lines.append(f"anycast   {', '.join(status['announced'])}")
        if status["services"]:
            lines.append(f"services  {', '.join(status['services'])}")
    return "\n".join(lines), status["ready"]


def _pods(pods: list[dict[str, Any]]) -> Shown:
    rows = [
        (
            f"{p['namespace']}/{p['pod']}" if p["pod"] else "-",
            p["container"][:13],
            p["state"],
            {True: "yes", False: "no", None: "?"}[p["ready"]],
            p["ip6"] or "-",
            p["ip4"] or "-",
            ",".join(a for a in p["addresses"] if a not in (p["ip6"], p["ip4"])) or "-",
            ",".join(p["anycast"]) or "-",
            p["interface"],
        )
        for p in pods
    ]
    pending = (
        f"\npending: {p['namespace']}/{p['pod']}: {key} was changed after the pod started; it needs a new pod"
        for p in pods
        for key in p["pending_annotations"]
    )
    head = ("POD", "CONTAINER", "STATE", "READY", "IPV6", "IPV4", "EXTRA", "ANYCAST", "INTERFACE")
    return table(head, rows) + "".join(pending), True


def _bgp(peers: list[dict[str, Any]]) -> Shown:
    keys = ("peer", "address", "asn", "state", "since", "imported", "exported", "last_error")
    told = (p | {"asn": p["asn"] or "-"} for p in peers)  # 0: of none
    rows = [["-" if p.get(key, "") == "" else p[key] for key in keys] for p in told]
    head = ("PEER", "ADDRESS", "ASN", "STATE", "SINCE", "RECEIVED", "SENT", "LAST ERROR")
    return table(head, rows), all(p["up"] for p in peers)


def _anycast(claims: list[dict[str, Any]]) -> Shown:
    rows = [
        (c["address"], c["kind"], c["pod"], c["interface"], "yes" if c["announced"] else "no", c["reason"] or "-")
        for c in claims
    ]
    return table(("ADDRESS", "KIND", "POD", "INTERFACE", "ANNOUNCED", "WHY NOT"), rows), True


def _services(offers: list[dict[str, Any]]) -> Shown:
    rows = [
        (
            o["service"],
            o["address"] or "-",
            o["policy"],
            "yes" if o["announced"] else "no",
            o["reason"] or "-",
            ", ".join(o["shared"]) or "-",
        )
        for o in offers
    ]
    return table(("SERVICE", "ADDRESS", "POLICY", "ANNOUNCED", "WHY NOT", "ALSO OF"), rows), True


def _size(size: int) -> str:
    return str(size) if size < 1 << 20 else f"2^{size.bit_length()}"
