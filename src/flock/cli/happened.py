"""`flockctl happened`: what happened on this node since its agent started, dropped packets aside."""

import argparse

import msgspec

from flock.cli.tables import clock
from flock.edge.rpc_client import ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="go on showing it as it comes")


def run(arguments: argparse.Namespace) -> int:
    cursor, wait = "", list[str]()
    try:
        while True:
            answer = ask(arguments.run_dir, "happened", cursor, *wait)
            cursor = answer["cursor"]
            if answer["missed"] and arguments.output != "json":
                print(f"({answer['missed']} more, which are not kept)")
            for row in answer["happened"]:
                shown = msgspec.json.encode(row).decode() if arguments.output == "json" else _line(row)
                print(shown, flush=True)
            if not arguments.follow:
                return 0
            wait = ["wait"]
    except KeyboardInterrupt:
        return 0


def _line(row: dict[str, str | float]) -> str:
    return f"{clock(float(row['at']))} {row['said']}"
