"use strict";
// The page as a whole: its frame, the repeated look-up of its data, and the dialog of a change.

const CHANGE_HEADER = "X-Eos-Kafka-Console", EVERY_MS = 2000, LATER_MS = 10000;
const byName = id => document.getElementById(id);
const kind = document.body.dataset.page;
let page = JSON.parse(byName("data").textContent);
const live = page.live ?? null;
let paused = false, failures = 0, wanted = "", announced = null, aligned = false, answeredAt = null, timer = null;
const RENDERERS = {overview: overviewPage, transaction: transactionPage, query: queryPage};

function frame() {
  const poll = page.poll, home = live ? "./" : "index.html";
  const head = h("header", {id: "top", class: failures ? "stale" : null},
    h("a", {class: "brand", href: home}, "eos-kafka console"),
    page.cluster ? h("span", {class: "faint cluster"}, page.cluster.bootstrap) : null,
    h("span", {class: "grow"}),
    poll ? h("span", {class: "faint", id: "pace"}, paceText(poll)) : null,
    live ? h("button", {type: "button", id: "pause", "aria-pressed": String(paused)}, "Pause") : null);
  morph(byName("top"), head);
}

function paceText(poll) {
  const requests = `${poll.requests_per_second} of ${poll.budget_per_second} requests a second`;
  if (!live) return `as of ${utc(poll.at_ms)}, ${number(poll.requests)} requests`;
  if (!poll.cycle) return `first look, ${requests}`;
  const scan = poll.scanned_at_ms ? `, all partitions ${span(poll.now_ms - poll.scanned_at_ms)} ago` : "";
  return `looked ${span(poll.now_ms - poll.at_ms)} ago${scan}, ${requests}`;
}

function show() {
  frame();
  const problem = byName("error"), problems = (page.problems ?? []).map(each => `${each.part}: ${each.text}`);
  const text = [page.error, ...problems].filter(each => each).join("\n");
  problem.hidden = !text;
  if (problem.textContent !== text) problem.textContent = text;
  if (page.error) return;
  if (kind === "partition") {
    if (page.timeline) showTimeline();
    return;
  }
  const ready = kind === "overview" || page.poll;
  const next = h("div", {id: "content"}, ready && (kind === "overview" || page.prefix !== undefined || page.id !== undefined)
    ? RENDERERS[kind]({...page, live}) : h("p", {class: "empty"}, "Looking at the cluster."));
  const kept = byName("gantt-holder"), scale = byName("gantt-scale")?.value;
  morph(byName("content"), next);
  if (kind === "query" && byName("gantt-holder")) {
    if (scale) byName("gantt-scale").value = scale;
    drawGantt(kept);
  }
  announce();
}

function drawGantt() {
  const holder = byName("gantt-holder");
  aligned = byName("gantt-scale")?.value === "own";
  if (page.micro_batches?.length) holder.replaceChildren(gantt(page, holder.clientWidth, aligned));
}

function showTimeline() {
  const bar = h("div", {id: "content"},
    h("p", {id: "summary"}, page.summary),
    page.hanging.map(row => h("section", {class: "findings", "data-key": row.first_offset}, finding(row, {...page, live}, page.poll.now_ms))),
    live ? h("p", {class: "note"}, h("label", {}, "Offsets to show: ", h("select", {id: "last"},
      [1000, 10000, 100000, 1000000].map(each => h("option", {value: each, selected: each === page.last}, number(each))))),
      " It follows the log; zoom stays.") : null,
    page.unread ? h("p", {class: "note", role: "status"}, `${number(page.unread)} offsets up to the high watermark are not read yet.`) : null);
  morph(byName("content"), bar);
  document.body.classList.add("ready");
  timeline.show(page.timeline);
}

function announce() {
  if (kind !== "overview" || !page.poll?.cycle) return;
  const text = `${plural(page.hanging.count, "hanging transaction")}, ${plural(page.lagging.count, "partition")} waiting, ${plural(page.groups.count, "group")} waiting`;
  if (text !== announced) byName("said").textContent = text;
  announced = text;
  document.title = page.hanging.count ? `(${page.hanging.count}) Transactions - eos-kafka console` : "Transactions - eos-kafka console";
}

// Looking again.

function address() {
  const query = new URLSearchParams(location.search);
  if (kind === "overview" && wanted) query.set("filter", wanted);
  if (kind === "partition" && byName("last")) query.set("last", byName("last").value);
  return `api/${kind}?${query}`;
}

