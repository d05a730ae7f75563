"""The chapters of the demo.  Each is a function of the stage; its docstring is its title.

A chapter shows something and checks it; what it measured becomes a line of the timeline.
"""

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from loadbalancing import a_service
from stage import Stage, eventually, expect, indented, say
from watching import Asker, Drops, Ping, answered, by, lost, milliseconds

from flock.edge.rpc_client import ask
from flock.lab import namespaces
from flock.lab.nodes import AGENT
from flock.lab.reach import ping
from flock.lab.topology import Element
from flock.lab.traffic import Exchange

NODES = ("n1", "n2", "n3")
WEB = {"web-1": "n1", "web-2": "n2", "web-3": "n3"}
SHOP = {"db": "n2", "front": "n1", "guest": "n3"}
POLICIES = Path(__file__).parent / "policies"
DNS = {"dns-1": "n1", "dns-2": "n2", "dns-3": "n3"}
SERVICE = ("2001:db8:53::53", "192.0.2.53")
SETTLED = 1.0  # seconds of traffic that show a state lasts: two hundred questions of each family
BESIDE = 40  # packets that have to be answered before and after the agent is away
# Sessions would time out after nine seconds: whoever notices a dead node earlier was told by BFD.
HOLD_TIME = 9.0


def a_fabric(stage: Stage) -> None:
    """Three nodes, two routers and a client outside, each a network namespace that runs the real programs"""
    stage.shown(*stage.lab_command("up", "--nodes", "3", "--routers", "2"))
    stage.note(stage.started, "flockctl lab up", f"a fabric in {time.monotonic() - stage.started:.1f} s")
    say("  What a node knows of its sessions:")
    stage.flockctl("n1", "bgp")
    say("  What a router knows of the nodes' pods, and all it has to know:")
    stage.shown(*stage.lab_command("exec", "r1", "--", "ip", "-6", "route", "show", "2001:db8:1::/64"))
    for router in ("r1", "r2"):
        routes = stage.lab.router(router).routes()
        owners = {e.name: {stage.lab.owner(h) for c in e.cidr6 + e.cidr4 for h in routes[c]} for e in _nodes(stage)}
        expect(all(owners[n] == {n} for n in NODES), f"{router} sends both prefixes of each node to that node")


def an_attachment(stage: Stage) -> None:
    """A container runtime attaches a pod: the CNI executable, its answer, the kernel"""
    netns = namespaces.netns(stage.name, "by-hand")
    namespaces.create(netns)
    at = time.monotonic()
    result, took = stage.cni("ADD", node="n1", netns=netns)
    for key in ("interfaces", "ips", "routes"):
        indented("\n".join(f"{key[:-1]:10} {json.dumps(entry)}" for entry in result[key]))
    expect(len(result["ips"]) == 2, f"both families, on disk and in the kernel, {took:.1f} ms from exec to exit")
    stage.note(at, "ADD on n1", f"{took:.1f} ms from exec to exit")
    routes = stage.shown(*stage.lab_command("exec", "n1", "--", "ip", "-6", "route", "show", "proto", "133"))
    expect(result["interfaces"][0]["name"] in routes, "a host route by our protocol number; the rest is a blackhole")
    _, took = stage.cni("DEL", node="n1", netns=netns)
    namespaces.delete(netns)
    links = json.loads(stage.node("n1").host.run(["ip", "-json", "link"]))
    ours = [link["ifname"] for link in links if link["ifname"].startswith("flock")]
    expect(not ours, f"after DEL ({took:.1f} ms) nothing of it is left")


def pods_everywhere(stage: Stage) -> None:
    """Pods on all nodes reach each other over both families, by their own addresses"""
    for pod, node in WEB.items():
        stage.add_pod(pod, node=node, options=("--ready",))
    stage.shown(*stage.lab_command("ping", "web-1", "web-3"))
    ends = (*WEB, "client")
    answers = [answer for a in ends for b in WEB if a != b for answer in ping(stage.lab, a, b)]
    reached = sum(answer.reached for answer in answers)
    expect(reached == len(answers), f"every pod and the client reach every pod: {reached} of {len(answers)} pings")


