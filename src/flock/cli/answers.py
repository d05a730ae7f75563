"""Answers of the agent as kubectl prints them: plain text for people, JSON for scripts."""

import argparse
import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from flock.edge.rpc_client import ask

NO = 1  # the exit code of an answer that is "no"

# An answer in words, and whether it is as one wishes.
Shown = tuple[str, bool]


def seconds(text: str) -> float:
    """The type of an argument: a while that has an end."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def show(arguments: argparse.Namespace, words: Callable[[Any], Shown], op: str, *parameters: str) -> int:
    """Ask for `op`, and print what is answered; the exit code."""
    answer = ask(arguments.run_dir, op, *parameters)
    text, good = words(answer)
    if arguments.output == "json":
        print_json(answer)
    else:
        print(text)
    return 0 if good else NO


def show_happened(arguments: argparse.Namespace, op: str) -> int:
    """What happened until now, line by line; with `--follow` also what happens then, until Ctrl-C."""
    cursor, wait = "", list[str]()
    try:
        while True:
            answer = ask(arguments.run_dir, op, cursor, *wait)
            cursor = answer["cursor"]
            if answer["missed"] and arguments.output != "json":
                print(f"({answer['missed']} more, which are not kept)")
            for row in answer["happened"]:
                as_json = arguments.output == "json"
                print(
                    msgspec.json.encode(row).decode() if as_json else f"{_clock(row['at'])} {row['said']}", flush=True
                )
            if not arguments.follow:
                return 0
            wait = ["wait"]
    except KeyboardInterrupt:
        return 0


def _clock(at: float) -> str:
    """Today's time, to the millisecond."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S.%f")[:-3]
