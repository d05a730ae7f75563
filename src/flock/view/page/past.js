// The last hour, bounded: a ring of happenings per lane, counts per second, sums per policy and pod, and samples of what
// statuses tell.  Who makes much happen in one lane pushes out only the like of it.
const HOUR = 3600;
const KEPT = 2000; // happenings per lane
const GROUPS = 500; // policies whose drops are told apart
const PACKETS = 40; // kept of each
const PODS = 5000; // whose last drop is known

export const LANES = [
  { name: "sessions", kinds: ["SessionUp", "SessionDown", "BfdUp", "BfdDown", "BirdThere", "BirdGone"] },
  { name: "announcements", kinds: ["Announced", "Withdrawn", "Rerouted", "Drained", "Undrained", "ServiceAnnounced", "ServiceWithdrawn"] },
  { name: "configuration", kinds: ["ConfigTaken", "ConfigRefused"] },
  { name: "repairs", kinds: ["Repaired", "RulesMadeAnew", "Buried"] },
  { name: "refusals", kinds: ["AddFailed", "PolicyRefused", "ServiceRefused", "Overfull", "OverfullNoMore"] },
  { name: "restarts", kinds: ["Started", "NodeReady"] },
  { name: "pods", kinds: ["Attached", "Detached"] },
  { name: "drops", kinds: ["Dropped"] },
  { name: "other", kinds: [] },
];
const LANE_OF = new Map(LANES.flatMap((lane) => lane.kinds.map((kind) => [kind, lane.name])));
export const laneOf = (kind) => LANE_OF.get(kind) ?? "other";
const BAD = new Set(["SessionDown", "BfdDown", "BirdGone", "ConfigRefused", "AddFailed", "PolicyRefused", "ServiceRefused", "Overfull", "Drained"]);
export const isBad = (kind) => BAD.has(kind);
export const isNews = (kind) => !["Attached", "Detached", "Dropped", "Rerouted"].includes(kind);

// Values per second over an hour; what is older is overwritten.
export class Seconds {
  #values = new Float64Array(HOUR);
  #stamps = new Float64Array(HOUR);

  add(time, value = 1) {
    const second = Math.floor(time), at = ((second % HOUR) + HOUR) % HOUR;
    if (this.#stamps[at] > second) return;
    if (this.#stamps[at] !== second) [this.#stamps[at], this.#values[at]] = [second, 0];
    this.#values[at] += value;
  }

  set(time, value) {
    const second = Math.floor(time), at = ((second % HOUR) + HOUR) % HOUR;
    [this.#stamps[at], this.#values[at]] = [second, value];
  }

  // `missing` where nothing was told about that second
  at(second, missing = 0) {
    const at = ((second % HOUR) + HOUR) % HOUR;
    return this.#stamps[at] === second ? this.#values[at] : missing;
  }
}

// The latest by their time: what a page is told first comes node by node.
class Ring {
  items = [];

  push(item) {
    this.items.push(item);
    if (this.items.length >= 2 * KEPT) this.items = this.items.sort((a, b) => a.time - b.time).slice(-KEPT);
  }
}

export class Past {
  rings = new Map(LANES.map((lane) => [lane.name, new Ring()]));
  rates = { drops: new Seconds(), adds: new Seconds(), p50: new Seconds(), prefixes: new Seconds() };
  groups = new Map(); // what + policies -> sums and last packets
  dropsOf = new Map(); // pod -> {count, time, said}
  latest = null; // the last that is news
  count = 0;
  #told = new Map(); // node -> {imported, exported, p50} of its last status

  take(happening) {
    this.count++;
    happening.order = this.count;
    const lane = laneOf(happening.kind);
    this.rings.get(lane).push(happening);
    if (lane === "drops") this.#drop(happening);
    if (happening.kind === "Attached") this.rates.adds.add(happening.time);
    if (isNews(happening.kind) && happening.time >= (this.latest?.time ?? 0)) this.latest = happening;
  }

  #drop(drop) {
    this.rates.drops.add(drop.time);
    const key = `${drop.what}\n${drop.policies}`;
    let group = this.groups.get(key);
    if (!group) {
      if (this.groups.size >= GROUPS) this.groups.delete(this.groups.keys().next().value);
      group = { key, what: drop.what, policies: drop.policies, count: 0, packets: [], minute: new Minute() };
      this.groups.set(key, group);
    }
    group.count++;
    group.time = drop.time;
    group.minute.add(drop.time);
    group.packets.push(drop);
    if (group.packets.length > 2 * PACKETS) group.packets = group.packets.slice(-PACKETS);
    if (!drop.pod) return;
    const before = this.dropsOf.get(drop.pod);
    this.dropsOf.delete(drop.pod);
    this.dropsOf.set(drop.pod, { count: (before?.count ?? 0) + 1, time: drop.time, said: drop.said, policies: drop.policies });
    if (this.dropsOf.size > PODS) this.dropsOf.delete(this.dropsOf.keys().next().value);
  }

  // Sums over all nodes of what statuses tell, once per second.
  sample(nodes, changed, time) {
    const status = nodes.get(changed).status;
    if (!status) return;
    const sessions = status.sessions ?? [];
    this.#told.set(changed, {
      prefixes: sessions.reduce((sum, s) => sum + (s.imported ?? 0) + (s.exported ?? 0), 0),
      p50: status.latencies?.ADD?.count ? status.latencies.ADD.p50 : null,
    });
    let prefixes = 0;
    const p50 = [];
    for (const [name, told] of this.#told) {
      if (!nodes.has(name)) this.#told.delete(name);
      else {
        prefixes += told.prefixes;
        if (told.p50 !== null) p50.push(told.p50);
      }
    }
    this.rates.prefixes.set(time, prefixes);
    if (p50.length) this.rates.p50.set(time, 1000 * p50.sort((a, b) => a - b)[p50.length >> 1]);
  }

