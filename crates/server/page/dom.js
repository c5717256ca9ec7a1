// Small parts of the page: elements, tables, hashes that can be followed and copied.
import { short } from "/format.js";

export const byId = (id) => document.getElementById(id);

export function el(tag, properties, ...children) {
  const { dataset, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  if (dataset) Object.assign(element.dataset, dataset);
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Sets a text, and leaves what is the same alone, so that it can be selected. */
export function text(id, value) {
  const element = byId(id);
  if (element.textContent !== value) element.textContent = value;
}

/** A large number with its unit. */
export function figure(id, value, unit) {
  const element = byId(id);
  const wanted = `${value}${unit ?? ""}`;
  if (element.textContent !== wanted) element.replaceChildren(value, ...(unit ? [el("small", {}, unit)] : []));
}

export function pill(id, label, kind) {
  const element = byId(id);
  element.dataset.kind = kind;
  const inside = element.lastElementChild;
  if (inside.textContent !== label) inside.textContent = label;
}

/** Draws a part again only if what it shows has changed. */
const drawn = new Map();
export function part(id, content, draw) {
  const key = JSON.stringify(content);
  if (drawn.get(id) === key) return;
  drawn.set(id, key);
  byId(id).replaceChildren(...[draw(content)].flat());
}

/** Whether the pointer or the focus is on a part: what is about to be clicked must not move away. */
export function isInUse(id) {
  const place = byId(id);
  return place.matches(":hover") || place.matches(":focus-within");
}

/** A table. A column has a `name`; `n` aligns numbers, `extra` is left out on a phone. */
export function table(columns, rows, empty) {
  if (!rows.length) return el("p", { className: "empty" }, empty);
  const kind = (column) => ["n", "tight", "extra", "clip"].filter((name) => column[name]).join(" ");
  const cell = (tag, content, column) => el(tag, { className: kind(column), ...(tag === "th" && { scope: "col" }) }, ...[content].flat());
  return el("table", {},
    el("thead", {}, el("tr", {}, ...columns.map((column) => cell("th", column.name, column)))),
    el("tbody", {}, ...rows.map((row) => el("tr", { className: row.className ?? "" },
      ...columns.map((column, i) => cell("td", row.cells[i], column))))));
}

export const tag = (label, kind) => el("span", { className: "tag", dataset: { kind } }, label);
export const sub = (...content) => el("span", { className: "sub" }, ...content);

/** Names with values, and a note under each value. */
export const facts = (list) => list.filter(Boolean).map(([name, value, note]) => el("div", {}, el("dt", {}, name), el("dd", {}, ...[value].flat(), ...(note ? [el("small", { title: note }, note)] : []))));

export const meters = (entries, format) => {
  const most = Math.max(1, ...entries.map(([, value]) => value));
  return el("div", { className: "meter" }, ...entries.flatMap(([label, value, title]) => [
    el("span", { title: title ?? "" }, label), el("meter", { min: 0, max: most, value, ariaLabel: label }), el("b", {}, format(value))]));
};

/* ---- hashes ---- */

const SVG = "http://www.w3.org/2000/svg";
function copyIcon() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  for (const d of ["M5.5 5.5h7v8h-7z", "M3.5 10.5v-8h7"]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    svg.append(path);
  }
  return svg;
}

/** Puts text on the clipboard, also where the browser keeps its clipboard from pages that came over plain HTTP. */
async function toClipboard(value) {
  if (navigator.clipboard) return navigator.clipboard.writeText(value);
  const area = el("textarea", { value, className: "hidden" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("the browser does not let the page copy");
}

/** A button that copies a text and says so for a moment. */
export function copyButton(value, what) {
  const button = el("button", { type: "button", className: "copy", title: `Copy ${what}`, ariaLabel: `Copy ${what}` }, copyIcon());
  button.addEventListener("click", async () => {
    const done = await toClipboard(value).then(() => "copied", () => "failed");
    button.dataset.done = done;
    button.ariaLabel = done === "copied" ? "Copied" : "Copying failed";
    setTimeout(() => { delete button.dataset.done; button.ariaLabel = `Copy ${what}`; }, 1500);
  });
  return button;
}

/** Where a thing is shown: `tx`, `output`, `block` or `address`. */
export const placeOf = (kind, id) => `#${kind}/${encodeURIComponent(id).replaceAll("%3A", ":")}`;

export const link = (kind, id, label) => el("a", { href: placeOf(kind, id), className: "hash", title: id }, label ?? short(id));

/** A hash: short, linked, and with a button that copies all of it. */
export const hashOf = (kind, id, what, label) => el("span", { className: "copyable" }, link(kind, id, label), copyButton(id, what));

/** A text to copy that leads nowhere. */
export const textToCopy = (value, what) => el("span", { className: "copyable" }, el("span", { className: "hash", title: value }, short(value)), copyButton(value, what));
