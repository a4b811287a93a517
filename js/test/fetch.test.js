import assert from "node:assert/strict";
import { createServer } from "node:http";
import { beforeEach, describe, it, mock } from "node:test";

import { answer, define, idle, load, never, offline, refused, serve, settle, Tab } from "../testdata/browser.js";

const platform = globalThis.fetch;
const url = "https://shop.example/payments";
const post = (init) => ({ method: "POST", body: '{"amount":5}', intent: "pay", ...init });
const inProgress = (headers) => refused(409, "in_progress", headers);

let idem, tab;

/** The milliseconds between calls. */
const pauses = (calls) => calls.slice(1).map(({ at }, i) => at - calls[i].at);
const kept = () => tab.getItem("idem:pay");
const oneKey = (calls) => assert.equal(new Set(calls.map(({ key }) => key)).size, 1);

beforeEach(() => {
  mock.reset();
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: Date.UTC(2026, 10, 21, 9) });
  mock.method(Math, "random", () => 0);
  define("sessionStorage", tab = new Tab());
  idem = load();
});

describe("what is sent", () => {
  for (const method of ["GET", "HEAD", "OPTIONS", "QUERY"]) {
    it(`${method} passes untouched`, async () => {
      const calls = serve(answer(503));
      const response = await settle(idem.fetch(url, { method, intent: "pay" }));
      assert.equal(response.status, 503);
      assert.equal(calls.length, 1);
      assert.equal(calls[0].key, null);
      assert.equal(kept(), null);
    });
  }

  it("GET is the default", async () => {
    const calls = serve(answer(200), offline());
    await idem.fetch(url);
    assert.equal(calls[0].key, null);
    await assert.rejects(settle(idem.fetch(new Request(url))), TypeError);
    assert.equal(calls.length, 2);
  });

  for (const method of ["POST", "PUT", "PATCH", "DELETE"]) {
    it(`${method} has a key`, async () => {
      const calls = serve(answer(503), answer(201));
      await settle(idem.fetch(url, { method }));
      assert.equal(calls.length, 2);
      assert.match(calls[0].key, /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/);
      oneKey(calls);
    });
  }

  it("the same headers and body in every try", async () => {
    const form = new FormData();
    form.set("amount", "5");
    for (const body of ['{"amount":5}', new URLSearchParams("amount=5"), new Blob(["5"]), new Uint8Array([53]), form]) {
      const calls = serve(offline(), answer(503), answer(201));
      await settle(idem.fetch(url, post({ body, headers: { "X-Page": "1" } })));
      assert.equal(calls.length, 3);
      assert.match(calls[0].body, /5/);
      for (const { request, body } of calls) {
        assert.equal(body, calls[0].body);
        assert.equal(request.headers.get("X-Page"), "1");
        assert.equal(request.headers.get("Content-Type"), calls[0].request.headers.get("Content-Type"));
      }
    }
  });

  it("a Request, with what the init has in its place", async () => {
    const calls = serve(offline(), answer(201));
    const request = new Request(url, { method: "POST", body: "5", headers: { "X-Page": "1" } });
    await settle(idem.fetch(request, { intent: "pay", headers: { "X-Page": "2" } }));
    assert.deepEqual(calls.map(({ body }) => body), ["5", "5"]);
    assert.deepEqual(calls.map(({ request }) => request.headers.get("X-Page")), ["2", "2"]);
    oneKey(calls);
    await assert.rejects(idem.fetch(request), TypeError, "a Request is good for one call, as ever");
    assert.equal(calls.length, 2);
  });

  it("the page's referrer and its policy", async () => {
    const calls = serve(offline(), answer(201));
    await settle(idem.fetch(url, post({ referrer: "", referrerPolicy: "no-referrer" })));
    for (const { request, init } of calls) {
      const sent = new Request(request.url, init);
      assert.deepEqual([sent.referrer, sent.referrerPolicy], ["", "no-referrer"]);
    }
  });

  it("a key of the caller's own, which is not stored", async () => {
    const calls = serve(offline(), answer(201));
    await settle(idem.fetch(url, post({ headers: { "idempotency-key": "k-1" } })));
    assert.deepEqual(calls.map(({ key }) => key), ["k-1", "k-1"]);
    assert.equal(kept(), null);
  });

  it("wrong arguments are not tried", async () => {
    const calls = serve();
    await assert.rejects(idem.fetch("https://:", post()), TypeError);
    await assert.rejects(idem.fetch(url, post({ headers: { "X-Page": "\n\0" } })), TypeError);
    await assert.rejects(idem.fetch(url, post({ mode: "no-cors" })), /no-cors/);
    assert.equal(calls.length, 0);
    assert.equal(Date.now(), Date.UTC(2026, 10, 21, 9), "nobody has waited");
  });

  it("a stream is sent once, and the key is kept for another one", async () => {
    const stream = () => post({ body: new Blob(["5"]).stream(), duplex: "half" });
    for (const failure of [offline(), answer(503)]) {
      const calls = serve(failure, answer(201));
      const call = settle(idem.fetch(url, stream()));
      if (failure instanceof Error) await assert.rejects(call, failure);
      else assert.equal((await call).status, 503);
      assert.equal(calls.length, 1);
      assert.equal(kept(), calls[0].key);
      await settle(idem.fetch(url, stream()));
      oneKey(calls);
      assert.deepEqual(calls.map(({ body }) => body), ["5", "5"]);
      assert.equal(kept(), null);
    }
  });
});

