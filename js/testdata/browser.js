// What the tests take for a browser: as much of one as idem.js needs.

import { mock } from "node:test";
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";

export const source = readFileSync(new URL("../idem.js", import.meta.url), "utf8");

/** Loads idem.js as a tag without type="module" does, into a page of its own. */
export function load() {
  runInThisContext(source, { filename: "idem.js" });
  return globalThis.idem;
}

export function define(name, value) {
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
}

/** A sessionStorage; that of a duplicated tab begins with a copy of the items. */
export class Tab {
  constructor(items) {
    this.items = new Map(items);
  }
  getItem(name) {
    return this.items.get(name) ?? null;
  }
  setItem(name, value) {
    this.items.set(name, String(value));
  }
  removeItem(name) {
    this.items.delete(name);
  }
}

/**
 * Puts a server behind fetch that gives its answers one by one: a Response, an Error for a network failure, or a
 * function of the Request and the init. Returns the calls that have come.
 */
export function serve(...answers) {
  const calls = [];
  define("fetch", async (request, init = {}) => {
    const call = { at: Date.now(), request, init, key: request.headers.get("Idempotency-Key") };
    const answer = answers[calls.push(call) - 1];
    if (!answer) throw new Error("no answer is left");
    call.body = await request.text();
    if (answer instanceof Error) throw answer;
    return typeof answer == "function" ? answer(request, init) : answer;
  });
  return calls;
}

export const offline = () => new TypeError("Failed to fetch");

/** Answers when the request is aborted, and not before. */
export const never = (_, { signal }) => new Promise((_, reject) =>
  signal.addEventListener("abort", () => reject(signal.reason)));

export const answer = (status, headers = {}, body = null) => new Response(body, { status, headers });

export const refused = (status, code, headers = {}) => answer(status, {
  "Content-Type": "application/problem+json", "Idempotency-Refused": code, ...headers,
}, JSON.stringify({ title: "Refused", status, code }));

/** Lets everything happen that needs no time. */
export async function idle() {
  for (let i = 0; i < 10; i++) await new Promise(setImmediate);
}

/** Lets mocked time pass until the promise is settled, and returns the promise. */
export async function settle(promise) {
  let settled = false;
  promise.then(() => { settled = true; }, () => { settled = true; });
  for (let passed = 0; ; passed += 50) {
    await idle();
    if (settled) return promise;
    if (passed > 3_600_000) throw new Error("not settled after an hour");
    mock.timers.tick(50);
  }
}

class Element {
  attributes = new Map();
  textContent = "";
  constructor(attributes = {}) {
    for (const [name, value] of Object.entries(attributes)) this.setAttribute(name, value);
  }
  hasAttribute(name) {
    return this.attributes.has(name);
  }
  getAttribute(name) {
    return this.attributes.get(name) ?? null;
  }
  setAttribute(name, value) {
    this.attributes.set(name, String(value));
  }
  querySelector(selector) {
    return selector == "[data-idem-status]" ? this.status : null;
  }
}

class Control extends Element {
  #disabled = false;
  get disabled() {
    return this.#disabled;
  }
  set disabled(disabled) {
    this.#disabled = disabled;
    if (disabled && document.activeElement == this) document.activeElement = document.body;
  }
  focus() {
    document.activeElement = this;
  }
}

/** An event on its way: from the document down to the form, and up again. */
class Submit {
  defaultPrevented = false;
  stopped = false;
  constructor(target, submitter) {
    Object.assign(this, { target, submitter });
  }
  preventDefault() {
    this.defaultPrevented = true;
  }
  stopImmediatePropagation() {
    this.stopped = true;
  }
  pass(listeners) {
    for (const listener of listeners) {
      if (!this.stopped) listener(this);
    }
  }
}

/** A window with a document, and forms that are submitted as the HTML standard has it. */
export class Page {
  window = new EventTarget();
  capturing = [];
  bubbling = [];
  controls = [];

  constructor() {
    define("document", {
      addEventListener: (type, listener, capture) => (capture ? this.capturing : this.bubbling).push(listener),
      querySelectorAll: (selector) => selector == "button,input" ? this.controls : [],
      querySelector: (selector) => selector == "base[target]" ? this.base : null,
      body: new Element(),
    });
    define("Element", Element);
    define("addEventListener", this.window.addEventListener.bind(this.window));
    define("removeEventListener", this.window.removeEventListener.bind(this.window));
  }

  form(attributes = { "data-idem": "" }) {
    return Object.assign(new Element(attributes), { listeners: [] });
  }

  control(form, type, name) {
    const control = Object.assign(new Control(), { form, type, name });
    this.controls.push(control);
    return control;
  }

  /**
   * Submits a form, and returns the names of what is sent; null if the event was cancelled. See "form submission
   * algorithm" and "constructing the entry list" in the HTML standard.
   */
  async submit(form, submitter = null) {
    const event = new Submit(form, submitter);
    for (const listeners of [this.capturing, form.listeners, this.bubbling]) event.pass(listeners);
    await null; // a browser does its microtasks before it goes on
    if (event.defaultPrevented) return null;
    const button = ({ type }) => /^(submit|image)$/.test(type);
    return this.controls.filter((control) => control.form == form && !control.disabled &&
      (control == submitter || !button(control))).map(({ name }) => name);
  }

  show(type, persisted) {
    this.window.dispatchEvent(Object.assign(new Event(type), { persisted }));
  }

  /** The person leaves the page, unless one of its handlers has him asked, and he stays. */
  leave(handler) {
    const event = new Event("beforeunload", { cancelable: true });
    Object.defineProperty(event, "returnValue", { value: "", writable: true });
    this.window.addEventListener("beforeunload", handler, { once: true });
    this.window.dispatchEvent(event);
  }
}
