"use strict";
// What the pages consist of. Names of topics, groups and ids come from anyone who may write to the cluster: they become
// text nodes and attributes here, never HTML.

const SVG = "http://www.w3.org/2000/svg";

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  return fill(element, attributes, children);
}

function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

// Change a part of the page to look like another, node by node: focus, selection and what is unfolded stay.
function morph(old, next) {
  for (const {name} of [...old.attributes]) if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const {name, value} of next.attributes) if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  const before = [...old.childNodes], after = [...next.childNodes];
  const keyed = new Map(before.filter(each => each.dataset?.key).map(each => [each.dataset.key, each]));
  after.forEach((node, index) => {
    const at = old.childNodes[index];
    const same = node.dataset?.key ? keyed.get(node.dataset.key) : at;
    if (same && same.nodeType === node.nodeType && same.nodeName === node.nodeName && (same.dataset?.key ?? "") === (node.dataset?.key ?? "")) {
      if (same !== at) old.insertBefore(same, at ?? null);
      if (node.nodeType === Node.TEXT_NODE) { if (same.data !== node.data) same.data = node.data; } else morph(same, node);
    } else {
      old.insertBefore(node, at ?? null);
    }
  });
  while (old.childNodes.length > after.length) old.lastChild.remove();
}

// Values.

const number = value => value === null || value === undefined ? "?" : value.toLocaleString("en");
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const utc = ms => new Date(ms).toISOString().replace("T", " ").slice(0, 19) + " UTC";

function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

const since = (ms, nowMs) => ms === null || ms === undefined || ms <= 0 ? "?" :
  h("time", {datetime: new Date(ms).toISOString(), title: utc(ms)}, span(Math.max(0, nowMs - ms)));

// An age by the clock of the client that wrote the record.
const dated = (row, nowMs) => row.is_dated ? ["last record dated ", since(row.dated_ms, nowMs), " ago"] : null;

const link = (text, href) => href ? h("a", {href}, text) : h("span", {}, text);
const idLink = id => id ? h("span", {class: "id"}, link(id.name, id.href)) : h("span", {class: "faint"}, "no coordinator names it");
const placeLink = row => link(`${row.topic}-${row.partition}`, row.href);
const badge = (text, kind) => h("span", {class: `badge ${kind ?? ""}`}, text);
const VERDICTS = {hanging: "bad", live: "good", unknown: "", ended: ""};

function table(name, heads, rows, empty, total) {
  if (!rows.length) return h("p", {class: "empty"}, empty);
  const titles = heads.map(([title]) => title);
  return [
    h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": name},
      h("table", {},
        h("thead", {}, h("tr", {}, heads.map(([title, kind]) => h("th", {scope: "col", class: kind}, title)))),
        h("tbody", {}, rows.map(([key, ...cells]) => h("tr", {"data-key": key},
          cells.map((cell, at) => h(at ? "td" : "th", {scope: at ? null : "row", class: heads[at][1], "data-label": titles[at]}, cell))))))),
    total > rows.length ? h("p", {class: "note"}, `${number(total - rows.length)} more are not shown; use the filter.`) : null,
  ];
}

function section(id, title, count, ...content) {
  return h("section", {id, "aria-labelledby": `${id}-title`, "data-key": id},
    h("h2", {id: `${id}-title`}, title, count === null ? null : h("span", {class: "count"}, ` ${number(count)}`)), content);
}

// Lines are broken between words, and not at the hyphens of options.
const words = text => text.split(" ").flatMap((word, at) => [at ? " " : "", h("span", {}, word)]);
const command = text => text ? h("div", {class: "command"}, h("code", {}, words(text)),
  h("button", {type: "button", "data-copy": text}, "Copy")) : null;

function actionButton(action, label, page) {
  return action && page.live?.changes ? h("button", {type: "button", class: "danger", "data-action": JSON.stringify(action)}, label) : null;
}

