// The timeline: a lane a rank, stretches by class, drag to see a part larger.
function timelineOf(place) {
  const found = DATA.timeline;
  let lanes;
  let shown = -1;
  const picture = zoomed(place, "timeline", { draw, told, same });

  function step() { return found.steps[state.step ?? 0]; }

  // Cumulative ends and classes of a step's lanes, unpacked once.
  function unpack() {
    const of = step();
    lanes = new Map();
    for (const [rank, lane] of Object.entries(of.lanes)) lanes.set(Number(rank), unpacked(lane));
    shown = state.step ?? 0;
  }

  function draw(width) {
    if (shown !== (state.step ?? 0)) unpack();
    const layout = stacked(
      found.lanes.map((l) => l.rank).filter((r) => lanes.has(r)).map(rankRow), 620,
    );
    const height = picture.begin(layout, width);
    const made = [timeAxis(picture.view, picture.x, step().tick_ns, height)];
    let first = true;
    for (const row of layout.rows) {
      if (row.host !== undefined) { made.push(hostLabel(row)); continue; }
      const lane = picture.laneOf(row, lanes.get(row.of.rank));
      lane.append(rowLabel(row, first));
      first = false;
      made.push(lane);
    }
    picture.show(made);
    said();
  }

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

  function told(row, tick) {
    const lane = lanes.get(row.of.rank);
    const ns = step().tick_ns;
    const lines = [`${row.of.words}, at ${time(tick * ns)}`, ...picture.stretchAt(lane, tick, ns)];
    let over = -1;
    for (const [of, , wait, dur] of picture.partsAt(lane, tick)) {
      if (lines.length > 5) { lines.push("and more"); break; }
      over = of;
      const split = wait < 0 ? `${time(dur * ns)}, wait not known`
        : `waits ${time(wait * ns)}, transfer ${time((dur - wait) * ns)}`;
      lines.push(`${step().labels[step().collectives[of]]}: ${split}`);
    }
    return { lines, over };
  }

  // A rank's parts in the collective under the pointer.
  function same(row, of) {
    const { parts } = lanes.get(row.of.rank);
    const out = [];
    for (let p = 0; p < parts.length; p += 4) {
      if (parts[p] === of) out.push([parts[p + 1], parts[p + 3]]);
    }
    return out;
  }

  return { draw, reset: picture.reset };
}
