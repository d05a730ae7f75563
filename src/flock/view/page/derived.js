// What the views show, worked out of what is known: pure, no element and no clock but those given.
import { natural } from "./model.js";

// Who a node is to the operator, worst first.  A node whose agent is away may still forward: its routers can tell.
export function nodeState(node, routers) {
  if (!node.reached) {
    const seen = [...routers.values()].flatMap((r) => r.sessions.filter((s) => s.peer === node.name));
    return seen.length && seen.every((s) => !s.up) ? "dead" : "away";
  }
  const status = node.status;
  if (!status) return "unknown";
  if (!status.ready) return "not ready";
  if (status.withdrawn) return "drained";
  if (status.sessions?.some((s) => !s.up)) return "session down";
  return status.degraded?.length ? "degraded" : "ready";
}

export const isCut = (cut, node, router) =>
  [`${node}-${router}`, `${router}-${node}`, `${node}-lan`, `${router}-lan`].some((link) => cut.has(link));

// up, down or cut; a node that is not reached is believed of what its router says now, else of what it said last.
export function sessionState(session, cut) {
  if (isCut(cut, session.node, session.peer)) return "cut";
  return session.up ? "up" : "down";
}

const worked = new WeakMap(); // node, as it was told -> its sessions

export function sessionsOf(node, routers) {
  if (routers.size) return sessions(node, routers);
  if (!worked.has(node)) worked.set(node, sessions(node, routers));
  return worked.get(node);
}

function sessions(node, routers) {
  return (node.status?.sessions ?? []).map((session) => {
    const other = routers.get(session.peer)?.sessions.find((s) => s.peer === node.name);
    const told = !node.reached && other ? { up: other.up, state: other.state, by: session.peer } : {};
    return { ...session, bfd: session.bfd ?? other?.bfd ?? "", node: node.name, guessed: !node.reached && !other, ...told };
  });
}

// Nodes with the same routers belong together (a rack, most often): [{routers: [names], nodes: [...]}], and the routers
// that no node has a session with, which stand above.
export function fabric(model) {
  const groups = new Map();
  const used = new Set();
  for (const name of [...model.nodes.keys()].sort(natural)) {
    const node = model.nodes.get(name);
    const sessions = sessionsOf(node, model.routers);
    const routers = [...new Set(sessions.map((s) => s.peer))].sort(natural);
    routers.forEach((router) => used.add(router));
    const key = routers.join("\n");
    if (!groups.has(key)) groups.set(key, { key, routers, nodes: [] });
    groups.get(key).nodes.push({ node, sessions, state: nodeState(node, model.routers) });
  }
  const above = [...model.routers.keys()].filter((name) => !used.has(name)).sort(natural);
  return { groups: [...groups.values()].sort((a, b) => b.routers.length - a.routers.length || natural(a.key, b.key)), above };
}

export function routerOf(model, name) {
  const seen = [];
  for (const node of model.nodes.values()) {
    for (const session of sessionsOf(node, model.routers)) if (session.peer === name) seen.push(session);
  }
  return { name, told: model.routers.get(name) ?? null, asn: model.routers.get(name)?.asn ?? seen[0]?.asn ?? null, seen };
}

const asClaim = (row) => ({ ...row, kind: "service", pod: row.service, interface: "" });

// address -> {address, kinds, cells: node -> {announced, rows}, routers: name -> [nodes it sends to]}
export function addresses(model) {
  const found = new Map();
  for (const node of model.nodes.values()) {
    for (const row of [...(node.status?.addressList ?? []), ...(node.status?.serviceList ?? []).map(asClaim)]) {
      if (!found.has(row.address)) found.set(row.address, { address: row.address, kinds: new Set(), cells: new Map(), hay: "" });
      const entry = found.get(row.address);
      entry.kinds.add(row.kind);
      if (!entry.cells.has(node.name)) entry.cells.set(node.name, { node: node.name, guessed: !node.reached, rows: [] });
      entry.cells.get(node.name).rows.push(row);
    }
  }
  for (const entry of found.values()) {
    const length = entry.address.includes(":") ? 128 : 32;
    entry.routers = [...model.routers.values()]
      .map((router) => [router.name, router.routes?.[`${entry.address}/${length}`] ?? []])
      .filter(([, nodes]) => nodes.length);
    for (const cell of entry.cells.values()) {
      cell.announced = cell.rows.some((row) => row.announced);
      cell.reason = cell.rows.find((row) => !row.announced)?.reason ?? "";
    }
    const words = [...entry.cells.values()].flatMap((c) => [c.node, ...c.rows.flatMap((r) => [r.pod, r.reason])]);
    entry.hay = [entry.address, ...entry.kinds, ...words].join(" ").toLowerCase();
  }
  return [...found.values()].sort((a, b) => natural(a.address, b.address));
}

export function podState(pod) {
  const { state, ready } = pod.told;
  if (state === "dead" || state === "pending") return state;
  return ready === null || ready === undefined ? "unknown" : ready ? "ready" : "not ready";
}

export function matching(rows, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length ? rows.filter((row) => words.every((word) => row.hay.includes(word))) : rows;
}

// The line at the top: what an operator who just woke up has to know.
export function health(model) {
  const nodes = [...model.nodes.values()];
  const states = nodes.map((node) => [node, nodeState(node, model.routers)]);
  const sessions = nodes.flatMap((node) => sessionsOf(node, model.routers));
  return {
    nodes: nodes.length,
    pods: nodes.reduce((sum, node) => sum + (node.status?.pods?.committed ?? 0), 0),
    sessions: sessions.length,
    down: sessions.filter((s) => !s.up && !s.guessed).length,
    away: states.filter(([, s]) => s === "away" || s === "dead").map(([node]) => node),
    unready: states.filter(([, s]) => s === "not ready").length,
    drained: states.filter(([, s]) => s === "drained").length,
    degraded: states.filter(([, s]) => s === "degraded").length,
    cut: model.cut.size,
  };
}
