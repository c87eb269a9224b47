// Which ranks are picked: one set for all panels, kept in the address.
const picked = new Set();
const watchers = [];
const state = { step: null };

function pick(ranks, add) {
  if (add) {
    const all = ranks.every((r) => picked.has(r));
    for (const r of ranks) all ? picked.delete(r) : picked.add(r);
  } else {
    const same = picked.size === ranks.length && ranks.every((r) => picked.has(r));
    picked.clear();
    if (!same) for (const r of ranks) picked.add(r);
  }
  changed();
}

// "0, 4-7" -> [0, 4, 5, 6, 7], of ranks that there are.
function parsed(words) {
  const out = [];
  for (const [, from, to] of words.matchAll(/(\d+)(?:\s*-\s*(\d+))?/g)) {
    const last = Math.min(Number(to ?? from), Number(from) + 100000);
    for (let r = Number(from); r <= last; r += 1) if (HOSTS.has(r)) out.push(r);
  }
  return [...new Set(out)];
}

// [0, 4, 5, 6, 7] -> "0, 4-7"
function listed(ranks) {
  const sorted = [...ranks].sort((a, b) => a - b);
  const runs = [];
  for (const r of sorted) {
    const run = runs.at(-1);
    if (run && run[1] === r - 1) run[1] = r;
    else runs.push([r, r]);
  }
  return runs.map(([a, b]) => (a === b ? String(a) : a + (b === a + 1 ? ", " : "-") + b)).join(", ");
}

function changed() {
  const any = picked.size > 0;
  document.body.classList.toggle("picking", any);
  for (const row of document.querySelectorAll("tr[data-rank]")) {
    const on = picked.has(Number(row.dataset.rank));
    row.classList.toggle("out", any && !on);
    row.classList.toggle("on", on);
    row.querySelector("button.rank")?.setAttribute("aria-pressed", String(on));
  }
  const chip = document.getElementById("chip");
  chip.hidden = document.getElementById("clear").hidden = !any;
  const words = listed(picked);
  chip.textContent = (picked.size === 1 ? "rank " : "ranks ") +
    (words.length > 40 ? picked.size + " of " + HOSTS.size : words) + " picked";
  const typed = document.getElementById("ranks");
  if (document.activeElement !== typed) typed.value = words;
  const host = document.getElementById("host");
  if (host) {
    const of = new Set([...picked].map((r) => HOSTS.get(r)));
    const [only] = of;
    const whole = [...HOSTS].filter(([, h]) => h === only).length === picked.size;
    host.value = of.size === 1 && whole ? only : "";
  }
  tiles();
  remember();
  for (const watch of watchers) watch();
}

// The headline's tiles say what the picked ranks take, beside the mean of all.
function tiles() {
  const of = DATA.breakdown?.by_rank ?? {};
  const ranks = [...picked].filter((r) => of[r]);
  for (const tile of document.querySelectorAll(".tile")) {
    const place = tile.querySelector(".picked");
    if (!ranks.length) { place.textContent = ""; continue; }
    const sum = ranks.reduce((s, r) => s + (of[r][tile.dataset.group] ?? 0), 0);
    place.textContent = "picked: " + time(sum / ranks.length);
  }
}

function remember() {
  const parts = [];
  if (picked.size) parts.push("rank=" + listed(picked).replaceAll(" ", ""));
  if (state.step !== null && state.step > 0) parts.push("step=" + DATA.timeline.steps[state.step].step);
  const hash = parts.length ? "#" + parts.join("&") : " ";
  try { history.replaceState(null, "", hash.trim() || location.pathname + location.search); }
  catch { /* a page inside another may have no history */ }
}

function recall() {
  const of = new URLSearchParams(location.hash.slice(1));
  picked.clear();
  for (const r of parsed(of.get("rank") ?? "")) picked.add(r);
  const at = (DATA.timeline?.steps ?? []).findIndex((s) => String(s.step) === of.get("step"));
  if (at >= 0) state.step = at;
}

function adding(event) { return event.shiftKey || event.ctrlKey || event.metaKey; }

document.addEventListener("click", (event) => {
  const go = event.target.closest("a[data-go]");
  if (go) {
    event.preventDefault();
    document.getElementById(go.dataset.go)?.scrollIntoView();
    return;
  }
  const label = event.target.closest("[data-label]");
  if (label) { pick([Number(label.dataset.label)], adding(event)); return; }
  const host = event.target.closest("[data-host]");
  if (host) { pickHost(host.dataset.host, adding(event)); return; }
  const row = event.target.closest("tr[data-rank]");
  const reading = String(getSelection() ?? "") !== "" && !event.shiftKey;
  if (row && (!reading || event.target.closest("button"))) {
    pick([Number(row.dataset.rank)], adding(event));
  }
});

document.addEventListener("mousedown", (event) => {
  // Shift-click adds a rank; without this it would also mark text.
  if (event.shiftKey && event.target.closest("tr[data-rank]")) event.preventDefault();
});

function pickHost(name, add) {
  const ranks = DATA.ranks.filter((r) => (r.host ?? "host not known") === name);
  pick(ranks.map((r) => r.rank), add);
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && picked.size) { pick([...picked], true); return; }
  const label = event.target.closest?.("[data-label], [data-host]");
  if (!label) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    label.dispatchEvent(new MouseEvent("click", { bubbles: true, ...keys(event) }));
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const all = [...label.closest("svg").querySelectorAll("[data-label], [data-host]")];
    const next = all[all.indexOf(label) + (event.key === "ArrowDown" ? 1 : -1)];
    if (!next) return;
    label.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  }
});

function keys(event) {
  return { shiftKey: event.shiftKey, ctrlKey: event.ctrlKey, metaKey: event.metaKey };
}

document.getElementById("clear").addEventListener("click", () => pick([...picked], true));
document.getElementById("ranks").addEventListener("input", (event) => {
  picked.clear();
  for (const r of parsed(event.target.value)) picked.add(r);
  changed();
});
document.getElementById("ranks").addEventListener("blur", changed);
document.getElementById("host")?.addEventListener("change", (event) => {
  picked.clear();
  if (event.target.value) pickHost(event.target.value, false);
  else changed();
});
addEventListener("hashchange", () => { recall(); changed(); });
