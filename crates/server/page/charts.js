// Charts over the columns of /api/v1/history. uPlot is loaded before this as a plain script.
/* global uPlot */

import { axisOf, bytes, ms, number } from "/format.js";

const SYNC = "sapwood";
/** Room at the right of a plot, in pixels. */
const RIGHT = 8;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The part families in the order they are stacked, from the bottom up. Unknown ones go on top. */
const STACK = ["tx", "address", "undo", "due", "pending", "meta", "other"];

function axis(size, more) {
  return {
    stroke: css("--quiet"), font: "11px system-ui, sans-serif", size, gap: 6,
    grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, ...more,
  };
}

/** Times of day, with seconds only where they differ. A label that would be cut off at the right edge is left out. */
function clock(plot, splits, index, space, step) {
  const digits = step < 60 ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } : { hour: "2-digit", minute: "2-digit" };
  const half = step < 60 ? 26 : 17;
  const room = plot.bbox.width / devicePixelRatio + RIGHT - half;
  return splits.map((seconds) => plot.valToPos(seconds, "x") > room ? "" : new Date(seconds * 1000).toLocaleTimeString("en-GB", digits));
}

/** Steps of an axis of bytes: powers of two. */
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
/** Steps of an axis of counts: there is no half output. */
const COUNTS = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

/**
 * The top of a scale that a few outliers do not flatten: they are cut off, and marked. Without outliers, or where most values are zero,
 * it is the highest value.
 */
function robustTop(columns) {
  const values = columns.flat().filter((value) => value > 0).sort((a, b) => a - b);
  if (values.length < 20) return values.at(-1) ?? 0;
  const usual = values[Math.floor(values.length * 0.97) - 1];
  return values.at(-1) > usual * 2.5 ? usual * 1.3 : values.at(-1);
}

function legend(place, entries) {
  place.replaceChildren(...entries.map(([label, className, value]) => {
    const chip = document.createElement("span");
    chip.className = className;
    const strong = document.createElement("b");
    strong.textContent = value;
    chip.append(`${label} `, strong);
    return chip;
  }));
}

/** One chart: rebuilt when its series or the theme change, else only given new data. */
class Chart {
  constructor(name, { series, format, axis, zero = true, robust = false, steps }) {
    this.place = document.getElementById(`chart-${name}`);
    this.legend = document.getElementById(`legend-${name}`);
    this.name = name;
    Object.assign(this, { series, format, axis, zero, robust, steps });
    this.plot = null;
    this.shape = "";
    new ResizeObserver(() => this.resize()).observe(this.place);
  }

  resize() {
    if (this.plot) this.plot.setSize({ width: this.place.clientWidth, height: this.place.clientHeight });
  }

  /** What was measured at a moment, in the order of the legend. */
  show(at) {
    const columns = this.values;
    const last = columns[0].length - 1;
    const index = at ?? last;
    const format = (value) => value == null ? "–" : this.format(value);
    const recent = (column) => {
      if (at != null) return column[index];
      for (let i = last; i >= 0; i--) if (column[i] != null) return column[i];
      return null;
    };
    const peak = this.cut ? [[`▲ cut off, highest`, "peak", format(this.cut)]] : [];
    legend(this.legend, [...this.parts.map((part) => [part.label, part.className, format(recent(part.real))]), ...peak]);
  }

  draw(history) {
    const parts = this.series(history);
    const times = history.at_ms.map((ms) => ms / 1000);
    if (times.length < 2) {
      if (!this.place.firstChild) {
        const empty = document.createElement("p");
        empty.className = "empty";
        empty.textContent = "The line begins with the second measurement.";
        this.place.append(empty);
      }
      return;
    }
    this.parts = parts;
    this.values = [times, ...parts.map((part) => part.drawn ?? part.real)];
    const columns = this.values.slice(1);
    const highest = columns.reduce((most, column) => column.reduce((a, b) => Math.max(a, b ?? 0), most), 0);
    this.top = this.robust ? robustTop(columns) : highest;
    this.cut = this.top < highest ? highest : null;
    const shape = parts.map((part) => part.label).join("|");
    if (!this.plot || shape !== this.shape) {
      this.build(shape);
    } else {
      this.plot.setData(this.values);
    }
    if (this.plot.cursor.idx == null) this.show(null);
  }