const facts = pairs => h("dl", {class: "facts"}, pairs.filter(pair => pair).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

// The overview.

function card(label, value, target, kind) {
  return h("a", {class: `card ${kind ?? ""}`, href: `#${target}`, "data-key": label}, h("span", {class: "value"}, value), h("span", {class: "label"}, label));
}

function overviewPage(page) {
  const now = page.poll.now_ms, waiting = page.lagging.rows;
  if (!page.poll.cycle) return h("div", {}, h("p", {class: "empty"}, "Looking at the cluster for the first time."));
  return h("div", {},
    h("nav", {class: "cards", "aria-label": "Summary"},
      card("hanging transactions", number(page.hanging.count), "hanging", page.hanging.count ? "bad" : "good"),
      card("partitions that wait", number(page.lagging.count), "lagging", page.lagging.count ? "warn" : "good"),
      card("longest wait", waiting.length ? span(now - waiting[0].since_ms) : "none", "lagging"),
      card("groups that wait", number(page.groups.count), "groups", page.groups.count ? "warn" : "good"),
      card("queries of the sink", number(page.queries.count), "queries"),
      card("open transactions", number(page.open.count), "open")),
    section("hanging", "Hanging transactions", page.hanging.count, hangingList(page.hanging.rows, page, now)),
    section("lagging", "Partitions whose last stable offset waits", page.lagging.count,
      table("Partitions whose last stable offset waits",
        [["Partition"], ["Waits for", "number"], ["Offsets", "number"], ["Blocked by"], ["Verdict"], ["Open", "number"]],
        waiting.map(row => [`${row.topic}-${row.partition}`, placeLink(row), dated(row, now) ?? since(row.since_ms, now), number(row.lag),
          row.blocker ? blocker(row.blocker) : h("span", {class: "faint"}, "not known yet"),
          row.blocker ? badge(row.blocker.verdict, VERDICTS[row.blocker.verdict]) : "", number(row.open)]),
        "The last stable offset of every partition has reached the high watermark.", page.lagging.count)),
    section("groups", "Groups that wait for transactional offsets", page.groups.count,
      table("Groups that wait for transactional offsets",
        [["Group"], ["Waits for", "number"], ["Offsets of"], ["In the transaction of"], ["Stored in"]],
        page.groups.rows.map(row => [`${row.group}/${row.producer_id}`, h("span", {class: "id"}, row.group), since(row.since_ms, now),
          row.pending.join(", "), row.id ? idLink(row.id) : `producer id ${row.producer_id}, epoch ${row.producer_epoch}`, placeLink(row)]),
        "No group has offsets in an open transaction.", page.groups.count)),
    section("queries", "Queries of the sink", page.queries.count,
      table("Queries of the sink",
        [["Query"], ["Micro-batch", "number"], ["Decision"], ["Decided ago", "number"], ["Per minute", "number"], ["Rows", "number"], ["Open", "number"], ["Times out in", "number"]],
        page.queries.rows.map(row => [`${row.prefix}/${row.query}`, h("span", {class: "id"}, link(row.query, row.href)), number(row.micro_batch),
          row.problem ? badge("unreadable", "bad") : badge(row.state, stateKind(row.state)), since(row.decided_at_ms, now),
          row.per_minute === null ? "?" : row.per_minute.toFixed(1), number(row.records), number(row.open), left(row.times_out_at_ms, now)]),
        "The decision topic has no decision, and no transaction of the sink is open.", page.queries.count)),
    section("open", "Open transactions", page.open.count,
      table("Open transactions",
        [["Transactional id"], ["Open for", "number"], ["Times out in", "number"], ["State"], ["Partitions", "number"], ["Producer", "number"], ["Coordinator", "number"]],
        page.open.rows.map(row => [row.id.name, idLink(row.id), since(row.started_at_ms, now),
          row.started_at_ms ? left(row.started_at_ms + row.timeout_ms, now) : "?", badge(row.state, "warn"), number(row.partitions),
          `${row.producer_id} / ${row.producer_epoch ?? "?"}`, row.coordinator_id]),
        "No transaction is open.", page.open.count)),
    section("cluster", "Cluster", null, facts([
      ["Brokers", number(page.cluster.brokers)], ["Topics", number(page.cluster.topics)],
      ["Partitions", number(page.cluster.partitions) + (page.cluster.leaderless ? `, ${number(page.cluster.leaderless)} without a leader` : "")],
      ["Transactional ids", Object.entries(page.cluster.states).map(([state, count]) => `${number(count)} ${state}`).join(", ") || "none"]])));
}

const stateKind = state => state === "completed" || state === "decided, none open" ? "good" : state === "unreadable" ? "bad" : state.startsWith("decided") ? "warn" : "";

function left(atMs, now) {
  if (!atMs) return "";
  if (atMs <= now) return badge("past", "bad");
  return h("span", {class: atMs - now < 60000 ? "urgent" : null, title: utc(atMs)}, span(atMs - now));
}

const blocker = each => each.id ? idLink(each.id) : `producer id ${each.producer_id}, epoch ${each.producer_epoch}`;

function hangingList(rows, page, now) {
  if (!rows.length) return h("p", {class: "empty"}, "No open transaction hangs.");
  return h("ul", {class: "findings"}, rows.map(row => h("li", {"data-key": `${row.topic}-${row.partition}@${row.first_offset}`}, finding(row, page, now))));
}

function finding(row, page, now) {
  return [
    h("p", {class: "lead"}, badge(row.verdict, VERDICTS[row.verdict]), " ", placeLink(row), ` at offset ${number(row.first_offset)}, `,
      dated(row, now) ?? ["for ", since(row.since_ms, now)],
      row.id ? [", of ", idLink(row.id)] : ", of no known transactional id", ` (producer id ${row.producer_id}, epoch ${row.producer_epoch})`),
    h("p", {}, `Why: ${row.why}.`),
    h("p", {class: "faint"}, `Coordinator: ${row.coordinator_says}.`),
    row.command ? [h("p", {class: "label"}, "To end it:"), command(row.command)] : null,
    actionButton(row.action, row.action?.commit ? "Write the commit marker…" : "Abort…", page),
  ];
}

// A transaction.

function transactionPage(page) {
  const now = page.poll.now_ms;
  return h("div", {},
    facts([
      ["State", badge(page.state, page.state === "Ongoing" ? "warn" : page.state.startsWith("Complete") ? "good" : "")],
      ["Producer id", page.producer_id], ["Producer epoch", page.producer_epoch], ["Coordinator", `broker ${page.coordinator_id}`],
      ["Timeout", span(page.timeout_ms)],
      page.started_at_ms ? ["Began", [since(page.started_at_ms, now), " ago"]] : null,
      page.started_at_ms && page.state === "Ongoing" ? ["Times out in", left(page.started_at_ms + page.timeout_ms, now)] : null,
      page.task ? ["Query of the sink", link(page.task.query.name, page.task.query.href)] : null,
      page.task ? ["Run, worker", `${page.task.run}, ${page.task.worker}`] : null]),
    page.task && page.state === "Ongoing" ? h("p", {class: "note"}, "This transaction belongs to a query of the sink; its micro-batch may be decided. Use the query's page, or restart the query.") : null,
    page.command ? section("end", "If its producer is dead", null, h("p", {}, "The coordinator aborts it in all partitions and fences its producer:"),
      command(page.command), actionButton(page.action, "Force-terminate…", page)) : null,
    section("partitions", "Partitions", page.partitions.count, table("Partitions",
      [["Partition"], ["At the coordinator"], ["First offset", "number"], ["Epoch there", "number"], ["Offsets that wait", "number"], ["Verdict"]],
      page.partitions.rows.map(row => [`${row.topic}-${row.partition}`, placeLink(row), row.is_listed ? "listed" : badge("not listed", "bad"),
        row.first_offset === null ? "" : number(row.first_offset), row.producer_epoch ?? "", row.lag ? number(row.lag) : "",
        row.finding ? badge(row.finding.verdict, VERDICTS[row.finding.verdict]) : ""]),
      "It has no partition now.", page.partitions.count)),
    page.partitions.rows.filter(row => row.finding?.verdict === "hanging").map(row => h("section", {class: "findings"}, finding(row.finding, page, now))),
    section("history", "States as seen", page.history.length, h("p", {class: "note"}, "Since this console looks; states between two looks are not seen."),
      table("States as seen", [["Seen"], ["Ago", "number"], ["State"], ["Producer", "number"], ["Partitions", "number"]],
        [...page.history].reverse().map(each => [`${each.at_ms}${each.state}`, utc(each.at_ms), since(each.at_ms, now), each.state,
          `${each.producer_id} / ${each.producer_epoch ?? "?"}`, each.partition_count ?? ""]), "None yet.", 0)));
}

// A query.

function queryPage(page) {
  const now = page.poll.now_ms, abandon = {rewrite: "Abandon, and write it again…", skip: "Abandon, and skip it…"};
  const change = page.live?.changes && page.actions.length ? section("change", "If the query does not run", null, h("p", {class: "actions"}, page.actions.map(action =>
    actionButton(action, action.kind === "complete" ? "Complete the decision…" : abandon[action.restart], page)))) : null;
  return h("div", {},
    page.problem ? h("p", {class: "problem"}, page.problem) : null,
    facts([
      ["Prefix", page.prefix], ["Run", page.run ?? "?"], ["Runs seen", number(page.runs)], ["Micro-batch", number(page.micro_batch)], ["Attempt", number(page.attempt)],
      ["Decision", badge(page.state, stateKind(page.state))], ["Decided", page.decided_at_ms ? [since(page.decided_at_ms, now), " ago"] : "?"],
      ["Pace", page.per_minute === null ? "?" : `${page.per_minute.toFixed(1)} a minute`], ["Rows of the newest", number(page.records)],
      ["Transactions of the newest", number(page.transactions)], ["Times out in", left(page.times_out_at_ms, now) || "nothing is open"]]),
    page.open ? change : null,
    section("gantt", "Micro-batches", page.micro_batches.length,
      page.micro_batches.length ? h("div", {class: "bar"},
        h("label", {}, "Across: ", h("select", {id: "gantt-scale"}, h("option", {value: "time"}, "time"), h("option", {value: "own"}, "since each began"))),
        [["prepare", "prepare"], ["complete", "complete"], ["decide", "decided"], ["sweep", "aborted"], ["undone", "not complete yet"]].map(([kind, text]) =>
          h("span", {class: "key"}, s("svg", {"aria-hidden": "true"}, s("rect", {class: kind, width: kind === "decide" || kind === "sweep" ? 3 : 26, x: kind === "decide" || kind === "sweep" ? 12 : 0, height: 12, rx: 1})), text))) : null,
      h("div", {id: "gantt-holder", "data-keep": ""}),
      page.markers_problem ? h("p", {class: "problem"}, page.markers_problem) : null,
      table("Micro-batches", [["Micro-batch"], ["Decided ago", "number"], ["Prepare", "number"], ["Complete", "number"], ["Transactions", "number"], ["Rows", "number"], ["End"]],
        page.micro_batches.map(each => [`${each.micro_batch}.${each.attempt}`, `${number(each.micro_batch)}${each.attempt > 1 ? `, attempt ${each.attempt}` : ""}`, since(each.decided_at_ms, now),
          each.started_at_ms ? span(each.decided_at_ms - each.started_at_ms) : "?", completion(each), number(each.transactions), number(each.records), outcome(each)]),
        "The decision topic has no decision of this query.", 0),
      h("p", {class: "note"}, "Prepare is from the first transaction's begin to the decision, complete from the decision to the last marker that was looked up; up to four markers of a micro-batch are.")),
    section("swept", "Aborted, as seen", page.swept.length, h("p", {class: "note"}, "By the sweep of orphans, an operator, or at the timeout."),
      table("Aborted, as seen", [["Transactional id"], ["Ago", "number"], ["State"]],
        [...page.swept].reverse().map(each => [`${each.id.name}${each.at_ms}`, idLink(each.id), since(each.at_ms, now), each.state]), "None seen.", 0)),
    section("transactions", "Open transactions", page.transactions_open.count, table("Open transactions",
      [["Transactional id"], ["Open for", "number"], ["Times out in", "number"], ["State"], ["Partitions", "number"]],
      page.transactions_open.rows.map(row => [row.id.name, idLink(row.id), since(row.started_at_ms, now),
        row.started_at_ms ? left(row.started_at_ms + row.timeout_ms, now) : "?", row.state, number(row.partitions)]), "None.", page.transactions_open.count)),
    page.open ? null : change);
}

const completedAt = each => each.last_marker_ms ?? each.marked_completed_at_ms;
const completion = each => completedAt(each) ? span(completedAt(each) - each.decided_at_ms) : "";

function outcome(each) {
  if (each.is_abandoned) return badge("abandoned", "bad");
  if (each.aborted_at_ms) return badge("aborted", "bad");
  return completedAt(each) ? badge("complete", "good") : badge("not complete yet", "warn");
}

function gantt(page, width, aligned) {
  const now = page.poll.now_ms, rows = page.micro_batches, narrow = width < 640, left = narrow ? 52 : 90, right = narrow ? 8 : 20, ROW = 18, top = 20;
  const begin = each => Math.min(each.started_at_ms ?? each.decided_at_ms, each.decided_at_ms);
  const end = (each, index) => completedAt(each) ?? each.aborted_at_ms ?? (index ? each.decided_at_ms : now);
  const low = aligned ? 0 : Math.min(...rows.map(begin));
  const swept = aligned ? [] : page.swept.filter(each => each.at_ms >= low);
  const high = Math.max(low + 1, ...(aligned ? rows.map(each => (completedAt(each) ?? each.decided_at_ms) - begin(each)) : [...rows.map(end), ...swept.map(each => each.at_ms)]));
  const x = value => left + Math.min((value - low) / (high - low), 1) * (width - left - right);
  const height = top + (rows.length + (swept.length ? 1 : 0)) * ROW + 4;
  const rough = (high - low) / (narrow ? 3 : 7), power = 10 ** Math.floor(Math.log10(rough)), step = Math.max(1, [1, 2, 5, 10].find(each => each * power >= rough) * power);
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
  const tick = at => aligned ? span(at) : new Date(at).toISOString().slice(11, step < 1000 ? 23 : 19);
  const bar = (kind, from, to, y, title) => s("rect", {class: kind, x: x(from).toFixed(1), y: y + 3, width: Math.max(x(to) - x(from), 1.5).toFixed(1), height: ROW - 6, rx: 1}, s("title", {}, title));
  return s("svg", {class: "gantt", width, height, role: "img", "aria-label": "Micro-batches over time; the table below has the same"},
    ticks.map(at => [s("line", {class: "grid", x1: x(at), x2: x(at), y1: top - 4, y2: height}), s("text", {class: "faint", x: x(at), y: 12, "text-anchor": at === ticks[0] ? "start" : x(at) > width - 60 ? "end" : "middle"}, tick(at))]),
    rows.map((each, index) => {
      const y = top + index * ROW, shift = aligned ? begin(each) : 0, name = `micro-batch ${each.micro_batch}`;
      const done = completedAt(each);
      return s("g", {},
        s("text", {x: 4, y: y + 13}, `${each.micro_batch}${each.attempt > 1 ? `.${each.attempt}` : ""}`),
        bar("prepare", begin(each) - shift, each.decided_at_ms - shift, y, `${name}: prepare ${span(each.decided_at_ms - begin(each))}`),
        done ? bar("complete", each.decided_at_ms - shift, done - shift, y, `${name}: complete ${span(done - each.decided_at_ms)}`)
          : index || each.is_abandoned ? null : bar("undone", each.decided_at_ms - shift, now - shift, y, `${name}: not complete for ${span(now - each.decided_at_ms)}`),
        s("rect", {class: "decide", x: x(each.decided_at_ms - shift) - 1, y: y + 1, width: 2, height: ROW - 2}, s("title", {}, `${name}: decided ${utc(each.decided_at_ms)}`)),
        each.aborted_at_ms ? s("rect", {class: "sweep", x: x(each.aborted_at_ms - shift) - 1, y: y + 1, width: 3, height: ROW - 2}, s("title", {}, `${name}: aborted ${utc(each.aborted_at_ms)}`)) : null);
    }),
    swept.length ? s("g", {}, s("text", {x: 4, y: top + rows.length * ROW + 13}, "aborted"), swept.map(each =>
      s("rect", {class: "sweep", x: x(each.at_ms) - 1, y: top + rows.length * ROW + 1, width: 3, height: ROW - 2}, s("title", {}, `${each.id.name}: ${each.state}, seen ${utc(each.at_ms)}`)))) : null);
}
