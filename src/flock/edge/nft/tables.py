"""Taking flock's tables away.  Whatever is called `flock`, or `flock-` and something, is ours, of any release."""

import json
import re
import subprocess

from flock.core.errors import KernelRefused

OURS = re.compile(r"flock([-_].*)?")
PATIENCE = 60  # seconds; the largest ruleset takes two


def remove_tables() -> list[str]:
    """Their names, all removed in one transaction.  KernelRefused if they cannot be."""
    listed = json.loads(_nft("-j", "list", "tables"))["nftables"]
    tables = [entry["table"] for entry in listed if "table" in entry]
    ours = [f"{table['family']} {table['name']}" for table in tables if OURS.fullmatch(table["name"])]
    if ours:
        _nft("-f", "-", script="".join(f"delete table {name}\n" for name in ours))
    return ours


def _nft(*arguments: str, script: str = "") -> str:
    try:
        done = subprocess.run(["nft", *arguments], input=script, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelRefused(f"cannot run nft: {error}") from None
    if done.returncode:
        raise KernelRefused(f"nft: {done.stderr.strip()}")
    return done.stdout
