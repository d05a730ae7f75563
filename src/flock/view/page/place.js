// Where the reader is, kept in the address alone: #view?name=value.  `theme`, `at` (the marked time) and `sel` (what is
// shown beside) go along from view to view; everything else belongs to one view.
export const VIEWS = ["fabric", "addresses", "pods", "policy", "timeline"];
const EVERYWHERE = ["theme", "at", "sel"];

let last = { hash: null };

export function place() {
  if (last.hash === location.hash) return last;
  const [view, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  last = { hash: location.hash, view: VIEWS.includes(view) ? view : "fabric", given: new URLSearchParams(query) };
  return last;
}

// The address of another view, or of this one with some values changed (null takes one away).
export function address(view, changes = {}) {
  const here = place();
  const given = new URLSearchParams();
  for (const [name, value] of here.given) if (view === here.view || EVERYWHERE.includes(name)) given.set(name, value);
  for (const [name, value] of Object.entries(changes)) value === null || value === "" ? given.delete(name) : given.set(name, value);
  const query = given.toString();
  return `#${view}${query ? `?${query}` : ""}`;
}

// Typing replaces the address; opening something is a step one can go back from.
export function put(changes, { step = false, view = place().view } = {}) {
  history[step ? "pushState" : "replaceState"](null, "", address(view, changes));
  window.dispatchEvent(new Event("hashchange"));
}

export const select = (...parts) => put({ sel: parts.map(encodeURIComponent).join("/") }, { step: true });
export const selected = () => (place().given.get("sel") ?? "").split("/").map(decode);

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
