// The timeline: a lane a rank, stretches by class, drag to see a part larger.
function timelineOf(place) {
  const found = DATA.timeline;
  const whole = 32768;
  const view = { from: 0, to: whole, width: 0 };
  const svg = mark("svg", {
    class: "timeline", role: "group", tabindex: 0,
    "aria-label": "timeline; plus and minus zoom, left and right arrows move",
  });
  const scene = mark("g");
  const same = mark("path", { class: "same" });
  const cursor = mark("line", { class: "cursor", visibility: "hidden" });
  const brush = mark("rect", { class: "brush", visibility: "hidden" });
  svg.append(scene, same, cursor, brush);
  place.replaceChildren(svg);
  let layout;
  let lanes;
  let shown = -1;

  function step() { return found.steps[state.step ?? 0]; }

  // Cumulative ends and classes of a step's lanes, unpacked once.
  function unpack() {
    const of = step();
    lanes = new Map();
    for (const [rank, lane] of Object.entries(of.lanes)) lanes.set(Number(rank), unpacked(lane));
    shown = state.step ?? 0;
  }

  const x = (tick) => LABELS + (tick - view.from) / (view.to - view.from) * (view.width - LABELS - 4);
  const tickAt = (px) => view.from + (px - LABELS) / (view.width - LABELS - 4) * (view.to - view.from);

  function draw(width) {
    if (shown !== (state.step ?? 0)) unpack();
    view.width = width ?? Math.max(320, place.clientWidth);
    layout = stacked(found.lanes.map((l) => l.rank).filter((r) => lanes.has(r)).map(rankRow), 620);
    const height = layout.height + 24;
    svg.setAttribute("viewBox", `0 0 ${view.width} ${height}`);
    svg.setAttribute("height", height);
    const made = [timeAxis(view, x, step().tick_ns, height)];
    let first = true;
    for (const row of layout.rows) {
      if (row.host !== undefined) { made.push(hostLabel(row)); continue; }
      const lane = mark("g", { class: "lane", "data-lane": row.of.rank });
      lane.append(mark("rect", {
        x: LABELS, y: row.y, width: view.width - LABELS - 4, height: row.height, class: "back",
      }));
      lanePaths(lanes.get(row.of.rank), row, view, x).forEach((d, kind) => {
        if (d) lane.append(mark("path", { d, class: CLASSES[kind] }));
      });
      lane.append(rowLabel(row, first));
      first = false;
      made.push(lane);
    }
    scene.replaceChildren(...made);
    same.setAttribute("d", "");
    light();
    said();
  }

  function light() { lightRows(svg); }

  function said() {
    const of = step();
    const words = [];
    if (of.merged_under_ns) {
      words.push(`Stretches shorter than ${time(of.merged_under_ns)} are merged; ` +
        `${percent(of.merged_ns / Math.max(1, of.drawn_ns))} of the time is drawn as the class ` +
        "around it.");
    }
    if (of.unnamed) words.push(`The ${of.unnamed} shortest collectives have no name here.`);
    document.getElementById("merged").textContent = words.join(" ");
  }

  function rowAt(event) {
    const box = svg.getBoundingClientRect();
    const scale = view.width / box.width;
    const y = (event.clientY - box.top) * scale;
    const px = (event.clientX - box.left) * scale;
    const row = layout.rows.find((r) => r.of && y >= r.y - 1 && y < r.y + r.height + 1);
    return { row, px, inside: px >= LABELS };
  }

  function hover(event) {
    const { row, px, inside } = rowAt(event);
    if (!row || !inside) { leave(); return; }
    const tick = tickAt(px);
    const lane = lanes.get(row.of.rank);
    const i = indexAt(lane, tick);
    const ns = step().tick_ns;
    cursor.setAttribute("x1", px);
    cursor.setAttribute("x2", px);
    cursor.setAttribute("y2", layout.height);
    cursor.setAttribute("visibility", "visible");
    const lines = [`${row.of.words}, at ${time(tick * ns)}`];
    const begin = i ? lane.ends[i - 1] : lane.from;
    if (i < lane.ends.length && tick >= begin) {
      lines.push(`${CLASS_WORDS[lane.kinds[i]]}: ${time((lane.ends[i] - begin) * ns)}`);
    }
    let over = -1;
    for (let p = 0; p < lane.parts.length; p += 4) {
      const [of, start, wait, dur] = lane.parts.slice(p, p + 4);
      if (tick < start || tick > start + Math.max(dur, (view.to - view.from) / 800)) continue;
      if (lines.length > 5) { lines.push("and more"); break; }
      over = of;
      const split = wait < 0 ? `${time(dur * ns)}, wait not known`
        : `waits ${time(wait * ns)}, transfer ${time((dur - wait) * ns)}`;
      lines.push(`${step().labels[step().collectives[of]]}: ${split}`);
    }
    outline(over);
    point(event, lines);
  }

  // The collective under the pointer, on every rank that takes part in it.
  function outline(of) {
    let d = "";
    if (of >= 0) {
      for (const row of layout.rows) {
        const parts = row.of ? lanes.get(row.of.rank).parts : [];
        for (let p = 0; p < parts.length; p += 4) {
          if (parts[p] !== of) continue;
          const a = Math.max(LABELS, x(parts[p + 1]));
          const b = Math.min(view.width - 4, x(parts[p + 1] + parts[p + 3]));
          if (b > a) d += `M${a} ${row.y}H${b}V${row.y + row.height}H${a}z`;
        }
      }
    }
    same.setAttribute("d", d);
  }

  function leave() {
    unpoint();
    outline(-1);
    cursor.setAttribute("visibility", "hidden");
  }

  function zoom(from, to) {
    const span = Math.min(whole, Math.max(16, to - from));
    view.from = Math.max(0, Math.min(whole - span, from));
    view.to = view.from + span;
    draw();
  }

  const by = (factor) => {
    const mid = (view.from + view.to) / 2;
    const half = (view.to - view.from) * factor / 2;
    zoom(mid - half, mid + half);
  };

  let from = null;
  svg.addEventListener("pointerdown", (event) => {
    const at = rowAt(event);
    if (event.button || !at.inside) return;
    from = at.px;
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (from === null) { hover(event); return; }
    const { px } = rowAt(event);
    const to = Math.max(LABELS, Math.min(view.width - 4, px));
    unpoint();
    brush.setAttribute("x", Math.min(from, to));
    brush.setAttribute("width", Math.abs(to - from));
    brush.setAttribute("height", layout.height);
    brush.setAttribute("visibility", Math.abs(to - from) > 4 ? "visible" : "hidden");
  });
  svg.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const { px, row } = rowAt(event);
    const [a, b] = [tickAt(Math.min(from, px)), tickAt(Math.max(from, px))];
    const moved = Math.abs(px - from) > 4;
    from = null;
    brush.setAttribute("visibility", "hidden");
    if (moved) zoom(a, b);
    else if (row) pick([row.of.rank], adding(event));
  });
  svg.addEventListener("pointercancel", () => { from = null; brush.setAttribute("visibility", "hidden"); });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("dblclick", () => zoom(0, whole));
  svg.addEventListener("keydown", (event) => {
    const move = (view.to - view.from) / 5;
    const act = {
      "+": () => by(0.5), "=": () => by(0.5), "-": () => by(2), 0: () => zoom(0, whole),
      ArrowLeft: () => zoom(view.from - move, view.to - move),
      ArrowRight: () => zoom(view.from + move, view.to + move),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => {
      ({ in: () => by(0.5), out: () => by(2), all: () => zoom(0, whole) })[button.dataset.zoom]();
    });
  }
  watchers.push(light);
  return { draw, reset: () => { view.from = 0; view.to = whole; draw(); } };
}
