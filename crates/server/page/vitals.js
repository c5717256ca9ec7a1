// The head of the page: which node, its vitals, its alerts, and what it says of its source.
import { byId, el, facts, figure, hashOf, part, pill, text, textToCopy } from "/dom.js";
import { bytes, clock, count, duration, number, orDash, words } from "/format.js";

const STATES = { running: "good", catching_up: "warn", resetting: "warn", reorganising: "warn", stalled: "bad", stopped: "bad" };
const ICONS = { critical: "/icon-critical.svg", warning: "/icon-warning.svg" };

/** The tab's title and icon: a problem shows in another tab too. `trouble` is a level, or absent. */
export function showTab(prefix, trouble) {
  const name = byId("node").dataset.name;
  const title = [prefix, name, "Sapwood"].filter(Boolean).join(" · ");
  if (document.title !== title) document.title = title;
  const icon = ICONS[trouble] ?? "/icon.svg";
  const link = byId("icon");
  if (link.getAttribute("href") !== icon) link.setAttribute("href", icon);
}

function tabOf({ alerts, chain }) {
  const [worst, ...others] = alerts;
  if (!worst) return showTab(chain.lag_blocks ? `${number(chain.lag_blocks)} behind` : "", null);
  showTab(`⚠ ${others.length ? `${alerts.length} alerts` : words(worst.name)}`, worst.level);
}

function showVitals({ node, chain, counts, disk }) {
  const same = node.name === node.chain;
  byId("node").dataset.name = node.name;
  text("node", [node.name, same ? null : node.chain, node.version, `up ${duration(node.uptime_seconds)}`].filter(Boolean).join(" · "));
  pill("state", words(chain.state), STATES[chain.state] ?? "quiet");
  figure("tip", orDash(chain.source?.best_height ?? chain.tip?.height));
  text("tip-note", sourceNote(chain));
  figure("applied", orDash(chain.applied?.height));
  part("applied-note", chain.applied, (applied) => applied ? hashOf("block", applied.hash, "the block hash") : ["no block yet"]);
  figure("behind", orDash(chain.lag_blocks), chain.lag_blocks == null ? "" : chain.lag_blocks === 1 ? "block" : "blocks");
  byId("behind").parentElement.dataset.kind = chain.lag_blocks > 10 ? "warn" : "";
  const queued = chain.queued ? `${number(chain.queued)} queued` : "none queued";
  text("behind-note", chain.catch_up_seconds == null ? queued : `${duration(chain.catch_up_seconds)} to go`);
  figure("unspent", number(counts.unspent));
  text("unspent-note", `in ${count(counts.records, "record")}`);
  figure("rate", number(Math.round(chain.transactions_per_second)), "tx/s");
  text("rate-note", `${chain.blocks_per_second.toFixed(1)} blocks a second`);
  const [amount, unit] = bytes(disk.total_bytes).split(" ");
  figure("disk", amount, unit);
  text("disk-note", `${bytes(disk.without_pruning_bytes)} without pruning`);
}

/* ---- the source ---- */

const SOURCE_NOTES = { opening: "not opened yet", unreachable: "not reachable", gap: "a block is missing", refused: "a block is refused", below_floor: "left our chain" };

function sourceNote({ tip, source, last_block_seconds: since }) {
  if (SOURCE_NOTES[source?.state]) return SOURCE_NOTES[source.state];
  if (tip == null) return source ? "no block yet" : "no source";
  return since == null ? "its last block" : `last block ${duration(since)} ago`;
}

/** A way in which the node and its source do not get on: what it is, why, and what it means. */
const trouble = (title, reason, ...notes) => el("div", { className: "refused" }, el("h2", {}, title), el("p", {}, reason), el("p", { className: "quiet" }, ...notes));

function troublesOf({ unreachable, refused, gap, below_floor: below, bodies }, applied) {
  const failing = (one) => `For ${duration(one.seconds)}, ${count(one.attempts, "attempt")}. What is stored is served meanwhile, and it is tried again every few seconds.`;
  return [
    refused && trouble(`Block ${number(refused.height)} of the source is refused`, refused.reason,
      textToCopy(refused.hash, "the hash of the refused block"),
      ` · ${refused.descendants ? `${count(refused.descendants, "block")} of the source ${refused.descendants === 1 ? "is" : "are"} built on it` : "no block is built on it"}`),
    unreachable && trouble("The source cannot be reached", unreachable.error, failing(unreachable)),
    gap && trouble("A block is missing in the source", `${count(gap.waiting, "block")} after height ${orDash(applied)} cannot be connected.`,
      "missing ", textToCopy(gap.missing, "the hash of the missing block"), " · parent of ", textToCopy(gap.child, "the hash of its child"),
      gap.damaged ? ` · damaged: ${gap.damaged}` : ""),
    below && trouble("The source left our chain below the rollback floor", `No rollback reaches below height ${number(below.floor)}.`,
      "the source's last block: ", textToCopy(below.tip.hash, "its hash"), ` at ${number(below.tip.height)}`),
    bodies && trouble("Bodies of large transactions cannot be written", bodies.error, failing(bodies)),
  ].filter(Boolean);
}

/** What stands between the node and its source, and how far it is. */
function showSource({ chain }) {
  const { source } = chain;
  const troubles = source ? troublesOf(source, chain.applied?.height) : [];
  byId("trouble").hidden = troubles.length === 0;
  part("trouble", troubles.map((one) => one.textContent), () => troubles);
  const has = Math.max(source?.best_height ?? 0, chain.tip?.height ?? 0);
  const applied = chain.applied?.height ?? 0;
  const bar = byId("progress");
  bar.max = Math.max(1, has);
  bar.value = Math.min(applied, Math.max(1, has));
  text("progress-note", has ? `${number(applied)} of the ${number(has)} blocks of the source are applied` : `${number(applied)} applied`);
}

function showChain({ chain, counts, disk, utxo_set: set }) {
  const best = chain.source?.best_height;
  part("chain-facts", [chain.tip, best, chain.rollback_floor, counts, disk.room, set], () => facts([
    chain.tip && ["Source's last block", hashOf("block", chain.tip.hash, "the hash of the source's last block"), `at height ${number(chain.tip.height)}`],
    best != null && ["Best header", number(best), "known to the source"],
    ["Can roll back to", orDash(chain.rollback_floor), "height"],
    ["Unmined", number(counts.unmined), "transactions"],
    ["Outputs created", number(counts.created), "so far"],
    ["Outputs spent", number(counts.spent), "pruned ones included"],
    disk.room && ["Free on the disk", bytes(disk.room.free_bytes), disk.room.reserve_bytes ? `blocks wait below ${bytes(disk.room.reserve_bytes)}` : `of ${bytes(disk.room.total_bytes)}`],
    set?.muhash && ["UTXO set hash", textToCopy(set.muhash, "the hash of the UTXO set"), `${number(set.outputs)} outputs at ${number(set.applied.height)}`],
  ]));
}

function showAlerts(alerts) {
  byId("alerts").hidden = alerts.length === 0;
  part("alerts", alerts, (list) => list.map((alert) => el("div", { className: "alert", dataset: { level: alert.level } },
    el("b", {}, words(alert.name)), el("span", {}, alert.text))));
}

export function showNode(status) {
  showVitals(status);
  showSource(status);
  showChain(status);
  showAlerts(status.alerts);
  tabOf(status);
  text("measured", `Measured at ${clock(status.at_ms / 1000)} · memory ${orDash(status.process.resident_bytes, bytes)}`);
}
