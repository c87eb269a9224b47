// What draws each chart of this page, by the name of its place.
const MAKERS = {
  timeline: timelineOf,
  heat: (at) => matrix(at, waitsOf),
  bandwidth: bandwidthOf,
  rails: (at) => matrix(at, givenOf("rails")),
  experts: (at) => matrix(at, givenOf("experts")),
};
