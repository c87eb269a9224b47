// Two timelines of one step on one axis: before and after, and by how much each rank ends earlier.
const SIDES = ["before", "after"];

function bothOf(place) {
  const found = DATA.both;
  const sides = found.sides.map((s) => ({
    ...s, lanes: new Map(Object.entries(s.lanes).map(([r, l]) => [Number(r), unpacked(l)])),
  }));
  const order = document.getElementById("order");
  const ns = found.tick_ns;
  const picture = zoomed(place, "two timelines", { draw, told, same });
  const { view, x } = picture;

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
    const layout = rows();
    const height = picture.begin(layout, width);
    const made = [timeAxis(view, x, ns, height)];
    for (const row of layout.rows) {
      if (row.head !== undefined) {
        made.push(mark("text", { x: 2, y: row.y + 15, class: "head" }, row.head));
        continue;
      }
      const lane = picture.laneOf(row, laneAt(row), { "data-side": row.side });
      if (row.side === 1) lane.append(...moved(row));
      lane.append(rowLabel(row, row.side === 0 && row.of.rank === found.lanes[0].rank));
      made.push(lane);
    }
    picture.show([...made, ...ends(layout.height)]);
  }

  const laneAt = (row, side = row.side) => sides[side].lanes.get(row.of.rank);

  // On the lane after, from where the rank ends to where it ended before.
  function moved(row) {
    const [was, now] = [0, 1].map((side) => laneAt(row, side)?.ends.at(-1));
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
  function ends(height) {
    return sides.filter((s) => s.ends >= view.from && s.ends <= view.to).map((s) => mark("line", {
      x1: x(s.ends), x2: x(s.ends), y1: 0, y2: height, class: "ends",
    }));
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
    const twin = partOf(laneAt(row, 1 - row.side), part[0]);
    const name = SIDES[1 - row.side];
    if (!twin) return `${name}: not there`;
    const by = (part[1] - twin[1]) * ns;
    const moved = Math.abs(by) < ns ? "at the same moment" :
      `${time(Math.abs(by))} ${by > 0 ? "earlier" : "later"}`;
    return `${name}: ${moved}, ${takes(twin)}`;
  }

  function told(row, tick) {
    const lines = [`${row.of.words}, ${SIDES[row.side]}, at ${time(tick * ns)}`];
    const lane = laneAt(row);
    let over = -1;
    if (!lane) return { lines: [...lines, "has no such step"], over };
    lines.push(...picture.stretchAt(lane, tick, ns));
    for (const part of picture.partsAt(lane, tick)) {
      if (lines.length > 7) { lines.push("and more"); break; }
      over = part[0];
      lines.push(`${found.labels[found.things[part[0]]]}: ${takes(part)}`, other(row, part));
    }
    return { lines, over };
  }

  // A rank's part in the task or collective under the pointer, before or after.
  function same(row, thing) {
    const part = partOf(laneAt(row), thing);
    return part ? [[part[1], part[3]]] : [];
  }

  order?.addEventListener("change", () => draw());
  return { draw };
}
