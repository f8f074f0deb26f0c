// The whole cluster at a glance, and one silo's page.
import { h, put, num, bytes, span, clock, endpoint, siloLink, Table, meter, spark, ask, actButton, every } from "./base.js";
import { live, looks } from "./live.js";
import { Ring, tint } from "./ring.js";
import { WORDS } from "./timeline.js";

const TILES = [
  ["silos", "Silos", null], ["turns", "Turns a second", "turns"], ["activations", "Activations", "activations"],
  ["waiting", "Calls that wait", "waiting"], ["inFlight", "Calls on their way", "inFlight"], ["refused", "Refused a second", "refused"],
];

export const statusPill = (silo) => {
  const level = { ok: "ok", warn: "warn", bad: "bad", soft: "" }[tint(silo)];
  const words = silo.status === "Active" && silo.suspected.length > 0 ? "suspected"
    : silo.status === "Active" && silo.duty !== "Full" ? silo.duty.toLowerCase()
      : silo.status === "Active" && silo.own && silo.own.readiness !== "ready" ? "fenced" : silo.status.toLowerCase();
  return h("span", { class: `pill ${level}` }, words);
};

const level = (percent) => (percent > 90 ? "bad" : percent > 75 ? "warn" : "");

function siloTable() {
  let most = 1;
  const share = (of) => (silo) => (silo.own ? of(silo.own) : null);
  const table = new Table({
    id: (silo) => silo.address,
    open: (silo) => { location.hash = `#/silo/${encodeURIComponent(silo.address)}`; },
    // Those that need a look stand first.
    sort: { by: "status", down: false },
    columns: [
      { name: "name", label: "Silo", text: (s) => s.label, draw: siloLink },
      { name: "status", label: "Status", value: (s) => ["bad", "warn", "ok", "soft"].indexOf(tint(s)), text: (s) => s.status, mark: (s) => [tint(s), s.status, s.duty], draw: statusPill },
      { name: "address", label: "Address", wide: true, text: (s) => endpoint(s.address), class: "mono soft" },
      { name: "activations", label: "Activations", n: true, value: share((o) => o.activations),
        text: (s) => [num(s.own?.activations), Math.round((100 * (s.own?.activations ?? 0)) / most)].join(),
        draw: (s) => (s.own ? meter(s.own.activations / most, num(s.own.activations)) : "–") },
      { name: "turns", label: "Turns/s", n: true, value: share((o) => o.turns), text: (s) => num(s.own?.turns) },
      { name: "waiting", label: "Waiting", n: true, value: share((o) => o.waiting), text: (s) => num(s.own?.waiting) },
      { name: "suspended", label: "Suspended", n: true, wide: true, value: share((o) => o.suspended), text: (s) => num(s.own?.suspended) },
      { name: "cpu", label: "CPU", n: true, value: share((o) => o.cpu), text: (s) => `${s.own?.cpu ?? "–"}`,
        draw: (s) => (s.own?.cpu == null ? "–" : meter(s.own.cpu / 100, `${s.own.cpu} %`, level(s.own.cpu))) },
      { name: "memory", label: "Memory", n: true, value: share((o) => o.memoryBytes), text: (s) => bytes(s.own?.memoryBytes) },
      { name: "view", label: "View", n: true, wide: true, value: share((o) => o.view), text: (s) => num(s.own?.view) },
      { name: "up", label: "Up", n: true, wide: true, value: share((o) => o.up), text: (s) => span(s.own?.up) },
    ],
    empty: "No silo is there.",
  });
  return {
    table,
    update: (silos) => {
      most = Math.max(1, ...silos.map((silo) => silo.own?.activations ?? 0));
      table.update(silos);
    },
  };
}

/** A text with the names of silos in place of their addresses. */
const withNames = (words) => words.split(" ").map((word) => live.byAddress.get(word)?.label ?? word).join(" ");

function changes(events) {
  return events.map(([at, address, name, words]) => h("li", {},
    h("time", {}, clock(at)),
    h("div", {}, siloLink(live.byAddress.get(address) ?? address), ` ${live.byAddress.has(address) || !name ? "" : `(${name}) `}`,
      h("span", { class: words.includes("dead") || words.includes("suspect") ? "bad" : words.includes("active") ? "ok" : "" }, withNames(words)))));
}

