// The pruner: what it does, what holds it back, its jobs and its policy.
import { byId, el, facts, isInUse, meters, part, pill, sub, table, tag, text } from "/dom.js";
import { bytes, clock, count, duration, moment, ms, number, orDash, words } from "/format.js";

/** Every number of the policy: what it is called, and what it means. */
export const POLICY = [
  { key: "retention", name: "Retention", meaning: "Blocks a record is kept after it settled. 0: records are never pruned." },
  { key: "reorg_window", name: "Reorg window", meaning: "How many blocks can be rolled back. At most the retention, unless that is 0." },
  { key: "unmined_retention", name: "Unmined retention", meaning: "Blocks after which an unmined transaction is old and its parents are preserved." },
  { key: "parent_preservation", name: "Parent preservation", meaning: "Blocks for which those parents are preserved." },
  { key: "coinbase_maturity", name: "Coinbase maturity", meaning: "Blocks before a coinbase's outputs may be spent." },
  { key: "reassignment_delay", name: "Reassignment delay", meaning: "Blocks before a reassigned output may be spent." },
];

const JOB_STATES = { completed: "good", running: "warn", failed: "bad" };

/* ---- what it does ---- */

let runningBefore = null;

/** What the pruner is at, in a few words that do not change with every job: most jobs last a fraction of a second. */
function headline({ prune, chain }) {
  const running = prune.newest_jobs.find((job) => job.state === "running")?.id ?? null;
  const lasting = running != null && running === runningBefore;
  runningBefore = running;
  if (!prune.enabled) return "Disabled";
  if (!["running", "catching_up"].includes(chain.state)) return "Waiting for the chain";
  if (lasting) return `Job ${running} is running`;
  if (prune.safe_height == null) return `Waiting for ${prune.decided_by ?? "the first block"}`;
  if (prune.lag_blocks > 0 && prune.decided_by) return `Waiting for ${prune.decided_by}`;
  return prune.backlog_records ? "Deleting what is due" : "Up to date";
}

function showState(status) {
  const { prune } = status;
  pill("prune-enabled", prune.enabled ? "enabled" : "disabled", prune.enabled ? "good" : "warn");
  text("headline", headline(status));
  const now = prune.state.charAt(0).toUpperCase() + prune.state.slice(1);
  text("prune-state", now);
  byId("prune-state").title = now;
  const { totals } = prune;
  const bodies = totals.bodies_deleted ? ` and ${count(totals.bodies_deleted, "body").replace("bodys", "bodies")}` : "";
  part("prune-facts", [
    ["Safe to delete up to", orDash(prune.safe_height), prune.decided_by ? `decided by ${prune.decided_by}` : "the height of the chain"],
    ["Ready to delete", number(prune.backlog_records), prune.backlog_records && prune.catch_up_seconds != null ? `records, in ${duration(prune.catch_up_seconds)}` : "records"],
    ["Oldest of them", prune.oldest_prunable_blocks == null ? "–" : count(prune.oldest_prunable_blocks, "block"),
      prune.oldest_prunable_blocks == null ? "none waits" : `since it was due${prune.oldest_prunable_seconds == null ? "" : `, ${duration(prune.oldest_prunable_seconds)}`}`],
    ["Waiting longest", orDash(prune.lag_blocks), "blocks, held ones included"],
    ["Deleted", number(totals.deleted), "records so far"],
    ["Freed", bytes(totals.bytes_freed), `of records${bodies}`],
    ["Jobs", number(totals.jobs), "so far"],
  ], facts);
}

/* ---- holds ---- */

function holdRow(hold, applied, release) {
  const behind = hold.keep_from == null || applied == null ? null : applied - hold.keep_from;
  const label = hold.expired ? tag("expired", "bad") : hold.decides ? tag("decides", "good") : hold.keep_from == null ? tag("not reported", "warn") : null;
  const distance = behind == null ? null : behind > 0 ? `${number(behind)} behind` : behind === 0 ? "at the tip" : `${number(-behind)} ahead`;
  const retains = hold.retained_records ? `retains ${number(hold.retained_records)}` : null;
  return el("li", { className: hold.decides ? "decides" : "" },
    el("div", { className: "what" },
      el("p", {}, el("b", {}, hold.name), " ", label),
      el("p", { className: "quiet" }, hold.reason),
      el("p", { className: "quiet" }, `${hold.owner}${hold.expires == null ? "" : ` · ends ${moment(hold.expires)}`}`)),
    el("div", { className: "from" },
      el("b", {}, hold.keep_from == null ? "everything" : `from ${number(hold.keep_from)}`), sub(distance ?? ""), sub(retains ?? ""), el("span", { className: "sub age" }),
      release && hold.kind !== "reorg_window" ? el("button", { type: "button", className: "link", onclick: () => release(hold.name) }, "release") : null));
}

