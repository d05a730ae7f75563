"""The CNI verbs: a runtime's request in, a CNI result or error out."""

import logging
import re
from typing import Any

from flock.agent.checking import Checker
from flock.agent.desk import PATIENCE
from flock.agent.parts import Parts
from flock.agent.podinfo import Asked
from flock.core.cni import IDENTIFIER, CniArgs, Request, parse_cni_args, parse_net_conf, render_result
from flock.core.errors import Code, FieldError, FlockError
from flock.core.happenings import AddFailed
from flock.edge.deferred_dels import DeferredDels
from flock.edge.rpc import Handler

log = logging.getLogger("cni")


IFNAME = re.compile(r"(?!\.{1,2}$)[^\s/:\0]+")


class Verbs:
    def __init__(self, parts: Parts, deferred: DeferredDels) -> None:
        self._parts = parts
        self._checker = Checker(parts)
        self._deferred = deferred

    def operations(self) -> dict[str, Handler]:
        """All verbs of a container; STATUS is answered before there are any (`serving`)."""
        return {"ADD": self.add, "DEL": self.delete, "CHECK": self.check, "GC": self.gc}

    async def add(self, request: Request) -> dict[str, Any]:
        conf, args = parse_net_conf(request.stdin_data), parse_cni_args(request.args)
        _require(request, "netns", "ifname")
        if not self._parts.feeder.requires_pods:
            args = args.of_network(conf.namespace, container_id=request.container_id)
        elif not (args.namespace and args.name):
            raise FieldError(
                "CNI_ARGS", "K8S_POD_NAMESPACE and K8S_POD_NAME are missing", code=Code.INVALID_ENVIRONMENT
            )
        self._parts.cni_paths.note(request.path)
        if conf.port_mappings:
            told = "port mappings are ignored, for no portmap is chained pod=%s/%s CNI_PATH=%s"
            log.warning(told, args.namespace, args.name, request.path)
        await self._parts.readiness.until_ready(PATIENCE)
        self._deferred.forget(request.container_id, request.ifname)
        asked = Asked(
            container_id=request.container_id,
            netns=request.netns,
            ifname=request.ifname,
            network=conf.name,
            args=args,
            annotations=conf.pod_annotations,
            fixed=conf.fixed(args),
        )
        try:
            allocation = await self._parts.attachments.attach(asked)
        except FlockError as error:
            self._parts.happened.note(_failed(request, args, error))
            raise
        return render_result(allocation, version=conf.cni_version, netns=request.netns, dns=conf.dns)

    async def delete(self, request: Request) -> None:
        """Needs neither namespace nor arguments nor a usable configuration: the store knows the container."""
        _require(request)
        await self._parts.attachments.detach(request.container_id, ifname=request.ifname)

    async def check(self, request: Request) -> None:
        conf = parse_net_conf(request.stdin_data)
        _require(request, "netns", "ifname")
        known = self._parts.attached.of(request.container_id)
        if known is None or known.state != "committed":
            raise FlockError(f"container {request.container_id} is not attached", code=Code.UNKNOWN_CONTAINER)
        differences = await self._checker.check(known, request, conf.prev_result)
        if differences:
            raise FlockError(
                f"container {request.container_id} differs from what was set up: {'; '.join(differences)}",
                details="the agent repairs what it can by itself; `flockctl check --repair` does so at once",
                code=Code.DIFFERENCES,
            )

    async def gc(self, request: Request) -> None:
        """Free what is not listed.  What is being worked on right now, or belongs to another network, is spared."""
        conf = parse_net_conf(request.stdin_data)
        if conf.valid_attachments is None:
            raise FieldError("cni.dev/valid-attachments", "is missing, so nothing was freed")
        valid = {(a.container_id, a.ifname) for a in conf.valid_attachments}
        failures: dict[str, FlockError | OSError] = {}
        for allocation in self._parts.attached.entries:
            container_id = allocation.container_id
            foreign = bool(allocation.network) and allocation.network != conf.name
            wanted = (container_id, allocation.ifname) in valid
            if wanted or foreign or self._parts.attached.is_busy(container_id):
                continue
            log.info("collecting container=%s pod=%s", container_id, allocation.pod)
            try:
                await self._parts.attachments.detach(container_id)
            except (FlockError, OSError) as error:
                failures[container_id] = error
        if failures:
            problem = "; ".join(f"{container_id}: {error}" for container_id, error in failures.items())
            passes = all(isinstance(x, OSError) or x.code is Code.TRY_AGAIN for x in failures.values())
            code = Code.TRY_AGAIN if passes else Code.INTERNAL
            raise FlockError(f"GC could not free {len(failures)} attachments: {problem}", code=code)


def _failed(request: Request, args: CniArgs, error: FlockError) -> AddFailed:
    return AddFailed(
        pod=f"{args.namespace}/{args.name}" if args.name else "",
        uid=args.uid,
        container=request.container_id,
        code=int(error.code),
        problem=f"{error.msg} ({error.details})" if error.details else error.msg,
    )


def _require(request: Request, *names: str) -> None:
    """The executable checks this too; others may speak to the socket."""
    variables = {"container_id": "CNI_CONTAINERID", "netns": "CNI_NETNS", "ifname": "CNI_IFNAME"}
    missing = [variables[name] for name in ("container_id", *names) if not getattr(request, name)]
    if missing:
        raise FieldError(", ".join(missing), "missing", code=Code.INVALID_ENVIRONMENT)
    if not IDENTIFIER.fullmatch(request.container_id):
        raise FieldError(
            "CNI_CONTAINERID", f"no container id: {request.container_id[:80]!r}", code=Code.INVALID_ENVIRONMENT
        )
    if request.ifname and (not IFNAME.fullmatch(request.ifname) or len(request.ifname.encode()) > 15):
        raise FieldError(
            "CNI_IFNAME", f"no name for an interface: {request.ifname[:80]!r}", code=Code.INVALID_ENVIRONMENT
        )
