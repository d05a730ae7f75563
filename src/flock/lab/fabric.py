"""A lab as a whole: bring it up, take it down, and find the parts.

`up` first claims the lab's directory and name, then builds; `down` ends every process in the lab's namespaces, deletes
them and the directory, and needs nothing but the name for it.  So whatever happens in between, `down` cleans up.
"""

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from flock.core.errors import FieldError
from flock.core.nodeconfig import NodeConfig, PasswordSource
from flock.core.routerconf import bird as bird_router
from flock.core.routerconf.speaker import Speaker
from flock.lab import manifests, mirror, namespaces, router_bird
from flock.lab.errors import LabError
from flock.lab.home import Home, Record, write, write_object
from flock.lab.hosts import Host, end, wait_until
from flock.lab.names import DEFAULT, lab_name
from flock.lab.nodeconfigs import generated, plan_for
from flock.lab.nodes import AGENT, Node, cni_program
from flock.lab.pods import Pods
from flock.lab.routers import DAEMONS
from flock.lab.speaker import Kind, Router
from flock.lab.topology import CLIENT, SWITCH, Element, Topology, plan

SESSION_PATIENCE = 20.0  # seconds for all BGP sessions; they need about two


class Lab:
    """A lab that is up."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.record = home.record()
        self.name = self.record.name
        self.plan = self.record.plan
        self.pods = Pods(home, lab=self.name, node=self.node)

    # --- up and down ----------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        *,
        name: str = DEFAULT,
        directory: Path | None = None,
        nodes: int = 3,
        routers: int = 2,
        router: Kind = "bird",
        topology: Topology | None = None,
        nodeconfigs: Path | None = None,
        plain: bool = False,
    ) -> "Lab":
        """Build and start everything.  Given NodeConfigs without a topology, they decide it.

        Raises LabError as soon as something does not start; what was built stays for a look, until `down`.
        """
        _check(name, router)
        given = manifests.node_configs(nodeconfigs) if nodeconfigs else ()
        if nodeconfigs and not given:
            raise FieldError("--nodeconfigs", f"there is no NodeConfig in {nodeconfigs}")
        drawn = plan_for(given) if given and topology is None else None
        chosen = drawn or plan(nodes=nodes, routers=routers, topology=topology or "leaf-spine")
        home = Home(directory) if directory else Home.named(name)
        home.create(
            Record(
                name=name,
                topology="nodeconfigs" if drawn else topology or "leaf-spine",
                router=router,
                plain=plain,
                cni="" if plain else cni_program(),
                plan=chosen,
            )
        )
        lab = cls(home)
        lab._write_manifests(nodeconfigs)
        lab._write_jobs()
        namespaces.build(name, chosen, forwarding_nodes=plain)
        for each in lab.routers():
            each.start()
        for node in lab.nodes():
            node.start()
        return lab

    def _write_manifests(self, nodeconfigs: Path | None) -> None:
        for node in self.plan.role("node"):
            self.cordon(node.name, False)
        if nodeconfigs:
            manifests.copy(nodeconfigs, self.home.manifests)
        else:
            daemon = DAEMONS[self.record.router]
            for config in generated(self.plan, bfd=daemon.knows_bfd, extended=daemon.knows_extended):
                write_object(self.home.manifests, f"nodeconfig-{config['metadata']['name']}", config)

    def _write_jobs(self) -> None:
        """Tell every router, the client and every plain node what to do."""
        bfd = DAEMONS[self.record.router].knows_bfd
        configs = self.node_configs()
        passwords = _passwords(configs)
        jobs = [*mirror.routers(self.plan, configs, passwords=passwords, bfd=bfd), mirror.client(self.plan, bfd=bfd)]
        for job in jobs:
            self._write_job(job)
        for config in configs if self.record.plain else ():
            bird = self.home.of(config.name) / "bird"
            bird.mkdir(parents=True)
            text = bird_router.render(mirror.plain_node(self.plan, config, passwords=passwords))
            write(bird / "bird.conf", text.encode(), mode=0o600)

    def _write_job(self, job: Speaker) -> None:
        self.home.of(job.name).mkdir(exist_ok=True)
        write(self.home.of(job.name) / "speaker.json", msgspec.json.encode(job), mode=0o600)

    def wait(self) -> None:
        """Until every agent serves and every session a router expects is up; raises LabError naming what is not."""
        for node in self.nodes():
            node.wait_ready()
        if not wait_until(lambda: not self.missing_sessions(), timeout=SESSION_PATIENCE, pause=0.1):
            raise LabError(
                f"the lab is up, but not all sessions are: {', '.join(self.missing_sessions())}",
                details="`flockctl lab status` shows the state; logs are in the elements' directories",
            )

    def missing_sessions(self) -> tuple[str, ...]:
        return tuple(
            f"{router.speaker.name}-{session.peer} ({session.state})"
            for router in self.routers()
            for session in router.sessions()
            if not session.settled
        )

    @staticmethod
    def down(*, name: str, home: Home) -> None:
        """Leave nothing behind; a lab that is not there is fine.  LabError if others put something in its place."""
        spaces = namespaces.present(name)
        for by in (signal.SIGTERM, signal.SIGKILL):  # twice: someone may have started something meanwhile
            end([pid for space in spaces for pid in namespaces.pids(space)], by=by)
        for space in spaces:
            namespaces.delete(space)
        home.remove()

    # --- parts ----------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """A node, router, the client, the switch, or a pod by its name."""
        if name == SWITCH or any(e.name == name for e in self.plan.elements):
            return Host(name, netns=namespaces.netns(self.name, name), home=self.home.of(name))
        pod = self.pods.find(name)
        if pod is None:
            known = [*(e.name for e in self.plan.elements), SWITCH, *(p.key for p in self.pods)]
            raise LabError(f"nothing here is called {name}", details=f"there are: {', '.join(known)}")
        return self.pods.host(pod)

    def node(self, name: str) -> Node:
        names = [e.name for e in self.plan.role("node")]
        if name not in names:
            raise LabError(f"no node {name}", details=f"there are: {', '.join(names)}")
        return Node(self.host(name), manifests=self.home.manifests, cni=self.record.cni, plain=self.record.plain)

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.node(e.name) for e in self.plan.role("node"))

    def router(self, name: str) -> Router:
        """A router, or the client, which is a BIRD whatever the routers are."""
        job = msgspec.json.decode((self.home.of(name) / "speaker.json").read_bytes(), type=Speaker)
        return DAEMONS["bird" if name == CLIENT else self.record.router].router(self.host(name), job)

    def routers(self) -> tuple[Router, ...]:
        """The routers and, last, the client."""
        return tuple(self.router(e.name) for e in (*self.plan.role("router"), *self.plan.role("client")))

    def node_configs(self) -> tuple[NodeConfig, ...]:
        """Those in the manifest directory for nodes of this lab, checked."""
        names = {e.name for e in self.plan.role("node")}
        return tuple(c for c in manifests.node_configs(self.home.manifests) if c.name in names)

    def owner(self, address: str) -> str:
        """The element that has the address, else the address itself."""
        return next((e.name for e in self.plan.elements if address in _all_addresses(e)), address)

    # --- what can be done to it -----------------------------------------------------------------------------

    def cut(self, link: str) -> None:
        namespaces.cut(self.name, self.plan.link(link))

    def mend(self, link: str) -> None:
        namespaces.mend(self.name, self.plan.link(link))

    def kill(self, name: str) -> None:
        """A node dies: first nothing is heard of it any more, then its processes end without a word."""
        node = self.node(name)
        for link in self._links(name):
            self.cut(link)
        for role in (AGENT, router_bird.ROLE):
            node.host.stop(role, by=signal.SIGKILL)

    def revive(self, name: str) -> None:
        """The node is back, as after a reset of the agent and BIRD with its state on disk."""
        for link in self._links(name):
            self.mend(link)
        self.node(name).start()

    def _links(self, name: str) -> tuple[str, ...]:
        return tuple(port.link for port in self.plan.ports if port.owner == name)

    def cordon(self, name: str, cordoned: bool) -> None:
        """Write the Node object as `kubectl cordon` leaves it."""
        element = next(e for e in self.plan.role("node") if e.name == name)
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"unschedulable": cordoned},
            "status": {"addresses": [{"type": "InternalIP", "address": a} for a in element.addresses]},
        }
        write_object(self.home.manifests, f"00-node-{name}", node)


def locate(*, name: str | None, directory: Path | None, field: str = "--name") -> tuple[str, Home]:
    """Which lab is meant: by directory, by name, or the default one.  The directory's own record has the last word.
    FieldError if the name, which was given as `field`, is none; LabError to others than root."""
    chosen = lab_name(DEFAULT if name is None else name, field=field)
    _need_root()
    home = Home(directory) if directory else Home.named(chosen)
    if home.exists():
        return home.record().name, home
    if name is None and directory is not None:
        raise LabError(f"no lab in {directory}")
    return chosen, home


def _removal(name: str) -> str:
    """Of this lab and no other: without a name it would be the default one."""
    return "`flockctl lab down" + (f" --name {name}`" if name != DEFAULT else "`")


def _check(name: str, router: Kind) -> None:
    _need_root()
    lab_name(name)
    if namespaces.present(name):
        raise FieldError("--name", f"lab {name} is there already, whole or in part; {_removal(name)} removes it")
    for kind in dict.fromkeys(("bird", router)):
        daemon = DAEMONS[kind]
        if shutil.which(daemon.program) is None:
            raise LabError(f"{daemon.program} is missing", details=f"on Debian it comes with package {daemon.package}")


def _need_root() -> None:
    if os.geteuid() != 0:
        raise LabError("a lab needs root: it is made of network namespaces")


def _passwords(configs: Sequence[NodeConfig]) -> Mapping[PasswordSource, str]:
    """Those that are in files here; a Secret is nothing a lab has."""
    found: dict[PasswordSource, str] = {}
    for source in {s for config in configs for s in config.password_sources}:
        if isinstance(source, str):
            with suppress(OSError):
                found[source] = Path(source).read_text().strip()
    return found


def _all_addresses(element: Element) -> set[str]:
    return {*element.addresses, *(p.link_local for p in element.ports)}