def the_agent_dies(stage: Stage) -> None:
    """The agent of n3 is killed and started again under running pings from web-1 to web-3"""
    pings = _pings(stage, "agent")
    host = stage.node("n3").host
    process = host.process(AGENT)
    stage.typed("kill", "-9", str(process.pid if process else ""))
    at = time.monotonic()
    host.stop(AGENT, by=signal.SIGKILL)
    stage.flockctl("n3", "status", code=3)
    late = stage.start(*stage.lab_command("pod add", "--node", "n3", "--ready", "late"))
    time.sleep(0.3)
    expect(late.poll() is None, "an ADD that comes just now waits for the agent, which is started again")
    stage.node("n3").start_agent()
    said, _ = late.communicate(timeout=60)
    away = time.monotonic() - at
    indented(said)
    expect(late.returncode == 0, f"the ADD is served, {away:.1f} s after the kill")
    before = [each.answered() for each in pings]
    eventually(lambda: all(p.answered() > n + BESIDE for p, n in zip(pings, before, strict=True)), "pings go on")
    results = [each.stop() for each in pings]
    sent, missing = sum(r[0] for r in results), sum(r[1] for r in results)
    expect(missing == 0, f"a packet every 20 ms of each family all the while: {sent} sent, {missing} lost")
    stage.note(at, "agent of n3 killed, started again", f"{missing} of {sent} packets lost")


def a_link_is_deleted(stage: Stage) -> None:
    """Somebody deletes the link of web-3 by hand"""
    pings = _pings(stage, "link")
    link = next(row["interface"] for row in ask(stage.node("n3").run_dir, "pods") if row["pod"] == "web-3")
    at = time.monotonic()
    stage.shown(*stage.lab_command("exec", "n3", "--", "ip", "link", "del", link))
    before = [each.answered() for each in pings]
    eventually(lambda: all(p.answered() > n + BESIDE for p, n in zip(pings, before, strict=True)), "web-3 is back")
    gaps = [each.stop()[2] for each in pings]
    log = (stage.home.of("n3") / "agent.log").read_text().splitlines()
    repaired = [line.split(" ", 2)[2] for line in log if "repaired link" in line]
    indented("\n".join(repaired))
    expect(repaired, f"web-3 answers again after {milliseconds(max(gaps))}: same name, same addresses, no restart")
    stage.note(at, "link of web-3 deleted by hand", f"silent for {milliseconds(max(gaps))}")
    stage.flockctl("n3", "check")


def a_policy(stage: Stage) -> None:
    """NetworkPolicy: a namespace is closed under running traffic, one pod is let in, the others are told why not"""
    for pod, node in SHOP.items():
        serves = ("--serve",) if pod == "db" else ()
        stage.add_pod(pod, node=node, options=("--namespace", "shop", "--label", f"app={pod}", "--ready", *serves))
    database = stage.lab.pods.get("shop/db").addresses
    front, guest = ([Asker(stage.lab.host(f"shop/{who}"), a) for a in database] for who in ("front", "guest"))
    eventually(lambda: all(answered(asker.exchanges()) for asker in (*front, *guest)), "both are answered")
    say("  front and guest ask db, every 5 ms over each family; every question is a flow of its own.")

    at = _apply(stage, "default-deny.yaml")
    eventually(lambda: _settled(answered, (*front, *guest), at), "nobody is answered any more")
    last = max((e.at - at for asker in (*front, *guest) for e in answered(asker.exchanges(at))), default=0.0)
    say(f"  ✓ the last question was let in {milliseconds(last)} later, and none since")
    stage.note(at, "shop denies everything", f"last question let in {milliseconds(last)} later")

    at = _apply(stage, "front-to-db.yaml")
    eventually(lambda: all(answered(asker.exchanges(at)) for asker in front), "front is answered")
    eventually(lambda: all(asker.exchanges(at + SETTLED) for asker in guest), "guest has asked for a while")
    first = max(answered(asker.exchanges(at))[0].at - at for asker in front)
    refused = [e for asker in guest for e in asker.exchanges(at)]
    expect(not answered(refused), f"front is let in {milliseconds(first)} later, guest is not: 0 of {len(refused)}")
    stage.note(at, "shop lets front in", f"first answer {milliseconds(first)} later")
    for asker in (*front, *guest):
        asker.stop()

    say("  The node of db says why, from what is in its kernel, and shows what it drops as it happens:")
    stage.flockctl("n2", "policy", "why", "shop/front", "shop/db", "7777/UDP")
    stage.flockctl("n2", "policy", "why", "shop/guest", "shop/db", "7777/UDP", code=1)
    drops = Drops(stage.node("n2").host, stage.home.of("n2") / "run")
    stage.typed(*drops.command)
    stage.shown(*stage.lab_command("ping", "shop/guest", "shop/db"), code=1)
    eventually(lambda: len(drops.lines("ICMP")) >= len(database), "the drops are shown")
    indented("\n".join(drops.lines("ICMP")))
    drops.stop()