  // What was counted before this page was opened: {from, drops: [per second], adds, p50, prefixes}; null: not known
  remember(history) {
    for (const [name, rate] of Object.entries(this.rates)) {
      (history[name] ?? []).forEach((value, index) => value !== null && rate.set(history.from + index, value));
    }
  }

  // Newest first, of all lanes or one, those that `wanted` says yes to.
  newest(limit, wanted = () => true, lane = "") {
    const found = [];
    for (const [name, ring] of this.rings) {
      if (lane && name !== lane) continue;
      for (let at = ring.items.length - 1, left = limit; at >= 0 && left; at--) {
        if (wanted(ring.items[at])) found.push(ring.items[at]) && left--;
      }
    }
    return found.sort((a, b) => b.time - a.time || b.order - a.order).slice(0, limit);
  }

  // What happened within `window` seconds of `time`, and whom it was about.
  near(time, window) {
    const found = this.newest(200, (h) => Math.abs(h.time - time) <= window && h.kind !== "Dropped");
    const drops = this.newest(100, (h) => Math.abs(h.time - time) <= window, "drops");
    const about = new Set();
    for (const h of [...found, ...drops]) {
      about.add(`node ${h.node}`);
      if (h.peer) about.add(`session ${h.node} ${h.peer}`);
      if (h.address) about.add(`address ${h.address}`).add(`cell ${h.address} ${h.node}`);
      if (h.pod) about.add(`pod ${h.pod}`);
      if (h.policies) about.add(`group ${h.what}\n${h.policies}`);
      if (h.policy) about.add(`policy ${h.policy}`);
    }
    return { time, window, found, drops, about };
  }
}

class Minute {
  #counts = new Uint32Array(60);
  #stamps = new Float64Array(60);

  add(time) {
    const second = Math.floor(time), at = second % 60;
    if (this.#stamps[at] !== second) [this.#stamps[at], this.#counts[at]] = [second, 0];
    this.#counts[at]++;
  }

  sum(time) {
    let sum = 0;
    for (let at = 0; at < 60; at++) if (time - this.#stamps[at] < 60) sum += this.#counts[at];
    return sum;
  }
}
