// Types and methods: rates, latencies and their histograms; hot keys.
import { h, put, num, nanos, bytes, Table, meter, grainLink, siloLink } from "./base.js";
import { live } from "./live.js";

/** Bars of samples by powers of two of nanoseconds. */
export function histogram(buckets, p50, p99) {
  if (!buckets.length) return h("p", { class: "empty" }, "No call was timed yet: one in 64 is.");
  const [first, last] = [buckets[0][0], buckets.at(-1)[0]];
  const most = Math.max(...buckets.map(([, samples]) => samples));
  const all = buckets.reduce((sum, [, samples]) => sum + samples, 0);
  const bars = [];
  for (let exponent = Math.max(0, first - 1); exponent <= last + 1; exponent += 1) {
    const samples = buckets.find(([own]) => own === exponent)?.[1] ?? 0;
    const inside = (value) => value !== null && value > 2 ** (exponent - 1) && value <= 2 ** exponent;
    const bar = h("div", { class: inside(p99) || inside(p50) ? "p" : null, title: `up to ${nanos(2 ** exponent)}: ${num(samples)} of ${num(all)} samples` });
    bar.style.height = `${samples ? Math.max(2, (samples / most) * 100) : 0}%`;
    bars.push(bar);
  }
  return h("div", {}, h("div", { class: "hist", role: "img", "aria-label": `Half within ${nanos(p50)}, 99 percent within ${nanos(p99)}` }, bars),
    h("div", { class: "axis" }, h("span", {}, nanos(2 ** Math.max(0, first - 1))), h("span", {}, `p50 ${nanos(p50)} · p99 ${nanos(p99)}`), h("span", {}, nanos(2 ** (last + 1)))));
}