def a_cluster_policy(stage: Stage) -> None:
    """ClusterNetworkPolicy: the administrator tries a rule above the namespace's, then applies it"""
    front = [Asker(stage.lab.host("shop/front"), address) for address in stage.lab.pods.get("shop/db").addresses]
    at = time.monotonic()
    eventually(lambda: all(answered(asker.exchanges(at)) for asker in front), "front is answered")
    say("  Whom would it cut off?  Nothing is dropped while it is only tried:")
    file, at = os.path.relpath(POLICIES / "closing-time.yaml"), time.monotonic()
    told = stage.shown("flockctl", "policy", "try", "--lab", stage.name, "--for", "2", file)
    missing = [e for asker in front for e in lost(asker.exchanges(at))]
    expect("Admin closing-time ingress[0]" in told and not missing, "front would be; none of its questions was lost")
    at = _apply(stage, "closing-time.yaml")
    eventually(lambda: _settled(answered, front, at), "front is not answered any more")
    why = stage.flockctl("n2", "policy", "why", "shop/front", "shop/db", "7777/UDP", code=1)
    expect('Admin closing-time ingress[0] "nobody"' in why, "tier, policy, rule, and what would decide without it")
    run_dir = stage.node("n2").run_dir
    stage.typed("flockctl", "--run-dir", str(run_dir), "policy", "drops")
    denied = [row["said"] for row in ask(run_dir, "policy.drops")["happened"] if "denied by Admin" in row["said"]]
    indented(f"…\n{denied[-1]}")
    (stage.home.manifests / "closing-time.yaml").unlink()
    at = time.monotonic()
    eventually(lambda: all(answered(asker.exchanges(at)) for asker in front), "front is answered again")
    for asker in front:
        asker.stop()


def an_anycast_service(stage: Stage) -> None:
    """An anycast service: one address per family, a replica on every node, announced while it is Ready"""
    wish = "flock.fritzlab.net/anycast"
    stage.shown(
        *stage.lab_command("pod add", "--node", "n1", "--annotation", f"{wish}=2001:db8:99::1", "greedy"), code=1
    )
    say("  What the NodeConfig grants (spec.anycast.allowed) is given, and announced once a pod is Ready:")
    for pod, node in DNS.items():
        stage.add_pod(pod, node=node, options=("--annotation", f"{wish}={','.join(SERVICE)}", "--serve"))
    stage.flockctl("n1", "anycast")
    say("  The client starts to ask, every 5 ms over each family, and does not stop until the end:")
    stage.askers = [Asker(stage.lab.host("client"), address) for address in SERVICE]
    eventually(lambda: all(lost(asker.exchanges()) for asker in stage.askers), "questions are asked")
    for pod in DNS:
        _becomes_ready(stage, pod)
    for address in SERVICE:
        stage.shown(*stage.lab_command("ask", "client", address, "--for", "1"))
    table = stage.shown(*stage.lab_command("status"), only=("ANNOUNCED", *(f"{address}  " for address in SERVICE)))
    expect(table.count(" ".join(NODES)) >= 4, "both routers send both addresses to all three nodes")


def a_replica_is_unready(stage: Stage) -> None:
    """A replica turns unready"""
    stage.typed(*stage.lab_command("unready", "dns-2"))
    at = time.monotonic()
    stage.lab.pods.set_ready("dns-2", False)
    eventually(lambda: _settled(lambda e: by("dns-2", e), stage.askers, at), "dns-2 gets no questions any more")
    eventually(lambda: _settled(lost, stage.askers, at), "every question is answered")
    stage.flockctl("n2", "anycast")
    asked = _asked(stage, at)
    last = max((e.at - at for exchanges in asked for e in by("dns-2", exchanges)), default=0.0)
    counts = Counter(e.answer for exchanges in asked for e in exchanges if e.answer and e.at > at + last)
    expect(
        set(counts) == {"dns-1", "dns-3"}, f"dns-2 got its last question {milliseconds(last)} later; {_told(counts)}"
    )
    stage.note(at, "dns-2 unready", f"last answer {milliseconds(last)} later, {_lost(asked)}")
    expect(not any(map(lost, asked)), f"{_lost(asked)} on the way")
    _becomes_ready(stage, "dns-2")


def a_node_dies(stage: Stage) -> None:
    """A node dies without a word: its links fall silent, and only BFD can notice"""
    stage.typed(*stage.lab_command("kill", "n3"))
    at = time.monotonic()
    stage.lab.kill("n3")
    eventually(lambda: _settled(lost, stage.askers, at), "every question is answered again")
    asked = _asked(stage, at)
    missing = [e for exchanges in asked for e in lost(exchanges)]
    last = max((e.at - at for e in missing), default=0.0)
    stage.shown(*stage.lab_command("status"))
    counts = Counter(e.answer for exchanges in asked for e in exchanges if e.answer and e.at > at + last)
    expect(set(counts) == {"dns-1", "dns-2"}, _told(counts))
    expect(last < HOLD_TIME, f"the last question was lost {milliseconds(last)} after; the session's timer has 9 s")
    stage.note(at, "n3 killed", f"last question lost {milliseconds(last)} later, {_lost(asked)}")


