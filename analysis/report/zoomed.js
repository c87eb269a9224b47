// What timelines share beside their lanes: a view that dragging, keys and buttons zoom, the line
// under the pointer with what lies there, and the outline of the same thing on other lanes.

// `label` is for those who hear the page. `draw(width)` draws anew, with `begin` and `show`;
// `told(row, tick)` gives what lies at a place, {lines, over}, `over` the thing there or -1;
// `same(row, thing)` gives where a row has a thing, as [start, length] pairs.
function zoomed(place, label, { draw, told, same }) {
  const whole = 32768;
  const view = { from: 0, to: whole, width: 0 };
  const svg = mark("svg", {
    class: "timeline", role: "group", tabindex: 0,
    "aria-label": `${label}; plus and minus zoom, left and right arrows move`,
  });
  const scene = mark("g");
  const outlined = mark("path", { class: "same" });
  const cursor = mark("line", { class: "cursor", visibility: "hidden" });
  const brush = mark("rect", { class: "brush", visibility: "hidden" });
  svg.append(scene, outlined, cursor, brush);
  place.replaceChildren(svg);
  let layout;

  const x = (tick) => LABELS + (tick - view.from) / (view.to - view.from) * (view.width - LABELS - 4);
  const tickAt = (px) => view.from + (px - LABELS) / (view.width - LABELS - 4) * (view.to - view.from);

  // Takes the room that rows need; returns the height of all.
  function begin(rows, width) {
    layout = rows;
    view.width = width ?? Math.max(320, place.clientWidth);
    const height = layout.height + 24;
    svg.setAttribute("viewBox", `0 0 ${view.width} ${height}`);
    svg.setAttribute("height", height);
    return height;
  }

  function show(made) {
    scene.replaceChildren(...made);
    outlined.setAttribute("d", "");
    light();
  }

  // A row's ground and the stretches of its lane, if it has one.
  function laneOf(row, lane, attributes) {
    const group = mark("g", { class: "lane", "data-lane": row.of.rank, ...attributes });
    group.append(mark("rect", {
      x: LABELS, y: row.y, width: view.width - LABELS - 4, height: row.height, class: "back",
    }));
    if (lane) {
      lanePaths(lane, row, view, x).forEach((d, kind) => {
        if (d) group.append(mark("path", { d, class: CLASSES[kind] }));
      });
    }
    return group;
  }

  function light() { lightRows(svg); }

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
    cursor.setAttribute("x1", px);
    cursor.setAttribute("x2", px);
    cursor.setAttribute("y2", layout.height);
    cursor.setAttribute("visibility", "visible");
    const { lines, over } = told(row, tickAt(px));
    outline(over);
    point(event, lines);
  }

  // The stretch of a lane at a tick, in words; none past its end.
  function stretchAt(lane, tick, ns) {
    const i = indexAt(lane, tick);
    const from = i ? lane.ends[i - 1] : lane.from;
    if (i >= lane.ends.length || tick < from) return [];
    return [`${CLASS_WORDS[lane.kinds[i]]}: ${time((lane.ends[i] - from) * ns)}`];
  }

  // The parts of a lane at a tick, [thing, start, wait, length]; short ones can be pointed at, too.
  function partsAt(lane, tick) {
    const least = (view.to - view.from) / 800;
    const out = [];
    for (let p = 0; p < lane.parts.length; p += 4) {
      const part = lane.parts.slice(p, p + 4);
      if (tick >= part[1] && tick <= part[1] + Math.max(part[3], least)) out.push(part);
    }
    return out;
  }

  function outline(thing) {
    let d = "";
    for (const row of thing < 0 ? [] : layout.rows) {
      for (const [start, length] of row.of ? same(row, thing) : []) {
        const a = Math.max(LABELS, x(start));
        const b = Math.min(view.width - 4, x(start + length));
        if (b > a) d += `M${a} ${row.y}H${b}V${row.y + row.height}H${a}z`;
      }
    }
    outlined.setAttribute("d", d);
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
    const dragged = Math.abs(px - from) > 4;
    from = null;
    brush.setAttribute("visibility", "hidden");
    if (dragged) zoom(a, b);
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
  return { view, x, begin, show, laneOf, stretchAt, partsAt, reset: () => zoom(0, whole) };
}