const broken = (status, type) => answer(status, { "Content-Type": type },
  new ReadableStream({ pull: (c) => c.error(offline()) }));

describe("where the key goes", () => {
  const served = async (t, handler) => {
    const server = createServer(handler).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    t.after(() => server.close());
    return `http://127.0.0.1:${server.address().port}/`;
  };

  for (const status of [307, 308, 302, 303]) {
    it(`not to another host, by a ${status}`, async (t) => {
      mock.timers.reset();
      define("fetch", platform);
      const went = [];
      const other = await served(t, (request, response) => { went.push(request.headers); response.end(); });
      const moved = await served(t, (_, response) => { response.writeHead(status, { Location: other, Connection: "close" }).end(); });
      assert.equal((await idem.fetch(moved, post())).status, status);
      assert.deepEqual(went, []);
      assert.equal(kept() != null, status > 303, "elsewhere it may still have to be done");
    });
  }

  it("in a page: by a redirect of its own origin only to that", async (t) => {
    t.after(() => { delete globalThis.origin; });
    define("origin", "https://shop.example");
    const calls = serve(answer(201), answer(201), answer(201));
    await settle(idem.fetch(url, post()));
    await settle(idem.fetch("https://api.example/payments", post()));
    await settle(idem.fetch("https://api.example/payments", post({ redirect: "follow" })));
    assert.deepEqual(calls.map(({ init }) => [init.mode, init.redirect]),
      [["same-origin", undefined], [undefined, "manual"], [undefined, undefined]]);
  });

  it("in a page: nowhere by a redirect of another origin, which does not say whereto", async () => {
    const opaque = Object.defineProperty(Response.error(), "type", { value: "opaqueredirect" });
    const calls = serve(opaque);
    await assert.rejects(settle(idem.fetch(url, post())), /redirect/);
    assert.equal(calls.length, 1);
    assert.equal(kept(), calls[0].key);
  });
});

