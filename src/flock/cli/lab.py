"""`flockctl lab`: a fabric of real agents, BIRDs and routers on this machine.

Every verb is a function from parsed arguments to an exit code.  0: done; 1: it could not be done, with the reason on
stderr; 2: wrong usage.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from flock.cli.answers import seconds
from flock.core.errors import FieldError
from flock.edge.manifestfile import SUFFIXES
from flock.lab import manifests
from flock.lab.fabric import Lab, locate
from flock.lab.mirror import strays
from flock.lab.names import DEFAULT
from flock.lab.reach import ask, ping
from flock.lab.routers import DAEMONS
from flock.lab.status import observe
from flock.lab.topology import TOPOLOGIES
from flock.lab.traffic import Exchange, summary
from flock.lab.view import draw

Arguments = argparse.Namespace
Verb = Callable[[Arguments], int]


def add_commands(subparsers: Any) -> None:
    """Add `lab` and its verbs; each sets `run`, a function of the parsed arguments that returns the exit code."""
    lab = subparsers.add_parser("lab", help="a BGP fabric on this machine", description=__doc__.splitlines()[0])
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--name", help="the lab's name; several can coexist (default: lab)")
    where.add_argument("--dir", type=Path, help="the lab's directory (default: /run/flock-lab/NAME)")
    verbs = lab.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, run: Verb, text: str, *, of: Any = verbs) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = of.add_parser(name, help=text, description=text, parents=[where])
        parser.set_defaults(run=run)
        return parser

    _add_up(verb("up", _up, "build and start nodes, routers and a client"))
    verb("down", _down, "end every process and remove all traces; fine when there is no lab")
    status = verb("status", _status, "draw the fabric: sessions, pods, anycast")
    status.add_argument("-o", "--output", choices=("text", "json"), default="text")

    pod_verbs = verbs.add_parser("pod", help="pods").add_subparsers(required=True, metavar="VERB")
    _add_pod(verb("add", _pod_add, "attach a pod by the CNI executable", of=pod_verbs))

    def change(name: str, apply: Callable[[Lab, str], object], text: str, *, of: str, help: str | None = None) -> None:
        """A verb that changes one thing of the lab, and has nothing to print."""
        parser = verb(name, lambda arguments: _changed(_lab(arguments), arguments.what, apply), text)
        parser.add_argument("what", metavar=of, help=help)

    pod, link = "[NAMESPACE/]NAME", "such as n1-r1, n1-lan or r1-client"
    change("ready", lambda lab, name: lab.pods.set_ready(name, True), "make a pod ready", of=pod)
    change("unready", lambda lab, name: lab.pods.set_ready(name, False), "make a pod not ready", of=pod)
    deleted = "delete a pod as the kubelet does: terminating, then DEL"
    change("delete", lambda lab, name: lab.pods.delete(name), deleted, of=pod)
    change("cut", Lab.cut, "let nothing pass a link, unnoticed by its ends", of="LINK", help=link)
    change("mend", Lab.mend, "let a link pass again", of="LINK", help=link)
    change("kill", Lab.kill, "silence a node, then end its processes", of="NODE")
    change("revive", Lab.revive, "bring a killed node back", of="NODE")
    change("cordon", lambda lab, node: lab.cordon(node, True), "mark a node as cordoned", of="NODE")
    change("uncordon", lambda lab, node: lab.cordon(node, False), "take the mark away", of="NODE")
    apply = verb("apply", _apply, "copy manifests into the lab's cluster: policies, namespaces, NodeConfigs")
    apply.add_argument("files", nargs="+", type=Path, metavar="FILE")
    reach = verb("ping", _ping, "ping from A to B, over both families")
    reach.add_argument("source", metavar="A", help="a node, router, client or pod")
    reach.add_argument("target", metavar="B", help="the same, or an address")
    question = verb("ask", _ask, "ask an address at a steady pace and count who answers")
    question.add_argument("source", metavar="A", help="who asks: a node, router, client or pod")
    question.add_argument("target", metavar="B", help="an address, or who is asked")
    question.add_argument("--every", type=seconds, default=0.01, metavar="SECONDS")
    question.add_argument("--for", dest="duration", type=seconds, default=5, metavar="SECONDS")
    question.add_argument(
        "--flows", type=_count, default=0, help="keep this many flows; 0: a new one for each question"
    )
    inside = verb("exec", _exec, "run a command inside a node, router, client, switch or pod")
    inside.add_argument("where", metavar="WHERE")
    inside.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def _add_up(up: argparse.ArgumentParser) -> None:
    up.epilog = (
        "When something does not start, what was built stays for a look, until `lab down` with its --name or --dir."
    )
    up.add_argument("--nodes", type=int, default=3)
    up.add_argument("--routers", type=int, default=2)
    up.add_argument("--router", choices=[*DAEMONS], default="bird", help="the routers' daemon (default: bird)")
    up.add_argument("--topology", choices=TOPOLOGIES, help="default: leaf-spine; with --nodeconfigs: what they need")
    up.add_argument("--nodeconfigs", type=Path, metavar="DIR", help="your own NodeConfigs and other manifests")
    up.add_argument("--plain", action="store_true", help="no agents: BIRD alone, fed by `ip route … proto static`")
    up.add_argument("--no-wait", action="store_true", help="return before agents and sessions are up")


def _add_pod(add: argparse.ArgumentParser) -> None:
    add.add_argument("pod", metavar="NAME")
    add.add_argument("--node", required=True)
    add.add_argument("--namespace", default="default")
    add.add_argument("--annotation", action="append", default=[], type=_pair, metavar="KEY=VALUE")
    add.add_argument("--label", action="append", default=[], type=_pair, metavar="KEY=VALUE")
    add.add_argument("--ready", action="store_true", help="ready from the start")
    add.add_argument("--serve", action="store_true", help="answer `lab ask` with the pod's name")


def _up(arguments: Arguments) -> int:
    lab = Lab.up(
        name=DEFAULT if arguments.name is None else arguments.name,
        directory=arguments.dir,
        nodes=arguments.nodes,
        routers=arguments.routers,
        router=arguments.router,
        topology=arguments.topology,
        nodeconfigs=arguments.nodeconfigs,
        plain=arguments.plain,
    )
    for stray in strays(lab.plan, lab.node_configs()):
        print(f"note: {stray} is no router of this lab", file=sys.stderr)
    if not arguments.no_wait:
        lab.wait()
    print(draw(observe(lab)), end="")
    return 0


def _down(arguments: Arguments) -> int:
    name, home = locate(name=arguments.name, directory=arguments.dir)
    Lab.down(name=name, home=home)
    return 0


def _status(arguments: Arguments) -> int:
    status = observe(_lab(arguments))
    text = msgspec.json.format(msgspec.json.encode(status)).decode() + "\n"
    print(text if arguments.output == "json" else draw(status), end="")
    return 0


def _pod_add(arguments: Arguments) -> int:
    pods = _lab(arguments).pods
    pod = pods.add(
        arguments.pod,
        node=arguments.node,
        namespace=arguments.namespace,
        annotations=dict(arguments.annotation),
        labels=dict(arguments.label),
        ready=arguments.ready,
    )
    if arguments.serve:
        pods.serve(pod.key)
    print(f"{pod.key} on {pod.node}: {' '.join(pod.addresses)}")
    return 0


def _changed(lab: Lab, what: str, apply: Callable[[Lab, str], object]) -> int:
    apply(lab, what)
    return 0


def _apply(arguments: Arguments) -> int:
    lab = _lab(arguments)
    for path in arguments.files:
        if path.suffix not in SUFFIXES:
            raise FieldError("FILE", f"{path}: a manifest's name ends in {', '.join(SUFFIXES)}")
        for note in manifests.problems(path):
            print(f"note: {path}: {note}", file=sys.stderr)
    for path in arguments.files:
        shutil.copyfile(path, lab.home.manifests / path.name)
    return 0


def _ping(arguments: Arguments) -> int:
    answers = ping(_lab(arguments), arguments.source, arguments.target)
    for answer in answers:
        result = f"{answer.milliseconds} ms" if answer.reached else "no answer"
        print(f"{arguments.source} → {answer.address}  {result}")
    return 0 if all(answer.reached for answer in answers) else 1


def _ask(arguments: Arguments) -> int:
    options = {"every": arguments.every, "duration": arguments.duration, "flows": arguments.flows}
    heard: list[Exchange] = []
    with suppress(KeyboardInterrupt):  # what was heard until then is told
        heard.extend(ask(_lab(arguments), arguments.source, arguments.target, **options))
    seen = summary(heard)
    for replica, answers in seen.by_replica.items():
        print(f"{replica:20} {answers:6} {answers / seen.asked:6.1%}")
    print(f"{'lost':20} {seen.lost:6} {seen.lost / max(seen.asked, 1):6.1%}   over {seen.lossy:.3f} s")
    return 0 if seen.by_replica else 1


def _exec(arguments: Arguments) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    argv = _lab(arguments).host(arguments.where).inside(command or [os.environ.get("SHELL", "/bin/sh")])
    os.execvp(argv[0], argv)


def _lab(arguments: Arguments) -> Lab:
    return Lab(locate(name=arguments.name, directory=arguments.dir)[1])


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of flows")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