export default {
  see: "",
  show(root) {
    const tiles = TILES.map(([name, label, series]) => {
      const value = h("b", {}, "–");
      const canvas = series ? h("canvas", { "aria-hidden": "true" }) : h("span", {});
      const element = h("div", { class: "tile", "data-name": name }, h("span", {}, label), value, canvas);
      return { name, series, value, canvas, element };
    });
    const look = h("ul", { class: "looks", "aria-live": "polite" });
    const ring = new Ring();
    const silos = siloTable();
    const events = h("ul", { class: "changes" });
    const filter = h("input", { type: "search", placeholder: "Filter silos", "aria-label": "Filter silos", oninput: () => update(live) });
    root.append(
      h("div", { class: "tiles" }, tiles.map((tile) => tile.element)), look,
      h("div", { class: "grid" },
        h("section", { class: "panel s7" }, h("h2", {}, "Who probes whom", h("small", {}, "lines go from a silo to the silos that it probes")), ring.canvas,
          h("div", { class: "legend" }, [["ok", "active"], ["warn", "joins, leaves, cordoned or silent"], ["bad", "suspected, or runs no turns"]].map(([c, words]) =>
            h("span", {}, h("i", { class: `c-${c}` }), words)))),
        h("section", { class: "panel s5" }, h("h2", {}, "Changes", h("a", { class: "to soft", href: "#/timeline" }, h("small", {}, "timeline"))), events)),
      h("section", { class: "panel" }, h("div", { class: "split" }, h("h2", {}, "Silos"), h("span", { class: "gap" }), filter), silos.table.element));
    let drawn = "";
    let told = "";
    let before = [];
    ask("history").then((all) => {
      before = all.filter((one) => WORDS[one.change]).map((one) => [one.at_ms, one.silo, one.name, WORDS[one.change] ?? one.change]);
      update(live);
    }).catch(() => { /* The timeline says why. */ });
    function update({ base, silos: all, totals }) {
      if (!base) return;
      const last = totals.at(-1) ?? {};
      const alive = all.filter((silo) => silo.status !== "Dead");
      const active = alive.filter((silo) => silo.status === "Active" && silo.suspected.length === 0);
      for (const tile of tiles) {
        if (tile.name === "silos") {
          put(tile.value, active.length);
          tile.value.append(h("small", {}, ` of ${alive.length}`));
          put(tile.canvas, `${all.length - alive.length} dead of late`);
          tile.element.classList.toggle("bad", active.length < alive.length);
        } else {
          put(tile.value, num(last[tile.name]));
          spark(tile.canvas, totals.map((total) => total[tile.series]), tile.name === "refused" ? "bad" : "info");
        }
        if (tile.name === "refused") tile.element.classList.toggle("bad", last.refused > 0);
      }
      const found = looks();
      const mark = JSON.stringify([found, active.length, base.view]);
      if (mark !== drawn) {
        drawn = mark;
        const row = ([kind, title, words, link]) => h("li", { class: kind }, link ? h("a", { class: "to", href: link }, title) : h("span", {}, title), h("span", {}, words));
        const shown = found.slice(0, 8).map(row);
        if (found.length > 8) shown.push(h("li", {}, h("span", {}, `${found.length - 8} more`)));
        look.replaceChildren(...(shown.length ? shown : [h("li", { class: "ok" }, h("span", {}, "Nothing needs a look"), h("span", {}, `${active.length} silos, view ${base.view}`))]));
      }
      ring.update(all);
      const first = base.events.at(-1)?.[0] ?? Infinity;
      const list = base.events.concat(before.filter(([at]) => at < first - 1500)).slice(0, 40);
      const seen = JSON.stringify([list, all.map((silo) => silo.address)]);
      if (seen !== told) {
        told = seen;
        events.replaceChildren(...(list.length ? changes(list) : [h("li", {}, h("span", {}), h("span", { class: "soft" }, "None yet."))]));
      }
      const text = filter.value.toLowerCase();
      silos.update(text ? all.filter((silo) => `${silo.label} ${silo.address} ${silo.status} ${silo.role}`.toLowerCase().includes(text)) : all);
    }
    const resized = () => update(live);
    window.addEventListener("resize", resized);
    return { update, end: () => window.removeEventListener("resize", resized) };
  },
};

