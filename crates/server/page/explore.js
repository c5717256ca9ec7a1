// Looks things up. What is shown is named by the address of the page (#tx/…, #output/…, #block/…, #address/…), so that it can be
// linked to and the browser's buttons lead back and forth.
import { api } from "/client.js";
import { byId, el, placeOf } from "/dom.js";
import { short } from "/format.js";
import { addressView, blockView, outputView, transactionView } from "/views.js";

const HASH = /^[0-9a-f]{64}$/i;
const OUTPUT = /^[0-9a-f]{64}:\d{1,10}$/i;
const HEIGHT = /^\d{1,10}$/;
const DIGITS = /^[0-9a-f]+$/i;
const VIEWS = { tx: transactionView, output: outputView, block: blockView, address: addressView };

const place = byId("found");
const input = byId("query");
let chain = "";
let turn = 0;

function frame(title, ...content) {
  const close = el("button", { type: "button", className: "plain", onclick: () => { location.hash = ""; } }, "Close");
  place.replaceChildren(el("div", { className: "head" }, el("h2", { tabIndex: -1 }, ...[title].flat()), close), ...content);
  place.hidden = false;
}

/** What the address of the page names: a kind, an id, and the output that is known to be spent by it. */
function named() {
  const [, kind, rest] = /^#(tx|output|block|address)\/(.+)$/.exec(location.hash) ?? [];
  if (!kind) return null;
  const [id, spends] = rest.split("?spends=");
  return { kind, id: decodeURIComponent(id), spends };
}

/** Shows what the address of the page names. */
async function show() {
  const what = named();
  if (!what) {
    if (location.hash === "#main") return;
    turn += 1;
    input.value = "";
    place.hidden = true;
    return;
  }
  const mine = ++turn;
  input.value = what.id;
  const draw = (...content) => { if (mine === turn) frame(...content); };
  try {
    await VIEWS[what.kind](what, { draw, chain });
  } catch (error) {
    const title = error.status === 410 ? "Pruned" : error.status === 404 ? "Not found" : "That did not work";
    const text = what.kind === "address" && [400, 422].includes(error.status) ? notOne(what.id, error.message) : error.message;
    draw(title, el("p", {}, text));
  }
  if (mine === turn) {
    place.scrollIntoView({ block: "nearest" });
    place.querySelector("h2")?.focus({ preventScroll: true });
  }
}

/** Words for a text that names nothing. */
const notOne = (text, why) => `“${text}” is neither a txid or block hash (64 digits), an output (txid:number), a height nor an address. ${why}`;

/** The kind of thing that a text from the search box names. A hash may be that of a transaction or of a block: the node knows. */
async function kindOf(text) {
  if (OUTPUT.test(text)) return "output";
  if (HEIGHT.test(text)) return "block";
  if (DIGITS.test(text) && !HASH.test(text) && chain.startsWith("bitcoin")) {
    throw new Error(notOne(text, `It has ${text.length} digits. A locking script is looked up as script:${short(text)}.`));
  }
  if (!HASH.test(text)) return "address";
  const known = (path) => api(path).then(() => true, (error) => { if (error.status === 404) return false; throw error; });
  if (await known(`txs/${text}?limit=1`)) return "tx";
  return await known(`blocks/${text}?limit=1`) ? "block" : "tx";
}

async function look(text) {
  const wanted = text.trim().replace(/^([0-9a-f]{64})\/(\d+)$/i, "$1:$2").replace(/^([0-9,]+)$/, (digits) => digits.replaceAll(",", ""));
  if (!wanted) return;
  const mine = ++turn;
  try {
    const [id, spends] = wanted.split("?spends=");
    const kind = await kindOf(id);
    if (mine !== turn) return;
    const next = placeOf(kind, id) + (spends ? `?spends=${spends}` : "");
    if (location.hash === next) show(); else location.hash = next;
  } catch (error) {
    frame("That did not work", el("p", {}, error.message));
  }
}

byId("look").addEventListener("submit", (event) => {
  event.preventDefault();
  look(input.value);
});

/** Begins once the chain is known: its kind decides how amounts are written. */
export function startExploring(name) {
  chain = name;
  addEventListener("hashchange", show);
  show();
}
