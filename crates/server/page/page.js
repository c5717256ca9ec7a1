// The status page. It shows what /api/v1/status and /api/v1/history say, and nothing else.
import { makeCharts } from "/charts.js";
import { makeSearch } from "/search.js";

const byId = (id) => document.getElementById(id);
const REFRESH = Number(document.documentElement.dataset.refreshMs) || 1000;
const DAY_EVERY = 30_000;

/* ---- words and figures ---- */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const number = (value) => typeof value === "bigint" || Math.abs(value) >= 10 || Number.isInteger(value)
  ? whole.format(value) : value.toFixed(value < 1 ? 2 : 1);
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value.toFixed(unit === 0 || value >= 100 ? 0 : 1)} ${units[unit]}`;
}
const ms = (value) => value >= 10_000 ? `${(value / 1000).toFixed(1)} s` : `${value >= 100 ? value.toFixed(0) : value.toFixed(1)} ms`;
function duration(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor(s / 3600) % 24} h`;
}
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
const words = (name) => name.replaceAll("_", " ");
const orDash = (value, format = number) => value == null ? "–" : format(value);

function el(tag, properties, ...children) {
  const { dataset, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  if (dataset) Object.assign(element.dataset, dataset);
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Sets a text, and leaves what is the same alone, so that it can be selected. */
function text(id, value) {
  const element = byId(id);
  if (element.textContent !== value) element.textContent = value;
}
function figure(id, value, unit) {
  const element = byId(id);
  const wanted = `${value}${unit ?? ""}`;
  if (element.textContent !== wanted) element.replaceChildren(value, ...(unit ? [el("small", {}, unit)] : []));
}
function pill(id, label, kind) {
  const element = byId(id);
  element.dataset.kind = kind;
  const inside = element.lastElementChild;
  if (inside.textContent !== label) inside.textContent = label;
}

/** Draws a part anew only if what it shows has changed. */
const drawn = new Map();
function part(id, content, draw) {
  const key = JSON.stringify(content);
  if (drawn.get(id) === key) return;
  drawn.set(id, key);
  byId(id).replaceChildren(...[draw(content)].flat());
}
function table(columns, rows, empty) {
  if (!rows.length) return el("p", { className: "empty" }, empty);
  const cell = (tag, content, column) => el(tag, { className: `${column.n ? "n" : ""} ${column.tight ? "tight" : ""}` }, ...[content].flat());
  return el("table", {},
    el("thead", {}, el("tr", {}, ...columns.map((column) => cell("th", column.name, column)))),
    el("tbody", {}, ...rows.map((row) => el("tr", { className: row.className ?? "" },
      ...columns.map((column, i) => cell("td", row.cells[i], column))))));
}
const tag = (label, kind) => el("span", { className: "tag", dataset: { kind } }, label);
const sub = (label) => el("span", { className: "sub" }, label);
const facts = (list) => list.map(([name, value, note]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, ...(note ? [" ", el("small", {}, note)] : []))));

/* ---- asking the server ---- */

let token = null;
let admin = false;

async function request(method, path, body, offered = token) {
  const headers = {};
  if (offered) headers.authorization = `Bearer ${offered}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(`/api/v1/${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (answer.status === 204) return null;
  if (answer.ok) return answer.json();
  // Something in between, a proxy perhaps, may answer with something else than a problem.
  const content = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(content.detail ?? `${answer.status} ${answer.statusText}`), { status: answer.status });
}
const api = (path) => request("GET", path);

/* ---- the figures ---- */

const STATES = { running: "good", catching_up: "warn", resetting: "warn", reorganising: "warn", stopped: "bad" };
const JOB_STATES = { completed: "good", running: "warn", failed: "bad" };

function showVitals(status) {
  const { node, chain, counts, disk } = status;
  text("node", `${node.name} · ${node.chain} · ${node.version} · up ${duration(node.uptime_seconds)}`);
  document.title = chain.lag_blocks ? `${number(chain.lag_blocks)} behind · Sapwood` : "Sapwood";
  pill("state", words(chain.state), STATES[chain.state] ?? "quiet");
  figure("tip", orDash(chain.tip?.height));
  text("tip-note", chain.tip == null ? "no source" : "of the source");
  figure("applied", orDash(chain.applied?.height));
  text("applied-note", chain.applied ? `${chain.applied.hash.slice(0, 8)}…${chain.applied.hash.slice(-8)}` : "no block yet");
  byId("applied-note").title = chain.applied?.hash ?? "";
  figure("lag", orDash(chain.lag_blocks), chain.lag_blocks == null ? "" : chain.lag_blocks === 1 ? "block" : "blocks");
  byId("lag").parentElement.dataset.kind = chain.lag_blocks > 10 ? "warn" : "";
  const queued = chain.queued ? `${number(chain.queued)} queued` : "nothing queued";
  text("lag-note", chain.catch_up_seconds == null ? queued : `${queued}, ${duration(chain.catch_up_seconds)} to go`);
  figure("unspent", number(counts.unspent));
  text("unspent-note", `in ${number(counts.records)} records`);
  figure("rate", number(Math.round(chain.transactions_per_second)), "tx/s");
  text("rate-note", `${chain.blocks_per_second.toFixed(1)} blocks a second`);
  const [amount, unit] = bytes(disk.total_bytes).split(" ");
  figure("disk", amount, unit);
  text("disk-note", `${bytes(disk.without_pruning_bytes)} without pruning`);
  text("measured", `Measured at ${clock(status.at_ms / 1000)} · memory ${orDash(status.process.resident_bytes, bytes)}`);
}

function showAlerts(alerts) {
  byId("alerts").hidden = alerts.length === 0;
  part("alerts", alerts, (list) => list.map((alert) => el("div", { className: "alert", dataset: { level: alert.level } },
    el("b", {}, words(alert.name)), el("span", {}, alert.text))));
}

function showPruner({ prune, chain, counts }) {
  pill("prune-enabled", prune.enabled ? "enabled" : "disabled", prune.enabled ? "good" : "warn");
  text("words", prune.state);
  text("toggle", prune.enabled ? "Disable pruning" : "Enable pruning");
  byId("prune-now").disabled = !prune.enabled;
  const backlog = `${prune.backlog_estimated ? "about " : ""}${number(prune.backlog_records)}`;
  const catchUp = prune.backlog_records && prune.catch_up_seconds != null ? `gone in ${duration(prune.catch_up_seconds)}` : "records may go";
  part("prune-facts", [
    ["Safe height", orDash(prune.safe_height), prune.decided_by ? `by ${prune.decided_by}` : ""],
    ["Backlog", backlog, catchUp],
    ["Lag", orDash(prune.lag_blocks), "blocks"],
    ["Deleted", number(prune.totals.deleted), "records"],
    ["Freed", bytes(prune.totals.bytes_freed), prune.totals.bodies_deleted ? `and ${number(prune.totals.bodies_deleted)} bodies` : ""],
    ["Speed", prune.totals.records_per_second == null ? "–" : number(Math.round(prune.totals.records_per_second)), "records a second of work"],
    ["Jobs", number(prune.totals.jobs), "since the start"],
    ["Rollback floor", orDash(chain.rollback_floor), ""],
    ["Unmined", number(counts.unmined), "records"],
    ["Cursor", prune.cursor ? `${prune.cursor.slice(0, 16)}…` : "at the beginning", ""],
  ], facts);
  byId("prune-facts").lastElementChild.title = prune.cursor ?? "";
}

function showHolds(holds, applied) {
  const rows = holds.map((hold) => {
    const behind = hold.keep_from == null || applied == null ? null : applied - hold.keep_from;
    const from = hold.keep_from == null ? "everything" : number(hold.keep_from);
    const label = hold.expired ? tag("expired", "bad") : hold.decides ? tag("decides", "good") : hold.keep_from == null ? tag("not reported", "warn") : "";
    const age = el("span", { className: "age" });
    const ends = hold.expires == null ? null : sub(`ends ${new Date(hold.expires * 1000).toLocaleString("en-GB")}`);
    const release = admin && !["reorg_window"].includes(hold.kind)
      ? [el("button", { type: "button", className: "link", onclick: () => releaseHold(hold.name) }, "release")] : [];
    return { className: hold.decides ? "decides" : "", cells: [
      [el("b", {}, hold.name), " ", label, sub(hold.reason)], [hold.owner, ends],
      [from, behind == null ? null : sub(behind > 0 ? `${number(behind)} behind` : behind === 0 ? "at the tip" : `${number(-behind)} ahead`)],
      [age, ...release.map((button) => el("span", { className: "sub" }, button))],
    ] };
  });
  // Heights move with every block and ages with every second. What is under the pointer of somebody who may release it stays there.
  const place = byId("holds");
  const names = holds.map((hold) => hold.name).join(" ");
  const resting = admin && place.matches(":hover") && place.dataset.names === names;
  place.dataset.names = names;
  const shown = holds.map(({ unchanged_seconds, ...hold }) => hold);
  if (!resting) part("holds", { shown, applied, admin }, () => table(
    [{ name: "Hold" }, { name: "Owner" }, { name: "Keeps from", n: true }, { name: "Unchanged for", n: true }], rows,
    "Nobody needs the past: only the reorganisation window counts."));
  const ages = place.getElementsByClassName("age");
  holds.forEach((hold, i) => { if (ages[i]) ages[i].textContent = orDash(hold.unchanged_seconds, duration); });
}

function showKept(kept) {
  const list = Object.entries(kept).sort((a, b) => b[1] - a[1]);
  const most = list[0]?.[1] ?? 1;
  part("kept", list, () => list.length
    ? el("div", { className: "meter" }, ...list.flatMap(([reason, count]) => [
      el("span", {}, words(reason)), el("meter", { min: 0, max: most, value: count, title: `${number(count)} times` }), el("b", {}, number(count))]))
    : el("p", { className: "empty" }, "Nothing that was due had to stay."));
}

function showJobs(prune) {
  text("jobs-note", prune.totals.jobs ? `${number(prune.totals.jobs)} since the start, the newest here` : "");
  part("jobs", prune.newest_jobs.slice(0, 10), (jobs) => table(
    [{ name: "Job", n: false }, { name: "State" }, { name: "Because of", tight: true }, { name: "Height", n: true }, { name: "Safe up to", n: true }, { name: "Decided by", tight: true },
      { name: "Looked at", n: true }, { name: "Deleted", n: true }, { name: "Kept", n: true }, { name: "Freed", n: true }, { name: "Took", n: true }, { name: "Ended", n: true }],
    jobs.map((job) => {
      const kept = Object.entries(job.counts.retained).map(([reason, count]) => `${number(count)} ${words(reason)}`).join(", ");
      const why = job.error ?? job.stopped_early;
      return { cells: [
        String(job.id), [tag(job.state, JOB_STATES[job.state] ?? ""), why ? sub(why) : null], words(job.trigger), orDash(job.height),
        orDash(job.safe_height), job.decided_by ?? "the chain", number(job.counts.looked_at), number(job.counts.deleted), kept || "0",
        bytes(job.counts.bytes_freed), ms(job.seconds.total * 1000), job.ended_at == null ? "–" : clock(job.ended_at),
      ] };
    }), "No job yet. One comes with the next block."));
}

function showTimes({ chain, prune }) {
  const row = (name, timing) => ({ cells: [name, number(timing.count), ...["last_ms", "p50_ms", "p99_ms"].map((key) => timing.count ? ms(timing[key]) : "–"), duration(timing.total_seconds)] });
  part("times", [chain.apply, chain.rollback, prune.timing], ([apply, rollback, job]) => table(
    [{ name: "" }, { name: "Count", n: true }, { name: "Last", n: true }, { name: "Half below", n: true }, { name: "99 % below", n: true }, { name: "In all", n: true }],
    [row("Apply a block", apply), row("Take blocks back", rollback), row("Pruning job", job)], ""));
}

const POLICY = [["retention", "Retention"], ["reorg_window", "Reorg window"], ["coinbase_maturity", "Coinbase maturity"],
  ["reassignment_delay", "Reassignment delay"], ["unmined_retention", "Unmined retention"], ["parent_preservation", "Parent preservation"]];

function showEngine(engine) {
  const columns = [["keys_estimate", "Keys", number], ["live_data_bytes_estimate", "Live data", bytes], ["sst_bytes", "Files", bytes], ["memtable_bytes", "Memtables", bytes],
    ["level0_files", "Level 0", number], ["pending_compaction_bytes", "To compact", bytes], ["background_errors", "Errors", number]];
  part("engine", engine, () => table([{ name: "Family" }, ...columns.map(([, name]) => ({ name, n: true }))],
    engine.map(({ part: name, stats }) => ({ cells: [el("b", {}, name), ...columns.map(([key, , format]) => orDash(stats[key], format))] })),
    "The engine has not told anything yet."));
}

let latest = null;
function show(status) {
  latest = status;
  showVitals(status);
  showAlerts(status.alerts);
  showPruner(status);
  showHolds(status.prune.holds, status.chain.applied?.height);
  showKept(status.prune.totals.retained);
  showJobs(status.prune);
  showTimes(status);
  part("policy", status.prune.policy, (policy) => facts(POLICY.map(([key, name]) => [name, key === "retention" && policy[key] === 0 ? "for ever" : number(policy[key])])));
  showEngine(status.engine);
}

/* ---- over time ---- */

const charts = makeCharts({ number, bytes, ms });
let range = "minutes";
let history = null;
let dayAsked = 0;
const FINE_POINTS = 600;

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
function lost(error) {
  if (error.status === 401) return askForToken("read");
  const banner = byId("lost");
  banner.hidden = false;
  banner.textContent = `No answer from the node (${error.message}). The figures are from ${latest ? clock(latest.at_ms / 1000) : "before"}; trying again.`;
  pill("state", "no connection", "bad");
}

async function poll() {
  let pause = REFRESH;
  try {
    const [status] = await Promise.all([api("status"), loadHistory()]);
    show(status);
    byId("lost").hidden = true;
    failures = 0;
  } catch (error) {
    failures += 1;
    pause = Math.min(REFRESH * 2 ** failures, 15_000);
    lost(error);
  }
  setTimeout(poll, document.hidden ? Math.max(pause, 5000) : pause);
}

/* ---- controls ---- */

let wanted = "admin";
function askForToken(need) {
  const dialog = byId("token-dialog");
  if (dialog.open) return;
  wanted = need;
  text("token-title", need === "admin" ? "Unlock the controls" : "This node asks for a token");
  text("token-text", need === "admin"
    ? "Enter the admin token. It stays in this page's memory and is gone when the page is closed."
    : "Enter the read or the admin token. It stays in this page's memory and is gone when the page is closed.");
  byId("token").value = "";
  byId("token-problem").hidden = true;
  dialog.showModal();
}
function lock() {
  admin = false;
  byId("controls").hidden = true;
  text("unlock", "Unlock controls");
}
byId("unlock").addEventListener("click", () => {
  if (!admin) return askForToken("admin");
  token = null;
  lock();
});
for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());

