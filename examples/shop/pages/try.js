// The script of the page /try. It sends payments, and draws what became of them.
(() => {
  "use strict";

  const element = (id) => document.getElementById(id);
  const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
  const times = (n) => n == 1 ? "once" : n == 2 ? "twice" : `${n} times`;

  // What each button plays: how many seconds the time line has at least, what the page says, what is sent.
  const plays = {
    tap: [1.5, "Ann taps twice: the same payment is sent again 0.3 seconds later.", async (t) => {
      t.pay();
      await sleep(0.3);
      t.pay();
    }],
    lost: [1.5, "The connection breaks after half a second. The client sends the payment again, with the same key.", async (t) => {
      await t.pay({ breaks: 0.5 });
      await sleep(0.2);
      t.pay();
    }],
    amount: [1.5, "Ann pays 5 €. Then her key is sent with 500 €.", async (t) => {
      await t.pay();
      t.pay({ cents: 50000 });
    }],
    customers: [1.5, "Ann and Bob happen to choose the same key. A key belongs to one customer: these are two payments.", async (t) => {
      t.pay();
      t.pay({ customer: "Bob" });
    }],
    death: [6, "A charges Ann, and dies before it can store that. The client turns to B. A's claim is valid for 4 seconds. " +
      "Then B takes over, is told that an earlier run did not finish, and asks the bank before it charges.", async (t) => {
      await t.pay({ dies: true });
      for (let sent; (sent = await t.pay({ process: "B" })).refused == "in_progress";) await sleep(sent.retryAfter);
    }],
    shutdown: [2, "A is shut down while Ann's payment runs. A finishes it, and begins no other: Bob's client turns to B. " +
      "Then Ann's client asks again, at B.", async (t) => {
      const bob = { customer: "Bob", key: "k-2" };
      t.pay();
      await sleep(0.3);
      t.stop();
      await sleep(0.2);
      if ((await t.pay(bob)).refused == "shutting_down") await t.pay({ ...bob, process: "B" });
      t.pay({ process: "B" });
    }],
  };

  // begin begins a trial of its own on the server. It has nothing in common with any other.
  function begin() {
    const id = Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => (b + 256).toString(16).slice(1)).join("");
    const start = performance.now(), now = () => (performance.now() - start) / 1000;
    const lanes = [], pending = [];
    const send = (path, headers, init) => fetch("/try/" + path, { ...init, headers: { "X-Try-Trial": id, ...headers } });
    const lane = (text, work) => {
      const l = { text, begun: now() };
      const done = work(l, lanes.push(l)).catch(() => l.lost = true).then(() => { l.ended = now(); return l; });
      pending.push(done);
      return done;
    };
    return {
      lanes, now,
      ended: () => Promise.all(pending),
      log: () => send("log").then((r) => r.json()),
      stop: () => lane("A is told to stop", async (l) => {
        l.stopped = (await send("stop", { "X-Try-Process": "A" }, { method: "POST" })).ok;
      }),
      pay: ({ process = "A", customer = "Ann", key = "k-1", cents = 500, breaks, dies } = {}) =>
        lane(`${customer} pays ${cents / 100} € with key ${key}, at ${process}`, async (l, number) => {
          const r = await send("pay", {
            "X-Try-Process": process, "X-Try-Customer": customer, "X-Try-Request": number, "Idempotency-Key": key,
            "Content-Type": "application/json", ...(dies && { "X-Try-Die": "1" }),
          }, { method: "POST", body: JSON.stringify({ amount: cents }), signal: breaks && AbortSignal.timeout(breaks * 1000) });
          l.status = r.status;
          l.replayed = r.headers.has("Idempotent-Replayed");
          l.refused = r.headers.get("Idempotency-Refused");
          l.retryAfter = Number(r.headers.get("Retry-After"));
        }),
    };
  }

  // outcome says what became of a request, by the server's log and by the client's answer.
  function outcome(l, seen) {
    if (l.ended == null) return "…";
    const words = [];
    if (seen?.waited >= 10) words.push(`waited ${(seen.waited / 1000).toFixed(1)} s`);
    if (seen?.event == "started") words.push(seen.takeover ? "took over and ran" : "ran");
    if (l.lost) words.push("no answer: the connection broke");
    else if (l.stopped) words.push("stopped when its run had ended");
    else if (l.refused) words.push(`refused: ${l.status} ${l.refused}` + (l.retryAfter ? `, try again in ${l.retryAfter} s` : ""));
    else if (l.status == 502) words.push("no answer: 502, the process has died");
    else words.push(`${l.replayed ? "replayed" : "answered"}: ${l.status}`);
    return words.join(", ");
  }

  function make(name, attributes, ...children) {
    const e = document.createElementNS(`http://www.w3.org/${["li", "strong"].includes(name) ? "1999/xhtml" : "2000/svg"}`, name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    e.append(...children);
    return e;
  }

  function draw(lanes, now, seconds, log) {
    const scale = Math.max(seconds, now), at = (s) => `${s / scale * 100}%`;
    const marks = Array.from({ length: Math.ceil(scale) }, (_, s) => s);
    const bar = (kind, from, to) => make("rect", { class: kind, x: at(from), width: at(to - from), y: 2, height: 12 });
    element("lanes").replaceChildren(...lanes.map((l, i) => {
      const seen = log?.requests[i + 1], end = l.ended ?? now;
      const ready = Math.min(l.begun + (seen?.waited ?? 0) / 1000, end);
      const kind = l.ended == null ? "open" : l.lost || l.status >= 400 ? "refused" : "ran";
      return make("li", {}, l.text,
        make("svg", { class: "lane", "aria-hidden": "true" }, ...marks.map((s) => make("line", { x1: at(s), x2: at(s), y2: "100%" })),
          bar("waited", l.begun, ready), bar(kind, ready, end)),
        make("strong", { class: kind }, outcome(l, seen)));
    }));
    element("axis").replaceChildren(...marks.map((s) => make("text", { x: at(s), y: 14 }, `${s} s`)));
  }

  let current; // the trial that is shown
  async function run(button) {
    const [seconds, says, play] = plays[button.dataset.play];
    const t = current = begin();
    element("title").textContent = button.textContent;
    element("says").textContent = says;
    element("count").textContent = "";
    const clock = setInterval(() => { if (t == current) draw(t.lanes, t.now(), seconds); }, 100);
    let log, count = "The server does not answer.";
    try {
      await play(t);
      await t.ended();
      log = await t.log();
      count = `By the server's count, the handler ran ${times(log.runs)}, and charged ${times(log.charges)}.`;
    } catch (e) {
      console.warn(e);
    }
    clearInterval(clock);
    if (t != current) return; // another button was pressed meanwhile
    draw(t.lanes, Math.max(...t.lanes.map((l) => l.ended)), seconds, log);
    element("count").textContent = count;
  }

  for (const button of document.querySelectorAll("[data-play]")) button.addEventListener("click", () => run(button));
})();
