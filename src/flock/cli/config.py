"""flockctl config: what is in force on a node, and where each value came from.

The agent on this node tells what it has taken up.  For any other node the objects are read where agents read them,
from the API server or a directory of manifests, and put together in the same way.  What that needs is imported where it
is used: every other command would pay for it.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from flock.cli.answers import NO, print_json
from flock.core.configuration import FromNode, Inputs, effective
from flock.core.errors import FlockError
from flock.core.kinds import NODE_CONFIGS, NODES, TEMPLATES
from flock.core.model import Node
from flock.core.nodeconfig import parse_node_config
from flock.core.tables import table
from flock.edge.rpc_client import AgentError, Refused, ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", nargs="?", default="", help="this one, unless you say so", metavar="NODE")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--kubeconfig",
        type=Path,
        help="ask the API server, as this file says, instead of the agent (default for other nodes: "
        "$KUBECONFIG, or the service account of the pod this runs in)",
        metavar="FILE",
    )
    where.add_argument("--manifests", type=Path, help="read a directory of manifests instead", metavar="DIR")


def run(arguments: argparse.Namespace) -> int:
    config = _found(arguments)
    if arguments.output == "json":
        print_json(config)
    elif config["spec"] is None:
        print(f"no configuration for node {config['node']}")
    else:
        rows = [(path, _value(config["spec"], path), origin) for path, origin in sorted(config["origins"].items())]
        print(table(("FIELD", "VALUE", "FROM"), rows))
    if config["problem"]:
        print(f"refused: {config['problem']}", file=sys.stderr)
    return 0 if config["spec"] is not None and not config["problem"] else NO


def _value(spec: Any, path: str) -> str:
    for key in path.split(".")[1:]:
        spec = spec[key]
    return msgspec.json.encode(spec).decode()


def _found(arguments: argparse.Namespace) -> dict[str, Any]:
    asked = arguments.kubeconfig or arguments.manifests
    if asked and not arguments.node:
        raise Refused("say which NODE: only the agent knows by itself where it is")
    if arguments.manifests:
        return asyncio.run(_from_manifests(arguments.manifests, arguments.node))
    if arguments.kubeconfig:
        return asyncio.run(_from_api(arguments.kubeconfig, arguments.node))
    if not arguments.node:
        return _taken_up(arguments.run_dir)
    return _of_node(arguments.run_dir, arguments.node)


def _taken_up(run_dir: Path) -> dict[str, Any]:
    """The same as from afar: the agent says more of itself."""
    answer = ask(run_dir, "config")
    return {key: answer[key] for key in ("node", "problem", "spec", "origins")}


def _of_node(run_dir: Path, node: str) -> dict[str, Any]:
    """From the agent if it is that node's, else from the API server if we know one."""
    from flock.edge.kube.access import SERVICE_ACCOUNT

    away: AgentError | None = None
    try:
        here = ask(run_dir, "status")["node"]
        if here == node:
            return _taken_up(run_dir)
    except AgentError as error:
        away, here = error, ""
    given = os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0]
    if given:
        return asyncio.run(_from_api(Path(given), node))
    if SERVICE_ACCOUNT.exists():
        return asyncio.run(_from_api(None, node))
    raise away or Refused(f"NODE: this is {here}; for {node} say --kubeconfig or --manifests")


async def _from_manifests(directory: Path, node: str) -> dict[str, Any]:
    from flock.agent.configured import inputs_of
    from flock.edge.cache import Cache
    from flock.edge.manifests import ManifestFeeder

    cache = Cache(node=node)
    feeder = ManifestFeeder(cache, directory)
    await feeder.start()
    try:
        if not cache.synced:
            raise Refused("; ".join(f"{p.where}: {p.message}" for p in cache.problems))
        found = _put_together(node, inputs_of(cache))
        problems = (f"{problem.where}: {problem.message}" for problem in cache.problems)
        return found | {"problem": "; ".join((*problems, *filter(None, [found["problem"]])))}
    finally:
        await feeder.close()


def api_lists(kubeconfig: Path | None) -> Callable[[str], Awaitable[list[dict[str, Any]]]]:
    """Asks the API server for what is at a path; without a kubeconfig as the pod this runs in."""
    from flock.edge.kube.access import from_kubeconfig, in_cluster
    from flock.edge.kube.client import KubeClient

    server = os.environ.get("FLOCK_APISERVER", "")
    client = KubeClient(from_kubeconfig(kubeconfig, apiserver=server) if kubeconfig else in_cluster(apiserver=server))

    async def listed(path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = msgspec.json.decode(await client.get(path))["items"]
        return items

    return listed


async def _from_api(kubeconfig: Path | None, node: str) -> dict[str, Any]:
    listed = api_lists(kubeconfig)
    named = f"?fieldSelector=metadata.name%3D{quote(node)}"
    nodes = await listed(NODES.path + named)
    configs = await listed(NODE_CONFIGS.path + named)
    templates = await listed(TEMPLATES.path)
    if not nodes and not configs:
        raise Refused(f"NODE: there is neither a Node nor a NodeConfig named {node}")
    given = FromNode.of(msgspec.convert(nodes[0], Node) if nodes else None)
    return _put_together(node, Inputs(given=given, templates=tuple(templates), own=configs[0] if configs else None))


def _put_together(node: str, inputs: Inputs) -> dict[str, Any]:
    found: dict[str, Any] = {"node": node, "problem": "", "spec": None, "origins": {}}
    try:
        layered = effective(node, inputs)
        if layered is not None:
            found |= {"spec": layered.raw["spec"], "origins": layered.origins}
            parse_node_config(layered.raw)
    except FlockError as error:
        found["problem"] = error.msg
    return found
