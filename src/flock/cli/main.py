"""flockctl: asks the agent on this node, and says what it answers in words a human or a script can use.

Exit codes: 0 fine, 1 the answer is "no" (not ready, differences found, denied, refused), 2 wrong usage, 3 the agent
cannot be reached.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from flock import __version__
from flock.cli import config, happened, lab, policy
from flock.cli.tables import print_json, table
from flock.edge.rpc_client import AgentError, ask

NO = 1


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    try:
        sys.exit(arguments.run(arguments))
    except AgentError as error:
        print(f"flockctl: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(0)


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

    command("status", _status, "can this node take pods, and if not, why")
    command("pods", _pods, "the pods attached on this node and their addresses")
    check = command("check", _check, "compare store, kernel and manifests; list leaks and losses")
    check.add_argument("--repair", action="store_true", help="mend what can be mended, then list what is left")
    command("bgp", _bgp, "the sessions of this node's BIRD with its routers")
    command("anycast", _anycast, "who announces which address here, and why not")
    config.add_arguments(
        command("config", config.run, "the configuration in force on a node, and where each value came from")
    )
    happened.add_arguments(command("happened", happened.run, "what happened on this node since its agent started"))
    command("drain", _drain, "withdraw all anycast of this node until undrain; sessions and pods stay")
    command("undrain", _undrain, "announce this node's anycast again")
    policy.add_commands(commands)
    lab.add_commands(commands)
    return parser


def _status(arguments: argparse.Namespace) -> int:
    status = ask(arguments.run_dir, "status")
    if arguments.output == "json":
        print_json(status)
    else:
        print(f"node      {status['node']} (flock {status['version']})")
        print(f"ready     {'yes' if status['ready'] else 'no'}")
        for label, key in (("not ready", "not_ready"), ("degraded", "degraded")):
            for text in status[key]:
                print(f"{label:<10}{text}")
        for problem in status.get("problems", ()):
            print(f"problem   {problem['where']}: {problem['message']}")
        if "pods" in status:
            counts = ", ".join(f"{count} {state}" for state, count in status["pods"].items())
            print(f"pods      {counts}")
            print(f"mtu       {status['mtu']}")
            rows = [(p["cidr"], p["used"], p["cooling"], _size(p["size"])) for p in status["pools"]]
            print(table(("POOL", "USED", "COOLING", "SIZE"), rows))
            for session in status["sessions"]:
                print(f"session   {session['peer']} {session['state']}")
            if status["withdrawn"]:
                print(f"anycast   withdrawn: {status['withdrawn']}")
            elif status["announced"]:
                print(f"anycast   {', '.join(status['announced'])}")
    return 0 if status["ready"] else NO


def _pods(arguments: argparse.Namespace) -> int:
    pods = ask(arguments.run_dir, "pods")
    if arguments.output == "json":
        print_json(pods)
        return 0
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
    head = ("POD", "CONTAINER", "STATE", "READY", "IPV6", "IPV4", "EXTRA", "ANYCAST", "INTERFACE")
    print(table(head, rows))
    for p in pods:
        for key in p["pending_annotations"]:
            print(f"pending: {p['namespace']}/{p['pod']}: {key} was changed after the pod started; it needs a new pod")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    rows = ask(arguments.run_dir, "repair" if arguments.repair else "check")
    if arguments.output == "json":
        print_json(rows)
    elif rows:
        cells = [(r["type"], r["pod"] or "-", r["container"][:13] or "-", r["item"]) for r in rows]
        print(table(("TYPE", "POD", "CONTAINER", "ITEM"), cells))
    else:
        print("store, kernel and manifests agree")
    return NO if rows else 0


def _bgp(arguments: argparse.Namespace) -> int:
    peers = ask(arguments.run_dir, "bgp")
    if arguments.output == "json":
        print_json(peers)
    else:
        rows = [
            (
                p["peer"],
                p["address"] or "-",
                p["asn"] or "-",
                p["state"],
                p.get("since", "-"),
                p.get("imported", "-"),
                p.get("exported", "-"),
                p.get("last_error") or "-",
            )
            for p in peers
        ]
        print(table(("PEER", "ADDRESS", "ASN", "STATE", "SINCE", "RECEIVED", "SENT", "LAST ERROR"), rows))
    return 0 if all(p["up"] for p in peers) else NO


def _anycast(arguments: argparse.Namespace, op: str = "anycast") -> int:
    claims = ask(arguments.run_dir, op)
    if arguments.output == "json":
        print_json(claims)
        return 0
    rows = [
        (c["address"], c["kind"], c["pod"], c["interface"], "yes" if c["announced"] else "no", c["reason"] or "-")
        for c in claims
    ]
    print(table(("ADDRESS", "KIND", "POD", "INTERFACE", "ANNOUNCED", "WHY NOT"), rows))
    return 0


def _drain(arguments: argparse.Namespace) -> int:
    return _anycast(arguments, "drain")


def _undrain(arguments: argparse.Namespace) -> int:
    return _anycast(arguments, "undrain")


def _size(size: int) -> str:
    return str(size) if size < 1 << 20 else f"2^{size.bit_length()}"
