// Pages, keys, login.
import { h, put, toast, post, ask, rights, nameSilos } from "./base.js";
import { live, see, onPicture, looks } from "./live.js";
import overview, { siloPage } from "./overview.js";
import timeline from "./timeline.js";
import methods from "./methods.js";
import grains from "./grains.js";
import grain from "./grain.js";
import turns from "./turns.js";
import { reminders, streams, stores, settings } from "./lists.js";
import log from "./log.js";

const PAGES = [
  ["", "Overview", overview, "o"], ["timeline", "Timeline", timeline, "t"], ["methods", "Methods", methods, "m"],
  ["grains", "Grains", grains, "g"], ["turns", "Turns & queues", turns, "u"], ["reminders", "Reminders", reminders, "r"],
  ["streams", "Streams", streams, "s"], ["stores", "Stores", stores, "d"], ["settings", "Settings", settings, "e"],
  ["log", "Log", log, "l"],
];
const MORE = { silo: siloPage, grain };

const main = document.getElementById("main");
const nav = document.getElementById("nav");
let page = null;
let stranger = false;

const links = PAGES.map(([path, label]) => {
  const badge = h("span", { class: "badge" });
  const link = h("a", { href: `#/${path}` }, label, badge);
  nav.append(link);
  return { path, link, badge };
});

function route() {
  if (stranger) return;
  let path = "";
  let params = [];
  try {
    [path, ...params] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  } catch { /* It is no address of ours. */ }
  const known = PAGES.find(([own]) => own === path);
  const shown = known?.[2] ?? MORE[path];
  if (!shown) { location.hash = "#/"; return; }
  page?.end?.();
  main.replaceChildren();
  window.scrollTo(0, 0);
  for (const { path: own, link } of links) {
    const isIt = own === path || (path === "silo" && own === "") || (path === "grain" && own === "grains");
    if (isIt) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "center" });
    } else link.removeAttribute("aria-current");
  }
  document.title = `${known?.[1] ?? params.join("/")} · Emmer`;
  see(shown.see ?? "");
  page = shown.show(main, params) ?? {};
  if (live.base) page.update?.(live);
}

function frame() {
  const base = live.base;
  const state = document.getElementById("state");
  if (!live.connected) {
    put(state, base ? "reconnecting" : "connecting");
    state.className = "pill warn";
  } else if (base) {
    const worst = looks()[0]?.[0];
    put(state, base.trouble ? "no answer" : worst === "bad" ? "needs a look" : worst ? "mind" : "healthy");
    state.className = `pill ${base.trouble || worst === "bad" ? "bad" : worst ? "warn" : "ok"}`;
  }
  if (base) put(document.getElementById("cluster"), `${base.cluster} · view ${base.view}`);
  const held = live.silos.reduce((all, silo) => all + (silo.own?.held ?? 0), 0);
  put(links.find(({ path }) => path === "turns").badge, held || "");
  page?.update?.(live);
}

const themes = { dark: "☾", light: "☀" };
function theme(name) {
  document.documentElement.dataset.theme = name;
  put(document.getElementById("theme"), themes[name]);
  if (live.base) frame();
}
const system = matchMedia("(prefers-color-scheme: light)");
const chosen = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
theme(chosen() ?? (system.matches ? "light" : "dark"));
system.addEventListener("change", () => { if (!chosen()) theme(system.matches ? "light" : "dark"); });
document.getElementById("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", next); } catch { /* A private window keeps nothing. */ }
  theme(next);
});

function help() {
  const rows = [
    ...PAGES.map(([, label, , key]) => [["g", key], label]), [["/"], "Open a grain, or filter the page"],
    [["j"], "Next row"], [["k"], "Row before"], [["Enter"], "Open the row"], [["?"], "This help"],
  ];
  const dialog = h("dialog", {}, h("h2", {}, "Keys"),
    h("table", {}, rows.map(([keys, words]) => h("tr", {}, h("td", {}, keys.map((key) => h("kbd", {}, key))), h("td", {}, words)))),
    h("div", { class: "bar" }, h("button", { class: "main", onclick: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
document.getElementById("help").addEventListener("click", help);

const find = document.getElementById("find-text");
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const at = find.value.indexOf("/");
  if (at < 1) { toast("Expected type/key, as in cart/ann", true); return; }
  location.hash = `#/grain/${encodeURIComponent(find.value.slice(0, at))}/${encodeURIComponent(find.value.slice(at + 1))}`;
  find.value = "";
  find.blur();
});

let going = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (Date.now() - going < 1200) {
    going = 0;
    const to = PAGES.find(([, , , key]) => key === event.key);
    if (to) { location.hash = `#/${to[0]}`; event.preventDefault(); return; }
  }
  const rows = () => [...main.querySelectorAll("tbody tr")];
  const step = (by) => {
    const all = rows();
    const at = all.indexOf(document.activeElement);
    all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))]?.focus();
  };
  switch (event.key) {
    case "g": going = Date.now(); break;
    case "/": (main.querySelector("input[type=search]") ?? find).focus(); event.preventDefault(); break;
    case "?": help(); break;
    case "j": case "ArrowDown": if (event.key === "j" || document.activeElement.tagName === "TR") { step(1); event.preventDefault(); } break;
    case "k": case "ArrowUp": if (event.key === "k" || document.activeElement.tagName === "TR") { step(-1); event.preventDefault(); } break;
    default:
  }
});

function login() {
  if (stranger) return;
  stranger = true;
  page?.end?.();
  page = null;
  const token = h("input", { type: "password", placeholder: "Token", "aria-label": "Token", autocomplete: "current-password", required: true });
  const form = h("form", { class: "panel login", onsubmit: async (event) => {
    event.preventDefault();
    try { await post("/login", { token: token.value }); location.reload(); } catch (error) { toast(error.message, true); token.select(); }
  } }, h("h1", {}, "Emmer console"), h("p", { class: "soft" }, "This cluster is shown to visitors with a token."), token,
  h("button", { class: "main", type: "submit" }, "Enter"));
  main.replaceChildren(form);
  document.body.classList.add("stranger");
  token.focus();
}
document.addEventListener("stranger", login);

nameSilos((address) => live.byAddress.get(address) ?? address);
onPicture(frame);
window.addEventListener("hashchange", route);
ask("me").then((me) => { Object.assign(rights, me); route(); }).catch((error) => {
  if (error.status !== 401) { toast(error.message, true); route(); }
});
