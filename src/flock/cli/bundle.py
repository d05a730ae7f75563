"""`flockctl bundle`: one archive for a bug report, of this node, of a lab or of nodes of a cluster.

Exit codes: 0 written, 1 it could not be, 2 wrong usage.  A part that cannot be had is a note inside.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_bytes
from typing import Any

import msgspec

from flock import __version__
from flock.core.errors import FlockError

HTTP = "127.0.0.1:9465"
PATIENCE = 90.0  # seconds for a node: ten for each part that does not answer
AT_ONCE = 8  # nodes
SELF = [sys.executable, "-c", "from flock.cli.begin import main; main()"]

Files = dict[str, bytes]


def add_command(commands: Any) -> None:
    text = (
        "one archive for a bug report: status, what happened, BIRD, routes, links, rules, logs, objects; no passwords"
    )
    bundle = commands.add_parser("bundle", help=text, description=text[0].upper() + text[1:] + ".")
    bundle.add_argument("nodes", nargs="*", metavar="NODE", help="of a lab or cluster; default: this one, or all")
    bundle.add_argument("-o", "--output", metavar="FILE", help="default: flock-bundle-TIME.tar.gz here; -: stdout")
    bundle.add_argument("--anonymous", action="store_true", help="other names and addresses, the same in all of it")
    bundle.add_argument("--lab", metavar="NAME", help="of a lab on this machine")
    bundle.add_argument("--kubeconfig", type=Path, metavar="FILE", help="of a cluster (default: as kubectl finds it)")
    bundle.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig (default: its current one)")
    http = os.environ.get("FLOCK_HTTP") or HTTP
    bundle.add_argument("--http", default=http, help=f"of this node's agent (default: {HTTP})", metavar="HOST:PORT")
    bird_dir = Path(os.environ.get("FLOCK_BIRD_DIR", "/etc/flock/bird"))
    bundle.add_argument("--bird-dir", type=Path, default=bird_dir, metavar="DIR", help="of this node's bird.conf")
    bundle.add_argument("--manifests", type=Path, metavar="DIR", help="objects of this node's agent, if it reads files")
    bundle.add_argument("--log", type=Path, action="append", metavar="FILE", help="logs (default: the journal's)")
    bundle.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from flock.cli import bundling  # takes a moment to load, which other commands need not wait for

    in_cluster = arguments.nodes or arguments.kubeconfig or arguments.context
    gather = _lab if arguments.lab is not None else _cluster if in_cluster else _this_node
    origin, nodes, files = gather(arguments)
    about = bundling.About(version=__version__, at=time.time(), origin=origin, anonymous=False, nodes=tuple(nodes))
    told: bundling.Files = files
    if arguments.anonymous:
        about, told = bundling.anonymous(about, files, key=token_bytes(32), also=filter(None, [arguments.lab]))
    packed = bundling.pack(about, told)
    if arguments.output == "-":
        sys.stdout.buffer.write(packed)
        return 0
    path = Path(arguments.output or time.strftime("flock-bundle-%Y%m%d-%H%M%S.tar.gz", time.gmtime(about.at)))
    try:
        bundling.write(path, packed)
    except OSError as error:
        raise FlockError(f"{path}: {error.strerror}") from None
    print(f"{path}: {len(about.nodes)} node{'s' * (len(about.nodes) != 1)}, {len(packed) // 1024} KiB")
    return 0


def _this_node(arguments: argparse.Namespace) -> tuple[str, list[str], Files]:
    from flock.cli.nodeparts import Where, gathered

    where = Where(
        run_dir=arguments.run_dir,
        bird_dir=arguments.bird_dir,
        http=arguments.http,
        logs=tuple(arguments.log or ()),
        manifests=arguments.manifests,
    )
    node, parts = gathered(where)
    return "node", [node], {f"{node}/{name}": content for name, content in parts.items()}


def _lab(arguments: argparse.Namespace) -> tuple[str, list[str], Files]:
    """Every node packs its own, in its namespace; then the routers."""
    from flock.cli.nodeparts import encoded
    from flock.core.redacting import Redactor
    from flock.lab.fabric import Lab, locate
    from flock.lab.status import observe_routers

    lab = Lab(locate(name=arguments.lab, directory=None, field="--lab")[1])
    nodes = [lab.node(name) for name in arguments.nodes] or lab.nodes()
    commands = {
        node.name: node.host.inside(
            [*SELF, "--run-dir", str(node.run_dir), "bundle", "-o", "-", "--bird-dir", str(node.bird_dir)]
            + ["--manifests", str(lab.home.manifests)]
            + [f"--log={node.host.home / log}" for log in ("agent.log", "bird.log")]
        )
        for node in nodes
    }
    files = packed_by(commands)
    for router in observe_routers(lab):
        files[f"routers/{router.name}.json"] = encoded(Redactor(), msgspec.to_builtins(router))
    return "lab", [node.name for node in nodes], files


def _cluster(arguments: argparse.Namespace) -> tuple[str, list[str], Files]:
    """Every agent packs its node's, in its container, and takes what it knows as secret out of its logs too."""
    from flock.cli.bundle_cluster import Evidence

    evidence = Evidence(kubeconfig=arguments.kubeconfig, context=arguments.context, nodes=arguments.nodes)
    files = packed_by(evidence.commands, stdin=evidence.logs)
    for node, log in evidence.logs.items():
        if f"{node}/log.txt" not in files:
            files[f"{node}/log.txt"] = evidence.redacted(log)
    return "cluster", list(evidence.commands), files | evidence.objects()


def packed_by(commands: Mapping[str, Sequence[str]], *, stdin: Mapping[str, bytes] | None = None) -> Files:
    """The files of all nodes, each packed by its command; one that fails is a note."""
    from flock.cli.bundling import unpack
    from flock.core.redacting import Redactor

    def one(node: str) -> Files:
        try:
            given = (stdin or {}).get(node, b"")
            done = subprocess.run(commands[node], input=given, capture_output=True, timeout=PATIENCE, check=False)
            if done.returncode:
                raise FlockError(done.stderr.decode(errors="replace").strip())
            about, files = unpack(done.stdout)
            inner = about.nodes[0] if about.nodes else ""
            return {f"{node}/{name.removeprefix(f'{inner}/')}": content for name, content in files.items()}
        except (FlockError, OSError, subprocess.TimeoutExpired) as error:
            said = error.msg if isinstance(error, FlockError) else str(error)
            note = Redactor().text(f"nothing could be gathered: {said}\n")
            return {f"{node}/notes.txt": note.encode(errors="replace")}

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return {name: content for files in threads.map(one, commands) for name, content in files.items()}
