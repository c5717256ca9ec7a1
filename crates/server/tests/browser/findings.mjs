// What operators and newcomers ran into on the status page, one step each, so that it does not come back.
import assert from "node:assert/strict";
import { PAGE_ADDRESS, PAGE_TX, PAGE_URL, alter, alterStatus, asItIs, context, digits, expectRefusals, heading, lookUp, open, page, run, shoot, shown, step, unlock } from "./harness.mjs";

const PHONE = { width: 390, height: 844 };
const DESKTOP = { width: 1320, height: 1000 };

/** Where everything stands on the page, in whole pixels. */
const layout = () => page.evaluate(() => [`height ${document.scrollingElement.scrollHeight}`,
  ...[...document.querySelectorAll("main > *, .card, .card > *, #prune-facts > div, #holds > li, #jobs tr")]
    .map((one, i) => `${one.id || one.className || one.tagName} ${i} ${Math.round(one.getBoundingClientRect().top + scrollY)}`)]);

/** A history of ten minutes in which one column is made up. It ends now, or at another time. */
const madeUp = (name, valueAt, end = Date.now()) => alter("**/api/v1/history*", (history, url) => {
  const points = Number(url.searchParams.get("after_ms") ?? 0) > 0 ? 0 : 600;
  const at = Array.from({ length: points }, (_, i) => end - (599 - i) * 1000);
  const columns = Object.fromEntries(Object.keys(history).map((key) => [key, at.map(() => 1)]));
  return { ...columns, at_ms: at, disk: { tx: at.map(() => 1 << 20) }, [name]: at.map((_, i) => valueAt(i)) };
});
const ticks = async (chart) => (await page.locator(`#chart-${chart}[data-ticks]`).getAttribute("data-ticks")).split("|");

