// Elements, numbers, tables, questions to the server. Texts of the cluster become text nodes and
// attributes alone: none is ever read as HTML.

export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function put(element, text) {
  const now = String(text);
  if (element.textContent !== now) element.textContent = now;
}

const UNITS = [[1e9, "G"], [1e6, "M"], [1e4, "k"]];

/** A number in four digits or so: 9,312, 24.1k, 1.30M. */
export function num(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, name] of UNITS) {
    const scaled = value / (unit === 1e4 ? 1e3 : unit);
    if (value >= unit) return scaled.toFixed(scaled < 10 ? 2 : scaled < 100 ? 1 : 0) + name;
  }
  if (value >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toFixed(value < 10 ? 2 : 1);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1024 && unit < 4) { value /= 1024; unit += 1; }
  return `${unit ? value.toFixed(value < 10 ? 1 : 0) : value} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** A duration in nanoseconds: 840 ns, 12.3 µs, 4.1 ms, 2.5 s. */
export function nanos(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (value >= unit) return `${(value / unit).toFixed(value / unit < 10 ? 2 : value / unit < 100 ? 1 : 0)} ${name}`;
  }
  return `${value} ns`;
}

/** A duration in milliseconds, in its two largest units. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) return `-${span(-ms)}`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const two = (n) => String(n).padStart(2, "0");

export function clock(ms, withMillis) {
  const at = new Date(ms);
  const base = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return withMillis ? `${base}.${String(at.getMilliseconds()).padStart(3, "0")}` : base;
}

export function day(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}`;
}

/** The address of a silo without its epoch. */
export function endpoint(address) {
  return String(address).replace(/:\d+$/, "");
}

export function siloLink(silo) {
  if (!silo) return h("span", { class: "soft" }, "–");
  if (typeof silo === "string") return h("span", { class: "soft", title: silo }, endpoint(silo));
  return h("a", { class: "to", href: `#/silo/${encodeURIComponent(silo.address)}`, title: silo.address }, silo.label);
}

export function grainLink(type, key, text) {
  const href = `#/grain/${encodeURIComponent(type)}/${encodeURIComponent(key)}`;
  return h("a", { class: "to", href, title: `${type}/${key}` }, text ?? key);
}

let named = (address) => address;

/** Has silos in texts shown by their names, which `of` returns by the address. */
export function nameSilos(of) { named = of; }

/** A number of things, in words. */
export const many = (count, one, more = `${one}s`) => `${num(count)} ${count === 1 ? one : more}`;

/** A grain as a silo names it in a text: type/key; or a silo. */
export function titleLink(title) {
  if (title.startsWith("silo ")) return h("span", {}, "silo ", siloLink(named(title.slice(5))));
  const at = title.indexOf("/");
  if (at < 1) return h("span", {}, title);
  return grainLink(title.slice(0, at), title.slice(at + 1), title);
}

/** Does something again and again while the page is seen. Returns how to end that. */
export function every(ms, work) {
  const timer = setInterval(() => { if (!document.hidden) work(); }, ms);
  return () => clearInterval(timer);
}

export class Failed extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function answered(response) {
  const body = await response.json().catch(() => ({ error: `the console answers ${response.status}` }));
  if (response.status === 401) document.dispatchEvent(new Event("stranger"));
  if (!response.ok) throw new Failed(response.status, body.error ?? response.statusText);
  return body;
}

export async function ask(path, params) {
  const query = new URLSearchParams(Object.entries(params ?? {}).filter(([, v]) => v !== undefined && v !== ""));
  try {
    return await answered(await fetch(`/api/${path}?${query}`));
  } catch (error) {
    if (error instanceof Failed) throw error;
    throw new Failed(0, "the console does not answer");
  }
}

export async function post(path, body) {
  const headers = { "content-type": "application/json", "x-emmer-console": "1" };
  return answered(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

export function toast(text, bad) {
  const element = h("div", { class: bad ? "toast bad" : "toast" }, text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), bad ? 9000 : 5000);
}

export const rights = { acts: false, tokens: false };

/** A button for an order; absent for visitors that may only look. */
export function actButton(label, question, order, danger) {
  if (!rights.acts) return null;
  return h("button", { type: "button", class: danger ? "danger" : null, onclick: () => confirmAct(question, order) }, label);
}

/** Asks first, then gives the order. */
export function confirmAct(question, order) {
  const because = h("input", { placeholder: "Reason, for the log and the history", "aria-label": "Reason", maxlength: 150 });
  const dialog = h("dialog", {},
    h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); give(); } },
      h("h2", {}, question), because,
      h("div", { class: "bar" },
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { class: "main", type: "submit" }, "Do it"))));
  async function give() {
    dialog.close();
    try {
      const { done } = await post("/api/act", { ...order, because: because.value });
      toast(done);
      document.dispatchEvent(new Event("acted"));
    } catch (error) { toast(error.message, true); }
  }
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

const collator = new Intl.Collator("en", { numeric: true });

