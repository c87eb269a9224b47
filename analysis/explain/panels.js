// What draws each chart of this page, by the name of its place.
const MAKERS = { both: bothOf };