run(async () => {
  await step("page_newcomer_reaches_a_transaction_in_two_clicks", async () => {
    await open();
    // The newest blocks may be rolled back before the second click.
    await page.locator("#blocks li a").last().click();
    await heading("Block");
    await page.locator("#found .txids a").first().click();
    await heading("Transaction");
    assert.match(await page.locator("#found .verdict").innerText(), /retained|pruned|kept|may go/i);
    await shoot("transaction");
    await page.goBack();
    await heading("Block");
    await page.goBack();
    await page.waitForSelector("#found", { state: "hidden" });
    await page.goForward();
    await heading("Block");
  });

  await step("page_search_takes_a_txid_an_outpoint_an_address_a_height_and_a_block_hash", async () => {
    const block = page.locator("#blocks li").last();
    const height = digits(await block.locator("a").first().innerText());
    const hash = await block.locator("a").nth(1).getAttribute("title");
    // To find out what a hash is of, the node is asked for a transaction first.
    expectRefusals(true);
    for (const [text, title] of [[PAGE_TX, "Transaction"], [`${PAGE_TX}:0`, "Output"], [PAGE_ADDRESS, "Address"], [String(height), `Block ${height.toLocaleString("en")}`], [hash, "Block"]]) {
      await lookUp(text);
      await page.waitForURL((url) => decodeURIComponent(url.hash).endsWith(`/${text}`));
      await heading(title);
    }
    expectRefusals(false);
  });

  /** The chain stands still for the page. Returns where. */
  const standStill = async () => {
    const { applied, rollback_floor } = (await (await fetch(`${PAGE_URL}/api/v1/status`)).json()).chain;
    await alterStatus((one) => ({ ...one, chain: { ...one.chain, applied, rollback_floor } }));
    return applied;
  };

  await step("page_links_lead_to_parents_children_and_blocks", async () => {
    // A block that has become too old to be looked up has no link.
    await standStill();
    await open();
    const height = digits(await page.locator("#blocks li").last().locator("a").first().innerText());
    // A transaction whose first parent is stored and not so large that the page shows only its first outputs.
    const ask = async (path) => { const answer = await fetch(`${PAGE_URL}/api/v1/${path}`); return answer.ok ? answer.json() : null; };
    let txid;
    for (const one of (await ask(`blocks/${height}`)).txids) {
      const input = (await ask(`txs/${one}`))?.inputs[0];
      const parent = input && await ask(`txs/${input.txid}`);
      if (parent?.output_count <= 20) { txid = one; break; }
    }
    assert.ok(txid, "there is such a transaction");
    await open(`#tx/${txid}`);
    await heading("Transaction");
    // The parent lists it as the spender of that output.
    assert.ok(await page.locator(`#found a[href^="#block/"]`).count() > 0, "its block");
    await page.locator("#found table").first().locator("a").first().click();
    await page.waitForFunction((txid) => !location.hash.includes(txid) && /^(Transaction|Not found|Pruned)/.test(document.querySelector("#found h2").textContent), txid);
    assert.ok(await page.locator(`#found a[href*="${txid}"]`).count() > 0, "its child");
    await asItIs();
  });

  await step("page_newest_block_has_no_next_and_no_block_is_newer_than_the_status", async () => {
    // The chain goes on and reorganises: a block that was rolled back before it was looked up is not found, and another one is tried.
    expectRefusals(true);
    for (let title = ""; !title.startsWith("Block");) {
      const applied = await standStill();
      await open(`#block/${applied.height}`);
      title = await (await page.waitForFunction(() => document.querySelector("#found:not([hidden]) h2")?.textContent)).jsonValue();
    }
    expectRefusals(false);
    await page.waitForFunction(() => document.querySelector("#found .steps"));
    const steps = await page.locator("#found .steps").innerText();
    assert.ok(!steps.includes("next"), steps);
    await asItIs();
  });

  await step("page_search_says_what_a_text_could_be", async () => {
    await open();
    expectRefusals(true);
    for (const text of ["hello", "-1"]) {
      await lookUp(text);
      await page.waitForFunction((text) => document.querySelector("#found p")?.textContent.includes(`“${text}” is neither a txid`), text);
    }
    expectRefusals(false);
  });

  await step("page_deep_links_open_what_they_name", async () => {
    await open(`#tx/${PAGE_TX}`);
    await heading(`Transaction ${PAGE_TX}`);
    await open(`#address/${encodeURIComponent(PAGE_ADDRESS)}`);
    await heading("Address");
  });

  await step("page_amounts_have_a_unit_and_an_address_a_sum", async () => {
    assert.match(await page.locator("#found .facts").innerText(), /Sum\s+0\.00005000 BTC/);
    assert.match(await page.locator("#found tbody tr").first().innerText(), /0\.00005000 BTC/);
  });

  await step("page_hashes_can_be_copied", async () => {
    await open(`#tx/${PAGE_TX}`);
    await heading("Transaction");
    await page.locator("#found .head .copy").click();
    await page.waitForSelector("#found .head .copy[data-done=copied]");
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), PAGE_TX);
    const hash = await page.locator("#applied-note a").getAttribute("title");
    assert.match(hash, /^[0-9a-f]{64}$/, "the applied block's hash is linked as a whole");
  });

  await step("page_alert_reaches_the_title_and_the_icon", async () => {
    // On a busy machine the node may have other things to complain about.
    await alterStatus((status) => { status.alerts = status.alerts.filter((alert) => alert.name === "pruning_disabled"); });
    await open();
    await unlock();
    assert.match(await page.locator("#icon").getAttribute("href"), /icon\.svg$/);
    await page.click("#toggle");
    await page.waitForFunction(() => document.title.startsWith("⚠ pruning disabled"));
    assert.equal(await page.locator("#icon").getAttribute("href"), "/icon-warning.svg");
    await page.click("#toggle");
    await page.waitForFunction(() => !document.title.startsWith("⚠"));
    assert.equal(await page.locator("#icon").getAttribute("href"), "/icon.svg");
    await asItIs();
    await alterStatus((status) => { status.alerts = [{ level: "critical", name: "chain_stopped", text: "it stands" }, { level: "warning", name: "lag", text: "far behind" }]; });
    await page.waitForFunction(() => document.title.startsWith("⚠ 2 alerts"));
    assert.equal(await page.locator("#icon").getAttribute("href"), "/icon-critical.svg");
    await asItIs();
  });

  await step("page_plan_is_shown_before_pruning", async () => {
    const posts = [];
    page.on("request", (request) => { if (request.method() === "POST") posts.push(request.url()); });
    await page.click("#prune-now");
    await page.waitForSelector("#plan .verdict");
    assert.match(await page.locator("#plan .verdict").innerText(), /would be deleted|Nothing can be deleted/);
    assert.match(await page.locator("#plan").innerText(), /looked at/);
    await shoot("plan");
    await page.click("#prune-dialog [data-close]");
    assert.deepEqual(posts, [], "nothing was asked for yet");
    await page.click("#prune-now");
    await page.waitForSelector("#prune-confirm:enabled");
    await page.click("#prune-confirm");
    await page.waitForFunction(() => /^Job \d+ is (running|completed|cancelled|superseded)/.test(document.getElementById("told").textContent));
    assert.equal(posts.length, 1);
    await page.waitForSelector("#told", { state: "hidden" });
  });

  await step("page_note_of_a_job_goes_when_the_node_is_gone", async () => {
    // The job never ends, as far as the page can see.
    await alterStatus((status) => { status.prune.newest_jobs = []; });
    await page.click("#prune-now");
    await page.waitForSelector("#prune-confirm:enabled");
    await page.click("#prune-confirm");
    await page.waitForFunction(() => /^Job \d+ is running/.test(document.getElementById("told").textContent));
    expectRefusals(true);
    await context.setOffline(true);
    await page.waitForSelector("#lost:not([hidden])");
    await page.locator("#told").waitFor({ state: "hidden" });
    assert.match(await page.title(), /^⚠ no connection/);
    await context.setOffline(false);
    await asItIs();
    await page.waitForSelector("#lost", { state: "hidden" });
    expectRefusals(false);
  });

  await step("page_controls_are_offered_only_where_they_can_work", async () => {
    await open();
    await page.waitForSelector("#unlock:not([hidden])");
    await page.click("#unlock");
    assert.match(await shown("token-text"), /admin\.token/, "the dialog says where the token is");
    await page.click("#token-dialog [data-close]");
    await alter("**/api/v1/access", () => ({ read: true, admin: false, admin_token: false }));
    const asked = page.waitForResponse("**/api/v1/access");
    await open();
    await asked;
    await page.waitForFunction(() => document.getElementById("blocks").childElementCount > 0);
    assert.ok(await page.locator("#unlock").isHidden());
    assert.ok(await page.locator("#controls").isHidden());
    await asItIs();
  });

  await step("page_labels_have_one_meaning_each", async () => {
    await open();
    const labels = await page.locator(".vital h2, main > *:not(#found) dt").allTextContents();
    assert.deepEqual(labels.filter((label, i) => labels.indexOf(label) !== i), []);
    const seen = await page.locator("main").innerText();
    for (const inside of [/^lag$/im, /cursor/i, /second of work/i, /column famil/i]) {
      const outsideOfEngine = seen.split("\n").filter((line) => !/for those who know the storage engine/.test(line)).join("\n");
      assert.doesNotMatch(outsideOfEngine, inside);
    }
    assert.equal(await page.locator("#engine").getAttribute("open"), null, "the engine is folded");
    await page.click("#engine summary");
    await page.waitForSelector("#families tbody tr");
  });

  await step("page_header_does_not_say_the_same_twice", async () => {
    await alterStatus((status) => { status.node.name = status.node.chain; });
    await open();
    const words = (await shown("node")).split(" · ");
    assert.equal(new Set(words).size, words.length, words.join(" · "));
    await asItIs();
  });

  await step("page_refused_block_is_shown_with_its_reason_and_what_is_built_on_it", async () => {
    await alterStatus((status) => {
      const { height } = status.chain.applied;
      status.chain.tip = { height: height + 54, hash: "ab".repeat(32) };
      status.chain.lag_blocks = 54;
      status.chain.source = { ...status.chain.source, state: "refused", best_height: height + 54, refused: { height: height + 1, hash: "cd".repeat(32), reason: "the coinbase takes 51", descendants: 53 } };
    });
    await open();
    await page.waitForSelector("#trouble:not([hidden])");
    const text = await shown("trouble");
    assert.match(text, /is refused/);
    assert.match(text, /the coinbase takes 51/);
    assert.match(text, /53 blocks of the source are built on it/);
    assert.match(await shown("progress-note"), /applied/);
    assert.match(await shown("behind"), /54/);
    await shoot("refused");
    await asItIs();
  });

  await step("page_tick_labels_differ_on_a_flat_line", async () => {
    await madeUp("unspent", () => 99_865);
    await open();
    await page.waitForSelector("#chart-unspent[data-ticks]");
    const labels = await ticks("unspent");
    assert.ok(labels.length >= 2, labels.join(" "));
    assert.equal(new Set(labels).size, labels.length, labels.join(" "));
    await asItIs();
  });

  await step("page_first_spike_does_not_flatten_the_throughput", async () => {
    await madeUp("transactions_per_second", (i) => i < 6 ? 40_000 : 800 + i % 50);
    await open();
    await page.waitForSelector("#chart-rate[data-ticks]");
    const top = Math.max(...(await ticks("rate")).map((label) => Number(label.replaceAll(",", "").replace("k", "000"))));
    assert.ok(top < 2000, `the scale ends at ${top}`);
    assert.match(await shown("legend-rate"), /highest\s+40,000/, "what is cut off is told");
    await asItIs();
  });

  await step("page_headline_keeps_its_height", async () => {
    await page.setViewportSize(PHONE);
    let turn = 0, kept = null;
    const states = ["waiting for persister at 905", "job 484: preserving parents of old unmined transactions, 0 records deleted", "idle",
      "waiting for an-exporter-with-a-very-long-name-that-does-not-end-soon, which has not reported"];
    await alterStatus((status) => {
      turn += 1;
      // An alert that comes or goes may move the page, and so may a job with another outcome.
      status.alerts = [];
      kept ??= status.prune;
      status.prune = structuredClone(kept);
      status.prune.state = states[turn % states.length];
      status.prune.decided_by = turn % 2 ? "an-exporter-with-a-very-long-name-that-does-not-end-soon" : "persister";
      status.prune.lag_blocks = 10 ** (turn % 7);
      status.prune.backlog_records = 10 ** (turn % 8);
      status.prune.catch_up_seconds = 10 ** (turn % 6);
      status.prune.totals.deleted = 10 ** (turn % 9);
      status.prune.newest_jobs.forEach((job) => { job.counts.deleted = 10 ** (turn % 6); job.state = turn % 2 ? "completed" : "running"; });
    });
    await open();
    await page.waitForSelector("#chart-disk canvas");
    await page.waitForFunction(() => document.querySelectorAll("#legend-disk span").length > 1 && document.getElementById("blocks").childElementCount > 0);
    const first = await layout();
    const until = turn + 12;
    while (turn < until) {
      const now = await layout();
      assert.deepEqual(now.filter((line) => !first.includes(line)).slice(0, 3), [], `the page moves, with: ${await shown("prune-state")}`);
      await page.waitForTimeout(100);
    }
    await asItIs();
  });

  await step("page_labels_of_charts_are_not_cut_on_a_phone", async () => {
    // What is drawn is noted as it is drawn: a canvas does not tell afterwards.
    await page.addInitScript(() => {
      window.drawn = [];
      const draw = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
        const { width } = this.measureText(text);
        const at = this.getTransform().transformPoint(new DOMPoint(x, y)).x;
        const left = { center: width / 2, right: width, end: width }[this.textAlign] ?? 0;
        if (text && !this.getTransform().b) window.drawn.push({ text, from: at - left, to: at - left + width, room: this.canvas.width });
        return draw.call(this, text, x, y, ...more);
      };
    });
    // The last label belongs to the very end of the line.
    await madeUp("unspent", () => 1, Math.floor(Date.now() / 3_600_000) * 3_600_000);
    await open();
    await page.waitForFunction(() => window.drawn.some(({ text }) => /^\d\d:\d\d/.test(text)));
    const cut = await page.evaluate(() => window.drawn.filter(({ from, to, room }) => from < -1 || to > room + 1).map(({ text }) => text));
    assert.deepEqual(cut, []);
    await asItIs();
  });

  await step("page_policy_says_what_each_number_means", async () => {
    await unlock();
    await page.click("#edit-policy");
    await page.waitForSelector("#policy-inputs label");
    const helps = await page.locator("#policy-inputs .help").allInnerTexts();
    assert.equal(helps.length, await page.locator("#policy-inputs input").count());
    for (const help of helps) assert.ok(help.split(" ").length > 8, help);
    await page.click("#policy-dialog [data-close]");
  });

  await step("page_phone_shows_what_matters_without_scrolling", async () => {
    await open();
    await page.click("#engine summary");
    await page.waitForSelector("#families tbody tr");
    const wide = await page.evaluate(() => [...document.querySelectorAll("main *")].filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX === "auto").map((one) => one.id));
    assert.deepEqual(wide, [], "nothing scrolls sideways");
    for (const [place, column] of [["jobs", "Deleted"], ["jobs", "Retained"], ["families", "Keys"]]) {
      const box = await page.locator(`#${place} th`, { hasText: column }).boundingBox();
      assert.ok(box && box.x >= 0 && box.x + box.width <= PHONE.width, `${column} of ${place} is inside the screen`);
    }
    const narrow = await page.evaluate(() => Math.min(...[...document.querySelectorAll("#holds .what")].map((one) => one.clientWidth)));
    assert.ok(narrow > 150, `a hold has ${narrow} pixels for its words`);
    assert.ok(await page.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth));
    await shoot("status-phone", { fullPage: true });
    await page.setViewportSize(DESKTOP);
  });
});