function problem(id, error) {
  const note = byId(id);
  note.hidden = false;
  note.textContent = error.message;
}

byId("token-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const offered = byId("token").value.trim();
  try {
    const access = await request("GET", "access", undefined, offered);
    if (wanted === "admin" && !access.admin) throw new Error("This is the read token. The controls need the admin token.");
    token = offered;
    admin = access.admin;
    byId("controls").hidden = !admin;
    text("unlock", admin ? "Lock controls" : "Unlock controls");
    byId("token-dialog").close();
    failures = 0;
    if (latest) show(latest);
  } catch (error) {
    problem("token-problem", error);
  }
});

function tell(message, bad) {
  const note = byId("told");
  note.hidden = false;
  note.classList.toggle("bad", Boolean(bad));
  note.textContent = message;
}
async function act(work) {
  try {
    tell(await work());
    show(await api("status"));
  } catch (error) {
    if (error.status === 401 || error.status === 403) lock();
    tell(error.message, true);
  }
}
byId("prune-now").addEventListener("click", () => act(async () => `Job ${(await request("POST", "prune", {})).id} is on its way.`));
byId("toggle").addEventListener("click", () => act(async () => {
  const { enabled } = await request("PUT", "prune/enabled", { enabled: !latest.prune.enabled });
  return enabled ? "Pruning is enabled." : "Pruning is disabled. It stays so after a restart.";
}));
const releaseHold = (name) => act(async () => {
  await request("DELETE", `holds/${encodeURIComponent(name)}`);
  return `Hold ${name} is released.`;
});

