"""`flockctl view`: the page, served here, about this node, a lab, a cluster or a bundle."""

import argparse
import asyncio
import contextlib
import tempfile
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flock.view.source import Source

HTTP = "127.0.0.1:9465"  # where an agent serves its pages unless told otherwise


def add_command(commands: Any) -> None:
    text = "serve a page on loopback that shows sessions, addresses, pods, policies and what happens"
    view = commands.add_parser("view", help=text, description=text[0].upper() + text[1:] + ".")
    view.add_argument(
        "--port", type=int, default=0, metavar="N", help="where to listen on 127.0.0.1 (default: a free port)"
    )
    view.add_argument("--open", action="store_true", help="open it in a browser")
    view.add_argument("--http", default=HTTP, metavar="HOST:PORT", help=f"of this node's agent (default: {HTTP})")
    what = view.add_mutually_exclusive_group()
    what.add_argument("--lab", metavar="NAME", help="all nodes and routers of a lab on this machine")
    what.add_argument("--kubeconfig", type=Path, metavar="FILE", help="all nodes of a cluster, by way of kubectl")
    what.add_argument("bundle", nargs="?", type=Path, metavar="BUNDLE.tar.gz", help="what `flockctl bundle` wrote")
    view.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig; alone, of kubectl's own")
    view.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from flock.view.showing import show  # takes a moment to load, which other commands need not wait for

    with contextlib.ExitStack() as until_the_end:

        def ready(address: str) -> None:
            print(address, flush=True)
            if arguments.open:
                _open(address, until_the_end)

        asyncio.run(show(_source(arguments), port=arguments.port, ready=ready))
    return 0


def _open(address: str, until_the_end: contextlib.ExitStack) -> None:
    """By way of a file that only we may read: everybody may read a browser's command line, and the key with it.  In a
    thread, for a browser of the terminal comes back when it is left."""
    page = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="flock-view-"))) / "leads-there.html"
    page.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0;url={address}"><a href="{address}">flock</a>'
    )
    threading.Thread(target=webbrowser.open, args=[page.as_uri()], daemon=True).start()


def _source(arguments: argparse.Namespace) -> "Source":
    if arguments.lab is not None:
        from flock.lab.fabric import locate
        from flock.view.lab import LabSource

        return LabSource(locate(name=arguments.lab, directory=None, field="--lab")[1])
    if arguments.bundle:
        from flock.view.bundle import BundleSource

        return BundleSource(arguments.bundle)
    if arguments.kubeconfig or arguments.context:
        from flock.view.cluster import ClusterSource

        return ClusterSource(kubeconfig=arguments.kubeconfig, context=arguments.context)
    from flock.view.node import NodeSource

    return NodeSource(run_dir=arguments.run_dir, http=arguments.http)