describe("what is tried again", () => {
  // A script of another origin does not see a header that is not exposed.
  const unexposed = () => {
    const response = inProgress();
    response.headers.delete("Idempotency-Refused");
    return response;
  };
  // A service may make answers of its own of refusals; the header stays.
  const own = (code) => answer(200, { "Idempotency-Refused": code, "Content-Type": "application/json" }, '{"code":50001}');
  const cases = {
    "a network error": offline,
    "409 in_progress": inProgress,
    "409 in_progress of another origin": unexposed,
    "429": () => answer(429),
    "503": () => answer(503),
    ...Object.fromEntries(["in_progress", "rate_limited", "store_unavailable", "shutting_down", "unfinished"].map(
      (code) => [`${code} in an answer of the service's own`, () => own(code)])),
    "a header that differs from the problem": () => refused(409, "not_this", { "Idempotency-Refused": "in_progress" }),
    "a problem that breaks off": () => broken(409, "application/problem+json"),
    "an answer in JSON that breaks off": () => broken(201, "application/json; charset=utf-8"),
    "one of another type of JSON": () => broken(201, "application/vnd.api+JSON"),
  };
  for (const [name, failure] of Object.entries(cases)) {
    it(name, async () => {
      const calls = serve(failure(), failure(), answer(201, {}, "done"));
      const response = await settle(idem.fetch(url, post()));
      assert.equal(await response.text(), "done");
      assert.deepEqual(calls.map(({ body }) => body), Array(3).fill('{"amount":5}'));
      oneKey(calls);
      assert.equal(kept(), null);
    });
  }

  it("nothing else", async () => {
    const problem = (body) => answer(409, { "Content-Type": "application/problem+json" }, body);
    for (const other of [answer(200), answer(204), answer(400), answer(401), answer(404), answer(408), answer(409), answer(422),
      answer(500), answer(502), answer(504), refused(409, "duplicate"), refused(409, "uncertain"),
      problem("{"), problem("null"), problem('{"code":"not in_progress"}'),
      answer(409, { "Content-Type": "application/json" }, '{"code":"in_progress"}')]) {
      const calls = serve(other);
      assert.equal(await settle(idem.fetch(url, post())), other);
      assert.equal(calls.length, 1);
    }
  });

  it("answers that are not returned are let go, and the one that is can be read", async () => {
    let cancelled = 0;
    const busy = () => answer(503, {}, new ReadableStream({ cancel() { cancelled++; } }));
    serve(busy(), busy(), unexposed());
    const response = await settle(idem.fetch(url, post({ tries: 3 })));
    assert.equal(cancelled, 2);
    assert.equal((await response.json()).code, "in_progress");
  });
});

describe("when it is tried again", () => {
  const tried = async (headers, random = 0) => {
    mock.method(Math, "random", () => random);
    const calls = serve(answer(429, headers), answer(201));
    await settle(idem.fetch(url, post()));
    return pauses(calls)[0];
  };

  it("after pauses that grow up to a limit", async () => {
    const calls = serve(...Array(7).fill(0).map(offline), answer(201));
    await settle(idem.fetch(url, post()));
    assert.deepEqual(pauses(calls), [500, 1000, 2000, 4000, 4000, 4000, 4000]);
  });

  it("with jitter", async () => {
    mock.method(Math, "random", () => 0.9);
    const calls = serve(...Array(4).fill(0).map(offline), answer(201));
    await settle(idem.fetch(url, post()));
    assert.deepEqual(pauses(calls), [950, 1900, 3800, 7600]);
  });

  it("after Retry-After in seconds, and jitter on top", async () => {
    assert.equal(await tried({ "Retry-After": "7" }, 0.9), 7450);
    assert.equal(await tried({ "Retry-After": "7" }), 7000);
    const calls = serve(inProgress({ "Retry-After": "3" }), inProgress({ "Retry-After": "1" }), answer(503, { "Retry-After": "9" }), answer(201));
    await settle(idem.fetch(url, post()));
    assert.deepEqual(pauses(calls), [3000, 1000, 9000]);
  });

  it("at the date of Retry-After", async () => {
    assert.equal(await tried({ "Retry-After": new Date(Date.now() + 7000).toUTCString() }), 7000);
  });

  it("at the date of Retry-After by the server's clock", async () => {
    const now = Date.now() - 3_600_000;
    assert.equal(await tried({ "Retry-After": new Date(now + 7000).toUTCString(), "Date": new Date(now).toUTCString() }), 7000);
  });

  for (const value of ["0", "soon", "", "-7", new Date(0).toUTCString()]) {
    it(`not at once, at a Retry-After of '${value}'`, async () => {
      assert.equal(await tried({ "Retry-After": value }), 500);
    });
  }
});

