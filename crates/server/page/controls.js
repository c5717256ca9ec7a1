// What an operator can change: with the admin token, and with a plan before anything is deleted.
import { hasToken, api, request, setToken } from "/client.js";
import { byId, el, meters, text } from "/dom.js";
import { bytes, count, duration, number, words } from "/format.js";
import { POLICY, inBlocks, originOf } from "/pruner.js";

let admin = false;
let offered = false;
let wanted = "admin";
let latest = null;
let changed = () => {};

export const mayChange = () => admin;

/* ---- the token ---- */

const FOUND = "A server without a configured token makes one at its first start: see the file admin.token in its data directory.";

export function askForToken(need) {
  const dialog = byId("token-dialog");
  if (dialog.open) return;
  wanted = need;
  text("token-title", need === "admin" ? "Unlock the controls" : "This node asks for a token");
  text("token-text", `Enter the ${need === "admin" ? "admin token" : "read or the admin token"}. ${FOUND} It stays in the memory of this page and is gone when the page is closed.`);
  byId("token").value = "";
  byId("token-problem").hidden = true;
  dialog.showModal();
}

function setAdmin(value) {
  admin = value;
  byId("controls").hidden = !admin;
  byId("unlock").hidden = !offered && !admin;
  text("unlock", admin ? "Lock controls" : "Unlock controls");
}

/** Offers the controls only if there is a token that opens them. */
export async function offerControls() {
  if (hasToken()) return;
  const access = await api("access");
  offered = access.admin_token;
  setAdmin(access.admin);
}

function problem(id, error) {
  const note = byId(id);
  note.hidden = false;
  note.textContent = error.message;
}

async function unlock(event) {
  event.preventDefault();
  const token = byId("token").value.trim();
  try {
    const access = await request("GET", "access", undefined, token);
    if (wanted === "admin" && !access.admin) throw new Error("This is the read token. The controls need the admin token.");
    setToken(token);
    offered = access.admin_token;
    setAdmin(access.admin);
    byId("token-dialog").close();
    changed();
  } catch (error) {
    problem("token-problem", error);
  }
}

/* ---- telling what happened ---- */

const LASTS = 8000;
let timer = null;
let job = null;

export function tell(message, bad) {
  clearTimeout(timer);
  const note = byId("told");
  note.hidden = !message;
  note.classList.toggle("bad", Boolean(bad));
  note.textContent = message ?? "";
  if (message && !bad && job == null) timer = setTimeout(() => tell(null), LASTS);
}

/** Follows the job that was asked for: what is told of it ends with it. */
function followJob(prune) {
  let found = prune.newest_jobs.find((one) => one.id === job);
  while (found?.superseded_by != null) found = prune.newest_jobs.find((one) => one.id === found.superseded_by);
  // A status that was measured before the job was asked for does not know it yet.
  const unknown = !found && !prune.newest_jobs.some((one) => one.id > job);
  if (job == null || unknown || ["pending", "running"].includes(found?.state)) return;
  const id = job;
  job = null;
  if (!found) tell(`Job ${id} is over.`);
  else if (found.state === "completed") tell(`Job ${found.id} is completed: ${count(found.counts.deleted, "record")} deleted, ${bytes(found.counts.bytes_freed)} freed.`);
  else tell(`Job ${found.id} is ${found.state}${found.error || found.stopped_early ? `: ${found.error ?? found.stopped_early.message}` : ""}.`, found.state === "failed");
}

/** Takes note of a status, or of there being none: then nothing is known of a job either. */
export function noteStatus(status) {
  latest = status;
  if (status) return followJob(status.prune);
  job = null;
  tell(null);
}

async function act(work) {
  try {
    tell(await work());
  } catch (error) {
    if (error.status === 401 || error.status === 403) setAdmin(false);
    tell(error.message, true);
  }
  changed();
}

/* ---- the plan ---- */

/** What a job would delete and what it would retain. */
function planView(plan) {
  const retained = Object.entries(plan.retained).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
  const bodies = plan.bodies ? ` and ${number(plan.bodies)} external bodies` : "";
  return [
    el("p", { className: "verdict" }, plan.blocked ? `Nothing can be deleted now: ${plan.blocked.message}` : `${plan.complete ? "" : "At least "}${count(plan.records, "record")} would be deleted`),
    el("p", {}, `${bytes(plan.bytes)} of records${bodies}. ${count(plan.looked_at, "due record")} looked at. `,
      plan.safe_height == null ? "No height is safe yet" : `Deletion is safe up to height ${number(plan.safe_height)}`, plan.decided_by ? `, as ${plan.decided_by} decides.` : "."),
    ...(retained.length ? [el("h3", {}, "Retained, and why"), meters(retained.map(([reason, value]) => [words(reason), value]), number)] : []),
  ];
}