export default {
  see: "types,methods,hot",
  show(root) {
    const filter = h("input", { type: "search", placeholder: "Filter by type or method", "aria-label": "Filter", oninput: () => update(live) });
    const types = new Table({
      id: (row) => row.type, sort: { by: "activations", down: true }, empty: "No types yet.",
      open: (row) => { location.hash = `#/grains/${encodeURIComponent(row.type)}`; },
      columns: [
        { name: "type", label: "Type", text: (r) => r.type, draw: (r) => h("a", { class: "to", href: `#/grains/${encodeURIComponent(r.type)}` }, r.type) },
        { name: "activations", label: "Activations", n: true, value: (r) => r.activations, text: (r) => num(r.activations) },
        { name: "busy", label: "Busy", n: true, value: (r) => r.busy, text: (r) => num(r.busy) },
        { name: "new", label: "New/s", n: true, value: (r) => r.activated, text: (r) => num(r.activated) },
        { name: "silos", label: "Silos", n: true, wide: true, value: (r) => r.silos, text: (r) => num(r.silos) },
        { name: "bytes", label: "Bytes", n: true, wide: true, value: (r) => r.bytes, text: (r) => bytes(r.bytes) },
        { name: "most", label: "Most on one", n: true, wide: true, value: (r) => r.most, text: (r) => num(r.most) },
        { name: "failed", label: "Failed", n: true, value: (r) => r.failed, text: (r) => num(r.failed), draw: (r) => h("span", { class: r.failed ? "bad" : "" }, num(r.failed)) },
      ],
    });
    let most = 1;
    const methods = new Table({
      id: (row) => `${row.type} ${row.method}`, sort: { by: "rate", down: true }, empty: "No methods yet.", open: pick,
      columns: [
        { name: "method", label: "Method", text: (r) => r.method, draw: (r) => h("a", { class: "to", href: location.hash, onclick: (event) => { event.preventDefault(); pick(r); } }, r.method) },
        { name: "type", label: "Type", wide: true, text: (r) => r.type, class: "soft" },
        { name: "rate", label: "Calls/s", n: true, value: (r) => r.rate, text: (r) => `${num(r.rate)} ${Math.round((100 * r.rate) / most)}`, draw: (r) => meter(r.rate / most, num(r.rate)) },
        { name: "p50", label: "p50", n: true, value: (r) => r.p50, text: (r) => nanos(r.p50) },
        { name: "p99", label: "p99", n: true, value: (r) => r.p99, text: (r) => nanos(r.p99) },
        { name: "share", label: "Time", n: true, wide: true, value: (r) => r.share, text: (r) => `${Math.round(r.share * 100)} %` },
        { name: "errors", label: "Errors/s", n: true, value: (r) => r.errors, text: (r) => num(r.errors) },
        { name: "failures", label: "Failures/s", n: true, value: (r) => r.failures, text: (r) => num(r.failures), draw: (r) => h("span", { class: r.failures ? "bad" : "" }, num(r.failures)) },
        { name: "calls", label: "Calls", n: true, wide: true, value: (r) => r.calls, text: (r) => num(r.calls) },
      ],
    });
    const hot = (empty, unit) => new Table({
      id: (row) => `${row.type} ${row.key} ${row.silo?.address ?? row.silo}`, sort: { by: "rate", down: true }, empty, limit: 12,
      open: (row) => { location.hash = `#/grain/${encodeURIComponent(row.type)}/${encodeURIComponent(row.key)}`; },
      columns: [
        { name: "key", label: "Grain", text: (r) => `${r.type}/${r.key}`, draw: (r) => grainLink(r.type, r.key, `${r.type}/${r.key}`) },
        { name: "silo", label: "Silo", wide: true, text: (r) => r.silo?.label ?? r.silo, draw: (r) => siloLink(r.silo) },
        { name: "rate", label: unit[0], n: true, value: (r) => r.rate, text: (r) => unit[1](r.rate) },
      ],
    });
    const called = hot("No key stands out. Counting begins with this page.", ["Calls/s", num]);
    const busy = hot("No key stands out.", ["Time a second", nanos]);
    const title = h("h2", {}, "Latencies");
    const chart = h("div", {}, h("p", { class: "empty" }, "Pick a method."));
    let picked = null;
    function pick(row) { picked = `${row.type} ${row.method}`; update(live); chart.scrollIntoView({ block: "nearest" }); }
    root.append(h("div", { class: "split" }, h("h1", {}, "Types and methods"), h("span", { class: "gap" }), filter),
      h("section", { class: "panel" }, h("h2", {}, "Methods", h("small", {}, "latencies from arrival at the grain to the end, of the last moment")), methods.element),
      h("div", { class: "grid" }, h("section", { class: "panel s6" }, title, chart), h("section", { class: "panel s6" }, h("h2", {}, "Types", h("small", {}, "bytes without what fields hold elsewhere")), types.element)),
      h("div", { class: "grid" }, h("section", { class: "panel s6" }, h("h2", {}, "Keys that are called most", h("small", {}, "one call in 64 is counted")), called.element),
        h("section", { class: "panel s6" }, h("h2", {}, "Keys that take most time"), busy.element)));
    root.lastElementChild.previousElementSibling.style.marginTop = root.lastElementChild.style.marginTop = "12px";
    function update(picture) {
      const text = filter.value.toLowerCase();
      const has = (row) => !text || `${row.type} ${row.method ?? ""}`.toLowerCase().includes(text);
      if (picture.methods) {
        most = Math.max(1e-9, ...picture.methods.map((row) => row.rate));
        methods.update(picture.methods.filter(has));
        picked ??= picture.methods.toSorted((a, b) => b.rate - a.rate || b.calls - a.calls).map((row) => `${row.type} ${row.method}`)[0] ?? null;
        const row = picture.methods.find((one) => `${one.type} ${one.method}` === picked);
        put(title, row ? `Latencies of ${row.method}` : "Latencies");
        if (row) chart.replaceChildren(histogram(row.buckets, row.p50, row.p99));
      }
      if (picture.types) types.update(picture.types.filter(has));
      if (picture.hot) { called.update(picture.hot.called); busy.update(picture.hot.busy); }
    }
    return { update };
  },
};
