// Two timelines of one step on one axis: before and after, and by how much each rank ends earlier.
const SIDES = ["before", "after"];

function bothOf(place) {
  const found = DATA.both;
  const whole = 32768;
  const view = { from: 0, to: whole, width: 0 };
  const sides = found.sides.map((s) => ({
    ...s, lanes: new Map(Object.entries(s.lanes).map(([r, l]) => [Number(r), unpacked(l)])),
  }));
  const svg = mark("svg", {
    class: "timeline", role: "group", tabindex: 0,
    "aria-label": "two timelines; plus and minus zoom, left and right arrows move",
  });
  const scene = mark("g");
  const same = mark("path", { class: "same" });
  const cursor = mark("line", { class: "cursor", visibility: "hidden" });
  const brush = mark("rect", { class: "brush", visibility: "hidden" });
  svg.append(scene, same, cursor, brush);
  place.replaceChildren(svg);
  const order = document.getElementById("order");
  let layout;

  const x = (tick) => LABELS + (tick - view.from) / (view.to - view.from) * (view.width - LABELS - 4);
  const tickAt = (px) => view.from + (px - LABELS) / (view.width - LABELS - 4) * (view.to - view.from);
  const ns = found.tick_ns;

  // Lanes from top to bottom, {y, height, side, of}, and headings, {y, head}.
  function rows() {
    const height = Math.max(7, Math.min(20, Math.floor(640 / (2 * found.lanes.length))));
    const gap = height > 10 ? 2 : 1;
    const out = [];
    let y = 0;
    const lane = (side, of) => {
      out.push({ y, height, side, of: rankRow(of.rank) });
      y += height + gap;
    };
    if (order?.value === "paired") {
      out.push({ y, head: "Each rank before, and after below it" });
      y += 22;
      for (const of of found.lanes) {
        lane(0, of);
        lane(1, of);
        y += 4;
      }
      return { rows: out, height: y };
    }
    sides.forEach((side, i) => {
      out.push({ y, head: side.title });
      y += 22;
      for (const of of found.lanes) lane(i, of);
      y += 8;
    });
    return { rows: out, height: y };
  }

  function draw(width) {
    view.width = width ?? Math.max(320, place.clientWidth);
    layout = rows();
    const height = layout.height + 24;
    svg.setAttribute("viewBox", `0 0 ${view.width} ${height}`);
    svg.setAttribute("height", height);
    const made = [timeAxis(view, x, ns, height)];
    for (const row of layout.rows) {
      if (row.head !== undefined) {
        made.push(mark("text", { x: 2, y: row.y + 15, class: "head" }, row.head));
        continue;
      }
      const of = sides[row.side].lanes.get(row.of.rank);
      const lane = mark("g", { class: "lane", "data-lane": row.of.rank, "data-side": row.side });
      lane.append(mark("rect", {
        x: LABELS, y: row.y, width: view.width - LABELS - 4, height: row.height, class: "back",
      }));
      if (of) {
        lanePaths(of, row, view, x).forEach((d, kind) => {
          if (d) lane.append(mark("path", { d, class: CLASSES[kind] }));
        });
      }
      if (row.side === 1) lane.append(...moved(row));
      lane.append(rowLabel(row, row.side === 0 && row.of.rank === found.lanes[0].rank));
      made.push(lane);
    }
    scene.replaceChildren(...made, ...ends());
    same.setAttribute("d", "");
    light();
  }

  const endOf = (side, rank) => sides[side].lanes.get(rank)?.ends.at(-1);

  // On the lane after, from where the rank ends to where it ended before.
  function moved(row) {
    const [was, now] = [endOf(0, row.of.rank), endOf(1, row.of.rank)];
    if (was === undefined || now === undefined || was === now) return [];
    const a = Math.max(view.from, Math.min(was, now));
    const b = Math.min(view.to, Math.max(was, now));
    if (b <= a) return [];
    return [mark("rect", {
      x: x(a), y: row.y + 0.5, width: Math.max(1, x(b) - x(a)), height: row.height - 1,
      class: now < was ? "earlier" : "later",
    })];
  }

  // Where the step ends on the last rank, before and after, down the whole picture.
  function ends() {
    return sides.filter((s) => s.ends >= view.from && s.ends <= view.to).map((s) => mark("line", {
      x1: x(s.ends), x2: x(s.ends), y1: 0, y2: layout.height, class: "ends",
    }));
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

  function partOf(lane, thing) {
    for (let p = 0; p < (lane?.parts.length ?? 0); p += 4) {
      if (lane.parts[p] === thing) return lane.parts.slice(p, p + 4);
    }
    return null;
  }

  const takes = ([, , wait, dur]) => (wait < 0 ? time(dur * ns)
    : `waits ${time(wait * ns)}, transfer ${time((dur - wait) * ns)}`);

  // What a part was on the other side, in words.
  function other(row, part) {
    const twin = partOf(sides[1 - row.side].lanes.get(row.of.rank), part[0]);
    const name = SIDES[1 - row.side];
    if (!twin) return `${name}: not there`;
    const by = (part[1] - twin[1]) * ns;
    const moved = Math.abs(by) < ns ? "at the same moment" :
      `${time(Math.abs(by))} ${by > 0 ? "earlier" : "later"}`;
    return `${name}: ${moved}, ${takes(twin)}`;
  }

  function hover(event) {
    const { row, px, inside } = rowAt(event);
    if (!row || !inside) { leave(); return; }
    const tick = tickAt(px);
    cursor.setAttribute("x1", px);
    cursor.setAttribute("x2", px);
    cursor.setAttribute("y2", layout.height);
    cursor.setAttribute("visibility", "visible");
    const lines = [`${row.of.words}, ${SIDES[row.side]}, at ${time(tick * ns)}`];
    const lane = sides[row.side].lanes.get(row.of.rank);
    if (!lane) { point(event, [...lines, "has no such step"]); return; }
    const i = indexAt(lane, tick);
    const begin = i ? lane.ends[i - 1] : lane.from;
    if (i < lane.ends.length && tick >= begin) {
      lines.push(`${CLASS_WORDS[lane.kinds[i]]}: ${time((lane.ends[i] - begin) * ns)}`);
    }
    let over = -1;
    for (let p = 0; p < lane.parts.length; p += 4) {
      const part = lane.parts.slice(p, p + 4);
      if (tick < part[1] || tick > part[1] + Math.max(part[3], (view.to - view.from) / 800)) continue;
      if (lines.length > 7) { lines.push("and more"); break; }
      over = part[0];
      lines.push(`${found.labels[found.things[part[0]]]}: ${takes(part)}`, other(row, part));
    }
    outline(over);
    point(event, lines);
  }

  // The task or collective under the pointer, before and after, on every rank that has it.
  function outline(thing) {
    let d = "";
    for (const row of thing < 0 ? [] : layout.rows) {
      const part = row.of && partOf(sides[row.side].lanes.get(row.of.rank), thing);
      if (!part) continue;
      const a = Math.max(LABELS, x(part[1]));
      const b = Math.min(view.width - 4, x(part[1] + part[3]));
      if (b > a) d += `M${a} ${row.y}H${b}V${row.y + row.height}H${a}z`;
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
  order?.addEventListener("change", () => draw());
  watchers.push(light);
  return { draw };
}
