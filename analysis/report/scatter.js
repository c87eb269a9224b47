// Bandwidth against size: a small chart for each kind of collective, both axes logarithmic.
function bandwidthOf(place) {
  const found = DATA.bandwidth;
  const left = 46;
  const bottom = 26;
  const drawings = [];

  function draw(width) {
    const room = width ?? Math.max(320, place.clientWidth);
    const across = Math.max(1, Math.min(found.facets.length, Math.floor(room / 330)));
    const wide = Math.min(560, Math.floor((room - 18 * (across - 1)) / across));
    drawings.length = 0;
    place.replaceChildren(...found.facets.map((facet) => one(facet, wide)));
    light();
  }

  function one(facet, wide) {
    const tall = 210;
    const figure = node("figure");
    figure.append(node("figcaption", {}, facet.title));
    const svg = mark("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": facet.title });
    svg.style.width = wide + "px";
    const xs = facet.points.map((p) => p[1]);
    const ys = facet.points.flatMap((p) => [p[3], p[4]])
      .concat(facet.lines.flatMap((l) => l.at.map((v) => v[1]))).filter((v) => v > 0);
    const across = scale(Math.min(...xs), Math.max(...xs), left, wide - 10);
    const up = scale(Math.min(...ys), Math.max(...ys), tall - bottom, 8);
    svg.append(axes(across, up, wide, tall));
    for (const line of facet.lines) {
      const limit = (v) => Math.max(8, Math.min(tall - bottom, up.at(v)));
      const path = (column) => line.at.map((v) => `${across.at(v[0]).toFixed(1)} ${limit(v[column]).toFixed(1)}`);
      svg.append(mark("path", { class: "band", d: "M" + [...path(2), ...path(3).reverse()].join("L") + "z" }));
      svg.append(mark("path", { class: "fit", d: "M" + path(1).join("L") }));
    }
    const dots = facet.points.map((p) => {
      const x = across.at(p[1]);
      const group = mark("g", { class: "dotted" });
      group.append(
        mark("line", { x1: x, x2: x, y1: up.at(p[3]), y2: up.at(p[4]), class: "whisker" }),
        mark("circle", { cx: x, cy: up.at(p[2]), r: Math.min(6, 2.5 + Math.log10(p[5])) }),
      );
      return group;
    });
    svg.append(...dots);
    drawings.push({ facet, dots });
    svg.addEventListener("pointermove", (event) => near(event, svg, facet, across, up, wide));
    svg.addEventListener("pointerleave", unpoint);
    figure.append(svg, node("p", { class: "note" }, facet.said));
    return figure;
  }

  function scale(low, high, from, to) {
    const a = Math.log10(low) - 0.08;
    const b = Math.log10(high) + 0.08;
    const pad = b - a < 0.5 ? (0.5 - (b - a)) / 2 : 0;
    return {
      low: 10 ** (a - pad),
      high: 10 ** (b + pad),
      at: (v) => from + (Math.log10(v) - (a - pad)) / (b - a + 2 * pad) * (to - from),
    };
  }

  function axes(across, up, wide, tall) {
    const group = mark("g", { class: "axis" });
    const powers = [];
    for (let p = Math.ceil(Math.log2(across.low)); p <= Math.log2(across.high); p += 1) powers.push(p);
    const every = Math.max(1, Math.ceil(powers.length / ((wide - left) / 62)));
    for (const p of powers.filter((q) => q % every === 0)) {
      const x = across.at(2 ** p);
      group.append(mark("line", { x1: x, x2: x, y1: 8, y2: tall - bottom }));
      group.append(mark("text", { x, y: tall - 8, "text-anchor": "middle" }, bytes(2 ** p)));
    }
    const marks = [];
    for (let d = Math.floor(Math.log10(up.low)); d <= Math.log10(up.high); d += 1) {
      for (const m of [1, 2, 5]) {
        const v = m * 10 ** d;
        if (v >= up.low && v <= up.high) marks.push(v);
      }
    }
    const shown = marks.length > 8 ? marks.filter((v) => Math.abs(Math.log10(v) % 1) < 1e-9) : marks;
    for (const v of shown) {
      const y = up.at(v);
      group.append(mark("line", { x1: left, x2: wide - 10, y1: y, y2: y }));
      group.append(mark("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, Number(v.toPrecision(1))));
    }
    group.append(mark("text", { x: 2, y: 12, class: "unit" }, "GB/s"));
    return group;
  }

  function near(event, svg, facet, across, up, wide) {
    const box = svg.getBoundingClientRect();
    const k = wide / box.width;
    const [x, y] = [(event.clientX - box.left) * k, (event.clientY - box.top) * k];
    let best = null;
    let least = 24;
    const of = facet.of ?? "collective";
    for (const p of facet.points) {
      const d = Math.hypot(across.at(p[1]) - x, up.at(p[2]) - y);
      if (d < least) { least = d; best = p; }
    }
    if (!best) { unpoint(); return; }
    const rate = (v) => digits(v) + " GB/s";
    const members = found.members[best[0]];
    const lines = [`${bytes(best[1])}: ${rate(best[2])}`,
      `${rate(best[3])} to ${rate(best[4])} over ${best[5]} ${of}${best[5] === 1 ? "" : "s"}`];
    if (members) lines.push("ranks " + listed(members));
    point(event, lines);
  }

  // A point stays lit while a picked rank is in its communicator, or nobody says who is.
  function light() {
    for (const { facet, dots } of drawings) {
      facet.points.forEach((p, i) => {
        const members = found.members[p[0]];
        const out = picked.size > 0 && members && !members.some((r) => picked.has(r));
        dots[i].classList.toggle("out", Boolean(out));
      });
    }
  }

  watchers.push(light);
  return { draw };
}