  build(shape) {
    this.shape = shape;
    this.plot?.destroy();
    this.place.replaceChildren();
    const lines = this.parts.map((part) => {
      const stroke = css(part.color);
      return {
        label: part.label, stroke, width: part.width ?? 1.6, dash: part.dash, spanGaps: part.spanGaps ?? true,
        fill: part.fill ? (part.solid ? stroke : `${stroke}22`) : undefined,
        points: { show: part.points ?? false, size: 5, fill: stroke },
      };
    });
    const top = () => [0, this.top > 0 ? this.top * 1.08 : 1];
    const around = (min, max) => {
      const margin = Math.max((max - min) * 0.15, max * 0.002, 1);
      return [Math.max(0, min - margin), max + margin];
    };
    this.plot = new uPlot({
      width: this.place.clientWidth, height: this.place.clientHeight, padding: [8, RIGHT, 0, 0],
      cursor: { sync: { key: SYNC }, y: false, points: { size: 6 }, drag: { x: false, y: false } },
      legend: { show: false },
      scales: { x: { time: true }, y: { range: (plot, min, max) => (this.zero ? top : around)(min ?? 0, max ?? 1) } },
      axes: [
        axis(28, { values: clock, space: 90 }),
        axis((plot, labels) => Math.max(44, ...(labels ?? []).map((label) => (label?.length ?? 0) * 6.6 + 12)),
          { values: (plot, splits) => this.axis(splits), ...(this.steps && { incrs: this.steps }) }),
      ],
      series: [{}, ...lines],
      hooks: { setCursor: [(plot) => this.show(plot.cursor.idx)], draw: [(plot) => { this.markCut(plot); this.describe(plot); }] },
    }, this.values, this.place);
  }

  /** For those who cannot see the picture: what the legend says, and what stands at the axis. */
  describe(plot) {
    const labels = (plot.axes[1]._values ?? []).filter((label) => label);
    this.place.role = "img";
    this.place.ariaLabel = `${this.legend.innerText.replaceAll("\n", ", ")}. Scale: ${labels.join(", ")}`;
    this.place.dataset.ticks = labels.join("|");
  }

  /** A small triangle at the top edge for each run of values that are above the scale. */
  markCut(plot) {
    if (!this.cut) return;
    const { ctx, bbox } = plot;
    const size = 5 * devicePixelRatio;
    const limit = plot.scales.y.max;
    ctx.save();
    this.parts.forEach((part, i) => {
      ctx.fillStyle = css(part.color);
      let last = -Infinity;
      this.values[i + 1].forEach((value, place) => {
        if (value == null || value <= limit) return;
        const x = plot.valToPos(this.values[0][place], "x", true);
        if (x - last < 2 * size) return;
        last = x;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top - size);
        ctx.lineTo(x - size, bbox.top + size / 2);
        ctx.lineTo(x + size, bbox.top + size / 2);
        ctx.fill();
      });
    });
    ctx.restore();
  }

  rebuild() {
    if (this.plot) this.build(this.shape);
  }
}

/** Disk by part, each part on top of the ones before. The largest sum is drawn first, so each covers what lies under it. */
function stacked(history) {
  const names = Object.keys(history.disk).sort((a, b) => (STACK.indexOf(a) + 99) % 99 - (STACK.indexOf(b) + 99) % 99);
  const sum = history.at_ms.map(() => 0);
  const parts = names.map((name, place) => {
    history.disk[name].forEach((bytes, i) => { sum[i] += bytes; });
    const color = (place % 7) + 1;
    return { label: name, color: `--s${color}`, className: `c${color}`, real: history.disk[name], drawn: [...sum], fill: true, solid: true, width: 0 };
  });
  const without = { label: "without pruning", color: "--dash", className: "dash", real: history.disk_without_pruning, dash: [5, 4], width: 1.8 };
  return [...parts.reverse(), without];
}

export function makeCharts() {
  const charts = [
    new Chart("disk", { format: bytes, axis: axisOf.bytes, series: stacked, steps: BINARY }),
    new Chart("behind", { format: number, axis: axisOf.number, steps: COUNTS,
      series: (h) => [{ label: "blocks", color: "--s1", className: "c1", real: h.lag_blocks, fill: true }] }),
    new Chart("times", { format: ms, axis: axisOf.ms, series: (h) => [
      { label: "apply", color: "--s1", className: "c1", real: h.apply_ms },
      { label: "prune", color: "--s2", className: "c2", real: h.prune_ms },
      { label: "rollback", color: "--s6", className: "c6", real: h.rollback_ms, width: 0, points: true },
    ] }),
    new Chart("rate", { format: number, axis: axisOf.number, robust: true, series: (h) => [{ label: "tx/s", color: "--s3", className: "c3", real: h.transactions_per_second, fill: true }] }),
    new Chart("unspent", { format: number, axis: axisOf.number, zero: false, steps: COUNTS,
      series: (h) => [{ label: "outputs", color: "--s5", className: "c5", real: h.unspent }] }),
  ];
  return {
    draw: (history) => charts.forEach((chart) => chart.draw(history)),
    rebuild: () => charts.forEach((chart) => chart.rebuild()),
  };
}
