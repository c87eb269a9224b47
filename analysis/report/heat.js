// A matrix of values: rows by columns, colour by class of value; unknown is hatched.
const BINS = 9;

// `of` gives {rows (see stacked), columns, cells, words(value), column(i), unknown, none, total}; a
// cell is a number, -1 where nothing tells it, or null.
function matrix(place, of) {
  const svg = mark("svg", { class: "matrix", role: "group", "aria-label": place.getAttribute("aria-label") });
  const key = node("ul", { class: "legend" });
  place.replaceChildren(svg, key);
  let spec;
  let geometry;

  function bin(value, largest) {
    if (value === 0) return 0;
    return Math.max(1, Math.min(BINS, Math.ceil(BINS * Math.sqrt(value / largest))));
  }

  function draw(width) {
    spec = of();
    const whole = width ?? Math.max(320, place.clientWidth);
    const n = spec.columns.length;
    const totals = spec.total ? 124 : 8;
    const cell = Math.min(48, (whole - LABELS - totals) / Math.max(1, n));
    const named = cell >= 12;
    const longest = Math.max(0, ...spec.columns.map((c) => c.length));
    const top = named ? Math.min(172, 16 + 4.6 * Math.min(longest, 34)) : 8;
    const layout = stacked(spec.rows, 560);
    geometry = { whole, cell, top, layout };
    const largest = Math.max(1, ...spec.cells.flat().map((v) => v ?? 0));
    svg.setAttribute("viewBox", `0 0 ${whole} ${top + layout.height + 4}`);
    svg.setAttribute("height", top + layout.height + 4);
    const made = [hatch()];
    if (named) spec.columns.forEach((words, i) => made.push(columnLabel(words, i)));
    const sums = spec.rows.map((_, i) => spec.cells[i].reduce((s, v) => s + Math.max(0, v ?? 0), 0));
    const most = Math.max(1, ...sums);
    let first = true;
    for (const row of layout.rows) {
      const moved = { ...row, y: row.y + top };
      if (row.host !== undefined) { made.push(hostLabel(moved)); continue; }
      const lane = mark("g", { class: "lane" });
      if (row.of.rank !== null) lane.setAttribute("data-lane", row.of.rank);
      lane.append(...cells(spec.cells[row.at], moved, largest), rowLabel(moved, first));
      first = false;
      if (spec.total) lane.append(...total(sums[row.at], most, moved));
      made.push(lane);
    }
    svg.replaceChildren(...made);
    legend(largest);
    light();
  }

  function cells(values, row, largest) {
    const d = new Map();
    values.forEach((v, i) => {
      if (v === null) return;
      const kind = v < 0 ? "unknown" : "h" + bin(v, largest);
      const gap = geometry.cell > 6 ? 1 : 0;
      const a = (LABELS + i * geometry.cell).toFixed(2);
      const path = `M${a} ${row.y}h${(geometry.cell - gap).toFixed(2)}v${row.height}H${a}z`;
      d.set(kind, (d.get(kind) ?? "") + path);
    });
    return [...d].map(([kind, path]) => mark("path", { d: path, class: kind }));
  }

  function total(sum, most, row) {
    const x = LABELS + geometry.cell * spec.columns.length + 8;
    const wide = 44;
    return [
      mark("rect", { x, y: row.y, width: wide * sum / most, height: row.height, class: "total" }),
      mark("text", {
        x: x + wide + 4, y: row.y + row.height / 2, "dominant-baseline": "central",
        style: `font-size: ${Math.min(11, row.height + 1)}px`,
      }, (spec.short ?? spec.words)(sum)),
    ];
  }

  function columnLabel(words, i) {
    const x = LABELS + (i + 0.5) * geometry.cell;
    const cut = words.length > 34 ? words.slice(0, 33) + "…" : words;
    return mark("text", {
      class: "column", "text-anchor": "start", "font-size": 11,
      transform: `translate(${x} ${geometry.top - 6}) rotate(-50)`,
    }, cut);
  }

  function hatch() {
    const defs = mark("defs");
    const pattern = mark("pattern", {
      id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
    });
    pattern.append(mark("rect", { width: 5, height: 5, class: "hatch-back" }),
      mark("line", { x1: 0, y1: 0, x2: 0, y2: 5, class: "hatch-line" }));
    defs.append(pattern);
    return defs;
  }

  function legend(largest) {
    const used = new Set(spec.cells.flat().map((v) => (v === null ? "none" : v < 0 ? "unknown" : v === 0 ? "h0" : "some")));
    const entries = [];
    if (used.has("h0")) entries.push([["h0"], spec.words(0)]);
    if (used.has("some")) {
      for (let b = 1; b <= BINS; b += 2) {
        const kinds = b === 1 ? ["h1"] : ["h" + (b - 1), "h" + b];
        entries.push([kinds, "to " + spec.words(largest * (b / BINS) ** 2)]);
      }
    }
    if (used.has("unknown")) entries.push([["unknown"], spec.unknown]);
    if (used.has("none")) entries.push([["none"], spec.none]);
    key.replaceChildren(...entries.map(([kinds, words]) => {
      const item = node("li");
      item.append(...kinds.map((kind) => node("span", { class: "dot " + kind })), words);
      return item;
    }));
  }

  function light() { lightRows(svg); }

  function cellAt(event) {
    const box = svg.getBoundingClientRect();
    const scale = geometry.whole / box.width;
    const y = (event.clientY - box.top) * scale - geometry.top;
    const column = Math.floor(((event.clientX - box.left) * scale - LABELS) / geometry.cell);
    const row = geometry.layout.rows.find((r) => r.of && y >= r.y && y < r.y + r.height + 1);
    return { row, column };
  }

  svg.addEventListener("pointermove", (event) => {
    const { row, column } = cellAt(event);
    if (!row || column < 0 || column >= spec.columns.length) { unpoint(); return; }
    const value = spec.cells[row.at][column];
    const words = value === null ? spec.none : value < 0 ? spec.unknown : spec.words(value);
    point(event, [row.of.words, spec.column(column), words]);
  });
  svg.addEventListener("pointerleave", unpoint);
  svg.addEventListener("click", (event) => {
    if (event.target.closest("[data-label], [data-host]")) return;
    const { row, column } = cellAt(event);
    if (row && column >= 0 && row.of.rank !== null) pick([row.of.rank], adding(event));
  });
  watchers.push(light);
  return { draw };
}

// The waits of the timeline's step.
function waitsOf() {
  const found = DATA.timeline.steps[state.step ?? 0].heat;
  const ranks = DATA.timeline.lanes.map((l) => l.rank).filter((r) => found.rows[r]);
  return {
    rows: ranks.map(rankRow),
    columns: found.columns,
    cells: ranks.map((r) => found.rows[r]),
    words: (v) => time(v * found.unit_ns),
    column: (i) => found.columns[i] +
      (found.count[i] > 1 ? ` (${found.count[i]} collectives)` : found.grouped ? "" : `, number ${i + 1} of the step`),
    unknown: "wait not known",
    none: "took no part",
    total: true,
  };
}

// A matrix that the page carries whole.
function givenOf(name) {
  const found = DATA[name];
  const words = { bytes, tokens: (v) => compact(v) + " tokens" }[found.what];
  const column = { rails: "", experts: "expert " }[name];
  return () => ({
    ...found,
    words: (v) => words(v * found.unit),
    short: (v) => words(v * found.unit).replace(" tokens", ""),
    column: (i) => column + found.columns[i],
    unknown: "not known",
    none: "nothing",
    total: true,
  });
}
