"""`flockctl doctor`, answered: what the agent knows of its node, and what can be seen around it, judged."""

import asyncio
from datetime import datetime
from typing import Any

import msgspec

from flock.agent.parts import Parts
from flock.core.doctor import diagnose
from flock.core.fabrichealth import lan_complaints
from flock.core.kinds import PODS
from flock.core.model import Allocation
from flock.edge.around import Surroundings, gather


async def examine(parts: Parts) -> list[dict[str, Any]]:
    """KernelRefused or OSError where the kernel cannot be looked at; what else cannot be seen is not told of."""
    settings, config = parts.settings, parts.configured.config
    peers = config.bgp.peers if config and config.bgp else ()
    around = Surroundings(
        aggregates=tuple(parts.aggregates.networks),
        run_dir=settings.run_dir,
        state_dir=settings.state_dir,
        conf_dir=settings.cni_conf_dir,
        bin_dir=settings.cni_bin_dir,
        sysctl=settings.sysctl_dir,
        peers=tuple(peer.address.packed for peer in peers if peer.zone is None),
        pods_mtu=parts.preparing.mtu,
        bird_problem=parts.routing.bird_problem if parts.configured.speaks else "",
        fabric=tuple(parts.routing.fabric_complaints()),
        lan=tuple(lan_complaints(config, parts.preparing.facts)) if config else (),
        unclaimed=_apart(_manifests(parts), _containers(parts)),
        unnamed=_apart(_containers(parts), _manifests(parts)),
        newest_record=max(map(_since, parts.attached.entries), default=0.0),
    )
    return [msgspec.to_builtins(finding) for finding in diagnose(await asyncio.to_thread(gather, around))]


def _manifests(parts: Parts) -> set[str]:
    """Pods of this host in a directory; those of an API server get their containers by themselves.  One that comes with
    addresses is somebody's peer."""
    pods = () if parts.feeder.requires_pods else parts.cache.table(PODS).values()
    return {
        "/".join(pod.key)
        for pod in pods
        if pod.spec.node_name in ("", parts.configured.node) and not pod.spec.host_network and not pod.status.pod_ips
    }


def _containers(parts: Parts) -> set[str]:
    return {f"{entry.namespace}/{entry.pod_name}" for entry in parts.attached.entries}


def _apart(some: set[str], others: set[str]) -> tuple[str, ...]:
    return tuple(sorted(some - others))


def _since(allocation: Allocation) -> float:
    try:
        return datetime.fromisoformat(allocation.allocated_at).timestamp()
    except ValueError:
        return 0.0
