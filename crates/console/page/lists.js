// Reminders, streams, stores, settings.
import { h, put, num, span, nanos, ask, Table, grainLink, siloLink, rights, confirmAct, every } from "./base.js";
import { live } from "./live.js";

export const reminders = {
  see: "reminders",
  show(root) {
    const act = (row, kind, words) => confirmAct(words, { act: kind, type: row.type, key: row.key, name: row.name });
    const table = new Table({
      id: (r) => `${r.type} ${r.key} ${r.name}`, sort: { by: "in", down: false }, empty: "No reminder is in the memory of a silo.",
      open: (row) => { location.hash = `#/grain/${encodeURIComponent(row.type)}/${encodeURIComponent(row.key)}`; },
      columns: [
        { name: "grain", label: "Grain", text: (r) => `${r.type}/${r.key}`, draw: (r) => grainLink(r.type, r.key, `${r.type}/${r.key}`) },
        { name: "name", label: "Reminder", text: (r) => r.name },
        { name: "in", label: "Next", n: true, value: (r) => r.inMs, text: (r) => (r.inMs === null ? "–" : r.inMs < 0 ? `${span(-r.inMs)} late` : `in ${span(r.inMs)}`) },
        { name: "at", label: "At", wide: true, text: (r) => r.next ?? "–", class: "soft" },
        { name: "failed", label: "Failed tries", n: true, value: (r) => r.failed, text: (r) => num(r.failed) },
        { name: "fired", label: "Fired", n: true, value: (r) => r.fired, text: (r) => num(r.fired) },
        { name: "missed", label: "Missed", n: true, value: (r) => r.missed, text: (r) => num(r.missed) },
        { name: "silo", label: "Silo", wide: true, text: (r) => r.silo?.label ?? r.silo, draw: (r) => siloLink(r.silo) },
        { name: "act", label: "", text: () => String(rights.acts), draw: (r) => (rights.acts ? h("span", {},
          h("button", { onclick: () => act(r, "fire_reminder", `Fire ${r.name} of ${r.type}/${r.key} now?`) }, "Fire"), " ",
          h("button", { class: "danger", onclick: () => act(r, "remove_reminder", `Remove ${r.name} of ${r.type}/${r.key}?`) }, "Remove")) : "") },
      ],
      classes: (r) => (r.inMs !== null && r.inMs < -5000 ? "differ" : ""),
    });
    const total = h("small", {});
    root.append(h("h1", {}, "Reminders", total), h("section", { class: "panel" }, h("h2", {}, "Due next", h("small", {}, "late ones first, 30 of each silo")), table.element));
    return {
      update(picture) {
        put(total, `${num(picture.totals.at(-1)?.reminders)} in memory`);
        if (picture.reminders) table.update(picture.reminders);
      },
    };
  },
};

const labels = (pairs) => pairs.map(([, value]) => value).join(" · ");

/** A page of metrics whose names begin so, with their rates. */
function metricsPage(title, names, groups, note) {
  return {
    see: "",
    show(root) {
      const tables = groups.map(([name, words, timed]) => {
        const table = new Table({
          id: (r) => r.id, sort: { by: timed ? "rate" : "value", down: true }, empty: "Nothing was counted yet.",
          columns: [
            { name: "labels", label: timed ? "Request" : "Which", text: (r) => labels(r.labels) || "all" },
            { name: "rate", label: "A second", n: true, value: (r) => r.rate, text: (r) => num(r.rate) },
            { name: "value", label: timed ? "Since the start" : "Now", n: true, value: (r) => r.value, text: (r) => num(r.value) },
            ...(timed ? [
              { name: "p50", label: "p50", n: true, value: (r) => r.p50, text: (r) => nanos(r.p50) },
              { name: "p99", label: "p99", n: true, value: (r) => r.p99, text: (r) => nanos(r.p99) }] : []),
          ],
        });
        return { name, table, panel: h("section", { class: "panel" }, h("h2", {}, words, h("small", {}, name)), table.element) };
      });
      const trouble = h("p", { class: "bad", hidden: true });
      root.append(h("h1", {}, title, h("small", {}, note)), trouble, ...tables.map(({ panel }) => panel));
      let before = new Map();
      let at = 0;
      async function load() {
        try {
          const rows = (await ask("metrics", { names })).map(([name, pairs, value, p50, p99]) => ({ id: `${name} ${JSON.stringify(pairs)}`, name, labels: pairs, value, p50, p99 }));
          const now = performance.now();
          for (const row of rows) {
            const was = before.get(row.id);
            row.rate = was === undefined || !at ? 0 : Math.max(0, ((row.value - was) * 1000) / (now - at));
          }
          before = new Map(rows.map((row) => [row.id, row.value]));
          at = now;
          for (const { name, table } of tables) table.update(rows.filter((row) => row.name === name));
          trouble.hidden = true;
        } catch (error) { put(trouble, error.message); trouble.hidden = false; }
      }
      load();
      const stop = every(2000, load);
      return { end: stop };
    },
  };
}

