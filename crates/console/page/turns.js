// What is stuck: old turns, held threads, long queues, failures.
import { h, num, span, ask, Table, grainLink, titleLink, siloLink, rights, confirmAct, every } from "./base.js";
import { live } from "./live.js";

const open = (row) => { location.hash = `#/grain/${encodeURIComponent(row.type)}/${encodeURIComponent(row.key)}`; };
const grain = { name: "key", label: "Grain", text: (r) => `${r.type}/${r.key}`, draw: (r) => grainLink(r.type, r.key, `${r.type}/${r.key}`) };
const silo = { name: "silo", label: "Silo", text: (r) => r.silo?.label ?? r.silo, draw: (r) => siloLink(r.silo) };

export default {
  see: "turns,queues",
  show(root) {
    const turns = new Table({
      id: (r) => `${r.type} ${r.key} ${r.method} ${r.caller} ${r.silo?.address}`, sort: { by: "age", down: true }, open, empty: "No turn is suspended.",
      columns: [
        grain, { name: "method", label: "Method", text: (r) => r.method },
        { name: "age", label: "For", n: true, value: (r) => r.age, text: (r) => span(r.age), class: "warn" },
        { name: "caller", label: "Called by", wide: true, text: (r) => r.caller ?? "a client", draw: (r) => (r.caller ? titleLink(r.caller) : h("span", { class: "soft" }, "a client")) },
        { name: "waits", label: "Waits for", text: (r) => r.waitsFor.join(", ") || "not for a grain", class: "more",
          draw: (r) => (r.waitsFor.length ? h("span", { class: "chain" }, r.waitsFor.map((one) => h("span", {}, titleLink(one)))) : h("span", { class: "soft" }, "not for a grain")) },
        silo,
        { name: "act", label: "", text: () => String(rights.acts), draw: (r) => (rights.acts ? h("button", { class: "danger", onclick: () =>
          confirmAct(`End ${r.type}/${r.key}, and drop its turns at their next await? Their callers get an error.`, { act: "deactivate", type: r.type, key: r.key, drop_turns: true }) }, "Free") : "") },
      ],
    });
    const threads = new Table({
      id: (r) => `${r.thread} ${r.silo?.address}`, sort: { by: "held", down: true }, empty: "No turn holds a thread.",
      columns: [
        { name: "thread", label: "Thread", text: (r) => r.thread, class: "mono" }, { name: "method", label: "Method", text: (r) => r.method },
        { name: "grain", label: "Grain", text: (r) => r.grain ?? "one of several", draw: (r) => (r.grain ? titleLink(r.grain) : h("span", { class: "soft" }, "one of several")) },
        { name: "held", label: "For", n: true, value: (r) => r.held, text: (r) => span(r.held), class: "bad" }, silo,
      ],
    });
    const queues = new Table({
      id: (r) => `${r.type} ${r.key}`, sort: { by: "waiting", down: true }, open, empty: "No call waits.",
      columns: [grain, { name: "waiting", label: "Calls that wait", n: true, value: (r) => r.waiting, text: (r) => num(r.waiting) }, silo],
    });
    const failures = new Table({
      id: (r) => `${r.type} ${r.key} ${r.method} ${r.at}`, sort: { by: "ago", down: false }, open, empty: "No turn has failed of late.",
      columns: [
        grain, { name: "method", label: "Method", text: (r) => r.method }, { name: "words", label: "Failure", text: (r) => r.words, class: "more bad" },
        { name: "ago", label: "Ago", n: true, value: (r) => r.ago, text: (r) => span(r.ago) }, silo,
      ],
    });
    const panel = (title, small, table, size) => h("section", { class: `panel ${size}` }, h("h2", {}, title, h("small", {}, small)), table.element);
    root.append(h("h1", {}, "Turns and queues"),
      h("div", { class: "grid" }, panel("Turns that wait longest", "begun, and suspended at an await", turns, ""), panel("Threads held by turns", "without an await: a restart alone frees them", threads, "s6"),
        panel("Longest queues", "calls that wait for one grain", queues, "s6"), panel("Last failures", "panics, circles of waiting calls, dropped turns", failures, "")));
    async function load() {
      try {
        const rows = await ask("failures");
        failures.update(rows.map(([silo, type, key, ago, method, words], at) => ({ silo: live.byAddress.get(silo) ?? silo, type, key, ago, method, words, at })));
      } catch (error) { failures.nothing.textContent = error.message; failures.update([]); }
    }
    load();
    const stop = every(3000, load);
    return {
      end: stop,
      update(picture) {
        if (picture.turns) { turns.update(picture.turns.turns); threads.update(picture.turns.threads); }
        if (picture.queues) queues.update(picture.queues);
      },
    };
  },
};
