// Opens the status page in Debian's Chromium, and listens for everything that must not happen anywhere: errors on the console, scripts
// that fail, requests to elsewhere, violations of the policy. Started by tests/page.rs, which says where the page is.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const { PAGE_URL, PAGE_ADMIN_TOKEN, PAGE_TX, PAGE_ADDRESS } = process.env;
const { chromium } = createRequire(join(process.env.PAGE_MODULES, "x.js"))("playwright-core");

/** Where pictures go, if they are wanted. */
export const shots = process.env.SAPWOOD_SCREENSHOTS;
if (shots) mkdirSync(shots, { recursive: true });

const profile = mkdtempSync(join(tmpdir(), "sapwood-page-"));
export const context = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.SAPWOOD_CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  viewport: { width: 1320, height: 1000 },
  colorScheme: "light",
  permissions: ["clipboard-read", "clipboard-write"],
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
await context.addInitScript(() => {
  addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
});

const complaints = [];
let refusals = false;
export const page = await context.newPage();
page.setDefaultTimeout(30_000);
page.on("console", (message) => {
  const refused = message.text().startsWith("Failed to load resource") && refusals;
  if (["error", "warning"].includes(message.type()) && !refused) complaints.push(`console: ${message.text()}`);
});
page.on("pageerror", (error) => complaints.push(`script: ${error.stack ?? error}`));
page.on("request", (request) => { if (!request.url().startsWith(PAGE_URL)) complaints.push(`elsewhere: ${request.url()}`); });

/** Says whether the server is expected to refuse what the next lines ask for. */
export const expectRefusals = (expected) => { refusals = expected; };

export async function step(name, work) {
  await work();
  assert.deepEqual(complaints, [], `after "${name}"`);
  console.log(`ok: ${name}`);
}

export async function shoot(name, options = {}) {
  if (shots) await page.screenshot({ path: join(shots, `${name}.png`), ...options });
}

/** Runs the steps, and cleans up whatever becomes of them. */
export async function run(steps) {
  try {
    await steps();
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

export const shown = (id) => page.locator(`#${id}`).innerText();
export const digits = (text) => Number(text.replace(/[^0-9]/g, ""));
export const heading = (start) => page.waitForFunction((start) => document.querySelector("#found:not([hidden]) h2")?.textContent.startsWith(start), start);

export async function open(hash = "") {
  await page.goto("about:blank");
  await page.goto(`${PAGE_URL}/${hash}`);
  await page.waitForFunction(() => /^[0-9,]+$/.test(document.getElementById("applied").textContent));
}

export async function lookUp(text) {
  await page.fill("#query", text);
  await page.press("#query", "Enter");
}

export async function unlock() {
  await page.click("#unlock");
  await page.fill("#token", PAGE_ADMIN_TOKEN);
  await page.click("#token-form button[type=submit]");
  await page.waitForSelector("#controls:not([hidden])");
}

/** Gives the page the node's own answers, changed: for what a healthy node does not do on demand. */
export async function alter(path, change) {
  await page.route(path, async (route) => {
    const answer = await route.fetch();
    const content = await answer.json();
    await route.fulfill({ response: answer, json: change(content, new URL(route.request().url())) ?? content });
  });
}
export const alterStatus = (change) => alter("**/api/v1/status", change);
export const asItIs = () => page.unrouteAll({ behavior: "wait" });