export const stores = metricsPage("Stores", "emmer_store_,emmer_state_,emmer_membership_table_", [
  ["emmer_store_request_seconds", "Requests to the system store", true], ["emmer_store_requests_total", "Requests by outcome", false],
  ["emmer_state_operations_total", "States and journals of grains, by outcome", false], ["emmer_membership_table_answer_age_seconds", "Seconds since the membership table answered", false],
  ["emmer_membership_table_unavailable_total", "Times that the membership table was away", false],
], "sums of all silos");

export const streams = metricsPage("Streams and observers", "emmer_stream", [
  ["emmer_streams", "Streams that are open", false], ["emmer_stream_values_total", "Values", false], ["emmer_streams_broken_total", "Streams that broke", false],
], "sums of all silos: answers and arguments that are streams, topics, observers");

export const settings = {
  see: "",
  show(root) {
    const filter = h("input", { type: "search", placeholder: "Filter settings", "aria-label": "Filter settings", oninput: () => draw() });
    const set = h("input", { type: "checkbox", onchange: () => draw() });
    const differ = h("input", { type: "checkbox", onchange: () => draw() });
    const table = new Table({
      id: (r) => r.key, limit: 1000, sort: { by: "order", down: false }, empty: "No such setting.", classes: (r) => (r.differs ? "differ" : ""),
      columns: [
        { name: "order", label: "Setting", value: (r) => r.at, text: (r) => r.key, class: "mono" },
        { name: "value", label: "Value", text: (r) => JSON.stringify(r.values), class: "more mono",
          draw: (r) => (r.differs ? h("div", {}, r.values.map((one) => h("div", {}, one.value ?? "–", h("span", { class: "soft" }, ` on ${names(one.silos)}`)))) : h("span", {}, r.values[0]?.value ?? "–")) },
        { name: "place", label: "From", text: (r) => [...new Set(r.values.map((one) => one.place ?? "default"))].join(", "), class: "more soft" },
      ],
    });
    const names = (silos) => {
      const all = silos.slice(0, 5).map((silo) => live.byAddress.get(silo)?.label ?? silo).join(", ");
      return silos.length > 5 ? `${all} and ${silos.length - 5} more` : all;
    };
    root.append(h("h1", {}, "Settings", h("small", {}, "secrets are left out")), h("div", { class: "bar" }, filter, h("label", {}, set, "not a default"), h("label", {}, differ, "that differ")),
      h("section", { class: "panel" }, table.element));
    let rows = [];
    function draw() {
      const text = filter.value.toLowerCase();
      table.update(rows.filter((row) => (!text || row.key.toLowerCase().includes(text)) && (!set.checked || row.values.some((one) => one.place)) && (!differ.checked || row.differs)));
    }
    ask("settings").then((told) => {
      // Names and addresses are each silo's own.
      const own = new Set(["name", "listen", "advertise", "gateway", "advertise_gateway", "telemetry", "console"]);
      rows = told.map((row, at) => ({ ...row, at, differs: !own.has(row.key) && new Set(row.values.map((one) => one.value)).size > 1 }));
      for (const row of rows) if (!row.differs && !own.has(row.key)) row.values = row.values.slice(0, 1);
      for (const row of rows) if (own.has(row.key)) row.values = [{ value: [...new Set(row.values.map((one) => one.value ?? "–"))].slice(0, 6).join(", "), place: row.values[0]?.place, silos: [] }];
      draw();
    }).catch((error) => { put(table.nothing, error.message); table.update([]); });
    return {};
  },
};