async function look() {
  clearTimeout(timer);
  if (!paused && !document.hidden) {
    const asked = address();
    try {
      const response = await fetch(asked, {cache: "no-store"});
      const document = await response.json();
      failures = response.ok ? 0 : failures + 1;
      if (asked === address()) { page = document.error ? {...page, ...document} : document; show(); }
    } catch (error) {
      failures += 1;
      page = {...page, error: "The console does not respond. Is the command still running?"};
      show();
    }
  }
  const first = kind === "overview" && !page.poll?.cycle && !failures;
  timer = setTimeout(look, first ? 200 : failures > 2 ? LATER_MS : EVERY_MS);
}

// Changes: the plan is shown, and carried out when it is confirmed.

async function post(path, body) {
  const response = await fetch(path, {method: "POST", body: JSON.stringify(body),
    headers: {"Content-Type": "application/json", [CHANGE_HEADER]: "1"}});
  return response.json();
}

function say(title, ...content) {
  const dialog = byName("dialog");
  dialog.replaceChildren();
  fill(dialog, {}, [h("h2", {id: "dialog-title"}, title), content]);
  if (!dialog.open) dialog.showModal();
  dialog.querySelector("[data-close]")?.focus();
}

const closeButton = text => h("button", {type: "button", "data-close": ""}, text);

async function openPlan(action) {
  const hasReason = action.kind === "complete" || action.kind === "abandon";
  say("Looking at what this would do", h("p", {role: "status"}, "Nothing is changed yet."), closeButton("Cancel"));
  let plan;
  try { plan = await post("api/plan", action); } catch (error) { plan = {error: String(error)}; }
  if (!byName("dialog").open) return;
  if (plan.error) return say("Refused", h("p", {class: "plain"}, plan.error), closeButton("Close"));
  say("This is about to happen",
    plan.findings.map(each => h("p", {class: "faint"}, each)),
    h("ol", {}, plan.steps.map(each => h("li", {}, each))),
    hasReason ? h("p", {}, h("label", {}, "Reason, for the audit record: ", h("input", {id: "reason", type: "text", maxlength: "500"}))) : null,
    h("p", {class: "actions"}, closeButton("Cancel"), h("button", {type: "button", class: "danger", "data-confirm": plan.plan}, "Carry out")));
}

async function confirmPlan(name) {
  const reason = byName("reason")?.value ?? "";
  say("Carrying it out", h("p", {role: "status"}, "Wait for the result."));
  let result;
  try { result = await post("api/carry-out", {plan: name, reason}); } catch (error) { result = {error: `The result is not known: ${error}`}; }
  say(result.error ? "Refused or failed" : result.done ? "Done" : "Done in part", h("p", {class: "plain", role: "status"}, result.error ?? result.text), closeButton("Close"));
  look();
}

document.addEventListener("click", event => {
  const of = name => event.target.closest?.(`[data-${name}]`);
  if (of("action")) openPlan(JSON.parse(of("action").dataset.action));
  else if (of("confirm")) confirmPlan(of("confirm").dataset.confirm);
  else if (of("close")) byName("dialog").close();
  else if (of("copy")) navigator.clipboard?.writeText(of("copy").dataset.copy).then(() => { byName("said").textContent = "Copied"; });
  else if (event.target.id === "pause") { paused = !paused; frame(); if (!paused) look(); }
});
document.addEventListener("change", event => {
  if (event.target.id === "last") look();
  if (event.target.id === "gantt-scale") drawGantt();
});
document.addEventListener("keydown", event => {
  if (event.key === "/" && byName("filter") && !["INPUT", "SELECT"].includes(event.target.tagName)) { byName("filter").focus(); event.preventDefault(); }
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && live) look(); });
addEventListener("resize", () => { if (kind === "query" && byName("gantt-holder")) drawGantt(); });

if (kind === "overview" && live) {
  byName("title").after(h("p", {class: "filter"}, h("label", {for: "filter"}, "Filter "), h("input", {id: "filter", type: "search", placeholder: "topic, id, query or group", autocomplete: "off", spellcheck: "false"})));
  let typing;
  byName("filter").addEventListener("input", event => { wanted = event.target.value; clearTimeout(typing); typing = setTimeout(look, 150); });
}
show();
if (live) look();
