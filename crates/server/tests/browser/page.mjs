// Drives the status page in Debian's Chromium. Started by tests/page.rs, which says where the page is.
import assert from "node:assert/strict";
import { PAGE_ADDRESS, PAGE_ADMIN_TOKEN, PAGE_TX, PAGE_URL, context, digits, expectRefusals, heading, lookUp, open, page, run, shoot, shots, shown, step } from "./harness.mjs";

// A number as it is shown, with its separators.
const NUMBER = /\d[\d,.:]*\d|\d/g;

// Every way in which the page may write the numbers of a status: as they are, as bytes, times and durations, and inside its texts.
function numbersOf(status) {
  const allowed = new Set();
  const allow = (text) => { for (const token of String(text).match(NUMBER) ?? []) allowed.add(token); };
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const write = (value) => {
    allow(value);
    allow(whole.format(value));
    allow(value.toFixed(1));
    allow(value.toFixed(2));
    for (let size = value; size >= 1; size /= 1024) { allow(size.toFixed(0)); allow(size.toFixed(1)); }
    for (const ms of [value, value * 1000]) { allow(ms.toFixed(0)); allow(ms.toFixed(1)); allow((ms / 1000).toFixed(1)); }
    const seconds = Math.floor(value);
    for (const part of [seconds, seconds / 60, seconds / 3600, seconds / 86_400]) { allow(Math.floor(part)); allow(Math.floor(part) % 60); allow(Math.floor(part) % 24); }
    for (const at of [value, value * 1000]) if (at > 1e12 && at < 1e13) { allow(new Date(at).toLocaleTimeString("en-GB")); allow(new Date(at).toLocaleString("en-GB")); }
  };
  const walk = (value) => {
    if (typeof value === "number") write(value);
    else if (typeof value === "string") { allow(value); allow(value.slice(0, 8)); allow(value.slice(-8)); allow(value.slice(0, 16)); }
    else if (value && typeof value === "object") for (const [name, inside] of Object.entries(value)) { allow(name); walk(inside); }
  };
  walk(status);
  // How long a job took is the sum of its parts.
  for (const job of status.prune.newest_jobs) write(Object.values(job.seconds).reduce((all, seconds) => all + seconds));
  // How far a hold is behind is the difference of two heights.
  for (const hold of status.prune.holds) if (hold.keep_from != null) write(Math.abs(status.chain.applied.height - hold.keep_from));
  return allowed;
}

