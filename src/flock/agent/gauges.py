"""What the agent tells Prometheus about itself: one place that knows every part's numbers."""

import time
from collections import Counter
from collections.abc import Iterable

import msgspec

from flock.agent.metrics import Metrics, Sample
from flock.agent.parts import Parts
from flock.edge.supervising import Supervisor


def register(metrics: Metrics, parts: Parts, supervisor: Supervisor) -> None:
    view, source, attachments, ipam = parts.view, parts.source, parts.attachments, parts.ipam
    readiness, healer, routing = parts.readiness, parts.healer, parts.routing
    announcer, policies, neighbours = parts.announcer, parts.policies, parts.neighbours

    def pools() -> Iterable[tuple[str, int, int, int]]:
        return [(u.cidr, u.size, u.used, u.cooling) for u in ipam.use(view.aggregates, time.time())]

    def allocations() -> list[Sample]:
        states = Counter(a.state for a in attachments.store.entries.values())
        return [({"state": state}, states[state]) for state in ("committed", "pending")]

    def one(value: float) -> list[Sample]:
        return [({}, value)]

    def dropped() -> list[Sample]:
        counted = msgspec.to_builtins(policies.counted) if policies.counted else {}
        return [({"what": what}, float(number)) for what, number in counted.items() if isinstance(number, int)]

    add = metrics.add
    add("flock_ready", "gauge", "1 if ADD can be served.", lambda: one(readiness.report().ready))
    add("flock_allocations", "gauge", "Allocations by state.", allocations)
    add("flock_dead_allocations", "gauge", "Allocations whose pod is gone.", lambda: one(len(healer.dead)))
    add("flock_unrecorded_links", "gauge", "Links of pods not on record.", lambda: one(len(healer.unrecorded)))
    add("flock_pool_size", "gauge", "Addresses of a pool.", lambda: [({"cidr": c}, n) for c, n, _, _ in pools()])
    add("flock_pool_used", "gauge", "Addresses in use.", lambda: [({"cidr": c}, n) for c, _, n, _ in pools()])
    add("flock_pool_cooling", "gauge", "Addresses at rest.", lambda: [({"cidr": c}, n) for c, _, _, n in pools()])
    add("flock_store_flushes_total", "counter", "Durable writes.", lambda: one(attachments.store.flushes))
    add("flock_heal_passes_total", "counter", "Looks at the kernel.", lambda: one(healer.runs))
    add(
        "flock_repairs_total",
        "counter",
        "Repairs of the kernel by kind.",
        lambda: [({"kind": str(kind)}, count) for kind, count in sorted(healer.repairs.items())],
    )
    add("flock_source_synced", "gauge", "1 once the first listing is complete.", lambda: one(source.synced))
    add("flock_source_problems", "gauge", "Objects or watches in trouble.", lambda: one(len(source.problems)))
    add(
        "flock_watch_up",
        "gauge",
        "1 while this kind of object is watched.",
        lambda: [({"kind": watch.kind}, float(watch.up)) for watch in source.watches],
    )
    add(
        "flock_watch_heard_seconds",
        "gauge",
        "How long ago the API server last said anything about this kind.",
        lambda: [({"kind": watch.kind}, watch.heard) for watch in source.watches],
    )
    add(
        "flock_restarts_total",
        "counter",
        "Parts of the agent that had to be started again.",
        lambda: [({"part": name}, count) for name, count in supervisor.restarts.items()],
    )
    add("flock_bird_reloads_total", "counter", "Reloads of bird.conf.", lambda: one(routing.reloads))
    add("flock_bird_up", "gauge", "1 while BIRD answers.", lambda: one(not routing.bird_problem))
    add(
        "flock_bgp_session_up",
        "gauge",
        "1 while the session is established, as last seen.",
        lambda: [({"peer": str(row["peer"])}, float(bool(row["up"]))) for row in routing.last_seen],
    )
    add("flock_anycast_announced", "gauge", "Addresses announced here.", lambda: one(len(announcer.announced)))
    add("flock_announcer_runs_total", "counter", "Reconciles of what is announced.", lambda: one(announcer.runs))
    add("flock_policies", "gauge", "NetworkPolicies known.", lambda: one(len(policies.index.policies)))
    add("flock_policies_refused", "gauge", "NetworkPolicies refused.", lambda: one(len(policies.index.problems)))
    add(
        "flock_policies_closed",
        "gauge",
        "Refused ones that isolate and allow nothing.",
        lambda: one(policies.closed),
    )
    add(
        "flock_kube_proxy_harm",
        "gauge",
        "1 while kube-proxy is seen to go around policies: by IPVS, by masquerading pods.",
        lambda: [({"by": by}, float(bool(said))) for by, said in msgspec.to_builtins(neighbours.harm).items()],
    )
    add(
        "flock_overfull_pods",
        "gauge",
        "Pods that have opened more connections than they may.",
        lambda: one(len(parts.connection_limit.overfull)),
    )
    add("flock_policies_waiting", "gauge", "Namespaces whose changes wait.", lambda: one(len(policies.waiting)))
    add("flock_rules_in_force", "gauge", "1 while the rules are as they should be.", lambda: one(not policies.problem))
    add("flock_rules_transactions_total", "counter", "Changes of rules.", lambda: one(policies.transactions))
    add("flock_rules_repairs_total", "counter", "Rules made anew.", lambda: one(policies.repairs))
    add("flock_dropped_packets", "gauge", "Packets dropped since the rules were last made anew.", dropped)
