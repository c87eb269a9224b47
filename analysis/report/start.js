// Draws every chart, again when the room changes and for paper, and follows the chosen step.
const PAPER = 690; // px between the margins of a printed page
const charts = [];
for (const place of document.querySelectorAll("[data-chart]")) {
  const make = MAKERS[place.dataset.chart];
  if (make) charts.push(make(place));
}
const steps = document.getElementById("step");
recall();
if (steps) {
  steps.value = String(state.step ?? 0);
  steps.addEventListener("change", () => {
    state.step = Number(steps.value);
    remember();
    for (const chart of charts) (chart.reset ?? chart.draw)();
  });
}
for (const chart of charts) chart.draw();
changed();

let drawn = document.documentElement.clientWidth;
addEventListener("resize", () => {
  const now = document.documentElement.clientWidth;
  if (now === drawn) return;
  drawn = now;
  requestAnimationFrame(() => { for (const chart of charts) chart.draw(); });
});
addEventListener("beforeprint", () => { for (const chart of charts) chart.draw(PAPER); });
addEventListener("afterprint", () => { for (const chart of charts) chart.draw(); });
