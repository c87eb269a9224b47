// Runs queries in Perfetto's own trace processor (its WASM build) on one trace.
//
//   node trace_processor.mjs FOLDER TRACE < QUERIES.json > ROWS.json
//
// FOLDER holds `trace_processor.wasm`, the worker that drives it (`engine_bundle.node.js`) and
// the decoder of its answers (`engine.mjs`). Queries are an array of texts, rows an array of
// arrays of objects; integers beyond 2^53 are texts.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const [folder, trace] = process.argv.slice(2);
const file = (name) => join(resolve(folder), name);

// The worker asks its surroundings for the module: they have it at hand.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: pathToFileURL(file("engine_bundle.js")).href };
globalThis.XMLHttpRequest = class {
  open() {}
  send() {
    this.response = readFileSync(file("trace_processor.wasm"));
  }
};
console.log = console.warn = console.error; // stdout is for rows

const { EngineBase } = await import(pathToFileURL(file("engine.mjs")).href);
const worker = readFileSync(file("engine_bundle.node.js"), "utf8");
vm.runInThisContext(worker.replace("= hasMemory64Support();", "= false;"));

class Engine extends EngineBase {
  mode = "WASM";
  id = "tests";
  constructor(port) {
    super();
    this.port = port;
    port.onmessage = (m) => this.onRpcResponseBytes(m.data);
  }
  rpcSendRequestBytes(data) {
    this.port.postMessage(data);
  }
  [Symbol.dispose]() {}
}

const plain = (v) =>
  typeof v !== "bigint" ? v : Number.isSafeInteger(Number(v)) ? Number(v) : v.toString();

const channel = new MessageChannel();
await new Promise((done) => setTimeout(done, 1500)); // the module starts on its own time
self.onmessage({ data: channel.port1 });
const engine = new Engine(channel.port2);
const bytes = readFileSync(trace);
for (let at = 0; at < bytes.length; at += 1 << 24) {
  await engine.parse(new Uint8Array(bytes.subarray(at, at + (1 << 24))));
}
await engine.notifyEof();

const answers = [];
for (const query of JSON.parse(readFileSync(0, "utf8"))) {
  const result = await engine.query(query);
  const columns = result.columns();
  const rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(Object.fromEntries(columns.map((c) => [c, plain(it.get(c))])));
  }
  answers.push(rows);
}
process.stdout.write(JSON.stringify(answers), () => process.exit(0));