run(async () => {
  await step("loads with figures", async () => {
    await open();
    await page.waitForFunction(() => document.getElementById("state").textContent === "running");
    assert.match(await shown("node"), /page test · bitcoin regtest/);
    assert.ok((await shown("headline")).length > 3);
    await page.waitForSelector("#chart-disk canvas");
    await page.waitForSelector("#holds li");
    await page.click("#engine summary");
    await page.waitForSelector("#families tbody tr");
    await page.waitForSelector("#jobs tbody tr");
  });

  await step("updates by itself", async () => {
    const before = digits(await shown("applied"));
    await page.waitForFunction((height) => Number(document.getElementById("applied").textContent.replace(/[^0-9]/g, "")) > height + 3, before);
  });

  await step("shows what the API says, and no other number", async () => {
    // One answer is kept, marked, and given again, so that everything on the page comes from it.
    const status = await (await fetch(`${PAGE_URL}/api/v1/status`)).json();
    status.node.name = "a kept answer";
    await page.route("**/api/v1/status", (route) => route.fulfill({ contentType: "application/json", body: JSON.stringify(status) }));
    await page.waitForFunction(() => document.getElementById("node").textContent.startsWith("a kept answer"));
    const allowed = numbersOf(status);
    const applied = status.chain.applied.height;
    assert.equal(digits(await shown("applied")), applied);
    for (const id of ["node", "tip", "tip-note", "applied", "applied-note", "behind", "behind-note", "unspent", "unspent-note", "rate", "rate-note", "disk", "disk-note", "measured",
      "alerts", "headline", "prune-state", "prune-facts", "holds", "blockers", "jobs", "times", "policy", "families", "sweep", "chain-facts", "progress-note"]) {
      const content = await page.locator(`#${id}`).evaluate((one) => {
        // Parts of the page follow each other without a blank.
        const texts = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
        const found = [];
        while (texts.nextNode()) found.push(texts.currentNode.data);
        return found.join(" ");
      });
      const labels = new Set(id === "families" ? ["0"] : id === "times" ? ["99"] : id === "policy" ? ["0"] : []);
      for (const token of content.match(NUMBER) ?? []) {
        assert.ok(allowed.has(token) || labels.has(token), `#${id} shows ${token}, which is not in the status: ${content}`);
      }
    }
    await page.unroute("**/api/v1/status");
    await page.waitForFunction((height) => Number(document.getElementById("applied").textContent.replace(/[^0-9]/g, "")) > height, applied);
  });

  await step("explains a transaction", async () => {
    await lookUp(PAGE_TX);
    await page.waitForSelector("#found .guards li");
    assert.match(await page.locator("#found .verdict").innerText(), /kept because|retained because|may go|prunable/i);
    await shoot("explain-light");
    await page.locator("#found table td:nth-child(4) a").first().click();
    await heading("Address");
  });

  await step("shows an output and an address", async () => {
    await lookUp(`${PAGE_TX}:0`);
    await heading("Output");
    await lookUp(PAGE_ADDRESS);
    await heading("Address");
    await page.waitForSelector("#found tbody tr");
  });

  await step("says what is wrong with a question", async () => {
    expectRefusals(true);
    await lookUp("f".repeat(64));
    await page.waitForFunction(() => document.querySelector("#found h2").textContent === "Not found");
    await lookUp("nonsense");
    await page.waitForFunction(() => /is not an address/.test(document.querySelector("#found").textContent));
    await page.locator("#found button", { hasText: "Close" }).click();
    await page.locator("#found").waitFor({ state: "hidden" });
    expectRefusals(false);
  });

  await step("refuses control without a token", async () => {
    expectRefusals(true);
    assert.ok(await page.locator("#controls").isHidden());
    const status = await page.evaluate(async () => (await fetch("/api/v1/prune", { method: "POST" })).status);
    assert.equal(status, 401);
    await page.click("#unlock");
    await page.fill("#token", "this-is-not-the-right-token");
    await page.click("#token-form button[type=submit]");
    await page.waitForSelector("#token-problem:not([hidden])");
    assert.ok(await page.locator("#controls").isHidden());
    expectRefusals(false);
  });

  await step("takes control with the token, and keeps it in memory only", async () => {
    await page.fill("#token", PAGE_ADMIN_TOKEN);
    await page.click("#token-form button[type=submit]");
    await page.waitForSelector("#controls:not([hidden])");
    await page.click("#toggle");
    await page.waitForFunction(() => document.getElementById("prune-enabled").textContent === "disabled");
    await page.waitForSelector("#alerts .alert");
    await page.click("#toggle");
    await page.waitForFunction(() => document.getElementById("prune-enabled").textContent === "enabled");
    const stored = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
    assert.ok(!stored.includes(PAGE_ADMIN_TOKEN));
  });

  await step("page_policy_is_shortened_only_after_what_it_deletes_is_shown", async () => {
    expectRefusals(true);
    await page.click("#edit-policy");
    await page.fill("#policy-inputs input[name=retention]", "5");
    await page.click("#policy-form button[type=submit]");
    await page.waitForFunction(() => /less than the reorg window/.test(document.getElementById("policy-problem").textContent));
    // Shorter than now: first what that deletes, then the question.
    await page.fill("#policy-inputs input[name=retention]", "18");
    await page.click("#policy-submit");
    await page.waitForSelector("#policy-plan .shortens");
    assert.match(await shown("policy-plan"), /would delete/);
    assert.match(await shown("policy-submit"), /^Shorten/);
    expectRefusals(false);
    await page.click("#policy-submit");
    await page.waitForFunction(() => /18 blocks/.test(document.getElementById("policy").textContent));
    await page.click("#edit-policy");
    await page.waitForFunction(() => /Changed at run time/.test(document.getElementById("policy-inputs").textContent));
    await page.fill("#policy-inputs input[name=retention]", "21");
    await page.click("#policy-submit");
    await page.waitForFunction(() => /21 blocks/.test(document.getElementById("policy").textContent));
  });

  await step("sets and releases a hold", async () => {
    await page.click("#add-hold");
    await page.fill("#hold-form input[name=name]", "audit-of-the-page");
    await page.fill("#hold-form input[name=owner]", "an operator");
    await page.fill("#hold-form input[name=reason]", "to see whether it works");
    await page.click("#hold-form button[type=submit]");
    const row = page.locator("#holds li", { hasText: "audit-of-the-page" });
    await row.waitFor();
    await page.waitForFunction(() => /audit-of-the-page/.test(document.getElementById("alerts").textContent));
    // The list is drawn again with every measurement: a click may hit the button before, and a second one finds the hold gone.
    expectRefusals(true);
    await page.waitForFunction(() => {
      const found = [...document.querySelectorAll("#holds li")].find((one) => one.textContent.includes("audit-of-the-page"));
      const button = found?.querySelector("button");
      // Not twice in a row: the second refusal would cover what the first one told.
      if (button && Date.now() - (window.clickedAt ?? 0) > 3000) {
        window.clickedAt = Date.now();
        button.click();
      }
      return /audit-of-the-page is released/.test(document.getElementById("told").textContent);
    });
    expectRefusals(false);
    await page.click("#unlock");
    await page.locator("#controls").waitFor({ state: "hidden" });
  });

  if (shots) {
    // Long enough for the disk to be flat while the line without pruning rises.
    const points = async () => (await (await fetch(`${PAGE_URL}/api/v1/history`)).json()).at_ms.length;
    while (await points() < 480) await new Promise((resolve) => setTimeout(resolve, 1000));
    await page.reload();
    await page.waitForSelector("#chart-disk canvas");
    await page.waitForFunction(() => document.querySelectorAll("#legend-disk span").length > 3);
  }

  await step("follows the system's theme and the button", async () => {
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
    assert.equal(await theme(), "light");
    await shoot("status-light");
    await shoot("status-light-full", { fullPage: true });
    await page.emulateMedia({ colorScheme: "dark" });
    await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
    await page.waitForSelector("#chart-disk canvas");
    await shoot("status-dark");
    await shoot("status-dark-full", { fullPage: true });
    await page.click("#theme");
    assert.equal(await theme(), "light", "chosen light, although the system is dark");
    await page.click("#theme");
    await page.click("#theme");
    await page.emulateMedia({ colorScheme: "light" });
    await page.waitForFunction(() => document.documentElement.dataset.theme === "light");
  });

  await step("is readable on a phone", async () => {
    await page.setViewportSize({ width: 360, height: 740 });
    await page.waitForFunction(() => document.scrollingElement.scrollWidth <= 360);
    const cut = await page.evaluate(() => [...document.querySelectorAll(".big")].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.id));
    assert.deepEqual(cut, [], "no figure is cut off");
    await lookUp(PAGE_TX);
    await page.waitForSelector("#found .guards li");
    await page.waitForFunction(() => document.scrollingElement.scrollWidth <= 360);
    await page.locator("#found button", { hasText: "Close" }).click();
    await page.evaluate(() => scrollTo(0, 0));
    await shoot("status-phone");
    await shoot("status-phone-full", { fullPage: true });
  });

  await step("lists the API and lets people try it", async () => {
    await page.setViewportSize({ width: 1100, height: 900 });
    await page.goto(`${PAGE_URL}/api`);
    await page.waitForSelector("details summary code");
    assert.ok(await page.locator("main > section > details").count() >= 20);
    const status = page.locator("main > section > details", { hasText: "/api/v1/status" }).first();
    await status.locator("summary").first().click();
    await status.locator("form button").click();
    await status.locator("form pre", { hasText: "\"chain\"" }).waitFor();
    await shoot("api");
  });

  await step("says so when the node is gone, and comes back", async () => {
    await open();
    expectRefusals(true);
    await context.setOffline(true);
    await page.waitForSelector("#lost:not([hidden])");
    await context.setOffline(false);
    await page.waitForSelector("#lost", { state: "hidden" });
  });
});
