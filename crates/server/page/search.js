// The search box: a transaction is explained, an output or an address is shown.

const HASH = /^[0-9a-f]{64}$/i;
const OUTPUT = /^([0-9a-f]{64})[:/](\d{1,10})$/i;

export function makeSearch({ api, el, number }) {
  const place = document.getElementById("found");
  const input = document.getElementById("query");
  let turn = 0;

  const link = (text, query, spends) =>
    el("button", { type: "button", className: "link hash", onclick: () => look(query, spends) }, text);
  const short = (hash) => `${hash.slice(0, 10)}…${hash.slice(-6)}`;
  const fact = (name, value) => value == null ? [] : [el("div", {}, el("dt", {}, name), el("dd", {}, value))];

  function frame(title, ...content) {
    const close = el("button", { type: "button", className: "plain", onclick: () => { place.hidden = true; } }, "Close");
    place.replaceChildren(el("div", { className: "head" }, el("h2", {}, title), close), ...content);
    place.hidden = false;
    place.scrollIntoView({ block: "nearest" });
  }

  function state(output, parent) {
    const kinds = { unspent: "good", frozen: "warn", spent: "", unspendable: "" };
    const tag = el("span", { className: "tag", dataset: { kind: kinds[output.state] } }, output.state);
    const by = output.spent_by;
    if (!by) return [tag];
    const mined = by.mined_at == null ? "not mined" : `mined at ${number(by.mined_at)}`;
    const spender = by.txid
      ? ["by ", link(short(by.txid), by.txid, `${parent}:${output.vout}`), `, ${mined}`]
      : [`long ago, ${mined}`];
    return [tag, el("span", { className: "sub" }, ...spender)];
  }

  const owner = (output) => output.address ?? (output.script ? `script:${output.script}` : null);
  const ownerLink = (output) => owner(output) ? link(owner(output).length > 44 ? short(owner(output)) : owner(output), owner(output)) : "–";

  function outputs(list, withTx) {
    const head = [withTx ? "Output" : "#", "State", "Owner", "Amount"];
    return el("div", { className: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ...head.map((name, i) => el("th", { className: i === 3 ? "n" : "" }, name)))),
      el("tbody", {}, ...list.map((output) => el("tr", {},
        el("td", { className: "tight" }, withTx ? link(`${short(output.txid)}:${output.vout}`, output.txid) : number(output.vout)),
        el("td", {}, ...state(output, output.txid)),
        el("td", {}, ownerLink(output)),
        el("td", { className: "n" }, output.value == null ? "–" : number(BigInt(output.value))))))));
  }

  async function transaction(tx, spends) {
    const query = spends ? `?spends=${encodeURIComponent(spends)}` : "";
    const [why, record] = await Promise.all([api(`txs/${tx}/explain${query}`), api(`txs/${tx}${query ? `${query}&` : "?"}limit=50`)]);
    const mark = (guard) => el("span", { className: "tag", dataset: { kind: guard.retains ? "warn" : "good" } }, guard.retains ? "keeps" : "lets go");
    const outlook = why.earliest != null ? `It could go at height ${number(why.earliest)}, if nothing changes.` : why.needs;
    frame(`Transaction ${record.txid}`,
      el("p", { className: "verdict" }, why.verdict),
      el("p", { className: "quiet" }, why.state),
      ...(outlook ? [el("p", { className: "quiet" }, outlook)] : []),
      ...(why.blocked ? [el("p", { className: "quiet" }, `Nothing is deleted at the moment, because ${why.blocked}.`)] : []),
      el("ul", { className: "guards" }, ...why.guards.map((guard) =>
        el("li", {}, el("span", {}, mark(guard)), el("span", {}, guard.question), el("span", { className: "quiet" }, guard.answer)))),
      el("h3", {}, "Record"),
      el("dl", { className: "facts" },
        ...fact("Mined at", record.mined_at == null ? null : number(record.mined_at)),
        ...fact("Unmined since", record.unmined_since == null ? null : number(record.unmined_since)),
        ...fact("Conflicting since", record.conflicting_since == null ? null : number(record.conflicting_since)),
        ...fact("Preserved until", record.preserve_until == null ? null : number(record.preserve_until)),
        ...fact("Spendable from", record.spendable_from == null ? null : number(record.spendable_from)),
        ...fact("Size", `${number(record.size)} bytes`),
        ...fact("Fee", record.fee == null ? null : number(BigInt(record.fee))),
        ...fact("Inputs", number(record.inputs.length)),
        ...fact("Outputs", number(record.output_count))),
      ...(record.inputs.length ? [el("h3", {}, "Spends"), el("p", {}, ...record.inputs.slice(0, 50).flatMap((input, i) =>
        [i ? ", " : "", link(`${short(input.txid)}:${input.vout}`, `${input.txid}:${input.vout}`)]),
        record.inputs.length > 50 ? ` and ${number(record.inputs.length - 50)} more` : "")] : []),
      el("h3", {}, record.output_count > 50 ? "The first 50 outputs" : "Outputs"),
      outputs(record.outputs, false));
  }

  async function output(tx, index) {
    const found = await api(`utxos/${tx}/${index}`);
    frame(`Output ${found.txid}:${found.vout}`,
      el("dl", { className: "facts" },
        ...fact("State", el("span", {}, ...state(found, found.txid))),
        ...fact("Amount", number(BigInt(found.value))),
        ...fact("Owner", ownerLink(found)),
        ...fact("Mined at", found.mined_at == null ? "not mined" : number(found.mined_at)),
        ...fact("Coinbase", found.coinbase ? "yes" : "no"),
        ...fact("Transaction", link("explain it", found.txid))));
  }

  async function address(text) {
    let items = [];
    const more = async (cursor) => {
      const query = cursor ? `&cursor=${cursor}` : "";
      const page = await api(`addresses/${encodeURIComponent(text)}/utxos?order=desc&limit=25${query}`);
      items = items.concat(page.items);
      const next = page.cursor && el("button", { type: "button", className: "plain", onclick: () => more(page.cursor) }, "Show more");
      frame(`Address ${text}`,
        items.length ? outputs(items, true) : el("p", { className: "empty" }, "Nothing unspent here: it was never paid, or everything is spent."),
        ...(next ? [next] : []));
    };
    await more(null);
  }

  async function look(text, spends) {
    const wanted = text.trim();
    if (!wanted) return;
    const mine = ++turn;
    input.value = wanted;
    try {
      const both = OUTPUT.exec(wanted);
      if (both) await output(both[1], both[2]);
      else if (HASH.test(wanted)) await transaction(wanted, spends);
      else await address(wanted);
    } catch (error) {
      if (mine !== turn) return;
      frame(error.status === 410 ? "Pruned" : error.status === 404 ? "Not found" : "That did not work", el("p", {}, error.message));
    }
  }

  document.getElementById("look").addEventListener("submit", (event) => {
    event.preventDefault();
    look(input.value);
  });
  return { look };
}
