// The ring: silos in the order of their addresses. A line goes from a silo to each silo that it
// probes; red lines are suspicions.
import { color, paper, h } from "./base.js";

const TAU = Math.PI * 2;

export class Ring {
  constructor() {
    this.canvas = h("canvas", { class: "ring", role: "img" });
    this.points = [];
    this.hovered = null;
    this.canvas.addEventListener("mousemove", (event) => {
      const at = this.near(event);
      if (at === this.hovered) return;
      this.hovered = at;
      this.canvas.style.cursor = at ? "pointer" : "default";
      this.canvas.title = at ? `${at.label} (${at.address})` : "";
      this.draw();
    });
    this.canvas.addEventListener("mouseleave", () => { this.hovered = null; this.draw(); });
    this.canvas.addEventListener("click", (event) => {
      const at = this.near(event);
      if (at) location.hash = `#/silo/${encodeURIComponent(at.address)}`;
    });
  }
  near(event) {
    let best = null;
    let least = 18 * 18;
    for (const { x, y, silo } of this.points) {
      const far = (x - event.offsetX) ** 2 + (y - event.offsetY) ** 2;
      if (far < least) { least = far; best = silo; }
    }
    return best;
  }
  update(silos) {
    this.silos = silos.filter((silo) => silo.status !== "Dead" || silo.suspected.length > 0);
    const suspected = this.silos.filter((silo) => silo.status !== "Dead" && silo.suspected.length > 0);
    this.canvas.setAttribute("aria-label", `${this.silos.length} silos, ${suspected.length} suspected`);
    this.draw();
  }
  draw() {
    const silos = this.silos ?? [];
    const { context: c, width, height } = paper(this.canvas);
    if (silos.length === 0 || width === 0) return;
    const many = silos.length > 40;
    const [cx, cy] = [width / 2, height / 2];
    const radius = Math.min(width / 2 - (many ? 14 : 70), height / 2 - (many ? 14 : 30));
    const dot = Math.max(2.5, Math.min(9, (radius * 2.2) / silos.length));
    const place = new Map();
    this.points = silos.map((silo, at) => {
      const angle = (at / silos.length) * TAU - TAU / 4;
      const point = { x: cx + Math.cos(angle) * radius, y: cy + Math.sin(angle) * radius, angle, silo };
      place.set(silo.address, point);
      return point;
    });
    const line = (from, to, style, width) => {
      if (!from || !to) return;
      c.strokeStyle = style;
      c.lineWidth = width;
      c.beginPath();
      c.moveTo(from.x, from.y);
      c.quadraticCurveTo(cx + (from.x + to.x - 2 * cx) * 0.22, cy + (from.y + to.y - 2 * cy) * 0.22, to.x, to.y);
      c.stroke();
    };
    const faint = color("line");
    const strong = color("brand");
    c.beginPath();
    c.arc(cx, cy, radius, 0, TAU);
    c.strokeStyle = faint;
    c.stroke();
    c.globalAlpha = many ? 0.35 : 0.9;
    for (const from of this.points) {
      for (const to of from.silo.own?.probes ?? []) line(from, place.get(to.address ?? to), faint, 1.2);
    }
    c.globalAlpha = 1;
    if (this.hovered) {
      const from = place.get(this.hovered.address);
      for (const to of this.hovered.own?.probes ?? []) line(from, place.get(to.address ?? to), strong, 1.8);
    }
    for (const to of this.points) {
      const isDead = to.silo.status === "Dead";
      c.globalAlpha = isDead ? 0.3 : 1;
      for (const by of to.silo.suspected) line(place.get(by.address ?? by), to, color("bad"), isDead ? 1.2 : 2.4);
      c.globalAlpha = 1;
    }
    const most = Math.max(1, ...silos.map((silo) => silo.own?.activations ?? 0));
    c.font = "12px system-ui, sans-serif";
    for (const { x, y, angle, silo } of this.points) {
      const share = Math.sqrt((silo.own?.activations ?? 0) / most);
      c.beginPath();
      c.arc(x, y, many ? dot : 5 + 6 * share, 0, TAU);
      c.fillStyle = color(tint(silo));
      c.fill();
      if (!many) {
        c.fillStyle = color(silo === this.hovered ? "text" : "soft");
        c.textAlign = Math.abs(Math.cos(angle)) < 0.3 ? "center" : Math.cos(angle) > 0 ? "left" : "right";
        c.textBaseline = Math.abs(Math.cos(angle)) < 0.3 ? (Math.sin(angle) > 0 ? "top" : "bottom") : "middle";
        const label = silo.label.length > 18 ? `${silo.label.slice(0, 17)}…` : silo.label;
        c.fillText(label, x + Math.cos(angle) * 16, y + Math.sin(angle) * 16);
      }
    }
  }
}

/** The colour of a silo. */
export function tint(silo) {
  if (silo.status === "Dead") return "soft";
  if (silo.suspected.length > 0) return "bad";
  if (silo.status !== "Active" || !silo.own || silo.duty !== "Full") return "warn";
  return silo.own.readiness === "ready" ? "ok" : "bad";
}
