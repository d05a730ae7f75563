"""What the agent tells Prometheus at /metrics: every counter and gauge is a row here, read when somebody asks.

No label grows with the number of pods: verbs, outcomes, pools, peers, kinds of repair.  Only the verbs' durations are
collected as they happen; all other numbers are kept by whoever they are about.
"""

import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import msgspec

from flock import __version__
from flock.agent.parts import Parts
from flock.core.happenings import Repaired, RulesMadeAnew
from flock.core.prometheus import Histogram, Metric, Samples
from flock.edge.cache import Watch
from flock.edge.kernel.compare import Kind
from flock.edge.supervising import Supervisor

RECENT = 200  # calls of a verb whose durations are known one by one


class Metrics:
    def __init__(self, parts: Parts, supervisor: Supervisor) -> None:
        self._verbs = Histogram("flock_cni_seconds", "Duration of CNI calls.")
        self._calls = Counter({"ADD": 0, "DEL": 0})
        self._recent: dict[str, deque[float]] = {verb: deque(maxlen=RECENT) for verb in self._calls}
        self._others = _rows(parts, supervisor)

    def count(self, verb: str, outcome: str, seconds: float) -> None:
        """A call of a CNI verb, however it ended."""
        self._verbs.observe(seconds, verb=verb, outcome=outcome)
        if verb in self._recent:
            self._calls[verb] += 1
            self._recent[verb].append(seconds)

    def latencies(self) -> dict[str, Any]:
        """Of ADD and DEL: how many there were, and how long the recent ones took."""
        return {verb: {"count": self._calls[verb], **_percentiles(recent)} for verb, recent in self._recent.items()}

    def render(self) -> str:
        metrics: tuple[Histogram | Metric, ...] = (self._verbs, *self._others)
        return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _percentiles(seconds: Iterable[float]) -> dict[str, float | None]:
    found = sorted(seconds)
    return {f"p{percent}": found[len(found) * percent // 100] if found else None for percent in (50, 95)}


def _rows(parts: Parts, supervisor: Supervisor) -> tuple[Metric, ...]:
    cache, healer, routing = parts.cache, parts.healer, parts.routing
    announcer, policies, neighbours = parts.announcer, parts.policies, parts.neighbours

    def pools(what: str) -> Samples:
        return [
            ({"cidr": use.cidr}, getattr(use, what)) for use in parts.ipam.use(parts.aggregates.networks, time.time())
        ]

    def allocations() -> Samples:
        states = Counter(a.state for a in parts.attached.entries)
        return [({"state": state}, states[state]) for state in ("committed", "pending")]

    def repairs() -> Samples:
        counted = dict.fromkeys(Kind, 0) | parts.happened.counts(Repaired)  # a first one is a rise
        return [({"kind": kind}, count) for kind, count in counted.items()]

    def sessions() -> Samples:
        return [({"peer": str(row["peer"])}, float(bool(row["up"]))) for row in routing.last_seen]

    def harm() -> Samples:
        return [({"by": by}, float(bool(said))) for by, said in msgspec.to_builtins(neighbours.harm).items()]

    def dropped() -> Samples:
        counted = msgspec.to_builtins(policies.counted) if policies.counted else {}
        return [({"what": what}, float(number)) for what, number in counted.items() if what != "audited"]

    def watches() -> list[tuple[str, list[Watch]]]:
        """By kind: one may be followed in many extents."""
        found: dict[str, list[Watch]] = {}
        for watch in cache.watches:
            found.setdefault(watch.kind, []).append(watch)
        return list(found.items())

    # fmt: off
    return (
        Metric("flock_info", "gauge", "1, with what is running where.",
               lambda: [({"node": parts.configured.node, "version": __version__}, 1.0)]),
        Metric("flock_ready", "gauge", "1 if ADD can be served.", lambda: parts.readiness.report().ready),
        Metric("flock_allocations", "gauge", "Allocations by state.", allocations),
        Metric("flock_dead_allocations", "gauge", "Allocations whose pod is gone.", lambda: len(healer.dead)),
        Metric("flock_unrecorded_links", "gauge", "Links of pods not on record.", lambda: len(healer.unrecorded)),
        Metric("flock_pool_size", "gauge", "Addresses of a pool.", lambda: pools("size")),
        Metric("flock_pool_used", "gauge", "Addresses in use.", lambda: pools("used")),
        Metric("flock_pool_cooling", "gauge", "Addresses at rest.", lambda: pools("cooling")),
        Metric("flock_store_flushes_total", "counter", "Durable writes.", lambda: parts.store.flushes),
        Metric("flock_heal_passes_total", "counter", "Looks at the kernel.", lambda: healer.runs),
        Metric("flock_repairs_total", "counter", "Repairs of the kernel by kind.", repairs),
        Metric("flock_source_synced", "gauge", "1 once the first listing is complete.", lambda: cache.synced),
        Metric("flock_source_problems", "gauge", "Objects or watches in trouble.", lambda: len(cache.problems)),
        Metric("flock_watch_up", "gauge", "1 while this kind of object is watched.",
               lambda: [({"kind": kind}, float(all(w.up for w in of))) for kind, of in watches()]),
        Metric("flock_watch_heard_seconds", "gauge", "How long ago the API server last said anything about this kind.",
               lambda: [({"kind": kind}, max(w.heard for w in of)) for kind, of in watches()]),
        Metric("flock_restarts_total", "counter", "Parts of the agent that had to be started again.",
               lambda: [({"part": name}, count) for name, count in supervisor.restarts.items()]),
        Metric("flock_bird_reloads_total", "counter", "Reloads of bird.conf.", lambda: routing.reloads),
        Metric("flock_bird_up", "gauge", "1 while BIRD answers.", lambda: not routing.bird_problem),
        Metric("flock_bgp_session_up", "gauge", "1 while the session is established, as last seen.", sessions),
        Metric("flock_anycast_announced", "gauge", "Addresses announced here.", lambda: len(announcer.announced)),
        Metric("flock_announcer_runs_total", "counter", "Reconciles of what is announced.", lambda: announcer.runs),
        Metric("flock_services_announced", "gauge", "Addresses of Services announced here.",
               lambda: len(parts.services.announced)),
        Metric("flock_services_waiting", "gauge", "Services whose endpoints here are ready and kube-proxy is not.",
               lambda: parts.services.waiting),
        Metric("flock_services_refused", "gauge", "Addresses of Services that the node may not announce.",
               lambda: parts.services.refused),
        Metric("flock_policies", "gauge", "NetworkPolicies known.", lambda: len(policies.index.policies)),
        Metric("flock_cluster_policies", "gauge", "ClusterNetworkPolicies known.",
               lambda: len(policies.index.cluster_policies)),
        Metric("flock_policies_refused", "gauge", "Policies of both kinds that are refused, or closed in part.",
               lambda: len(policies.index.problems)),
        Metric("flock_policies_closed", "gauge", "Refused ones that isolate and allow nothing, or deny everything.",
               lambda: policies.closed),
        Metric("flock_kube_proxy_harm", "gauge",
               "1 while kube-proxy is seen to go around policies: by IPVS, by masquerading pods.", harm),
        Metric("flock_overfull_pods", "gauge", "Pods that have opened more connections than they may.",
               lambda: len(parts.connection_limit.overfull)),
        Metric("flock_policies_waiting", "gauge", "Namespaces whose changes wait.", lambda: len(policies.waiting)),
        Metric("flock_rules_in_force", "gauge", "1 while the rules are as they should be.",
               lambda: not policies.problem),
        Metric("flock_rules_transactions_total", "counter", "Changes of rules.", lambda: policies.transactions),
        Metric("flock_rules_repairs_total", "counter", "Rules made anew.", lambda: parts.happened.count(RulesMadeAnew)),
        Metric("flock_dropped_packets", "gauge", "Packets dropped since the rules were last made anew.", dropped),
        Metric("flock_audited_connections", "gauge",
               "Connections that audited policies would have cut off, since the rules were last made anew.",
               lambda: policies.counted.audited if policies.counted else 0),
    )
    # fmt: on
