import assert from "node:assert/strict";
import { beforeEach, it, mock } from "node:test";

import { define, load, Tab } from "../testdata/browser.js";

let idem, tab;

beforeEach(() => {
  mock.reset();
  define("sessionStorage", tab = new Tab());
  idem = load();
});

it("an intent has one key, which is a random UUID", () => {
  const { key } = idem.intent("pay");
  assert.match(key, /^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
  assert.equal(idem.intent("pay").key, key);
  assert.notEqual(idem.intent("donate").key, key);
});

it("without crypto.randomUUID it is 128 random bits", () => {
  Object.defineProperty(crypto, "randomUUID", { value: undefined, configurable: true });
  try {
    mock.method(crypto, "getRandomValues", (bytes) => bytes.map((_, i) => i * 17));
    assert.equal(idem.intent("pay").key, "00112233445566778899aabbccddeeff");
  } finally {
    delete crypto.randomUUID;
  }
});

it("nothing is stored before somebody needs the key", () => {
  idem.intent("pay");
  assert.equal(tab.items.size, 0);
});

it("survives a reload", () => {
  const { key } = idem.intent("pay");
  assert.equal(load().intent("pay").key, key);
});

it("is forgotten", () => {
  const pay = idem.intent("pay");
  const { key } = pay;
  pay.forget("another");
  assert.equal(pay.key, key);
  pay.forget(key);
  assert.equal(tab.items.size, 0);
  const next = pay.key;
  assert.notEqual(next, key);
  pay.forget();
  assert.notEqual(pay.key, next);
  idem.intent("donate").forget();
});

it("is another one in another tab", () => {
  const { key } = idem.intent("pay");
  define("sessionStorage", new Tab());
  assert.notEqual(load().intent("pay").key, key);
});

it("is the same one in a copy of the tab, until each has its answer", () => {
  const { key } = idem.intent("pay");
  const copy = new Tab(tab.items);
  idem.intent("pay").forget(key);
  define("sessionStorage", copy);
  assert.equal(load().intent("pay").key, key);
});

it("without a name is another one each time, and not stored", () => {
  const one = idem.intent(), other = idem.intent();
  assert.equal(one.key, one.key);
  assert.notEqual(one.key, other.key);
  const { key } = one;
  one.forget();
  assert.notEqual(one.key, key);
  assert.equal(tab.items.size, 0);
});

const fail = () => { throw new DOMException("no", "SecurityError"); };
const storages = {
  "that throws at every touch": { get: fail },
  "that is not there": { value: null },
  "that is full": { value: Object.assign(new Tab(), { setItem: fail }) },
  "that takes nothing, and does not say so": { value: Object.assign(new Tab(), { setItem() {} }) },
  "that can only be read": { value: Object.assign(new Tab(), { setItem: fail, removeItem: fail }) },
};
for (const [name, property] of Object.entries(storages)) {
  it(`with a storage ${name}, the key is kept in memory`, () => {
    Object.defineProperty(globalThis, "sessionStorage", { ...property, configurable: true });
    const { key } = idem.intent("pay");
    assert.equal(idem.intent("pay").key, key);
    assert.notEqual(idem.intent("donate").key, key);
    idem.intent("pay").forget(key);
    assert.notEqual(idem.intent("pay").key, key);
  });
}
