"""flockctl router-config: what the routers beside the nodes have to be told, from the NodeConfigs.

They are read where agents read them, from the API server or a directory of manifests; the agent of this node tells
what it has taken up itself.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import msgspec

from flock.cli.answers import print_json
from flock.cli.config import api_lists
from flock.core.configuration import FromNode, Inputs, effective
from flock.core.errors import FieldError
from flock.core.facts import Interface
from flock.core.kinds import CLUSTER_NODES, NODE_CONFIGS, NODES, TEMPLATES
from flock.core.model import Node
from flock.core.nodeconfig import NodeConfig, parse_node_config
from flock.core.nodeconfig.parse import API_VERSION
from flock.core.routerconf import bird, frr, gobgp, openbgpd
from flock.core.routerconf.asked import routers
from flock.core.routerconf.speaker import Speaker
from flock.edge.rpc_client import ask


def _gobgp(speaker: Speaker) -> str:
    return msgspec.json.format(msgspec.json.encode(gobgp.render(speaker)), indent=2).decode() + "\n"


RENDERED: dict[str, Callable[[Speaker], str]] = {
    "bird": bird.render,
    "frr": frr.integrated,
    "openbgpd": openbgpd.render,
    "gobgp": _gobgp,
}

# The daemon's configuration cannot say it.
WITHOUT_BFD = {"openbgpd": "OpenBGPD", "gobgp": "GoBGP"}

_READ = {kind.name for kind in (NODE_CONFIGS, TEMPLATES, NODES, CLUSTER_NODES)}


class _Objects(msgspec.Struct, frozen=True):
    configs: dict[str, dict[str, Any]]
    templates: tuple[dict[str, Any], ...]
    nodes: dict[str, Node]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("daemon", choices=[*RENDERED], help="what the router runs")
    parser.add_argument("nodes", nargs="*", help="these alone (default: all there are)", metavar="NODE")
    parser.add_argument(
        "--router",
        action="append",
        default=[],
        help="only the router with this name or address; several times: one router that has all of them",
        metavar="PEER",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--kubeconfig",
        type=Path,
        help="NodeConfigs of the API server this file names (default: $KUBECONFIG; without, this node's agent)",
        metavar="FILE",
    )
    where.add_argument("--manifests", type=Path, help="NodeConfigs of a directory of manifests", metavar="DIR")


def run(arguments: argparse.Namespace) -> int:
    configs, addresses = _found(arguments)
    speakers = routers(configs, nodes=addresses, together=arguments.router)
    if not speakers:
        whose = ", ".join(c.name for c in configs) or "any node"
        raise FieldError("spec.bgp.peers", f"none in the NodeConfig of {whose}: there is no router to be told anything")
    texts = [RENDERED[arguments.daemon](speaker) for speaker in speakers]
    if arguments.output == "json":
        print_json([{"router": s.name, "asn": s.asn, "config": text} for s, text in zip(speakers, texts, strict=True)])
    else:
        print("\n".join(texts), end="")
    for note in _notes(arguments.daemon, speakers):
        print(f"note: {note}", file=sys.stderr)
    return 0


def _notes(daemon: str, speakers: Iterable[Speaker]) -> Iterable[str]:
    """What the text does not do by itself."""
    speakers = tuple(speakers)
    sessions = [n for speaker in speakers for n in speaker.neighbours]
    if len(speakers) > 1:
        yield f"{len(speakers)} routers one after the other; --router PEER picks one"
    if any(n.password for n in sessions):
        yield "put the passwords where PASSWORD-OF-… stands"
    if any(n.interface for n in sessions):
        yield "put the router's own interfaces where INTERFACE-TO-… stands: a NodeConfig has the node's name of a link"
    if daemon in WITHOUT_BFD and any(n.bfd.enabled for n in sessions):
        yield f"{WITHOUT_BFD[daemon]} knows no BFD: it notices a dead node after holdTime"
    if daemon == "frr" and any(n.bfd.enabled and n.bfd.multiplier < frr.LEAST_MULTIPLIER for n in sessions):
        yield f"FRR's BFD misses {frr.LEAST_MULTIPLIER} packets at least: a multiplier of 1 is the node's alone"
    if daemon == "openbgpd" and not all(n.only_default for n in sessions):
        yield "who imports more than the default route is sent OpenBGPD's table: a default route only if one is in it"
    if daemon == "openbgpd" and any(openbgpd.carried(n) != n.families for n in sessions):
        yield "a session carries the family of its addresses here: the other one needs a peer entry of its own"


def _found(arguments: argparse.Namespace) -> tuple[list[NodeConfig], dict[str, list[Interface]]]:
    kubeconfig = arguments.kubeconfig or os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0]
    if arguments.manifests:
        objects = _from_manifests(arguments.manifests)
    elif kubeconfig:
        objects = asyncio.run(_from_api(Path(kubeconfig)))
    else:
        return _from_agent(arguments.run_dir, arguments.nodes)
    names = arguments.nodes or sorted({*objects.configs, *objects.nodes})
    found = [config for name in names if (config := _put_together(name, objects, named=bool(arguments.nodes)))]
    return found, {name: _addresses(node) for name, node in objects.nodes.items()}


def _put_together(name: str, objects: _Objects, *, named: bool) -> NodeConfig | None:
    given = FromNode.of(objects.nodes.get(name))
    layered = effective(name, Inputs(given=given, templates=objects.templates, own=objects.configs.get(name)))
    if layered is None:
        if named:
            raise FieldError("NODE", f"nothing configures {name}")
        return None
    return parse_node_config(layered.raw)


def _addresses(node: Node) -> list[Interface]:
    """Host names stand among them."""
    found = []
    for address in node.status.addresses or ():
        try:
            found.append(ip_interface(address.address))
        except ValueError:
            continue
    return found


def _from_agent(run_dir: Path, nodes: list[str]) -> tuple[list[NodeConfig], dict[str, list[Interface]]]:
    answer = ask(run_dir, "config")
    here = answer["node"]
    if any(node != here for node in nodes):
        raise FieldError("NODE", f"this is {here}; for others say --kubeconfig or --manifests")
    if answer["spec"] is None:
        raise FieldError("NODE", f"nothing configures {here}")
    raw = {"apiVersion": API_VERSION, "kind": "NodeConfig", "metadata": {"name": here}, "spec": answer["spec"]}
    return [parse_node_config(raw)], {here: [ip_interface(a) for a in answer["addresses"]]}


def _from_manifests(directory: Path) -> _Objects:
    from flock.core.decoding import Unreadable
    from flock.core.manifest import parse_manifest
    from flock.edge.manifestfile import content, is_manifest

    if not directory.is_dir():
        raise FieldError("--manifests", f"{directory} is not a directory")
    found: dict[str, dict[str, Any]] = {}  # kind -> name -> object; of two the later file's
    for path in sorted(path for path in directory.iterdir() if is_manifest(path.name)):
        try:
            manifest = parse_manifest(content(path) or b"", node=None)
        except Unreadable as error:
            raise FieldError(str(path), str(error)) from None
        for key, problem in manifest.refused.items():
            if key.kind in _READ:
                raise FieldError(f"{path}: {key}", problem)
        for key, value in manifest.objects.items():
            found.setdefault(key.kind, {})[key.name] = value
    nodes = {**found.get(CLUSTER_NODES.name, {}), **found.get(NODES.name, {})}
    return _Objects(found.get(NODE_CONFIGS.name, {}), tuple(found.get(TEMPLATES.name, {}).values()), nodes)


async def _from_api(kubeconfig: Path) -> _Objects:
    listed = api_lists(kubeconfig)
    configs = {raw["metadata"]["name"]: raw for raw in await listed(NODE_CONFIGS.path)}
    templates = tuple(await listed(TEMPLATES.path))
    nodes = [msgspec.convert(raw, Node) for raw in await listed(NODES.path)]
    return _Objects(configs, templates, {node.metadata.name: node for node in nodes})