function showHolds(holds, applied, release) {
  // Heights move with every block and ages with every second. What is about to be released stays where it is.
  const place = byId("holds");
  const names = holds.map((hold) => hold.name).join(" ");
  const resting = release && isInUse("holds") && place.dataset.names === names;
  place.dataset.names = names;
  const shown = holds.map(({ unchanged_seconds, ...hold }) => hold);
  if (!resting) {
    part("holds", { shown, applied, admin: Boolean(release) }, () => holds.length
      ? holds.map((hold) => holdRow(hold, applied, release))
      : el("li", { className: "empty" }, "No consumer needs history: only the reorg window counts."));
  }
  const ages = place.getElementsByClassName("age");
  holds.forEach((hold, i) => { if (ages[i]) ages[i].textContent = hold.unchanged_seconds == null ? "" : `unchanged ${duration(hold.unchanged_seconds)}`; });
}

/* ---- what blocks deletion ---- */

const REASONS = {
  unreadable: "It cannot be read",
  external_body: "Its body cannot be deleted",
  child_disagrees: "A child is not where its parent remembers it",
  child_unmined: "A transaction that spends it is not mined",
  not_deep_enough: "Its block, or that of a transaction that spends it, is not deep enough",
  retention_off: "The retention is 0: records are never pruned",
  held: "A hold still needs it",
  preserved: "It is preserved for an unmined child",
  locked: "It is locked",
};

/** Why, and which holds it is if it is one. */
function reasonOf(reason, holds) {
  const holding = holds.filter((hold) => hold.retained_records > 0).map((hold) => `${hold.name} (${number(hold.retained_records)})`);
  return reason === "held" && holding.length ? `${REASONS.held}: ${holding.join(", ")}` : REASONS[reason];
}

function showBlockers({ blocked, holds }) {
  const list = Object.entries(blocked).sort((a, b) => b[1] - a[1]).map(([reason, value]) => [words(reason), value, reasonOf(reason, holds)]);
  text("blockers-note", "records that are retained and would be deleted otherwise");
  part("blockers", list, () => list.length ? meters(list, number) : el("p", { className: "empty" }, "No record that is spent is retained."));
}

/* ---- jobs ---- */

const COLUMNS = [
  { name: "Job" }, { name: "State", clip: true }, { name: "Because of", extra: true, tight: true }, { name: "Deleted", n: true }, { name: "Retained", n: true },
  { name: "Took", n: true }, { name: "Freed", n: true, extra: true }, { name: "Looked at", n: true, extra: true }, { name: "Height", n: true, extra: true },
  { name: "Safe up to", n: true, extra: true }, { name: "Decided by", n: true, extra: true }, { name: "Ended", n: true, extra: true },
];

function jobRow(job) {
  const retained = Object.entries(job.counts.retained);
  const sum = retained.reduce((all, [, value]) => all + value, 0);
  const reasons = retained.map(([reason, value]) => `${number(value)} ${words(reason)}`).join(", ");
  const why = job.error ?? job.stopped_early?.message;
  return { cells: [
    String(job.id), [tag(job.state, JOB_STATES[job.state] ?? ""), why ? el("span", { className: "sub", title: why }, why) : null],
    words(job.trigger), number(job.counts.deleted), el("span", { title: reasons }, number(sum)),
    ms(Object.values(job.seconds).reduce((all, seconds) => all + seconds) * 1000), bytes(job.counts.bytes_freed), number(job.counts.looked_at), orDash(job.height), orDash(job.safe_height),
    job.decided_by ?? "the chain", job.ended_at == null ? "–" : clock(job.ended_at),
  ] };
}

function showJobs(prune) {
  part("jobs", prune.newest_jobs.slice(0, 8), (jobs) => table(COLUMNS, jobs.map(jobRow), "No job yet. One comes with the next block."));
}

/* ---- policy ---- */

export const inBlocks = (key, value) => key === "retention" && value === 0 ? "never pruned" : count(value, "block");

/** Where a number of the policy comes from, in words. */
export function originOf(origin) {
  if (!origin) return "From the configuration.";
  return origin.from === "promise" ? "Promised earlier: longer than the configuration." : `Changed at run time by ${origin.by}, ${moment(origin.at)}.`;
}

function showPolicy(prune) {
  part("policy", prune.policy, (policy) => POLICY.map(({ key, name, meaning }) => el("div", {},
    el("dt", {}, name), el("dd", {}, el("b", {}, inBlocks(key, policy[key])), el("p", {}, meaning)))));
}

/** Shows all of it. `release` releases a hold, if that may be done. */
export function showPruner(status, release) {
  const { prune } = status;
  showState(status);
  showHolds(prune.holds, status.chain.applied?.height, release);
  showBlockers(prune);
  showJobs(prune);
  showPolicy(prune);
}