describe("how often, and how long", () => {
  it("eight times", async () => {
    let calls = serve(...Array(9).fill(0).map(offline));
    await assert.rejects(settle(idem.fetch(url, post())), { message: "Failed to fetch" });
    assert.equal(calls.length, 8);
    const key = calls[0].key;
    assert.equal(kept(), key);

    calls = serve(...Array(9).fill(0).map(() => inProgress()));
    assert.equal((await settle(idem.fetch(url, post()))).status, 409);
    assert.equal(calls.length, 8);
    assert.equal(calls[7].key, key);
    assert.equal(kept(), key);
  });

  for (const tries of [3, 1, 0, NaN]) {
    it(`tries: ${tries}`, async () => {
      const calls = serve(...Array(4).fill(0).map(offline));
      await assert.rejects(settle(idem.fetch(url, post({ tries }))));
      assert.equal(calls.length, tries || 1);
    });
  }

  it("an answer is returned when its Retry-After is too late", async () => {
    const calls = serve(answer(503, { "Retry-After": "61" }));
    const begun = Date.now();
    const response = await settle(idem.fetch(url, post()));
    assert.equal(response.headers.get("Retry-After"), "61");
    assert.equal(Date.now(), begun);
    assert.equal(kept(), calls[0].key);
  });

  it("a minute", async () => {
    const calls = serve(...Array(10).fill(0).map(() => answer(503, { "Retry-After": "25" })));
    assert.equal((await settle(idem.fetch(url, post()))).status, 503);
    assert.deepEqual(pauses(calls), [25_000, 25_000]);
  });

  for (const [timeout, seconds] of [[undefined, 60], [5000, 5]]) {
    it(`a server that does not answer has ${seconds} seconds`, async () => {
      const calls = serve(never);
      const begun = Date.now();
      await assert.rejects(settle(idem.fetch(url, post({ timeout }))), { name: "TimeoutError" });
      assert.equal(Date.now() - begun, seconds * 1000);
      assert.equal(calls[0].init.signal.aborted, true);
      assert.equal(kept(), calls[0].key);
    });
  }

  it("without an end", async () => {
    const calls = serve(answer(503, { "Retry-After": "1800" }), answer(201));
    await settle(idem.fetch(url, post({ timeout: Infinity })));
    assert.deepEqual(pauses(calls), [1_800_000]);
  });

  it("a Retry-After that is longer than timers can be does not make it hurry", async () => {
    serve(answer(503, { "Retry-After": "9999999999" }));
    const delays = [];
    mock.method(globalThis, "setTimeout", (_, ms) => { delays.push(ms); });
    idem.fetch(url, post({ timeout: Infinity }));
    await idle();
    assert.deepEqual(delays, [2 ** 31 - 1, 2 ** 31 - 1]); // the time, and the pause
  });

  it("the time is for the answer, not for reading it", async () => {
    const calls = serve(answer(201));
    await settle(idem.fetch(url, post()));
    mock.timers.tick(3_600_000);
    assert.equal(calls[0].init.signal.aborted, false);
  });
});

describe("an AbortSignal", () => {
  const reason = new Error("the person has left");

  it("ends a call before it begins", async () => {
    const calls = serve();
    await assert.rejects(idem.fetch(url, post({ signal: AbortSignal.abort(reason) })), reason);
    assert.equal(calls.length, 0);
  });

  it("ends a try", async () => {
    const calls = serve(never);
    const controller = new AbortController();
    const call = idem.fetch(url, post({ signal: controller.signal }));
    await idle();
    controller.abort(reason);
    await assert.rejects(call, reason);
    assert.equal(calls.length, 1);
    assert.equal(kept(), calls[0].key);
  });

  it("ends a wait at once, and the next try of the intent has the same key", async () => {
    const calls = serve(inProgress({ "Retry-After": "30" }), answer(201));
    const controller = new AbortController();
    const call = idem.fetch(url, post({ signal: controller.signal }));
    await idle();
    controller.abort();
    await assert.rejects(call, { name: "AbortError" });
    mock.timers.tick(60_000);
    await idle();
    assert.equal(calls.length, 1);
    await settle(idem.fetch(url, post()));
    assert.equal(calls.length, 2);
    oneKey(calls);
  });

  it("of a Request", async () => {
    const calls = serve(never);
    const controller = new AbortController();
    const call = idem.fetch(new Request(url, { method: "POST", signal: controller.signal }));
    await idle();
    controller.abort(reason);
    await assert.rejects(call, reason);
    assert.equal(calls.length, 1);
  });

  it("ends the reading of the answer", async () => {
    const calls = serve(answer(201));
    const controller = new AbortController();
    await settle(idem.fetch(url, post({ signal: controller.signal })));
    controller.abort(reason);
    assert.equal(calls[0].init.signal.reason, reason);
  });
});

