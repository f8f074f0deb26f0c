// Lines of the log as they come, and its level.
import { h, put, ask, clock, rights, confirmAct, every } from "./base.js";
import { live } from "./live.js";

const KEPT = 3000;
const LEVELS = ["error", "warn", "info", "debug", "trace"];
const TINT = { error: "bad", warn: "warn", info: "ok" };

export default {
  see: "",
  show(root, [silo = ""]) {
    const where = h("select", { "aria-label": "Silo", onchange: () => { silo = where.value; again(); } });
    const level = h("select", { "aria-label": "Level", onchange: () => again() }, LEVELS.map((one) => h("option", { value: one }, one)));
    const filter = h("input", { type: "search", placeholder: "Lines that have", "aria-label": "Filter lines", oninput: () => redraw() });
    const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
      paused = !paused;
      put(pause, paused ? "Continue" : "Pause");
      pause.setAttribute("aria-pressed", String(paused));
    } }, "Pause");
    const lines = h("div", { class: "panel log", tabindex: 0, role: "log", "aria-label": "Lines of the log" });
    const state = h("span", { class: "soft" });
    const change = h("button", { type: "button", onclick: () => setLevel() }, "Change for 10 minutes");
    const wanted = h("input", { placeholder: "debug, or warn,emmer_runtime=debug", "aria-label": "Filter of the log", size: 30 });
    level.value = "info";
    root.append(h("h1", {}, "Log", h("small", {}, "lines are kept while this page is open")), h("div", { class: "bar" }, where, level, filter, pause, state), lines,
      rights.acts ? h("div", { class: "bar" }, h("span", { class: "soft" }, "What the silo itself writes:"), wanted, change, h("button", { type: "button", onclick: () => setLevel("") }, "As at the start")) : "");
    if (rights.acts) root.lastElementChild.style.marginTop = "12px";
    function setLevel(text = wanted.value.trim()) {
      const words = text ? `Have the log of this silo's process written by the filter ${text} for 10 minutes?` : "Have the log written as at the start of the process?";
      confirmAct(words, { act: "log", silo, filter: text, for_ms: 600000 });
    }
    let paused = false;
    let after = 0;
    let kept = [];
    let asking = false;
    let turn = 0;
    const shown = (line) => !filter.value || `${line.target} ${line.words}`.toLowerCase().includes(filter.value.toLowerCase());
    const element = (line) => h("div", {}, h("span", { class: "soft" }, clock(line.at_ms, true)), h("span", { class: TINT[line.level] ?? "soft" }, line.level),
      h("span", {}, h("span", { class: "target" }, `${line.target} `), line.words));
    const isAtEnd = () => lines.scrollHeight - lines.scrollTop - lines.clientHeight < 30;
    function redraw() { lines.replaceChildren(...kept.filter(shown).map(element)); lines.scrollTop = lines.scrollHeight; }
    function again() { turn += 1; after = 0; kept = []; asking = false; lines.replaceChildren(); load(); }
    async function load() {
      if (asking || paused) return;
      asking = true;
      const mine = turn;
      try {
        const page = await ask("log", { silo, level: level.value, after });
        if (mine !== turn) return;
        put(state, `The silo writes ${page.filter}`);
        state.className = "soft";
        const follow = isAtEnd();
        if (page.lost) page.lines.unshift({ at_ms: Date.now(), level: "warn", target: "", words: `${page.lost} lines came too fast` });
        after = page.last;
        kept = kept.concat(page.lines).slice(-KEPT);
        lines.append(...page.lines.filter(shown).map(element));
        while (lines.children.length > KEPT) lines.firstChild.remove();
        if (follow) lines.scrollTop = lines.scrollHeight;
      } catch (error) { if (mine === turn) { put(state, error.message); state.className = "bad"; } }
      if (mine === turn) asking = false;
    }
    load();
    const stop = every(700, load);
    let options = "";
    return {
      end: stop,
      update({ silos }) {
        const active = silos.filter((one) => one.status === "Active");
        const mark = active.map((one) => one.address).join();
        if (mark === options) return;
        options = mark;
        where.replaceChildren(...active.map((one) => h("option", { value: one.address }, one.label)));
        if (!active.some((one) => one.address === silo)) { silo = active[0]?.address ?? ""; again(); }
        where.value = silo;
      },
    };
  },
};
