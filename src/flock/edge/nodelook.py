"""A look at a node before it is asked through its pods: by its agent, and where that is away by the kernel.

`python -m flock.edge.nodelook` looks at the node it runs on and prints a `Look`, in an agent's container too.
"""

import argparse
import os
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from flock.core.checkup import Look, rules_trouble, session_trouble
from flock.edge.rpc_client import AgentError, ask

PATIENCE = 5.0  # seconds for an agent's answer; one that is stopped gives none
BIRD_PATIENCE = 12.0  # longer than an agent waits for a BIRD that stands still
KUBE_PROXY = ("127.0.0.1", 10256)  # where it says how it is


def look_at(run_dir: Path, *, tables: Callable[[], str]) -> Look:
    """`tables`: what `nft list tables` prints there; whatever it raises is said."""
    try:
        rules = rules_trouble(tables().splitlines())
    except Exception as error:
        rules = f"nft list tables: {error}"
    try:
        status = ask(run_dir, "status", timeout=PATIENCE)
        spec = ask(run_dir, "config", timeout=PATIENCE)["spec"] or {}
    except AgentError as error:
        return Look(away=str(error), sessions="cannot tell: the agent does not answer", rules=rules)
    try:
        sessions = session_trouble(ask(run_dir, "bgp", timeout=BIRD_PATIENCE))
    except AgentError as error:
        sessions = str(error)
    return Look(status=status, sessions=sessions, rules=rules, spec=spec)


def _tables() -> str:
    done = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return done.stdout


def _chained(directory: str) -> tuple[str, ...]:
    """What the runtime's list has beside us."""
    with suppress(OSError, msgspec.MsgspecError, LookupError, TypeError):
        plugins = msgspec.json.decode((Path(directory) / "01-flock.conflist").read_bytes())["plugins"]
        return tuple(plugin["type"] for plugin in plugins)
    return ()


def _proxied() -> bool:
    with suppress(OSError), socket.create_connection(KUBE_PROXY, timeout=1):
        return True
    with suppress(OSError, subprocess.SubprocessError):
        return "kube-proxy" in _tables()
    return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flock.edge.nodelook", description=__doc__)
    parser.add_argument("--run-dir", type=Path, default=Path(os.environ.get("FLOCK_RUN_DIR", "/run/flock")))
    look = look_at(parser.parse_args().run_dir, tables=_tables)
    chained = _chained(os.environ.get("FLOCK_CNI_CONF_DIR", "/etc/cni/net.d"))
    print(msgspec.json.encode(msgspec.structs.replace(look, chained=chained, proxied=_proxied())).decode())


if __name__ == "__main__":
    main()