export const siloPage = {
  see: "",
  show(root, [address]) {
    const title = h("h1", {}, endpoint(address));
    const facts = h("dl", { class: "facts" });
    const acts = h("div", { class: "bar" });
    const order = (label, words, duty, danger) => actButton(label, words, { act: "duty", silo: address, duty }, danger);
    const table = new Table({
      id: (row) => `${row.silo ?? ""} ${row.from ?? ""} ${row.client ?? ""}`,
      sort: { by: "waiting", down: true },
      columns: [
        { name: "peer", label: "Other end", text: (r) => r.silo ?? r.client ?? r.from ?? "a client", draw: (r) => (r.silo ? siloLink(live.byAddress.get(r.silo) ?? r.silo) : h("span", {}, `client ${r.client ?? ""} ${r.from ?? ""}`)) },
        { name: "waiting", label: "Waits to be sent", n: true, value: (r) => r.bytes_waiting, text: (r) => `${bytes(r.bytes_waiting)} in ${num(r.messages_waiting)}` },
        { name: "calls", label: "Calls out", n: true, value: (r) => r.calls_waiting, text: (r) => num(r.calls_waiting) },
        { name: "serving", label: "Calls in", n: true, value: (r) => r.calls_serving, text: (r) => num(r.calls_serving) },
        { name: "sent", label: "Sent", n: true, value: (r) => r.bytes_sent, text: (r) => bytes(r.bytes_sent) },
        { name: "received", label: "Received", n: true, value: (r) => r.bytes_received, text: (r) => bytes(r.bytes_received) },
      ],
      empty: "No connections.",
    });
    root.append(title, acts, h("div", { class: "grid" }, h("section", { class: "panel s5" }, h("h2", {}, "Silo"), facts),
      h("section", { class: "panel s7" }, h("h2", {}, "Connections", h("small", {}, "those with most that waits first")), table.element)));
    acts.append(...[
      order("Cordon", "Have this silo take no new grains?", "cordoned"), order("Uncordon", "Have this silo take new grains again?", "full"),
      order("Drain", "Have all grains of this silo go to other silos?", "draining", true), order("Even out", "Have this silo give recently used grains to silos that have fewer?", "giving"), order("Stop", "Have this silo leave the cluster, in good order?", "leaving", true),
      h("a", { class: "to soft", href: `#/log/${encodeURIComponent(address)}` }, "Log"),
    ].filter(Boolean));
    let asked = false;
    async function connections() {
      if (asked) return;
      asked = true;
      try { table.update(await ask("connections", { silo: address })); } catch (error) { put(table.nothing, error.message); table.update([]); }
      asked = false;
    }
    connections();
    const stop = every(2000, connections);
    return {
      end: stop,
      update({ byAddress, silos }) {
        const silo = byAddress.get(address);
        if (!silo) { facts.replaceChildren(h("dt", {}, "Status"), h("dd", {}, "It is no member of the cluster any longer.")); return; }
        title.replaceChildren(silo.label, " ", statusPill(silo));
        const own = silo.own;
        const by = silos.filter((other) => other.own?.probes.some((probed) => probed.address === address));
        const all = (list) => (list.length ? list.flatMap((one, at) => [at ? ", " : "", siloLink(one)]) : ["none"]);
        const rows = [
          ["Address", address], ["Role", silo.role], ["Duty", silo.duty], ["Suspected by", all(silo.suspected)],
          ["Probes", all(own?.probes ?? [])], ["Is probed by", all(by)],
        ];
        if (own) {
          rows.push(["Readiness", own.readiness], ["View", own.view], ["Emmer", own.emmer], ["Up", span(own.up)],
            ["Processor", own.cpu == null ? "–" : `${own.cpu} %`], ["Memory", `${bytes(own.memoryBytes)}, ${own.memory ?? "–"} % of the host in use`],
            ["Activations", num(own.activations)], ["Turns", `${num(own.turns)} a second, ${num(own.waiting)} wait, ${num(own.suspended)} suspended`],
            ["Calls", `${num(own.inFlight)} on their way, ${num(own.refused)} refused a second`], ["Timers", num(own.timers)], ["Reminders", num(own.reminders)]);
        }
        facts.replaceChildren(...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
      },
    };
  },
};