/**
 * A table whose rows stay the same elements while their values change.
 * A column: { name, label, n: a number, wide: left out on phones, value: row => for the order,
 * text: row => text, draw: (cell, row) => element }.
 */
export class Table {
  constructor({ columns, id, empty, open, sort, limit = 100, classes }) {
    Object.assign(this, { columns, id, open, limit, classes, rows: [], kept: new Map() });
    this.sort = sort ?? { by: columns[0].name, down: false };
    this.head = h("tr", {}, columns.map((column) => {
      const flip = () => {
        const down = this.sort.by === column.name ? !this.sort.down : !!column.n;
        this.sort = { by: column.name, down };
        this.draw();
      };
      return h("th", { scope: "col", class: `${column.n ? "n" : ""} ${column.wide ? "wide" : ""}` },
        h("button", { type: "button", onclick: flip }, column.label));
    }));
    this.body = h("tbody");
    this.more = h("button", { type: "button", hidden: true, onclick: () => { this.limit += 200; this.draw(); } });
    this.nothing = h("p", { class: "empty", hidden: true }, empty ?? "Nothing here.");
    this.wrap = h("div", { class: "wrap" }, h("table", {}, h("thead", {}, this.head), this.body));
    this.element = h("div", {}, this.wrap, this.nothing, this.more);
    this.body.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target.tagName === "TR") this.opened(event.target);
    });
    this.body.addEventListener("dblclick", (event) => this.opened(event.target.closest("tr")));
  }
  opened(element) {
    const row = this.rows.find((row) => this.id(row) === element?.dataset.id);
    if (row && this.open) this.open(row);
  }
  update(rows) {
    this.rows = rows;
    this.draw();
  }
  draw() {
    const by = this.columns.find((column) => column.name === this.sort.by) ?? this.columns[0];
    const value = by.value ?? by.text;
    const first = this.columns[0].text;
    const order = (a, b) => {
      const [x, y] = [value(a) ?? -Infinity, value(b) ?? -Infinity];
      const found = typeof x === "string" && typeof y === "string" ? collator.compare(x, y) : x - y || 0;
      return found * (this.sort.down ? -1 : 1) || collator.compare(first(a), first(b));
    };
    const shown = [...this.rows].sort(order).slice(0, this.limit);
    this.columns.forEach((column, at) => {
      const cell = this.head.children[at];
      if (column === by) cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    const seen = new Set();
    shown.forEach((row, at) => {
      const id = this.id(row);
      if (seen.has(id)) return;
      seen.add(id);
      let element = this.kept.get(id);
      if (!element) {
        element = h("tr", { tabindex: -1 }, this.columns.map((column) => h("td", {
          class: `${column.n ? "n" : ""} ${column.wide ? "wide" : ""} ${column.class ?? ""}` })));
        element.dataset.id = id;
        this.kept.set(id, element);
      }
      if (this.body.children[at] !== element) this.body.insertBefore(element, this.body.children[at] ?? null);
      if (this.classes) element.className = this.classes(row) ?? "";
      this.columns.forEach((column, place) => this.fill(element.children[place], column, row));
    });
    for (const [id, element] of this.kept) {
      if (!seen.has(id)) { element.remove(); this.kept.delete(id); }
    }
    this.nothing.hidden = shown.length > 0;
    this.wrap.hidden = shown.length === 0;
    const left = this.rows.length - shown.length;
    this.more.hidden = left <= 0;
    put(this.more, `${left} more`);
  }
  fill(cell, column, row) {
    if (!column.draw) return put(cell, column.text(row) ?? "–");
    // A cell that draws says what it depends on, so that nothing is drawn twice.
    const mark = JSON.stringify(column.mark ? column.mark(row) : column.text(row));
    if (cell.dataset.mark === mark) return;
    cell.dataset.mark = mark;
    cell.replaceChildren(...[column.draw(row)].flat().filter((child) => child !== null && child !== undefined));
  }
}

export function meter(share, text, level) {
  const fill = h("i");
  fill.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return [text, h("span", { class: `meter ${level ?? ""}` }, fill)];
}

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Sizes a canvas for the screen. Returns its context, width and height in CSS pixels. */
export function paper(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = window.devicePixelRatio || 1;
  const [w, t] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== t) { canvas.width = w; canvas.height = t; }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

export function spark(canvas, values, name = "info") {
  const { context, width, height } = paper(canvas);
  if (values.length < 2) return;
  const most = Math.max(1e-9, ...values);
  const step = width / Math.max(1, values.length - 1);
  const y = (value) => height - 2 - (value / most) * (height - 4);
  context.beginPath();
  values.forEach((value, at) => context.lineTo(at * step, y(value)));
  context.strokeStyle = color(name);
  context.lineWidth = 1.5;
  context.stroke();
  context.lineTo(width, height);
  context.lineTo(0, height);
  context.globalAlpha = 0.12;
  context.fillStyle = color(name);
  context.fill();
  context.globalAlpha = 1;
}
