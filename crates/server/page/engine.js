// For those who know the storage engine from the inside.
import { el, facts, part, table } from "/dom.js";
import { bytes, duration, ms, number, orDash } from "/format.js";

const STATS = [["rows_estimate", "Keys", number], ["disk_bytes", "Files", bytes], ["memory_bytes", "Memtables", bytes], ["live_data_bytes_estimate", "Live data", bytes],
  ["level0_files", "Level 0", number], ["pending_compaction_bytes", "To compact", bytes], ["background_errors", "Errors", number]];
/** Left out on a phone. */
const EXTRA = ["live_data_bytes_estimate", "level0_files", "pending_compaction_bytes"];

function showTimes({ chain, prune }) {
  const row = (name, timing) => ({ cells: [name, number(timing.count), ...["last_ms", "p50_ms", "p99_ms"].map((key) => timing.count ? ms(timing[key]) : "–"), duration(timing.total_seconds)] });
  part("times", [chain.apply, chain.rollback, prune.timing], ([apply, rollback, job]) => table(
    [{ name: "" }, { name: "Count", n: true }, { name: "Last", n: true, extra: true }, { name: "Median", n: true }, { name: "p99", n: true }, { name: "In all", n: true, extra: true }],
    [row("Apply a block", apply), row("Roll back blocks", rollback), row("Pruning job", job)], ""));
}

export function showEngine(status) {
  const { engine, engine_writes: writes, prune } = status;
  part("families", engine, () => table([{ name: "Family" }, ...STATS.map(([key, name]) => ({ name, n: true, extra: EXTRA.includes(key) }))],
    engine.map(({ part: name, stats }) => ({ cells: [el("b", {}, name), ...STATS.map(([key, , format]) => orDash(stats[key], format))] })),
    "The engine has not reported yet."));
  showTimes(status);
  part("writes", writes, () => facts(writes ? [
    ["Asked for", bytes(writes.applied_bytes), "to write"],
    ["Log", bytes(writes.log_bytes), `${number(writes.log_syncs)} syncs`],
    ["Flushes", bytes(writes.flush_bytes), "written"],
    ["Compactions", bytes(writes.compaction_bytes), `${bytes(writes.compaction_read_bytes)} read`],
    ["Write amplification", status.write_amplification == null ? "–" : status.write_amplification.toFixed(1), "bytes written for each byte asked for"],
  ] : []));
  const speed = prune.totals.records_per_second;
  part("sweep", [speed, prune.cursor], () => facts([
    ["Speed of deletion", speed == null ? "–" : number(Math.round(speed)), "records a second, pauses not counted"],
    ["Next job begins at", prune.cursor ? el("span", { className: "hash", title: prune.cursor }, `${prune.cursor.slice(0, 16)}…`) : "the oldest record", "of what is due"],
  ]));
}
