"""A lab drawn for the terminal.  Pure: `Status` in, text out.

From the top: the client with its routers, a matrix of nodes and routers with the sessions between them (● up, ○ not,
✂ the link is cut, · none expected), the pods, what is announced and where each router sends it, the links that are cut.
"""

from flock.core.tables import table
from flock.lab.status import NodeStatus, PodStatus, RouterStatus, Status
from flock.lab.topology import CLIENT, LAN

CELL = 14


def draw(status: Status) -> str:
    sections = [_title(status), _spine(status), _matrix(status), _pods(status), _anycast(status), _cuts(status)]
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(status: Status) -> str:
    return f"lab {status.name} · {status.topology} · routers are {status.router} · {status.directory}"


def _spine(status: Status) -> str:
    *routers, client = status.routers
    lines = []
    for position, router in enumerate(routers):
        left = f"{client.name} AS{client.asn}"
        stem = "─" if len(routers) == 1 else "┬" if position == 0 else "└" if router is routers[-1] else "├"
        lead = f"{left} ─{stem}─" if position == 0 else f"{' ' * len(left)}  {stem}─"
        state = _session_mark(client, router.name, f"{router.name}-{CLIENT}" in status.cut)
        lines.append(f"{lead} {router.name} AS{router.asn}  {state:{CELL}}{router.trouble or _known(router)}")
    return "\n".join(lines)


def _known(router: RouterStatus) -> str:
    return f"{len(router.routes)} prefixes learned"


def _matrix(status: Status) -> str:
    routers = [r for r in status.routers if r.name != CLIENT]
    width = max(len(_node_title(node)) for node in status.nodes) + 2
    lines = [(" " * width + "".join(f"{r.name:{CELL}}" for r in routers)).rstrip()]
    for node in status.nodes:
        cells = "".join(f"{_session_mark(r, node.name, _is_cut(status, node.name, r.name)):{CELL}}" for r in routers)
        lines.append(f"{_node_title(node):{width}}{cells}{_node_note(node)}".rstrip())
    return "\n".join(lines)


def _node_title(node: NodeStatus) -> str:
    return f"{node.name} AS{node.asn}"


def _node_note(node: NodeStatus) -> str:
    if not node.bird and not node.agent:
        return "dead"
    return "BIRD is not running" if not node.bird else node.trouble


def _is_cut(status: Status, node: str, router: str) -> bool:
    return bool({f"{node}-{router}", f"{router}-{node}", f"{node}-{LAN}", f"{router}-{LAN}"} & set(status.cut))


def _session_mark(router: RouterStatus, peer: str, cut: bool) -> str:
    """The worst of the router's sessions with the peer."""
    sessions = sorted((s for s in router.sessions if s.peer == peer), key=lambda s: s.up)
    if not sessions:
        return "✂ cut" if cut else "·"
    worst = sessions[0]
    scissors = "✂ " if cut else ""
    if not worst.up:
        return f"{scissors}○ {worst.state}"
    return f"{scissors}● up{' bfd' if worst.bfd == 'up' else ''}"


def _pods(status: Status) -> str:
    rows = [_pod_row(pod) for node in status.nodes for pod in status.pods if pod.node == node.name]
    return table(("POD", "NODE", "STATE", "ADDRESSES", "ANYCAST"), rows) if rows else ""


def _pod_row(pod: PodStatus) -> tuple[str, ...]:
    state = "terminating" if pod.terminating else "ready" if pod.ready else "not ready"
    return (pod.name, pod.node, state, " ".join(pod.addresses), " ".join(pod.anycast))


def _anycast(status: Status) -> str:
    names = [r.name for r in status.routers if r.name != CLIENT]
    rows = [
        (address, *(" ".join(by_router.get(name, ())) or "-" for name in names))
        for address, by_router in status.anycast.items()
    ]
    return table(("ANNOUNCED", *(f"{name} SENDS TO" for name in names)), rows) if rows else ""


def _cuts(status: Status) -> str:
    return f"cut: {' '.join(status.cut)}" if status.cut else ""
