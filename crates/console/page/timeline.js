// The history of the membership, scrubbed back and forth.
import { h, put, ask, day, clock, span, endpoint, color, paper, every } from "./base.js";
import { live } from "./live.js";

const LANE = 22;
const ENDS = new Set(["died", "left", "replaced", "given-up"]);
export const WORDS = {
  joins: "joins", joined: "is active", suspected: "is suspected", trusted: "is trusted again", cordoned: "is cordoned", drains: "drains",
  drained: "is drained", resumed: "has its full duty", "asked-to-leave": "is asked to leave", leaves: "leaves", left: "has left",
  "given-up": "has given up joining", died: "is declared dead", replaced: "is replaced", removed: "is removed from the table",
};

/** Acts of operators. */
const ACTS = {
  deactivated: "ends a grain", moved: "moves a grain", "reminder-removed": "removes a reminder", "reminder-fired": "fires a reminder",
  traced: "traces a grain", "log-changed": "changes its log",
};

const isMember = (change) => Object.hasOwn(WORDS, change);

/** State of each silo after the changes up to `until`. */
export function stateAt(changes, until) {
  const silos = new Map();
  for (const one of changes) {
    if (one.at_ms > until) break;
    if (!isMember(one.change)) continue;
    if (one.change === "removed") { silos.delete(one.silo); continue; }
    const silo = silos.get(one.silo) ?? { silo: one.silo, name: one.name, state: "active", since: one.at_ms };
    const state = { joins: "joining", joined: "active", suspected: "suspected", trusted: "active", leaves: "leaving", "asked-to-leave": "leaving",
      left: "left", died: "dead", replaced: "dead", "given-up": "dead", cordoned: "cordoned", drains: "draining", drained: "drained", resumed: "active" }[one.change];
    silos.set(one.silo, { ...silo, state, since: one.at_ms, by: one });
  }
  return [...silos.values()];
}

const tintOf = (state) => ({ active: "ok", suspected: "bad", dead: "bad", left: "soft" }[state] ?? "warn");