def the_node_is_back(stage: Stage) -> None:
    """The node comes back"""
    at = time.monotonic()
    stage.shown(*stage.lab_command("revive", "n3"))
    _answers_again(stage, "dns-3", at, "n3 back, agent and BIRD started")
    back = time.monotonic()
    eventually(lambda: all(asker.exchanges(back + SETTLED) for asker in stage.askers), "the client asks on")
    asked = _asked(stage, at)
    expect(not any(map(lost, asked)), f"{_lost(asked)} since the node is back")


def the_end(stage: Stage) -> None:
    """The pods go, and nothing of them stays"""
    asked = [e for exchanges in _asked(stage, 0.0) for e in exchanges]
    first = min(e.at for e in asked if e.answer)
    for asker in stage.askers:
        asker.stop()
    since = [e for e in asked if e.at >= first]
    say(f"  The client has asked {len(since)} questions since the first was answered; {_lost([since])}.")
    for pod in [pod.key for pod in stage.lab.pods]:
        stage.lab.pods.delete(pod)
    for node in NODES:
        state = stage.node(node).state_dir / "allocations.json"  # within a second
        eventually(lambda state=state: not json.loads(state.read_text())["allocations"], f"{node}: no allocation")
        left = [link for link in stage.node(node).host.run(["ip", "-br", "link"]).split() if link.startswith("flock")]
        routes = stage.node(node).host.run(["ip", "-6", "route", "show", "proto", "134"])
        expect(not left and not routes, f"{node}: no allocation, no link, no route")


CHAPTERS: list[Callable[[Stage], None]] = [
    a_fabric,
    an_attachment,
    pods_everywhere,
    the_agent_dies,
    a_link_is_deleted,
    a_policy,
    a_cluster_policy,
    an_anycast_service,
    a_replica_is_unready,
    a_node_dies,
    the_node_is_back,
    a_service,
    the_end,
]


def _nodes(stage: Stage) -> tuple[Element, ...]:
    return stage.lab.plan.role("node")


def _pings(stage: Stage, name: str) -> list[Ping]:
    """From web-1 to web-3, running."""
    target = stage.lab.pods.get("web-3").addresses
    pings = [Ping(stage.lab.host("web-1"), address, name=name) for address in target]
    eventually(lambda: all(each.answered() > BESIDE for each in pings), "pings are running")
    return pings


def _apply(stage: Stage, file: str) -> float:
    """What `flockctl lab apply` does, and when it was done."""
    policy = POLICIES / file
    stage.typed(*stage.lab_command("apply", os.path.relpath(policy)))
    indented(policy.read_text())
    at = time.monotonic()
    shutil.copyfile(policy, stage.home.manifests / file)
    return at


def _becomes_ready(stage: Stage, pod: str) -> None:
    stage.typed(*stage.lab_command("ready", pod))
    at = time.monotonic()
    stage.lab.pods.set_ready(pod, True)
    _answers_again(stage, pod, at, f"{pod} Ready")


def _answers_again(stage: Stage, pod: str, at: float, what: str) -> None:
    """Wait until the pod answers over both families, and note how long after `at` that was."""
    eventually(lambda: all(by(pod, exchanges) for exchanges in _asked(stage, at)), f"{pod} answers")
    asked = _asked(stage, at)
    first = [by(pod, exchanges)[0].at - at for exchanges in asked]
    times = " and ".join(f"{milliseconds(t)} ({asker.family})" for t, asker in zip(first, stage.askers, strict=True))
    say(f"  ✓ {pod} answers, {times} later")
    stage.note(at, what, f"first answer {milliseconds(max(first))} later")


def _asked(stage: Stage, since: float) -> list[list[Exchange]]:
    """By family."""
    return [asker.exchanges(since) for asker in stage.askers]


def _settled(seen: Callable[[list[Exchange]], list[Exchange]], askers: Iterable[Asker], at: float) -> bool:
    """Did what `seen` picks, of the questions asked from `at` on, end a while ago, for each asker?"""
    asked = [asker.exchanges(at) for asker in askers]
    return all(e and e[-1].at - max((x.at for x in seen(e)), default=at) > SETTLED for e in asked)


def _told(counts: Counter[str]) -> str:
    return "answers since: " + ", ".join(f"{replica} {number}" for replica, number in sorted(counts.items()))


def _lost(asked: list[list[Exchange]]) -> str:
    number = sum(len(lost(exchanges)) for exchanges in asked)
    return f"{number or 'no'} question{'' if number == 1 else 's'} lost"
