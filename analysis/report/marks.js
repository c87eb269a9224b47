// What drawings share: elements, numbers as text, ticks, the tooltip.
const DATA = JSON.parse(document.getElementById("data").textContent);
const HOSTS = new Map(DATA.ranks.map((r) => [r.rank, r.host]));
const MANY_HOSTS = new Set(HOSTS.values()).size > 1;
const LABELS = 46; // px left of lanes and rows

function mark(name, attributes = {}, words) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (words !== undefined) made.textContent = words;
  return made;
}

function node(name, attributes = {}, words) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (words !== undefined) made.textContent = words;
  return made;
}

// Three digits with a unit, as the rest of the page writes them.
function digits(value) {
  if (value === 0) return "0";
  const places = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(places, 6));
}

function time(ns) {
  if (ns === null || ns === undefined) return "-";
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
    if (Math.abs(ns) >= size * 0.9995) return digits(ns / size) + " " + unit;
  }
  return Math.round(ns) + " ns";
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (n >= 1023.5 && at < units.length - 1) { n /= 1024; at += 1; }
  return (at ? Number(n.toPrecision(3)) : Math.round(n)) + " " + units[at];
}

function compact(n) {
  const [size, word] = [[1e9, " G"], [1e6, " M"], [1e4, " k"]].find(([s]) => n >= s) ?? [1, ""];
  return size === 1 ? String(Math.round(n)) : (size === 1e4 ? digits(n / 1e3) : digits(n / size)) + word;
}

function percent(share) {
  const value = share * 100;
  return (value >= 10 ? value.toFixed(1) : value.toFixed(2)) + " %";
}

// Round numbers between two, about `count` of them.
function ticks(from, to, count) {
  const raw = (to - from) / Math.max(1, count);
  if (!(raw > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const out = [];
  for (let v = Math.ceil(from / step) * step; v <= to + step * 1e-6; v += step) out.push(v);
  return out;
}

function rankWords(rank) {
  const host = HOSTS.get(rank);
  return "rank " + rank + (host && MANY_HOSTS ? " on " + host : "");
}

const tip = node("div", { id: "tip", role: "presentation", hidden: "" });
document.body.append(tip);

// Lines under the pointer; the first is the title. Text only: nothing of it is markup.
function point(event, lines) {
  tip.replaceChildren(...lines.map((words, i) => node(i ? "div" : "strong", {}, words)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const room = document.documentElement;
  const x = Math.min(event.clientX + 14, room.clientWidth - box.width - 8);
  const below = event.clientY + 18;
  const y = below + box.height > room.clientHeight ? event.clientY - box.height - 10 : below;
  tip.style.left = Math.max(4, x) + "px";
  tip.style.top = Math.max(4, y) + "px";
}

function unpoint() { tip.hidden = true; }

// Rows from top to bottom: {y, height, at, of} for each of `rows`, {y, host} above each host's.
// A row has `label`, `group` (its host) and `rank` (none for rows that are nobody's own).
function stacked(rows, tall) {
  const height = Math.max(7, Math.min(22, Math.floor(tall / Math.max(1, rows.length))));
  const many = new Set(rows.map((r) => r.group)).size > 1;
  const out = [];
  let y = 0;
  let host;
  rows.forEach((of, at) => {
    if (many && of.group !== host) {
      out.push({ y, host: of.group ?? "host not known" });
      y += 17;
      host = of.group;
    }
    out.push({ y, height, at, of });
    y += height + (height > 10 ? 2 : 1);
  });
  return { rows: out, height: y };
}

function rankRow(rank) {
  return { rank, label: String(rank), group: HOSTS.get(rank) ?? null, words: rankWords(rank) };
}

// The label of a row: picks its rank by click and by key; one stop for Tab in each chart.
function rowLabel(row, first) {
  const made = mark("text", {
    x: LABELS - 8, y: row.y + row.height / 2, "text-anchor": "end", "dominant-baseline": "central",
    class: "label",
  }, row.of.label);
  made.style.fontSize = Math.min(12, row.height + 1) + "px";
  if (row.of.rank !== null) {
    const more = {
      role: "button", tabindex: first ? 0 : -1, "data-label": row.of.rank,
      "aria-label": row.of.words,
    };
    for (const [key, value] of Object.entries(more)) made.setAttribute(key, value);
  }
  return made;
}

function hostLabel(row) {
  return mark("text", {
    x: 2, y: row.y + 12, class: "host", role: "button", tabindex: -1, "data-host": row.host,
  }, row.host);
}

// Rows of picked ranks stay lit, and those that are nobody's own.
function lightRows(svg) {
  for (const lane of svg.querySelectorAll("[data-lane]")) {
    const on = picked.has(Number(lane.dataset.lane));
    lane.classList.toggle("out", picked.size > 0 && !on);
    lane.classList.toggle("on", on);
    lane.querySelector(".label").setAttribute("aria-pressed", String(on));
  }
}
