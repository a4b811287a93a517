import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { it } from "node:test";
import { fileURLToPath } from "node:url";

import { load, source } from "../testdata/browser.js";

const file = (name) => fileURLToPath(new URL("../" + name, import.meta.url));
const pkg = JSON.parse(readFileSync(file("package.json"), "utf8"));

it("as a classic script it adds the global idem, and nothing else", () => {
  const before = new Set(Reflect.ownKeys(globalThis));
  const { fetch } = globalThis;
  load();
  assert.deepEqual(Reflect.ownKeys(globalThis).filter((name) => !before.has(name)), ["idem"]);
  assert.equal(globalThis.fetch, fetch);
  delete globalThis.idem;
});

it("as a module it gives the same, outside of browsers too", async () => {
  const exported = await import(pkg.name); // by the package's own exports
  assert.deepEqual({ ...exported }, globalThis.idem);
  assert.deepEqual(Object.keys(exported), ["fetch", "intent"]);
  assert.equal(exported.intent("pay").key, exported.intent("pay").key);
});

it("each export has its type, and each type its export", () => {
  const types = readFileSync(file(pkg.types), "utf8");
  const typed = Array.from(types.matchAll(/^export (?:declare )?(?:function|const) (\w+)/gm), ([, name]) => name);
  assert.deepEqual(typed.sort(), Object.keys(load()).sort());
  const { intent } = load();
  const members = Array.from(types.match(/interface Intent \{(.*?)^\}/ms)[1].matchAll(/^ {2}(?:readonly )?(\w+)/gm), ([, name]) => name);
  assert.deepEqual(members.sort(), Object.keys(intent()).sort());
  const options = Array.from(types.match(/interface IdemInit .*?\{(.*?)^\}/ms)[1].matchAll(/^ {2}(\w+)\?/gm), ([, name]) => name);
  for (const name of options) assert.match(source, new RegExp(`\\{[^}]*\\b${name}\\b[^}]*\\} = init`));
});

const tsc = spawnSync("tsc", ["--version"]).status === 0;
it("the types are those of a program that uses them", { skip: !tsc && "tsc is not on PATH" }, () => {
  const { stdout, status } = spawnSync("tsc", ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext",
    "--lib", "es2022,dom", "--types", "", file("testdata/use.ts")], { encoding: "utf8" });
  assert.equal(status, 0, stdout);
});

it("depends on nothing", () => {
  for (const kind of ["dependencies", "devDependencies", "peerDependencies", "optionalDependencies"]) assert.equal(pkg[kind], undefined);
  assert.doesNotMatch(source, /\b(import|require)\b\s*\(/);
});

it("README.md says what there is", () => {
  const readme = readFileSync(file("README.md"), "utf8");
  const Async = (async () => {}).constructor;
  const blocks = Array.from(readme.matchAll(/^```js\n(.*?)^```/gms), ([, code]) => new Async(code));
  assert.equal(blocks.length, 2);
  const attributes = new Set(source.match(/data-idem[\w-]*/g));
  assert.equal(attributes.size, 2);
  for (const name of attributes) assert.match(readme, new RegExp("`" + name + "[=`]"));
  const { tries, timeout, seconds } = /tries = (?<tries>\d+), timeout = (?<timeout>\d+)[^]*data-idem"\) \|\| (?<seconds>\d+)/.exec(source).groups;
  assert.match(readme, new RegExp("^\\| `tries` \\| " + tries + " \\|", "m"));
  assert.match(readme, new RegExp("^\\| `timeout` \\| " + timeout + " \\|", "m"));
  assert.match(readme, new RegExp(`\\(${seconds} by default\\)`));
});
