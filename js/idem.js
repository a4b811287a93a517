// idem.js: one key for one intent, a fetch that tries again under it, forms that are sent once.
// It runs as a classic script and as a module, so it can't export: it sets the global idem, of which
// idem.mjs makes exports. https://github.com/idem-go/idem, MIT license
(() => {
  "use strict";

  const KEY = "Idempotency-Key";

  const memory = new Map(); // for what sessionStorage does not take: private mode, quota

  // crypto.randomUUID is missing on pages without TLS.
  const newKey = () => crypto.randomUUID?.() ??
    Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => (b + 256).toString(16).slice(1)).join("");

  function intent(name) {
    const item = "idem:" + name;
    const own = name == null ? new Map() : memory;
    const storage = (method, value) => {
      try {
        return own == memory ? sessionStorage[method](item, value) : null;
      } catch {
        return null;
      }
    };
    const standing = () => storage("getItem") ?? own.get(item);
    return {
      get key() {
        let key = standing();
        if (!key) {
          key = newKey();
          storage("setItem", key);
          if (storage("getItem") != key) own.set(item, key);
        }
        return key;
      },
      forget(key) {
        if (key && key != standing()) return;
        storage("removeItem");
        own.delete(item);
      },
    };
  }

  // Returns the code of a refusal. Of another origin, a script may be allowed to read the body only. JSON is
  // read to its end: of an answer that breaks off the page has nothing, and must get it again.
  async function refusal(response) {
    const code = response.headers.get("Idempotency-Refused");
    const type = response.headers.get("Content-Type");
    if (!/[/+]json\s*(;|$)/i.test(type)) return code;
    const text = await response.clone().text();
    if (code || !/problem/i.test(type)) return code;
    try {
      return JSON.parse(text).code;
    } catch {
      return null;
    }
  }

  // Returns milliseconds. A date is compared with the server's clock, if that may be read.
  function retryAfter(headers) {
    const value = headers.get("Retry-After");
    if (/^\d+$/.test(value)) return value * 1000;
    return Date.parse(value) - (Date.parse(headers.get("Date")) || Date.now()) || 0;
  }

  const longest = 2 ** 31 - 1; // a timer that is to run for longer runs at once

  const sleep = (ms, signal) => new Promise((resolve, reject) => {
    setTimeout(resolve, Math.min(ms, longest));
    signal.addEventListener("abort", () => reject(signal.reason));
  });

  async function fetch(input, init) {
    const request = new Request(input, init); // throws here for what would fail in every try
    if (/^(GET|HEAD|OPTIONS|TRACE)$/.test(request.method)) return globalThis.fetch(request);

    if (request.mode == "no-cors") throw new TypeError("idem: a no-cors request can't carry a key");
    let { intent: meant, tries = 8, timeout = 60000, body } = init ?? {};
    if (!meant?.forget) meant = intent(meant);
    const key = request.headers.get(KEY) || meant.key;
    request.headers.set(KEY, key);
    if (body?.getReader) tries = 1; // a stream can't be sent twice

    request.signal.throwIfAborted();
    const { referrer, referrerPolicy } = request; // a signal of our own would reset them
    const limit = new AbortController();
    const { signal } = limit;
    const abort = () => limit.abort(request.signal.reason);
    request.signal.addEventListener("abort", abort);
    const end = Date.now() + timeout;
    const timer = setTimeout(() => limit.abort(new DOMException("idem: no answer in time", "TimeoutError")),
      Math.min(timeout, longest));
    try {
      for (let n = 1; ; n++) {
        let response, code, error;
        try {
          response = await globalThis.fetch(n < tries ? request.clone() : request, { signal, referrer, referrerPolicy });
          code = await refusal(response);
        } catch (e) {
          error = e;
        }
        signal.throwIfAborted();

        const status = error ? 0 : response.status;
        const again = error || status == 429 || status == 503 ||
          /^(in_progress|rate_limited|store_unavailable|shutting_down|unfinished)$/.test(code);
        const backoff = Math.min(500 * 2 ** (n - 1), 4000);
        const pause = Math.max(backoff, error ? 0 : retryAfter(response.headers)) + Math.random() * backoff;
        if (!again || !(n < tries) || Date.now() + pause > end) {
          if (error) throw error;
          const unfinished = again || status >= 500 || /^4(01|08|25)$/.test(status) ||
            /^(uncertain|user_missing|body_unreadable)$/.test(code);
          if (!unfinished) meant.forget(key);
          return response;
        }
        response?.body?.cancel().catch(() => {});
        await sleep(pause, signal);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  const sending = new Map(); // forms that are being sent: the submit event, and what ends it

  function onSubmit(event) {
    const form = event.target;
    if (!form.hasAttribute("data-idem")) return;
    const first = sending.get(form);
    if (first && !first.event.defaultPrevented) {
      event.preventDefault();
      event.stopImmediatePropagation();
      return;
    }
    const now = { event };
    sending.set(form, now);
    // The browser takes the form's data after this event, and leaves out what is disabled: the name and
    // value of the clicked button.
    setTimeout(() => {
      if (sending.get(form) != now) return;
      if (event.defaultPrevented) return release(form);
      const { submitter } = event;
      const status = form.querySelector("[data-idem-status]");
      const buttons = [...document.querySelectorAll("button,input")].filter((b) =>
        b.form == form && /^(submit|image)$/.test(b.type) && !b.disabled);
      const show = (busy) => {
        for (const b of buttons) b.disabled = busy;
        submitter?.setAttribute("aria-busy", busy);
        if (status) status.textContent = busy ? status.getAttribute("data-idem-status") : "";
      };
      // Nobody tells a page that the person has pressed Stop, or that the answer was a download.
      const timer = setTimeout(release, 1000 * (+form.getAttribute("data-idem") || 60), form);
      now.done = () => {
        clearTimeout(timer);
        show(false);
      };
      show(true);
    });
  }

  function release(form) {
    const { done } = sending.get(form);
    sending.delete(form);
    done?.();
  }

  if (globalThis.document) {
    document.addEventListener("submit", onSubmit, true);
    // Out of the back/forward cache. Without it, the page has only been slow to load.
    addEventListener("pageshow", (event) => event.persisted && [...sending.keys()].forEach(release));
  }

  globalThis.idem = { fetch, intent };
})();