byId("edit-policy").addEventListener("click", () => {
  byId("policy-problem").hidden = true;
  byId("policy-fields").replaceChildren(...POLICY.map(([key, name]) =>
    el("label", {}, `${name} `, el("input", { name: key, type: "number", min: key === "reorg_window" ? 1 : 0, max: 4294967295, required: true, value: latest.prune.policy[key] }))));
  byId("policy-dialog").showModal();
});
byId("policy-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const policy = Object.fromEntries([...new FormData(event.target)].map(([key, value]) => [key, Number(value)]));
  try {
    await request("PATCH", "policy", { ...policy, confirm: true });
    byId("policy-dialog").close();
    await act(async () => "The policy is changed. Everything that is due is looked through again.");
  } catch (error) {
    problem("policy-problem", error);
  }
});

byId("add-hold").addEventListener("click", () => {
  byId("hold-form").reset();
  byId("hold-problem").hidden = true;
  byId("hold-dialog").showModal();
});
byId("hold-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { name, owner, keep_from, hours, reason } = Object.fromEntries(new FormData(event.target));
  const hold = {
    owner, reason, keep_from: keep_from === "" ? null : Number(keep_from),
    expires: hours === "" ? null : Math.floor(Date.now() / 1000) + Number(hours) * 3600,
  };
  try {
    await request("PUT", `holds/${encodeURIComponent(name)}`, hold);
    byId("hold-dialog").close();
    await act(async () => `Hold ${name} is set.`);
  } catch (error) {
    problem("hold-problem", error);
  }
});

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

const search = makeSearch({ api, el, number });
applyTheme();
poll();
if (location.hash.length > 1) search.look(decodeURIComponent(location.hash.slice(1)));
