// The live pictures. The order of fields is that of serve/frames.rs.
import { endpoint } from "./base.js";

const KEPT = 180;

const OWN = ["readiness", "view", "emmer", "up", "cpu", "memory", "memoryBytes", "activations", "turns",
  "refused", "waiting", "suspended", "held", "inFlight", "timers", "reminders", "missed", "probes"];
const ROWS = {
  types: ["type", "silos", "activations", "most", "busy", "activated", "failed", "bytes"],
  methods: ["type", "method", "rate", "errors", "failures", "calls", "p50", "p99", "share", "buckets"],
};

const named = (names, values) => Object.fromEntries(names.map((name, at) => [name, values[at]]));

export const live = {
  base: null, types: null, methods: null, hot: null, turns: null, queues: null, reminders: null,
  silos: [], byAddress: new Map(), totals: [], at: 0, connected: false,
};

let source = null;
let seen = null;
const listeners = new Set();

/** Calls back after each picture. Returns how to end that. */
export function onPicture(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let waiting = false;
function changed() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; listeners.forEach((listener) => listener(live)); });
  // A page that is not seen has no frames.
  if (document.hidden) waiting = false;
}

const siloAt = (place) => (typeof place === "number" ? live.silos[place] : place);

function base(told) {
  live.base = told;
  live.at = Date.now();
  live.silos = told.silos.map(([address, name, role, status, duty, suspected, own]) => {
    const silo = { address, name, role, status, duty, suspected, own: own && named(OWN, own) };
    silo.label = name || endpoint(address);
    return silo;
  });
  live.byAddress = new Map(live.silos.map((silo) => [silo.address, silo]));
  for (const silo of live.silos) {
    silo.suspected = silo.suspected.map(siloAt);
    if (silo.own) silo.own.probes = silo.own.probes.map(siloAt);
  }
  const sum = (of) => live.silos.reduce((all, silo) => all + (silo.own ? of(silo.own) ?? 0 : 0), 0);
  live.totals.push({
    at: live.at, turns: sum((own) => own.turns), activations: sum((own) => own.activations),
    waiting: sum((own) => own.waiting), suspended: sum((own) => own.suspended), held: sum((own) => own.held),
    refused: sum((own) => own.refused), inFlight: sum((own) => own.inFlight), missed: sum((own) => own.missed),
    reminders: sum((own) => own.reminders), timers: sum((own) => own.timers),
  });
  if (live.totals.length > KEPT) live.totals.shift();
}

const parts = {
  base,
  types: (told) => { live.types = told.map((row) => named(ROWS.types, row)); },
  methods: (told) => { live.methods = told.map((row) => named(ROWS.methods, row)); },
  hot: (told) => {
    const rows = (list) => list.map(([silo, type, key, rate]) => ({ silo: siloAt(silo), type, key, rate }));
    live.hot = { called: rows(told.called), busy: rows(told.busy) };
  },
  turns: (told) => {
    live.turns = {
      turns: told.turns.map(([silo, type, key, method, age, caller, chain, waitsFor]) => (
        { silo: siloAt(silo), type, key, method, age, caller, chain, waitsFor })),
      threads: told.threads.map(([silo, thread, method, grain, held]) => (
        { silo: siloAt(silo), thread, method, grain, held })),
    };
  },
  queues: (told) => {
    live.queues = told.map(([silo, type, key, waits]) => ({ silo: siloAt(silo), type, key, waiting: waits }));
  },
  reminders: (told) => {
    live.reminders = told.map(([silo, type, key, name, next, inMs, failed, fired, missed]) => (
      { silo: siloAt(silo), type, key, name, next, inMs, failed, fired, missed }));
  },
};

/** Has these parts of the pictures sent, besides the silos. */
export function see(wanted) {
  if (seen === wanted && source && source.readyState !== EventSource.CLOSED) return;
  seen = wanted;
  source?.close();
  for (const part of Object.keys(parts)) if (part !== "base") live[part] = null;
  source = new EventSource(`/events?see=${encodeURIComponent(wanted)}`);
  for (const [name, take] of Object.entries(parts)) {
    source.addEventListener(name, (event) => {
      try { take(JSON.parse(event.data)); } catch (error) { console.error(name, error); }
      live.connected = true;
      changed();
    });
  }
  source.onerror = () => {
    live.connected = false;
    changed();
    // A refusal ends the browser's own tries.
    if (source.readyState === EventSource.CLOSED) {
      fetch("/api/me").then((response) => {
        if (response.status === 401) document.dispatchEvent(new Event("stranger"));
        else setTimeout(() => { if (seen === wanted) see(wanted); }, 2000);
      }).catch(() => setTimeout(() => { if (seen === wanted) see(wanted); }, 2000));
    }
  };
}

// A hidden page asks for nothing. A browser has few connections for all its pages, too.
document.addEventListener("visibilitychange", () => {
  const wanted = seen;
  if (wanted === null) return;
  if (document.hidden) {
    source?.close();
  } else {
    see(wanted);
  }
});

/** Lines that are worth a look, the worst first: [level, title, words, link]. */
export function looks() {
  const out = [];
  const silos = live.silos;
  if (live.base?.trouble) out.push(["bad", "The cluster does not answer", live.base.trouble, null]);
  const newest = live.base?.view ?? 0;
  for (const silo of silos) {
    const link = `#/silo/${encodeURIComponent(silo.address)}`;
    if (silo.status === "Dead") continue;
    const by = silo.suspected.map((other) => other.label ?? endpoint(other)).join(", ");
    if (by) out.push(["bad", `${silo.label} is suspected`, `by ${by}`, link]);
    if (silo.status === "Active" && !silo.own) { out.push(["warn", `${silo.label} does not answer`, "its numbers are missing", link]); continue; }
    if (!silo.own) continue;
    const own = silo.own;
    if (own.readiness !== "ready" && silo.status === "Active") out.push(["bad", `${silo.label} runs no turns`, own.readiness, link]);
    if (own.held > 0) out.push(["bad", `${own.held} thread${own.held > 1 ? "s" : ""} of ${silo.label} held by turns`, "without an await: other grains wait for the thread", "#/turns"]);
    if (own.refused > 0) out.push(["warn", `${silo.label} refuses calls`, `${own.refused.toFixed(1)} in a second: a limit is reached`, link]);
    if (own.missed > 0) out.push(["warn", `${silo.label} misses ticks of reminders`, `${own.missed.toFixed(2)} in a second`, "#/reminders"]);
    if (newest - own.view > 1) out.push(["warn", `${silo.label} has an older view`, `version ${own.view} of ${newest}`, link]);
    if (own.memory > 90) out.push(["warn", `${silo.label} is short of memory`, `${own.memory} % in use`, link]);
    if (silo.duty !== "Full") out.push(["warn", `${silo.label} is ${silo.duty.toLowerCase()}`, "an operator's word", link]);
  }
  const versions = new Set(silos.map((silo) => silo.own?.emmer).filter(Boolean));
  if (versions.size > 1) out.push(["warn", "Several versions of Emmer run", [...versions].join(", "), "#/"]);
  return out.sort((a, b) => (a[0] === b[0] ? 0 : a[0] === "bad" ? -1 : 1));
}
