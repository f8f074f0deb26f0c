// Lists of grains, page by page.
import { h, put, num, span, ask, Table, grainLink, siloLink } from "./base.js";
import { live } from "./live.js";

const NOTHING = "No such grain is in memory. Open one by its key to see its state.";

export default {
  see: "types",
  show(root, [type = "", silo = ""]) {
    const kind = h("select", { "aria-label": "Type", onchange: () => { type = kind.value; first(); } }, h("option", { value: "" }, "All types"));
    const where = h("select", { "aria-label": "Silo", onchange: () => { silo = where.value; first(); } }, h("option", { value: "" }, "All silos"));
    const key = h("input", { type: "search", placeholder: "Key has", "aria-label": "Text in the key", spellcheck: "false" });
    const busy = h("input", { type: "checkbox", onchange: () => first() });
    const total = h("small", {});
    const more = h("button", { type: "button", hidden: true, onclick: () => load() }, "Next page");
    const table = new Table({
      id: (row) => `${row.type} ${row.key} ${row.silo}`, limit: 5000, empty: NOTHING,
      open: (row) => { location.hash = `#/grain/${encodeURIComponent(row.type)}/${encodeURIComponent(row.key)}`; },
      sort: { by: "order", down: false },
      columns: [
        { name: "order", label: "Key", value: (r) => r.at, text: (r) => r.key, class: "key", draw: (r) => grainLink(r.type, r.key) },
        { name: "type", label: "Type", text: (r) => r.type },
        { name: "silo", label: "Silo", text: (r) => live.byAddress.get(r.silo)?.label ?? r.silo, draw: (r) => siloLink(live.byAddress.get(r.silo) ?? r.silo) },
        { name: "running", label: "Turn", text: (r) => (r.running ? "runs" : "–") },
        { name: "waiting", label: "Waiting", n: true, value: (r) => r.waiting, text: (r) => num(r.waiting) },
        { name: "idle", label: "Last call", n: true, value: (r) => r.idle, text: (r) => `${span(r.idle)} ago` },
      ],
    });
    root.append(h("h1", {}, "Grains", total), h("div", { class: "bar" }, kind, where, key, h("label", {}, busy, "busy"), h("button", { type: "button", onclick: () => first() }, "Reload")),
      h("section", { class: "panel" }, table.element, more));
    let rows = [];
    let next = null;
    let turn = 0;
    async function load() {
      const mine = turn;
      more.disabled = true;
      try {
        const page = await ask("grains", { type, silo, key: key.value, busy: busy.checked ? "true" : undefined, after: next ?? undefined });
        if (mine !== turn) return;
        rows = rows.concat(page.rows.map(([silo, type, key, waiting, running, idle], at) => ({ silo, type, key, waiting, running, idle, at: rows.length + at })));
        next = page.next;
        put(table.nothing, NOTHING);
      } catch (error) {
        if (mine !== turn) return;
        rows = [];
        next = null;
        put(table.nothing, error.message);
      }
      table.update(rows);
      more.hidden = next === null;
      more.disabled = false;
    }
    function first() { turn += 1; rows = []; next = null; load(); }
    let typing = null;
    key.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(first, 250); });
    let options = "";
    first();
    return {
      update({ types, silos }) {
        if (!types) return;
        put(total, `${num(types.reduce((sum, row) => sum + row.activations, 0))} in memory`);
        const mark = JSON.stringify([types.map((row) => row.type), silos.map((silo) => silo.address)]);
        if (mark === options) return;
        options = mark;
        kind.replaceChildren(h("option", { value: "" }, "All types"), ...types.map((row) => h("option", { value: row.type }, row.type)));
        where.replaceChildren(h("option", { value: "" }, "All silos"), ...silos.filter((silo) => silo.status === "Active").map((silo) => h("option", { value: silo.address }, silo.label)));
        kind.value = type;
        where.value = silo;
      },
    };
  },
};
