// Sends what comes by stdin to a URL until there is an answer, under one Idempotency-Key (see docs/clients.md), in Node.js (20
// or later) by js/idem.js, which does the same in browsers. Prints the status and the body of the answer:
//
//	node send.mjs URL [IDEMPOTENCY-KEY [FIELD: VALUE]...] <body.json

import { fetch } from "../../js/idem.mjs";

const [url, key, ...fields] = process.argv.slice(2);
if (!url) {
  console.error("usage: node send.mjs URL [IDEMPOTENCY-KEY [FIELD: VALUE]...] <body.json");
  process.exit(2);
}
const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);

const headers = new Headers({ "Content-Type": "application/json" });
for (const field of fields) headers.set(...field.split(/:\s*(.*)/s, 2));
if (key) headers.set("Idempotency-Key", key);
try {
  const response = await fetch(url, { method: "POST", headers, body: Buffer.concat(chunks), redirect: "manual" });
  const body = Buffer.from(await response.arrayBuffer());
  process.stdout.write(Buffer.concat([Buffer.from(`${response.status} `), body, Buffer.from("\n")]));
  process.exitCode = response.ok ? 0 : 1;
} catch (error) {
  console.error("no answer:", error.cause ?? error);
  process.exitCode = 3; // it may have been carried out
}
