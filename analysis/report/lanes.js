// What timelines share: lanes of stretches by class, unpacked and drawn, and the axis of time.
const CLASSES = ["idle", "compute", "compute_with_comm", "exposed_wait", "exposed_transfer",
  "exposed_comm_unsplit", "exposed_memcpy"];
const CLASS_WORDS = ["idle", "compute", "compute with communication", "waiting for other ranks",
  "transfer", "communication, wait not known", "copies"];

// A lane with the cumulative ends and the classes of its stretches.
function unpacked(lane) {
  const ends = new Int32Array(lane.run.length);
  const kinds = new Uint8Array(lane.run.length);
  let at = lane.from;
  lane.run.forEach((v, i) => { at += v >> 3; ends[i] = at; kinds[i] = v & 7; });
  return { from: lane.from, ends, kinds, parts: lane.parts };
}

// The first stretch of a lane that ends after a tick.
function indexAt(lane, tick) {
  let low = 0;
  let high = lane.ends.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (lane.ends[mid] <= tick) low = mid + 1;
    else high = mid;
  }
  return low;
}

// By class the path of a lane's stretches within the view; `x` is the place of a tick.
function lanePaths(lane, row, view, x) {
  const out = CLASSES.map(() => "");
  for (let i = indexAt(lane, view.from); i < lane.ends.length; i += 1) {
    const begin = Math.max(view.from, i ? lane.ends[i - 1] : lane.from);
    if (begin >= view.to) break;
    const kind = lane.kinds[i];
    if (begin >= lane.ends[i]) continue;
    const a = x(begin);
    const b = x(Math.min(view.to, lane.ends[i]));
    out[kind] += `M${a.toFixed(2)} ${row.y}h${(b - a).toFixed(2)}v${row.height}H${a.toFixed(2)}z`;
  }
  return out;
}

// Lines at round times, their figures at the foot.
function timeAxis(view, x, tick, height) {
  const group = mark("g", { class: "axis" });
  const span = (view.to - view.from) * tick;
  const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]]
    .find(([s]) => span >= s) ?? [1, "ns"];
  const count = Math.max(2, Math.floor((view.width - LABELS) / 110));
  const at = ticks(view.from * tick / size, view.to * tick / size, count);
  const gap = at.length > 1 ? at[1] - at[0] : 1;
  const places = Math.min(6, Math.max(0, -Math.floor(Math.log10(gap) + 1e-9)));
  for (const value of at) {
    const px = x(value * size / tick);
    group.append(mark("line", { x1: px, x2: px, y1: 0, y2: height - 20 }));
    const end = px > view.width - 40;
    group.append(mark("text", {
      x: end ? view.width - 4 : px, y: height - 6, "text-anchor": end ? "end" : "middle",
    }, value.toFixed(places) + " " + unit));
  }
  return group;
}
