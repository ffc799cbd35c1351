"use strict";
// The drawing of a partition's log. `timeline.show(data)` draws; called again, it keeps zoom, axis and kept details.
const timeline = (() => {
const ROW = 26, MOST_DRAWN = 5000;
const byId = id => document.getElementById(id);
const axis = byId("axis"), lanes = byId("lanes"), svg = lanes.querySelector("svg"), tip = byId("tip");
const escape = text => String(text).replace(/[&<>"]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}[c]));
const number = value => value.toLocaleString("en");
const clock = ms => new Date(ms).toISOString().replace("T", " ").replace("Z", "");
const isNarrow = () => lanes.clientWidth < 640;
const gutter = () => isNarrow() ? 10 : 230, right = () => isNarrow() ? 10 : 70;
const LINE = 15, HINT = byId("hint").textContent;
const TOUCH_HINT = "Tap a bar for its details, and elsewhere to close them. Drag to move. Each row is one producer.";
let data, order, bars, scales, scale, view = null, pinned = null;

const keyOf = bar => [bar.outcome === "plain", bar.producer_id, bar.from].join();

function show(next) {
  const before = scale, wasAll = !view || isAll(), atEnd = view && before && view[1] >= before.high;
  data = next;
  arrange();
  list();
  const name = before?.name ?? "offset";
  scale = scales[name];
  if (wasAll) return all();
  // A view of the end of the log moves along with it.
  const moved = atEnd ? scale.high - before.high : 0;
  view = view.map(each => each + moved);
  render();
}

function arrange() {
  // One row for each producer: those with something open first, the oldest at the top, then the rest as they appear.
  const rows = new Map();
  for (const bar of data.transactions) {
    // Of a transaction without records here only the marker is known.
    bar.onlyMarker = bar.first_offset == null;
    bar.from = bar.first_offset ?? bar.marker_offset;
    bar.to = bar.marker_offset ?? data.high_watermark;
    bar.fromMs = bar.began_at_ms;
    bar.toMs = bar.outcome === "open" ? data.taken_at_ms : bar.marker_timestamp_ms;
    const key = bar.transactional_id ?? "producer " + bar.producer_id;
    if (!rows.has(key)) rows.set(key, {name: key, bars: [], openSince: Infinity});
    const row = rows.get(key);
    // The log before this page was not read, so that the first bar of a producer may begin there.
    bar.mayBeginEarlier = !row.bars.length && bar.outcome !== "open" && data.start > data.log_start_offset;
    row.bars.push(bar);
    if (bar.outcome === "open") row.openSince = Math.min(row.openSince, bar.from);
  }
  order = [...rows.values()].map((row, place) => ({...row, place}))
    .sort((a, b) => (a.openSince - b.openSince) || (a.place - b.place));
  if (data.plain.length) {
    order.push({name: "no transaction", bars: data.plain.map(each => ({...each, outcome: "plain", from: each.first_offset,
      to: each.last_offset, fromMs: Math.min(each.first_timestamp_ms, data.taken_at_ms), toMs: Math.min(each.last_timestamp_ms, data.taken_at_ms)}))});
  }
  bars = [];
  order.forEach((row, y) => row.bars.forEach(bar => { bar.y = y; bar.index = bars.length; bars.push(bar); }));

  const stamps = bars.flatMap(bar => [bar.fromMs, bar.toMs]).filter(each => each != null && each > 0);
  const blocker = data.transactions.find(bar => bar.is_blocking);
  scales = {
    offset: {name: "offset", low: Math.min(data.start, ...(blocker ? [blocker.from] : [])), high: Math.max(data.high_watermark, data.start + 1),
      from: bar => bar.from, to: bar => bar.to + 1, stable: data.last_stable_offset, highMark: data.high_watermark,
      tick: value => number(Math.round(value) + 0), least: 4},
    time: {name: "time", low: stamps.reduce((a, b) => Math.min(a, b), data.taken_at_ms), high: stamps.reduce((a, b) => Math.max(a, b), data.taken_at_ms) + 1,
      from: bar => bar.fromMs ?? bar.toMs, to: bar => bar.toMs ?? bar.fromMs, stable: blocker ? blocker.fromMs : null, highMark: null,
      tick: value => clock(value).slice(11), least: 10},
  };
}

function isAll() { const margin = (scale.high - scale.low) * 0.02; return view[0] <= scale.low - margin && view[1] >= scale.high + margin; }
function all() { const margin = (scale.high - scale.low) * 0.02; view = [scale.low - margin, scale.high + margin]; render(); }
function waiting() {
  if (scale.stable == null || data.last_stable_offset >= data.high_watermark) return all();
  const end = scale.highMark ?? scale.high, margin = Math.max((end - scale.stable) * 0.08, 1);
  view = [scale.stable - margin, end + margin]; render();
}
const width = () => Math.max(lanes.clientWidth - gutter() - right(), 50);
const x = value => gutter() + (value - view[0]) / (view[1] - view[0]) * width();
const back = px => view[0] + (px - gutter()) / width() * (view[1] - view[0]);

function steps() {
  const rough = (view[1] - view[0]) / (isNarrow() ? 3 : 7), power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max([1, 2, 5, 10].find(each => each * power >= rough) * power, 1), found = [];
  for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) found.push(at);
  return found;
}

// The lines of a row's label: on a narrow page the whole name, above the bars.
function label(name) {
  if (!isNarrow()) return [name.length > 32 ? name.slice(0, 14) + "\u2026" + name.slice(-17) : name];
  const most = Math.max(Math.floor((lanes.clientWidth - 20) / 7.5), 10);
  return name.match(new RegExp(`.{1,${most}}`, "gsu")) ?? [""];
}

// Where each row begins and where its bars are, from the top.
function places() {
  let top = 0;
  for (const row of order) {
    row.lines = label(row.name);
    row.top = top;
    row.bars_top = top + (isNarrow() ? row.lines.length * LINE : 0);
    top = row.bars_top + ROW;
  }
  return Math.max(top, ROW);
}

function shape(bar) {
  const left = Math.max(x(scale.from(bar)), gutter() - 4), end = Math.min(x(scale.to(bar)), gutter() + width() + 4);
  const kind = bar.outcome + (bar.is_blocking ? " blocking" : "") + (bar.onlyMarker ? " only-marker" : "") + (pinned === keyOf(bar) ? " pinned" : "");
  return `<rect class="${escape(kind)}" data-bar="${bar.index}" x="${left.toFixed(1)}" y="${order[bar.y].bars_top + (bar.onlyMarker ? 2 : 5)}" rx="2" ` +
    `width="${bar.onlyMarker ? 4 : Math.max(end - left, 3).toFixed(1)}" height="${ROW - (bar.onlyMarker ? 4 : 10)}"/>`;
}

function mark(value, kind, height) {
  if (value == null || value < view[0] || value > view[1]) return "";
  return `<line class="mark ${kind}" x1="${x(value)}" x2="${x(value)}" y1="0" y2="${height}"/>`;
}

function render() {
  const height = places(), inView = bars.filter(bar => scale.to(bar) >= view[0] && scale.from(bar) <= view[1]);
  const drawn = inView.slice(0, MOST_DRAWN);
  svg.setAttribute("height", height);
  svg.innerHTML = `<defs><clipPath id="field"><rect x="${gutter() - 1}" y="0" width="${width() + 2}" height="${height}"/></clipPath></defs>` +
    order.map((row, y) => y % 2 ? "" : `<rect class="lane" x="0" y="${row.top}" width="100%" height="${row.bars_top - row.top + ROW}"/>`).join("") +
    steps().map(each => `<line class="grid" x1="${x(each)}" x2="${x(each)}" y1="0" y2="${height}"/>`).join("") +
    `<g clip-path="url(#field)">` + drawn.map(shape).join("") + mark(scale.stable, "stable", height) + mark(scale.highMark, "high", height) + `</g>` +
    order.map(row => row.lines.map((line, at) =>
      `<text x="10" y="${row.top + 17 + at * LINE}"><title>${escape(row.name)}</title>${escape(line)}</text>`).join("")).join("");
  axis.innerHTML = steps().map(each => `<text class="faint" x="${x(each)}" y="40" text-anchor="${x(each) < 45 ? "start" : x(each) > lanes.clientWidth - 45 ? "end" : "middle"}">${scale.tick(each)}</text>` +
    `<line class="grid" x1="${x(each)}" x2="${x(each)}" y1="43" y2="46"/>`).join("") +
    named(scale.stable, "stable", "last stable offset " + number(data.last_stable_offset), 14) +
    named(scale.highMark, "high", "high watermark " + number(data.high_watermark), 27);
  byId("hint").dataset.left = inView.length - drawn.length;
  byId("hint").textContent = inView.length > drawn.length
    ? `${number(inView.length - drawn.length)} bars are left out here: zoom in to see them.` : isNarrow() ? TOUCH_HINT : HINT;
}

function named(value, kind, text, y) {
  if (value == null || value < view[0] || value > view[1]) return "";
  const at = x(value), anchor = at > gutter() + width() * 0.75 ? "end" : at < gutter() + width() * 0.25 ? "start" : "middle";
  return `<text class="${kind}" x="${at}" y="${y}" text-anchor="${anchor}">${text}</text>` + `<line class="mark ${kind}" x1="${at}" x2="${at}" y1="${y + 3}" y2="46"/>`;
}

function details(bar) {
  const lines = bar.outcome === "plain" ? [["", "records of no transaction"]] : [
    ["transactional id", bar.transactional_id ?? "no coordinator names it"], ["producer id", bar.producer_id], ["producer epoch", bar.producer_epoch],
    ["state", bar.outcome + (bar.coordinator_state ? `; coordinator state ${bar.coordinator_state}` : "")]];
  lines.push(["first offset", bar.onlyMarker ? (bar.mayBeginEarlier ? "before this page, or no records" : "no records") :
    number(bar.first_offset) + (bar.mayBeginEarlier ? `, or before ${number(data.start)} where this page begins` : "")]);
  if (bar.last_offset != null) lines.push(["last offset", number(bar.last_offset)]);
  lines.push(["records", number(bar.record_count) + (bar.batch_count ? ` in ${number(bar.batch_count)} batches, ${number(bar.size_bytes)} bytes` : "")]);
  if (bar.marker_offset != null) lines.push(["marker", `offset ${number(bar.marker_offset)}, coordinator epoch ${bar.coordinator_epoch}`]);
  if (bar.fromMs > 0) lines.push([bar.outcome === "plain" ? "first record" : bar.is_dated ? "first record dated" : "began", clock(bar.fromMs) + " UTC"]);
  if (bar.marker_timestamp_ms > 0) lines.push(["ended", clock(bar.marker_timestamp_ms) + " UTC"]);
  if (bar.fromMs > 0 && bar.toMs > 0 && bar.outcome !== "plain" && !bar.is_dated) lines.push([bar.outcome === "open" ? "open for" : "took", ((bar.toMs - bar.fromMs) / 1000).toFixed(3) + " s"]);
  if (bar.is_blocking) lines.push(["", "blocks the last stable offset"]);
  return "<table>" + lines.map(([name, value]) => `<tr><th>${name}</th><td>${escape(value)}</td></tr>`).join("") + "</table>";
}

function showTip(index, left, top) {
  tip.innerHTML = details(bars[index]);
  tip.style.display = "block";
  tip.style.left = Math.max(0, Math.min(left + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(0, Math.min(top + 14, innerHeight - tip.offsetHeight - 8)) + "px";
}

function zoom(factor, centre) {
  const low = centre - (centre - view[0]) * factor, high = centre + (view[1] - centre) * factor;
  if (high - low < scale.least || high - low > (scale.high - scale.low) * 4 + scale.least) return;
  view = [low, high];
  render();
}

lanes.addEventListener("wheel", event => {
  if (event.shiftKey) return;
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.25 : 0.8, back(event.clientX - lanes.getBoundingClientRect().left));
}, {passive: false});
let dragged = null;
lanes.addEventListener("pointerdown", event => { dragged = {at: event.clientX, view: [...view], moved: false}; });
addEventListener("pointermove", event => {
  if (dragged) {
    const by = (event.clientX - dragged.at) / width() * (dragged.view[1] - dragged.view[0]);
    dragged.moved ||= Math.abs(event.clientX - dragged.at) > 3;
    if (dragged.moved) { lanes.classList.add("dragging"); view = dragged.view.map(each => each - by); render(); }
    return;
  }
  const bar = event.target.closest?.("[data-bar]");
  if (bar) showTip(Number(bar.dataset.bar), event.clientX, event.clientY);
  else if (pinned == null) tip.style.display = "none";
});
addEventListener("pointerup", event => {
  const bar = event.target.closest?.("[data-bar]"), moved = dragged?.moved;
  dragged = null;
  lanes.classList.remove("dragging");
  if (moved || !event.target.closest?.("#lanes")) return;
  pinned = bar ? keyOf(bars[bar.dataset.bar]) : null;
  render();
  if (bar) showTip(Number(bar.dataset.bar), event.clientX, event.clientY); else tip.style.display = "none";
});
const middle = () => (view[0] + view[1]) / 2;
byId("closer").onclick = () => zoom(0.5, middle());
byId("wider").onclick = () => zoom(2, middle());
byId("all").onclick = all;
byId("waiting").onclick = waiting;
byId("scale").onchange = event => { scale = scales[event.target.value]; all(); };
addEventListener("keydown", event => {
  if (["SELECT", "INPUT", "TEXTAREA"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const by = (view[1] - view[0]) / 10;
  const act = {"+": () => zoom(0.5, middle()), "-": () => zoom(2, middle()), "0": all, "w": waiting, "n": () => step(1), "p": () => step(-1),
    "ArrowLeft": () => { view = view.map(each => each - by); render(); }, "ArrowRight": () => { view = view.map(each => each + by); render(); }}[event.key];
  if (act) { act(); event.preventDefault(); }
});
addEventListener("resize", () => { if (data) render(); });

// The keyboard's way to a bar's details: the next or previous one in view.
function step(by) {
  const inView = bars.filter(bar => scale.to(bar) >= view[0] && scale.from(bar) <= view[1]);
  if (!inView.length) return;
  const at = inView.findIndex(bar => keyOf(bar) === pinned);
  const next = inView[at < 0 ? (by > 0 ? 0 : inView.length - 1) : (at + by + inView.length) % inView.length];
  pinned = keyOf(next);
  render();
  const shape = svg.querySelector(`[data-bar="${next.index}"]`);
  shape?.scrollIntoView({block: "nearest"});
  const place = shape?.getBoundingClientRect();
  if (place) showTip(next.index, Math.max(place.left, 0), place.bottom);
}

const HEADS = ["transactional id", "producer id", "epoch", "first offset", "records", "open for", "coordinator state"];
const openFor = bar => ((data.taken_at_ms - bar.fromMs) / 1000).toFixed(0) + " s";

function list() {
  const opened = data.transactions.filter(bar => bar.outcome === "open").sort((a, b) => a.from - b.from);
  byId("opened-holder").innerHTML = !opened.length ? "<p id='opened'>None.</p>" : "<table id='opened'><tr>" +
    HEADS.map(each => `<th>${each}</th>`).join("") + "</tr>" +
    opened.map(bar => `<tr><td data-label="transactional id">${bar.href ? `<a href="${escape(bar.href)}">${escape(bar.transactional_id)}</a>` : escape(bar.transactional_id ?? "?")}</td>` + [bar.producer_id, bar.producer_epoch, bar.first_offset == null ? "?" : number(bar.first_offset), number(bar.record_count),
      bar.fromMs > 0 ? (bar.is_dated ? `first record dated ${openFor(bar)} ago` : openFor(bar)) : "?", bar.coordinator_state ?? "?"].map((each, at) => `<td data-label="${HEADS[at + 1]}">${escape(each)}</td>`).join("") + "</tr>").join("") + "</table>";
}

return {show};
})();
