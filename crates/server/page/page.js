// The status page. It shows what /api/v1/status, /api/v1/history and /api/v1/blocks say.
import { loadBlocks } from "/blocks.js";
import { makeCharts } from "/charts.js";
import { api } from "/client.js";
import { askForToken, mayChange, noteStatus, offerControls, releaseHold, showControls, startControls } from "/controls.js";
import { byId, pill, text } from "/dom.js";
import { showEngine } from "/engine.js";
import { startExploring } from "/explore.js";
import { clock } from "/format.js";
import { showPruner } from "/pruner.js";
import { noteKept } from "/views.js";
import { showNode, showTab } from "/vitals.js";

const REFRESH = Number(document.documentElement.dataset.refreshMs) || 1000;
const DAY_EVERY = 30_000;
const FINE_POINTS = 600;

let latest = null;

function show(status) {
  latest = status;
  showNode(status);
  showPruner(status, mayChange() ? releaseHold : null);
  showControls(status);
  showEngine(status);
  noteStatus(status);
  noteKept(status.chain);
}

/* ---- over time ---- */

const charts = makeCharts();
let range = "minutes";
let history = null;
let dayAsked = 0;

function joined(before, more) {
  if (!before) return more;
  if (!more.at_ms.length) return before;
  const join = (a = [], b = []) => a.concat(b).slice(-FINE_POINTS);
  const disk = Object.fromEntries(Object.keys(more.disk).map((name) => [name, join(before.disk[name], more.disk[name])]));
  const columns = Object.entries(more).filter(([name]) => name !== "disk").map(([name, column]) => [name, join(before[name], column)]);
  return { ...Object.fromEntries(columns), disk };
}

async function loadHistory() {
  const asked = range;
  if (asked === "day") {
    if (Date.now() - dayAsked < DAY_EVERY) return;
    dayAsked = Date.now();
    const day = await api("history?range=day");
    if (range === asked) history = day;
  } else {
    const after = history?.at_ms.at(-1) ?? 0;
    const more = await api(`history?range=minutes&after_ms=${after}`);
    if (range === asked) history = joined(history, more);
  }
  if (range === asked && history) charts.draw(history);
}

for (const button of document.querySelectorAll("[data-range]")) {
  button.addEventListener("click", () => {
    range = button.dataset.range;
    history = null;
    dayAsked = 0;
    for (const other of document.querySelectorAll("[data-range]")) other.setAttribute("aria-pressed", String(other === button));
    loadHistory().catch(lost);
  });
}

/* ---- keeping up ---- */

let failures = 0;
let started = false;

function lost(error) {
  if (error.status === 401) return askForToken("read");
  const banner = byId("lost");
  banner.hidden = false;
  banner.textContent = `No answer from the node (${error.message}). ${latest ? `What is shown is from ${clock(latest.at_ms / 1000)}` : "Nothing is known yet"}; trying again.`;
  pill("state", "no connection", "bad");
  showTab("⚠ no connection", "critical");
  noteStatus(null);
}

/** What waits for the first answer: who may change something, and what the address of the page names. */
async function start(status) {
  started = true;
  startExploring(status.node.chain);
  await offerControls();
}

async function refresh() {
  const [status] = await Promise.all([api("status"), loadHistory()]);
  show(status);
  byId("lost").hidden = true;
  failures = 0;
  if (!started) await start(status);
  await loadBlocks(status.chain.applied);
}

async function poll() {
  let pause = REFRESH;
  try {
    await refresh();
  } catch (error) {
    failures += 1;
    pause = Math.min(REFRESH * 2 ** failures, 15_000);
    lost(error);
  }
  setTimeout(poll, document.hidden ? Math.max(pause, 5000) : pause);
}

/* ---- light and dark ---- */

const dark = matchMedia("(prefers-color-scheme: dark)");
const THEMES = ["auto", "light", "dark"];
let theme = localStorage.getItem("theme") ?? "auto";
function applyTheme() {
  const shown = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
  document.documentElement.dataset.theme = shown;
  text("theme", { auto: "◐", light: "○", dark: "●" }[theme]);
  byId("theme").title = `Theme: ${theme}`;
  charts.rebuild();
}
byId("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  localStorage.setItem("theme", theme);
  applyTheme();
});
dark.addEventListener("change", applyTheme);

applyTheme();
startControls(() => refresh().catch(lost));
poll();
