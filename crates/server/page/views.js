// A transaction, an output, a block, an address.
import { api } from "/client.js";
import { copyButton, el, facts, hashOf, link, placeOf, sub, table, tag } from "/dom.js";
import { amount, count, moment, number, short, smallest } from "/format.js";

/** Outputs, inputs or transactions shown at once. */
const SHOWN = 50;
/** Outputs of an address that are asked for at once: enough for a sum that is nearly always whole. */
const ADDRESS_PAGE = 1000;

const title = (name, id) => [`${name} `, el("span", { className: "hash" }, id), copyButton(id, "it")];
const money = (value, chain) => value == null ? "–" : el("span", { title: smallest(value, chain) }, amount(value, chain));

/** Blocks that can be looked up: those that are applied and can still be rolled back. Of older ones nothing is kept. */
let kept = { above: -1, upTo: Infinity };
export const noteKept = ({ applied, rollback_floor: floor }) => { kept = { above: floor ? floor : -1, upTo: applied?.height ?? -1 }; };
const isKept = (height) => height > kept.above && height <= kept.upTo;
const heightLink = (height) => isKept(height) ? link("block", String(height), number(height)) : number(height);

/* ---- outputs ---- */

const KINDS = { unspent: "good", frozen: "warn", spent: "", unspendable: "" };

function stateOf(output) {
  const by = output.spent_by;
  const label = tag(output.state, KINDS[output.state]);
  if (!by) return [label];
  const mined = by.mined_at == null ? ["not mined"] : ["mined at ", heightLink(by.mined_at)];
  if (!by.txid) return [label, sub("the spender is not remembered, ", ...mined)];
  const child = link("tx", by.txid);
  // If the child is pruned, the output that it spent still proves it.
  child.href += `?spends=${output.txid}:${output.vout}`;
  return [label, sub("by ", child, ", ", ...mined)];
}

function ownerOf({ address, script }) {
  const id = address ?? (script ? `script:${script}` : null);
  return id ? hashOf("address", id, "the address", id.length > 44 ? short(id) : id) : "–";
}

function outputTable(list, chain, first) {
  return el("div", { className: "scroll" }, table(
    [{ name: first, tight: true }, { name: "Amount", n: true }, { name: "State" }, { name: "Address" }],
    list.map((output) => ({ cells: [
      link("output", `${output.txid}:${output.vout}`, first === "#" ? number(output.vout) : `${short(output.txid)}:${output.vout}`),
      money(output.value, chain), stateOf(output), ownerOf(output)] })), "No outputs."));
}

/** The first of a list, and a button that draws more. */
function paged(list, draw) {
  const place = el("div", {});
  const more = (shown) => place.replaceChildren(draw(list.slice(0, shown)), ...(list.length > shown
    ? [el("button", { type: "button", className: "plain more", onclick: () => more(shown + 200) }, `Show more of ${number(list.length)}`)] : []));
  more(SHOWN);
  return place;
}

/* ---- transaction ---- */

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function verdictOf(why) {
  const outlook = why.earliest != null ? `It can be pruned at height ${number(why.earliest)} if nothing changes.` : why.needs;
  return [
    el("p", { className: "verdict" }, why.verdict),
    el("p", { className: "quiet" }, sentence(why.state)),
    outlook && el("p", { className: "quiet" }, sentence(outlook)),
    why.blocked && el("p", { className: "quiet" }, `Nothing is deleted at the moment, because ${why.blocked.message}.`),
  ].filter(Boolean);
}

/** Each check that a record has to pass before it is deleted. */
function checksOf(why) {
  const mark = (guard) => tag(guard.retains ? "retains" : "lets go", guard.retains ? "warn" : "good");
  return el("ul", { className: "guards" }, ...why.guards.map((guard) =>
    el("li", {}, el("span", {}, mark(guard)), el("span", {}, guard.question), el("span", { className: "quiet" }, guard.answer))));
}

function inputTable(inputs, chain) {
  return el("div", { className: "scroll" }, table(
    [{ name: "Spends output", tight: true }, { name: "Amount", n: true }, { name: "Address" }],
    inputs.map((input) => ({ cells: [
      [link("tx", input.txid), ":", link("output", `${input.txid}:${input.vout}`, String(input.vout))],
      money(input.value, chain), ownerOf(input)] })), "None: it is a coinbase."));
}

