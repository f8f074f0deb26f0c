// One grain: where it is, what runs, who waits, its states, reminders, failures, its last turns.
import { h, put, ask, num, many, span, nanos, bytes, clock, siloLink, titleLink, actButton, confirmAct, rights, every } from "./base.js";
import { live } from "./live.js";

const section = (title, small, ...rest) => h("section", { class: "panel" }, h("h2", {}, title, small ? h("small", {}, small) : null), ...rest);
const list = (heads, rows) => h("div", { class: "wrap" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", {}, head)))),
  h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", { class: "more" }, cell)))))));
const chain = (titles) => h("span", { class: "chain" }, titles.map((title) => h("span", {}, titleLink(title))));

/** What the grain does, in a sentence. */
export function summary(grain) {
  const [one] = grain.activations;
  if (!one) return "It is not in memory: the next call activates it.";
  const turn = one.turns[0];
  const waiting = one.waiting ? ` ${many(one.waiting, "call waits", "calls wait")}.` : "";
  if (one.threads.length) return `A turn of ${one.threads[0].method} holds the thread ${one.threads[0].thread} for ${span(one.threads[0].held_ms)} without an await.`;
  if (turn) {
    const waits = turn.waits_for.length ? ` and waits for ${turn.waits_for.join(", ")}` : "";
    return `${turn.method} has run for ${span(turn.age_ms)}${waits}.${waiting}`;
  }
  if (one.is_running) return `A turn runs.${waiting}`;
  return `It is at rest; its last call was ${span(one.idle_ms)} ago.`;
}

export default {
  see: "",
  show(root, [type, ...rest]) {
    const key = rest.join("/");
    const lead = h("p", { class: "soft" });
    const acts = h("div", { class: "bar" });
    const body = h("div", {});
    const traced = h("div", {});
    const why = `${type}/${key}`;
    const of = { type, key };
    root.append(h("h1", {}, h("a", { class: "to soft", href: `#/grains/${encodeURIComponent(type)}` }, type), " / ", h("span", { class: "mono" }, key)), lead, acts, body, traced);
    acts.append(...[
      actButton("Deactivate", `End the activation of ${why}?`, { act: "deactivate", ...of, drop_turns: false }),
      actButton("Deactivate, drop turns", `End ${why}, and drop its turns at their next await? Their callers get an error.`, { act: "deactivate", ...of, drop_turns: true }, true),
      actButton("Move", `Move ${why} to the silo that placement chooses?`, { act: "move", ...of, to: "" }),
      actButton("Trace for a minute", `Time every call of the type ${type} on this silo for a minute, and list the turns of ${why}?`, { act: "trace", ...of, for_ms: 60000 }),
    ].filter(Boolean));
    let drawn = "";
    let asking = false;
    let over = false;
    let tracing = true;
    async function load() {
      if (asking || over) return;
      asking = true;
      try {
        const grain = await ask("grain", of);
        if (!over) draw(grain);
        if (tracing) {
          const trace = await ask("trace", of);
          tracing = trace.left_ms !== null;
          if (!over) drawTrace(trace);
        }
      } catch (error) {
        if (!over) { put(lead, error.message); lead.className = "bad"; }
      }
      asking = false;
    }
    function drawTrace({ turns, left_ms: left }) {
      if (left === null) { traced.replaceChildren(); return; }
      const level = { failed: "bad", error: "warn" };
      const rows = turns.slice(-100).reverse().map((turn) => [clock(turn.at_ms, true), turn.method, turn.caller ? titleLink(turn.caller) : h("span", { class: "soft" }, "a client"),
        nanos(turn.took_ns), h("span", { class: level[turn.end] ?? "" }, turn.end)]);
      traced.replaceChildren(section("Turns", left ? `traced for another ${span(left)}` : "of the last trace",
        rows.length ? list(["At", "Method", "Caller", "Took", "End"], rows) : h("p", { class: "empty" }, "No call has come since.")));
      traced.firstChild.style.marginTop = "12px";
    }
    function draw(grain) {
      lead.className = "soft";
      lead.replaceChildren(summary(grain));
      // Ages grow all the time: the page is built again for other changes alone.
      const mark = JSON.stringify(grain, (name, value) => (/(_ms|number)$/.test(name) && !/next/.test(name) ? undefined : value));
      if (mark === drawn && grain.activations.every((one) => one.turns.length === 0)) { ages(grain); return; }
      drawn = mark;
      const silo = siloLink(live.byAddress.get(grain.silo) ?? grain.silo);
      const parts = [];
      for (const one of grain.activations) {
        const facts = h("dl", { class: "facts" }, [
          ["Silo", silo], ["Age", h("span", { class: "age" }, span(one.age_ms))], ["Last call", h("span", { class: "idle" }, `${span(one.idle_ms)} ago`)],
          ["In the directory", one.is_registered ? "yes" : "no"], ["Calls that wait", num(one.waiting)], ["Timers", num(one.timers)],
          ["Ends after the turn", one.is_ending ? "yes" : "no"]].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
        const turns = one.turns.map((turn) => [turn.method, span(turn.age_ms), turn.caller ? titleLink(turn.caller) : h("span", { class: "soft" }, "a client"),
          turn.chain.length > 1 ? chain(turn.chain) : "", turn.waits_for.length ? chain(turn.waits_for) : h("span", { class: "soft" }, "not for a grain")]);
        const waits = one.waits.map((wait) => [wait.caller ? titleLink(wait.caller) : h("span", { class: "soft" }, "a client"), span(wait.waited_ms), wait.is_exclusive ? "alone" : "with others"]);
        const threads = one.threads.map((held) => [held.thread, held.method, span(held.held_ms)]);
        parts.push(h("div", { class: "grid" }, h("section", { class: "panel s4" }, h("h2", {}, "Activation"), facts),
          h("section", { class: "panel s8" }, h("h2", {}, "Turns inside", h("small", {}, "begun, and suspended")),
            turns.length ? list(["Method", "For", "Called by", "Chain", "Waits for"], turns) : h("p", { class: "empty" }, one.is_running ? "A turn runs without an await." : "None."),
            threads.length ? [h("h2", {}, "Threads that it may hold"), list(["Thread", "Method", "For"], threads)] : null,
            waits.length ? [h("h2", {}, "Calls that wait"), list(["Caller", "For", "Wants it"], waits)] : null)));
      }
      for (const state of grain.states) {
        const value = state.unreadable ? h("p", { class: "warn" }, state.unreadable) : h("pre", {}, JSON.stringify(state.value, null, 2));
        parts.push(section(`State ${state.name}`, `${state.store ? `store ${state.store} · ` : ""}etag ${state.etag} · ${bytes(state.bytes)} · written ${state.modified}`, value));
      }
      if (grain.reminders.length) {
        parts.push(section("Reminders", null, list(["Name", "Next", "Fired", "Missed", ""], grain.reminders.map((one) => [one.name,
          one.next ? `${one.next} (${one.in_ms < 0 ? `${span(-one.in_ms)} late` : `in ${span(one.in_ms)}`})` : "–", num(one.fired), num(one.missed),
          rights.acts ? h("span", {}, h("button", { onclick: () => confirmAct(`Fire the reminder ${one.name} of ${why} now?`, { act: "fire_reminder", ...of, name: one.name }) }, "Fire"), " ",
            h("button", { class: "danger", onclick: () => confirmAct(`Remove the reminder ${one.name} of ${why}?`, { act: "remove_reminder", ...of, name: one.name }) }, "Remove")) : ""]))));
      }
      if (grain.failures.length) parts.push(section("Last failures", "of turns on this silo", list(["Ago", "Method", "Words"], grain.failures.map((one) => [span(one.ago_ms), one.method, h("span", { class: "bad" }, one.words)]))));
      for (const words of grain.unread) parts.push(section("Not read", null, h("p", { class: "warn" }, words)));
      body.replaceChildren(...parts);
      for (const part of [...body.children].slice(1)) part.style.marginTop = "12px";
    }
    function ages(grain) {
      grain.activations.forEach((one, at) => {
        const [age, idle] = [body.querySelectorAll(".age")[at], body.querySelectorAll(".idle")[at]];
        if (age) put(age, span(one.age_ms));
        if (idle) put(idle, `${span(one.idle_ms)} ago`);
      });
    }
    const acted = () => { tracing = true; load(); };
    document.addEventListener("acted", acted);
    load();
    const stop = every(1000, load);
    return { end: () => { over = true; stop(); document.removeEventListener("acted", acted); } };
  },
};
