// idem.js: one key for one intent, a fetch that tries again under it, forms that are sent once.
// Only idem.mjs exports.
// https://github.com/idem-go/idem, MIT license
(() => {
  "use strict";

  const KEY = "Idempotency-Key";

  const memory = new Map(); // what sessionStorage does not take

  // Without TLS there is no randomUUID.
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

  // Another origin's header may be hidden. JSON that breaks off must come again.
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

  // In milliseconds, by the server's clock.
  function retryAfter(headers) {
    const value = headers.get("Retry-After");
    if (/^\d+$/.test(value)) return value * 1000;
    return Date.parse(value) - (Date.parse(headers.get("Date")) || Date.now()) || 0;
  }

  // Longer ones run at once.
  const later = (callback, ms) => setTimeout(callback, Math.min(ms, 2 ** 31 - 1));

  const sleep = (ms, signal) => new Promise((resolve, reject) => {
    later(resolve, ms);
    signal.addEventListener("abort", () => reject(signal.reason));
  });

  async function fetch(input, init) {
    const request = new Request(input, init); // throws at once
    if (/^(GET|HEAD|OPTIONS|TRACE|QUERY)$/.test(request.method)) return globalThis.fetch(request);

    if (request.mode == "no-cors") throw TypeError("idem: a no-cors request can't carry a key");
    let { intent: meant, tries = 8, timeout = 60000, body } = init ?? {};
    if (!meant?.forget) meant = intent(meant);
    const key = request.headers.get(KEY) || meant.key;
    request.headers.set(KEY, key);
    if (body?.getReader) tries = 1; // a stream can't be sent twice

    request.signal.throwIfAborted();
    const { referrer, referrerPolicy } = request; // which a signal resets
    const limit = new AbortController();
    const { signal } = limit;
    const options = { signal, referrer, referrerPolicy };
    const stays = !init?.redirect && request.redirect == "follow"; // with its key
    if (stays) {
      if (request.url.startsWith(globalThis.origin + "/")) options.mode = "same-origin";
      else options.redirect = "manual";
    }
    const abort = () => limit.abort(request.signal.reason);
    request.signal.addEventListener("abort", abort);
    const end = Date.now() + timeout;
    const timer = later(() => limit.abort(new DOMException("idem: no answer in time", "TimeoutError")), timeout);
    try {
      for (let n = 1; ; n++) {
        let response, code, error;
        try {
          response = await globalThis.fetch(n < tries ? request.clone() : request, options);
          code = await refusal(response);
        } catch (e) {
          error = e;
        }
        signal.throwIfAborted();
        if (stays && response?.type == "opaqueredirect") throw TypeError("idem: redirect");

        const status = error ? 0 : response.status;
        const again = error || status == 429 || status == 503 ||
          /^(in_progress|rate_limited|store_unavailable|shutting_down|unfinished)$/.test(code);
        const backoff = Math.min(500 * 2 ** (n - 1), 4000);
        const pause = Math.max(backoff, error ? 0 : retryAfter(response.headers)) + Math.random() * backoff;
        if (!again || !(n < tries) || Date.now() + pause > end) {
          if (error) throw error;
          const unfinished = again || status >= 500 || /^(30[78]|401|408|425)$/.test(status) ||
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

  const sending = new Map(); // form: the submit event, and what ends it

  // A field may have the method's name.
  const call = (form, method, argument) => Element.prototype[method].call(form, argument);

  function onSubmit(event) {
    const { target: form, submitter } = event;
    const attribute = (name) => submitter?.getAttribute("form" + name) ?? call(form, "getAttribute", name);
    const target = attribute("target") ?? document.querySelector("base[target]")?.target;
    // No page is told of an answer elsewhere.
    if (!call(form, "hasAttribute", "data-idem") || /^dialog$/i.test(attribute("method")) ||
      target && !/^_(self|parent|top)$/i.test(target)) return;
    const first = sending.get(form);
    if (first && !first.event.defaultPrevented) {
      event.preventDefault();
      event.stopImmediatePropagation();
      return;
    }
    const now = { event };
    sending.set(form, now);
    addEventListener("beforeunload", onLeave, { once: true });
    // The browser takes the form's data later, without a disabled button's.
    setTimeout(() => {
      if (sending.get(form) != now) return;
      if (event.defaultPrevented) return release(form);
      const status = call(form, "querySelector", "[data-idem-status]");
      const buttons = [...document.querySelectorAll("button,input")].filter((b) =>
        b.form == form && /^(submit|image)$/.test(b.type) && !b.disabled);
      const focused = document.activeElement;
      const show = (busy) => {
        for (const b of buttons) b.disabled = busy;
        submitter?.setAttribute("aria-busy", busy);
        if (status) status.textContent = busy ? status.getAttribute("data-idem-status") : "";
      };
      // Nor of Stop, or a download.
      const seconds = +call(form, "getAttribute", "data-idem") || 60;
      const timer = later(() => release(form), 1000 * (seconds > 0 ? seconds : 60));
      now.done = () => {
        clearTimeout(timer);
        show(false);
        if (document.activeElement == document.body) focused?.focus();
      };
      show(true);
    });
  }

  function release(form) {
    const { done } = sending.get(form);
    sending.delete(form);
    if (!sending.size) removeEventListener("beforeunload", onLeave); // it may prevent the cache
    done?.();
  }

  const releaseAll = () => sending.forEach((now, form) => release(form));

  // Who is asked may stay; timers wait.
  const onLeave = (asked) => setTimeout(() => (asked.defaultPrevented || asked.returnValue) && releaseAll(), 0);

  if (globalThis.document) {
    document.addEventListener("submit", onSubmit, true);
    // Out of the back/forward cache.
    addEventListener("pageshow", (event) => event.persisted && releaseAll());
  }

  globalThis.idem = { fetch, intent };
})();
