// Signs a request for a verifier of github.com/idem-go/idem (scheme v1), in Node.js (20 or later)
// and in browsers. Sends what comes by stdin to a URL, and prints the status and the body of
// the answer:
//
//	IDEM_KEY_ID=demo IDEM_SECRET=0123456789abcdef0123456789abcdef node sign.mjs URL [IDEMPOTENCY-KEY] <body.json

// Returns headers with a signature added. Give fetch the same method, url, headers and body, once:
// another try needs another signature. Strings are signed and sent as UTF-8.
export async function sign(keyId, secret, method, url, headers, body,
    timestamp = Math.floor(Date.now() / 1000), nonce = crypto.randomUUID()) {
  const bytes = (data) => typeof data === "string" ? new TextEncoder().encode(data) : data;
  const hex = (buffer) => Array.from(new Uint8Array(buffer), (b) => b.toString(16).padStart(2, "0")).join("");

  const { host, pathname, search } = new URL(url); // in the form in which fetch sends them
  const result = new Headers(headers); // lists its fields in lower case, sorted, and trimmed
  const covered = [...result].filter(([name]) => ["content-encoding", "content-type", "idempotency-key"].includes(name));
  const names = covered.map(([name]) => name).join(";");
  const lines = ["v1", keyId, method, host, pathname, search.slice(1), timestamp, nonce,
    hex(await crypto.subtle.digest("SHA-256", bytes(body))),
    names, ...covered.map(([name, value]) => `${name}:${value}`)];

  const key = await crypto.subtle.importKey("raw", bytes(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const mac = await crypto.subtle.sign("HMAC", key, bytes(lines.join("\n")));
  result.set("X-Key-Id", keyId);
  result.set("X-Timestamp", timestamp);
  result.set("X-Nonce", nonce);
  result.set("X-Signed-Headers", names);
  result.set("X-Signature", "v1=" + hex(mac));
  return result;
}

async function main([url, idempotencyKey]) {
  const { IDEM_KEY_ID: keyId, IDEM_SECRET: secret } = process.env;
  if (!url || !keyId || !secret) {
    console.error("usage: IDEM_KEY_ID=… IDEM_SECRET=… node sign.mjs URL [IDEMPOTENCY-KEY] <body.json");
    process.exit(2);
  }
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const body = Buffer.concat(chunks);

  const headers = { "Content-Type": "application/json" };
  if (idempotencyKey) headers["Idempotency-Key"] = idempotencyKey;
  const response = await fetch(url, {
    method: "POST",
    headers: await sign(keyId, secret, "POST", url, headers, body),
    body,
    redirect: "manual", // the signature is good for this URL only
  });
  console.log(response.status, await response.text());
  process.exitCode = response.ok ? 0 : 1;
}

if (globalThis.process?.argv[1]?.endsWith("sign.mjs")) await main(process.argv.slice(2));
