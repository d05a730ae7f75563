// What is known, and nothing else: the events of api/stream in, plain values out.  Nothing here draws.
// Everything is bounded: a node keeps its last status, the past keeps rings and an hour of counts (past.js).
import { Past } from "./past.js";

export const model = {
  hello: null,
  nodes: new Map(), // name -> Node
  routers: new Map(), // labs only; elsewhere derived.js makes them of the nodes' sessions
  cut: new Set(),
  past: new Past(),
  connected: false,
  lostAt: 0, // when the stream ended; 0 while it is there
  turn: 0, // grows with every change
  podTurn: 0, // grows when some list of pods changed
};

export const now = () => (model.hello && !model.hello.live ? model.hello.at : Date.now() / 1000);

const takers = {
  hello(data) {
    model.hello = data;
    model.nodes.clear();
    model.routers.clear();
    model.cut = new Set();
    model.past = new Past();
    model.connected = true;
    model.lostAt = 0;
    model.podTurn++;
  },
  node(data) {
    const status = data.status ?? model.nodes.get(data.name)?.status ?? null;
    model.nodes.set(data.name, new Node(data, status));
    model.past.sample(model.nodes, data.name, now());
    model.podTurn++;
  },
  router(data) {
    model.routers.set(data.name, data);
  },
  fabric(data) {
    model.cut = new Set(data.cut);
  },
  happenings(data) {
    for (const happening of data) model.past.take(happening);
  },
  history(data) {
    model.past.remember(data);
  },
  seen(data) {
    for (const [name, time] of Object.entries(data)) if (model.nodes.has(name)) model.nodes.get(name).seen = time;
  },
  gone(data) {
    model.nodes.delete(data.name);
    model.podTurn++;
  },
};

// Calls `changed(event)` after each event; a stream that ends is asked for again by the browser, and begins anew.
export function follow(url, changed) {
  const source = new EventSource(url);
  for (const [event, take] of Object.entries(takers)) {
    source.addEventListener(event, (message) => {
      take(JSON.parse(message.data));
      model.turn++;
      changed(event);
    });
  }
  source.addEventListener("error", () => {
    if (!model.lostAt) model.lostAt = Date.now() / 1000;
    model.connected = false;
    model.turn++;
    changed("lost");
    if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(url, changed), 2000);
  });
}

// A node as it was last told.  Its pods' rows are made when somebody looks at them: most updates nobody does.
class Node {
  #rows = null;

  constructor({ name, reached, problem, seen }, status) {
    Object.assign(this, { name, reached, problem, seen, status });
  }

  get pods() {
    return (this.#rows ??= podRows(this, this.status));
  }
}

// One of twenty thousand: what is not looked at is not worked out, and what is searched is put together once.
class Pod {
  #hay = "";

  constructor(node, told) {
    this.told = told;
    this.node = node.name;
    this.guessed = !node.reached;
    this.name = told.pod ? `${told.namespace}/${told.pod}` : "";
  }

  get key() {
    return `${this.node} ${this.told.container}`;
  }

  get addresses() {
    return [...new Set([this.told.ip6, this.told.ip4, ...(this.told.addresses ?? [])])].filter(Boolean);
  }

  get anycast() {
    return this.told.anycast ?? [];
  }

  get policies() {
    return this.told.policies ?? [];
  }

  get hay() {
    const { container, interface: link, ip6, ip4, addresses = [], anycast = [], policies = [] } = this.told;
    this.#hay ||= [this.name, this.node, container, link, ip6, ip4, ...addresses, ...anycast, ...policies].join(" ").toLowerCase();
    return this.#hay;
  }
}

const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
const podRows = (node, status) => (status?.podList ?? []).map((told) => new Pod(node, told)).sort(byName);

let pods = { turn: -1, rows: [] };

export function allPods() {
  if (pods.turn !== model.podTurn) {
    const names = [...model.nodes.keys()].sort(natural);
    pods = { turn: model.podTurn, rows: names.flatMap((name) => model.nodes.get(name).pods) };
  }
  return pods.rows;
}

const order = new Intl.Collator("en", { numeric: true });
export const natural = (a, b) => order.compare(a, b);
