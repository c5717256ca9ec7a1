// Numbers, times and amounts as text.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const number = (value) => typeof value === "bigint" || Math.abs(value) >= 10 || Number.isInteger(value)
  ? whole.format(value) : value.toFixed(value < 1 ? 2 : 1);

/** A number with its noun: "1 block", "2 blocks". */
export const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < BYTES.length - 1) { value /= 1024; unit += 1; }
  return `${value.toFixed(unit === 0 || value >= 100 ? 0 : 1)} ${BYTES[unit]}`;
}

export const ms = (value) => value >= 10_000 ? `${(value / 1000).toFixed(1)} s` : `${value >= 100 ? value.toFixed(0) : value.toFixed(1)} ms`;

export function duration(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor(s / 3600) % 24} h`;
}

/** A Unix timestamp as a time of day. */
export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

/** A Unix timestamp as a date and a time of day. One that no calendar has stays a number. */
export function moment(seconds) {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? `Unix timestamp ${seconds}` : date.toLocaleString("en-GB");
}

/** A Unix timestamp as a time of day if it was today, else as a date. */
export function when(seconds) {
  const date = new Date(seconds * 1000);
  return date.toDateString() === new Date().toDateString() ? clock(seconds) : date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

/** A name of the API as words: "child_unmined" is "child unmined". */
export const words = (name) => name.replaceAll("_", " ");

export const orDash = (value, format = number) => value == null ? "–" : format(value);

export const short = (hash) => hash.length > 20 ? `${hash.slice(0, 8)}…${hash.slice(-8)}` : hash;

/* ---- amounts ---- */

const UNITS = [
  { chain: /^bitcoin/, unit: "BTC", digits: 8, smallest: "sat" },
  { chain: /^cardano/, unit: "ADA", digits: 6, smallest: "lovelace" },
];
const PLAIN = { unit: "units", digits: 0, smallest: "units" };

/** The unit in which amounts of a chain are shown. */
export const unitOf = (chain) => UNITS.find((one) => one.chain.test(chain ?? "")) ?? PLAIN;

/** An amount in the chain's unit, with all its digits: the API gives it as text in the smallest unit. */
export function amount(value, chain) {
  const { unit, digits } = unitOf(chain);
  const smallest = BigInt(value);
  if (!digits) return `${number(smallest)} ${unit}`;
  const one = 10n ** BigInt(digits);
  return `${number(smallest / one)}.${String(smallest % one).padStart(digits, "0")} ${unit}`;
}

/** The same amount in the smallest unit. */
export const smallest = (value, chain) => `${number(BigInt(value))} ${unitOf(chain).smallest}`;

/* ---- axes ---- */

/** Numbers at the ticks of an axis, all in one unit and with as many decimals as it takes to tell them apart. */
function ticks(splits, scale, unit) {
  const step = splits.length > 1 ? Math.abs(splits[1] - splits[0]) / scale : 1;
  let decimals = 0;
  while (decimals < 4 && Math.abs(step * 10 ** decimals - Math.round(step * 10 ** decimals)) > 1e-6) decimals += 1;
  const format = new Intl.NumberFormat("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return splits.map((value) => value == null ? null : `${value === 0 ? "0" : format.format(value / scale)}${unit}`);
}

const highest = (splits) => Math.max(...splits.map((value) => Math.abs(value ?? 0)));

export const axisOf = {
  bytes(splits) {
    const power = Math.min(BYTES.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, highest(splits))) / 10)));
    return ticks(splits, 1024 ** power, ` ${BYTES[power]}`);
  },
  ms: (splits) => highest(splits) >= 10_000 ? ticks(splits, 1000, " s") : ticks(splits, 1, " ms"),
  number(splits) {
    const step = splits.length > 1 ? Math.abs(splits[1] - splits[0]) : 0;
    if (highest(splits) >= 1e6 && step >= 1e4) return ticks(splits, 1e6, "M");
    if (highest(splits) >= 1e4 && step >= 100) return ticks(splits, 1e3, "k");
    return ticks(splits, 1, "");
  },
};