export async function transactionView({ id, spends }, { draw, chain }) {
  const query = spends ? `spends=${encodeURIComponent(spends)}` : "";
  const [why, record] = await Promise.all([api(`txs/${id}/explain?${query}`), api(`txs/${id}?limit=${ADDRESS_PAGE}${query && `&${query}`}`)]);
  const height = (name, value) => value == null ? null : [name, number(value)];
  draw(title("Transaction", record.txid),
    ...verdictOf(why),
    el("dl", { className: "facts" }, ...facts([
      ["Block", record.mined_at == null ? "not mined" : heightLink(record.mined_at)],
      height("Unmined since", record.unmined_since),
      height("Conflicting since", record.conflicting_since),
      height("Preserved until", record.preserve_until),
      height("Spendable from", record.spendable_from),
      record.fee == null ? null : ["Fee", money(record.fee, chain)],
      ["Size", `${number(record.size)} bytes`],
    ])),
    el("h3", {}, record.coinbase ? "Inputs" : count(record.inputs.length, "input")),
    record.coinbase ? el("p", { className: "quiet" }, "A coinbase: it makes new coins.") : paged(record.inputs, (list) => inputTable(list, chain)),
    el("h3", {}, record.output_count > record.outputs.length ? `The first ${number(record.outputs.length)} of ${count(record.output_count, "output")}` : count(record.output_count, "output")),
    paged(record.outputs, (list) => outputTable(list, chain, "#")),
    el("h3", {}, why.prunable ? "Why it can be pruned" : "Why it is retained"),
    checksOf(why));
}

export async function outputView({ id }, { draw, chain }) {
  const found = await api(`utxos/${id.replace(":", "/")}`);
  draw(title("Output", `${found.txid}:${found.vout}`),
    el("dl", { className: "facts" }, ...facts([
      ["Amount", money(found.value, chain)],
      ["State", stateOf(found)],
      ["Address", ownerOf(found)],
      ["Transaction", hashOf("tx", found.txid, "the transaction's id")],
      ["Block", found.mined_at == null ? "not mined" : heightLink(found.mined_at)],
      ["Coinbase", found.coinbase ? "yes" : "no"],
    ])));
}

/* ---- block ---- */

export async function blockView({ id }, { draw }) {
  const block = await api(`blocks/${encodeURIComponent(id)}`);
  const step = (height, name) => isKept(height) ? el("a", { href: placeOf("block", String(height)) }, name) : "";
  const [before, next] = [step(block.height - 1, "previous"), step(block.height + 1, "next")];
  draw([`Block ${number(block.height)}`],
    el("p", { className: "steps" }, before, next),
    el("dl", { className: "facts" }, ...facts([
      ["Hash", hashOf("block", block.hash, "the block hash")],
      block.parent ? ["Parent", hashOf("block", block.parent, "the parent's hash")] : null,
      ["Time", block.time == null ? "–" : moment(block.time)],
      ["Transactions", number(block.tx_count)],
    ])),
    el("h3", {}, "Transactions"),
    block.txids.length
      ? paged(block.txids, (list) => el("ol", { className: "txids" }, ...list.map((txid) => el("li", {}, hashOf("tx", txid, "the transaction's id", txid)))))
      : el("p", { className: "quiet" }, "Their ids are not kept any more."));
}

/* ---- address ---- */

export async function addressView({ id }, { draw, chain }) {
  let items = [];
  const load = async (cursor) => {
    const page = await api(`addresses/${encodeURIComponent(id)}/utxos?order=desc&limit=${ADDRESS_PAGE}${cursor ? `&cursor=${cursor}` : ""}`);
    items = items.concat(page.items);
    const sum = items.reduce((all, output) => all + BigInt(output.value ?? 0), 0n);
    draw(title("Address", id),
      el("dl", { className: "facts" }, ...facts([
        [page.cursor ? `Sum of the newest ${number(items.length)}` : "Sum", money(sum, chain)],
        ["Unspent outputs", page.cursor ? `more than ${number(items.length)}` : number(items.length)],
      ])),
      items.length ? paged(items, (list) => outputTable(list, chain, "Output"))
        : el("p", { className: "empty" }, "No unspent output: it was never paid, everything is spent, or its outputs use another kind of script."),
      ...(page.cursor ? [el("button", { type: "button", className: "plain", onclick: () => load(page.cursor) }, "Load more")] : []));
  };
  await load(null);
}