async function askToPrune() {
  const dialog = byId("prune-dialog");
  const confirm = byId("prune-confirm");
  byId("plan").replaceChildren(el("p", {}, "Making the plan…"));
  confirm.disabled = true;
  text("prune-confirm", "Prune now");
  byId("prune-problem").hidden = true;
  dialog.showModal();
  try {
    const plan = await api("prune/plan");
    byId("plan").replaceChildren(...planView(plan));
    text("prune-confirm", plan.records && !plan.blocked ? `Delete ${count(plan.records, "record")}` : "Run a job anyway");
    confirm.disabled = Boolean(plan.blocked);
  } catch (error) {
    byId("plan").replaceChildren();
    problem("prune-problem", error);
  }
}

async function prune(event) {
  event.preventDefault();
  byId("prune-dialog").close();
  await act(async () => {
    ({ id: job } = await request("POST", "prune", {}));
    return `Job ${job} is running…`;
  });
}

/* ---- the policy ---- */

let confirming = null;

async function openPolicy() {
  confirming = null;
  byId("policy-problem").hidden = true;
  byId("policy-plan").replaceChildren();
  byId("policy-fields").disabled = false;
  text("policy-submit", "Save");
  byId("policy-submit").classList.remove("danger");
  const { origins, ...policy } = await api("policy");
  byId("policy-inputs").replaceChildren(...POLICY.map(({ key, name, meaning }) => el("label", {}, name,
    el("input", { name: key, type: "number", min: key === "reorg_window" ? 1 : 0, max: 4294967295, required: true, value: policy[key], defaultValue: policy[key] }),
    el("span", { className: "help" }, `${meaning} Now ${inBlocks(key, policy[key])}. ${originOf(origins[key])}`))));
  byId("policy-dialog").showModal();
}

async function savePolicy(event) {
  event.preventDefault();
  byId("policy-problem").hidden = true;
  const inputs = [...byId("policy-inputs").querySelectorAll("input")];
  const change = Object.fromEntries(inputs.filter((input) => input.value !== input.defaultValue).map((input) => [input.name, Number(input.value)]));
  if (!confirming && !Object.keys(change).length) return byId("policy-dialog").close();
  try {
    await request("PATCH", confirming ? "policy?confirm=true" : "policy", confirming ?? change);
    byId("policy-dialog").close();
    await act(async () => "The policy is changed, and stays so after a restart.");
  } catch (error) {
    if (error.status !== 409 || confirming) return problem("policy-problem", error);
    // Something is kept for a shorter time: first what that deletes, then the question.
    confirming = change;
    const { plan } = error.problem;
    byId("policy-fields").disabled = true;
    byId("policy-plan").replaceChildren(el("h3", {}, "This keeps less than now"), el("p", { className: "shortens" }, `${error.message}.`), ...(plan ? planView(plan) : []));
    text("policy-submit", plan?.records ? `Shorten and delete ${count(plan.records, "record")}` : "Shorten");
    byId("policy-submit").classList.add("danger");
    byId("policy-plan").scrollIntoView({ block: "nearest" });
  }
}

/* ---- holds ---- */

export const releaseHold = (name) => act(async () => {
  await request("DELETE", `holds/${encodeURIComponent(name)}`);
  return `Hold ${name} is released.`;
});

function openHold() {
  byId("hold-form").reset();
  byId("hold-problem").hidden = true;
  byId("hold-dialog").showModal();
}

async function setHold(event) {
  event.preventDefault();
  const { name, owner, keep_from, hours, reason } = Object.fromEntries(new FormData(event.target));
  const hold = {
    owner, reason, keep_from: keep_from === "" ? null : Number(keep_from),
    expires: hours === "" ? null : Math.floor(Date.now() / 1000 + Number(hours) * 3600),
  };
  try {
    await request("PUT", `holds/${encodeURIComponent(name)}`, hold);
    byId("hold-dialog").close();
    await act(async () => `Hold ${name} is set${hours === "" ? "" : ` for ${duration(Number(hours) * 3600)}`}.`);
  } catch (error) {
    problem("hold-problem", error);
  }
}

async function toggle() {
  const { enabled } = await request("PUT", "prune/enabled", { enabled: !latest.prune.enabled });
  return enabled ? "Pruning is enabled." : "Pruning is disabled. It stays so after a restart.";
}

/** Shows which controls make sense now. */
export function showControls({ prune }) {
  text("toggle", prune.enabled ? "Disable pruning" : "Enable pruning");
  byId("prune-now").disabled = !prune.enabled;
}

/** `refresh` is called when something was changed. */
export function startControls(refresh) {
  changed = refresh;
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());
  byId("token-form").addEventListener("submit", unlock);
  byId("unlock").addEventListener("click", () => {
    if (!admin) return askForToken("admin");
    setToken(null);
    setAdmin(false);
    changed();
  });
  byId("prune-now").addEventListener("click", askToPrune);
  byId("prune-form").addEventListener("submit", prune);
  byId("toggle").addEventListener("click", () => act(toggle));
  byId("edit-policy").addEventListener("click", () => openPolicy().catch((error) => tell(error.message, true)));
  byId("policy-form").addEventListener("submit", savePolicy);
  byId("add-hold").addEventListener("click", openHold);
  byId("hold-form").addEventListener("submit", setHold);
}