describe("the key after the last answer", () => {
  const cases = {
    forgotten: [answer(200), answer(201), answer(204), answer(400), answer(402), answer(403), answer(404), answer(409), answer(410), answer(422),
      refused(422, "key_reused"), refused(409, "duplicate"), refused(409, "result_unavailable"), refused(400, "key_invalid"),
      refused(403, "not_authorized"), refused(413, "body_too_large"), Response.redirect(url, 303)],
    kept: [answer(401), answer(408), answer(425), answer(429), answer(500), answer(502), answer(503), answer(504),
      inProgress(), refused(409, "uncertain"), refused(400, "user_missing"), refused(400, "body_unreadable"),
      refused(200, "in_progress"), refused(200, "uncertain"), refused(200, "store_unavailable")],
  };
  for (const [fate, answers] of Object.entries(cases)) {
    for (const last of answers) {
      const code = last.headers.get("Idempotency-Refused") ?? "";
      it(`${last.status} ${code} is ${fate}`, async () => {
        const calls = serve(offline(), last);
        assert.equal((await settle(idem.fetch(url, post({ tries: 2 })))).status, last.status);
        oneKey(calls);
        assert.equal(kept(), fate == "kept" ? calls[0].key : null);
      });
    }
  }

  it("is kept when nobody has the answer, for it has broken off", async () => {
    const calls = serve(broken(201, "application/json"), answer(201, { "Content-Type": "application/json" }, '{"order":1}'));
    await assert.rejects(settle(idem.fetch(url, post({ tries: 1 }))), TypeError);
    assert.equal(kept(), calls[0].key);
    const response = await settle(idem.fetch(url, post()));
    assert.equal((await response.json()).order, 1);
    oneKey(calls);
    assert.equal(kept(), null);
  });

  it("another intent has another key", async () => {
    const calls = serve(answer(201), answer(201), answer(503), answer(503), answer(201), answer(201));
    await settle(idem.fetch(url, post()));
    await settle(idem.fetch(url, post()));
    await settle(idem.fetch(url, post({ intent: "pay", tries: 1 })));
    await settle(idem.fetch(url, post({ intent: "donate", tries: 1 })));
    await settle(idem.fetch(url, post()));
    await settle(idem.fetch(url, post({ intent: "donate" })));
    const [a, b, pay, donate, paid, donated] = calls.map(({ key }) => key);
    assert.equal(new Set([a, b, pay, donate]).size, 4);
    assert.deepEqual([paid, donated], [pay, donate]);
  });

  it("two calls at once are one intent, and the later answer leaves the next intent alone", async () => {
    const answers = [];
    const later = () => new Promise((resolve) => answers.push(resolve));
    const calls = serve(later, later, later);
    const [first, second] = [idem.fetch(url, post()), idem.fetch(url, post())];
    await idle();
    answers[0](answer(201));
    await first;
    const third = idem.fetch(url, post());
    await idle();
    answers[1](answer(201));
    await second;
    assert.equal(calls[0].key, calls[1].key);
    assert.notEqual(calls[2].key, calls[0].key);
    assert.equal(kept(), calls[2].key);
    answers[2](answer(201));
    await third;
    assert.equal(kept(), null);
  });

  it("without a name it is good for one call", async () => {
    const calls = serve(offline(), offline(), answer(201));
    await assert.rejects(settle(idem.fetch(url, post({ intent: undefined, tries: 2 }))));
    await settle(idem.fetch(url, post({ intent: undefined })));
    assert.equal(calls[0].key, calls[1].key);
    assert.notEqual(calls[1].key, calls[2].key);
    assert.equal(tab.items.size, 0);
  });

  it("an intent may be given as the object", async () => {
    for (const name of [undefined, "pay"]) {
      const pay = idem.intent(name);
      const calls = serve(answer(500), answer(201), answer(201));
      const { key } = pay;
      for (let i = 0; i < 3; i++) await settle(idem.fetch(url, post({ intent: pay })));
      assert.deepEqual([calls[0].key, calls[1].key], [key, key]);
      assert.notEqual(calls[2].key, key);
    }
  });
});
