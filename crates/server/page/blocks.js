// The latest blocks: a way in for those who do not know a hash yet.
import { byId, el, hashOf, isInUse, link, part } from "/dom.js";
import { api } from "/client.js";
import { number, when } from "/format.js";

const SHOWN = 6;
/** How many are asked for: some may be newer than the status that is shown. */
const ASKED = 30;
let newest = null;

/** Asks for the latest blocks if there are new ones, but not while the operator is about to click on one. */
export async function loadBlocks(applied) {
  if (!applied || applied.hash === newest || isInUse("blocks")) return;
  const page = await api(`blocks?order=desc&limit=${ASKED}`);
  const items = page.items.filter((block) => block.height <= applied.height).slice(0, SHOWN);
  newest = applied.hash;
  byId("blocks").dataset.count = items.length;
  part("blocks", items, () => items.length ? el("ol", {}, ...items.map((block) => el("li", {},
    link("block", block.hash, number(block.height)),
    hashOf("block", block.hash, "the block hash"),
    el("span", { className: "quiet" }, `${number(block.tx_count)} tx`),
    el("time", { className: "quiet" }, block.time == null ? "" : when(block.time)))))
    : el("p", { className: "empty" }, "No block yet."));
}