export default {
  see: "",
  show(root) {
    const canvas = h("canvas", { class: "lanes", role: "img", "aria-label": "Lives of the silos over time" });
    const slider = h("input", { type: "range", min: 0, max: 1000, value: 1000, "aria-label": "Moment" });
    const moment = h("b", { class: "mono" });
    const now = h("button", { type: "button", onclick: () => { at = null; draw(); } }, "Now");
    const spans = h("select", { "aria-label": "Span", onchange: () => draw() },
      [["120000", "2 min"], ["600000", "10 min"], ["3600000", "1 h"], ["86400000", "1 d"], ["604800000", "7 d"], ["0", "All"]].map(([value, words]) => h("option", { value }, words)));
    const state = h("div", {});
    const list = h("ul", { class: "changes" });
    const back = h("button", { type: "button", title: "Change before", onclick: () => hop(-1) }, "← change");
    const forth = h("button", { type: "button", title: "Next change", onclick: () => hop(1) }, "change →");
    spans.value = "3600000";
    let chosen = false;
    spans.addEventListener("change", () => { chosen = true; });
    root.append(h("h1", {}, "Timeline", h("small", {}, "the changes that the cluster has recorded in its store")),
      h("section", { class: "panel" }, h("div", { class: "bar" }, moment, h("span", { class: "gap" }), back, forth, now, spans), canvas, slider),
      h("div", { class: "grid" }, h("section", { class: "panel s5" }, h("h2", {}, "The cluster at that moment"), state),
        h("section", { class: "panel s7" }, h("h2", {}, "Changes up to then", h("small", {}, "with the evidence")), list)));
    let changes = [];
    let at = null;
    let trouble = null;
    let view = null;
    async function load() {
      try {
        changes = (await ask("history")).sort((a, b) => a.at_ms - b.at_ms || a.version - b.version);
        trouble = null;
        // The shortest span that shows all, until another one is chosen.
        const age = Date.now() - (changes[0]?.at_ms ?? Date.now());
        if (!chosen) spans.value = [120000, 600000, 3600000, 86400000].find((one) => age < one * 0.9) ?? "604800000";
      } catch (error) { trouble = error.message; }
      draw();
    }
    const range = () => {
      const end = Date.now();
      const width = Number(spans.value);
      const first = changes[0]?.at_ms ?? end - 60000;
      return [width ? end - width : first - 0.02 * (end - first) - 1000, end];
    };
    function hop(by) {
      const from = at ?? Date.now();
      const to = by < 0 ? changes.findLast((one) => one.at_ms < from) : changes.find((one) => one.at_ms > from);
      if (to) at = to.at_ms;
      else if (by > 0) at = null;
      const [start] = range();
      if (at !== null && at < start) spans.value = "0";
      draw();
    }
    slider.addEventListener("input", () => {
      const [start, end] = range();
      at = slider.value === "1000" ? null : start + (slider.value / 1000) * (end - start);
      draw();
    });
    const pick = (event) => {
      const [start, end] = range();
      const share = event.offsetX / canvas.clientWidth;
      at = share > 0.995 ? null : start + share * (end - start);
      draw();
    };
    canvas.addEventListener("pointerdown", pick);
    canvas.addEventListener("pointermove", (event) => { if (event.buttons) pick(event); });

    function lanes(start, end) {
      const lives = new Map();
      for (const one of changes) {
        if (!isMember(one.change)) continue;
        const life = lives.get(one.silo) ?? { silo: one.silo, name: one.name, from: one.at_ms, to: null, marks: [] };
        life.marks.push(one);
        if (ENDS.has(one.change)) { life.to = one.at_ms; life.end = one.change; }
        lives.set(one.silo, life);
      }
      // Members that the history is too young for.
      for (const silo of live.silos) {
        if (silo.status !== "Dead" && !lives.has(silo.address)) {
          lives.set(silo.address, { silo: silo.address, name: silo.name, from: live.at - (silo.own?.up ?? 0), to: null, marks: [] });
        }
      }
      const seen = [...lives.values()].filter((life) => life.from <= end && (life.to ?? end) >= start);
      return seen.sort((a, b) => a.from - b.from || a.silo.localeCompare(b.silo)).slice(-60);
    }
    function draw() {
      const [start, end] = range();
      const rows = lanes(start, end);
      canvas.style.height = `${Math.max(1, rows.length) * LANE + 26}px`;
      const { context: c, width, height } = paper(canvas);
      if (width === 0) return;
      const x = (ms) => ((ms - start) / (end - start)) * width;
      c.font = "11px system-ui, sans-serif";
      c.textBaseline = "middle";
      c.fillStyle = color("soft");
      c.strokeStyle = color("line");
      const ticks = Math.max(2, Math.floor(width / 150));
      for (let tick = 1; tick < ticks; tick += 1) {
        const place = (tick / ticks) * width;
        const when = start + (tick / ticks) * (end - start);
        c.beginPath();
        c.moveTo(place, 0);
        c.lineTo(place, height - 20);
        c.stroke();
        c.textAlign = "center";
        c.fillText(end - start > 86400000 ? day(when).slice(5, 16) : clock(when), place, height - 9);
      }
      rows.forEach((life, at) => {
        const y = at * LANE + 3;
        const [from, to] = [Math.max(0, x(life.from)), Math.min(width, x(life.to ?? end))];
        c.globalAlpha = life.to ? 0.28 : 0.5;
        c.fillStyle = color(life.to ? "soft" : "ok");
        c.beginPath();
        c.roundRect(from, y, Math.max(3, to - from), LANE - 7, 4);
        c.fill();
        c.globalAlpha = 1;
        // The time under suspicion.
        let since = null;
        for (const mark of life.marks) {
          if (mark.change === "suspected") since ??= mark.at_ms;
          if (since !== null && (mark.change === "trusted" || ENDS.has(mark.change))) {
            c.fillStyle = color("bad");
            c.globalAlpha = 0.55;
            c.fillRect(x(since), y, Math.max(2, x(mark.at_ms) - x(since)), LANE - 7);
            c.globalAlpha = 1;
            since = null;
          }
        }
        for (const mark of life.marks) {
          c.fillStyle = color(mark.change === "died" || mark.change === "suspected" ? "bad" : mark.change === "joined" ? "ok" : "warn");
          c.beginPath();
          c.arc(Math.max(4, Math.min(width - 4, x(mark.at_ms))), y + (LANE - 7) / 2, mark.change === "died" ? 5 : 3, 0, Math.PI * 2);
          c.fill();
        }
        c.fillStyle = color("text");
        c.textAlign = "left";
        c.fillText(life.name || endpoint(life.silo), Math.max(8, from + 10), y + (LANE - 7) / 2 + 0.5, Math.max(40, width - from - 20));
      });
      const line = at === null ? width - 1 : x(at);
      c.strokeStyle = color("brand");
      c.lineWidth = 2;
      c.beginPath();
      c.moveTo(line, 0);
      c.lineTo(line, height - 18);
      c.stroke();
      c.lineWidth = 1;
      slider.value = at === null ? 1000 : Math.round(((at - start) / (end - start)) * 1000);
      put(moment, at === null ? "now" : `${day(at)} · ${span(Date.now() - at)} ago`);
      now.disabled = at === null;
      show();
    }
    function show() {
      const until = at ?? Infinity;
      const mark = JSON.stringify([until, changes.length, changes.at(-1)?.version, trouble, at === null ? live.base?.view : 0, at === null ? live.silos.map((silo) => [silo.status, silo.suspected.length]) : 0]);
      if (mark === view) return;
      view = mark;
      const rows = at === null
        ? live.silos.map((silo) => ({ silo: silo.address, name: silo.label, state: silo.suspected.length && silo.status !== "Dead" ? "suspected" : silo.status.toLowerCase() }))
        : stateAt(changes, until);
      rows.sort((a, b) => String(a.name).localeCompare(String(b.name)));
      const shown = rows.slice(0, 200).map((row) => h("tr", {}, h("td", {}, row.name || endpoint(row.silo)), h("td", { class: "mono soft wide" }, endpoint(row.silo)),
        h("td", {}, h("span", { class: `pill ${tintOf(row.state)}` }, row.state)), h("td", { class: "soft" }, row.since ? `since ${clock(row.since)}` : "")));
      state.replaceChildren(shown.length ? h("div", { class: "wrap" }, h("table", {}, h("tbody", {}, shown))) : h("p", { class: "empty" }, "The history does not reach back so far."));
      const told = changes.filter((one) => one.at_ms <= until).slice(-120).reverse();
      const items = told.map((one) => {
        const words = WORDS[one.change] ?? (ACTS[one.change] ? `${ACTS[one.change]} for an operator` : one.change);
        const bad = one.change === "died" || one.change === "suspected";
        return h("li", { "data-change": one.change }, h("time", { title: day(one.at_ms) }, clock(one.at_ms)), h("div", {},
          h("b", {}, one.name || endpoint(one.silo)), " ", h("span", { class: bad ? "bad" : one.change === "joined" ? "ok" : "" }, words),
          h("span", { class: "soft" }, ` · version ${one.version}, written by ${nameOf(one.writer)}`),
          one.evidence.map((line) => h("div", { class: "more" }, evidence(line)))));
      });
      if (trouble) items.unshift(h("li", {}, h("span", {}), h("span", { class: "bad" }, trouble)));
      list.replaceChildren(...(items.length ? items : [h("li", {}, h("span", {}), h("span", { class: "soft" }, "Nothing is recorded. Silos record changes with records.history_retention."))]));
    }
    // As in `ip:port:epoch at 2026-11-30T20:52:27.673Z: its process is gone`.
    const evidence = (line) => line.replace(/^(\S+:\d+) at \S+T(\S+)Z/, (_, silo, time) => `${nameOf(silo)} at ${time} UTC`);
    const nameOf = (address) => changes.findLast((one) => one.silo === address)?.name || live.byAddress.get(address)?.label || endpoint(address);
    load();
    const stop = every(4000, load);
    const resized = () => { view = null; draw(); };
    window.addEventListener("resize", resized);
    let version = 0;
    return {
      end: () => { stop(); window.removeEventListener("resize", resized); },
      update({ base }) {
        // A change that was just seen will be in the history in a moment.
        if (base.view !== version) { version = base.view; load(); } else if (at === null) draw();
      },
    };
  },
};
