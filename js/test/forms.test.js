import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { beforeEach, describe, it, mock } from "node:test";

import { load, Page } from "../testdata/browser.js";

let page, form, name, pay, save;

/** Lets everything happen that a browser does next. */
const next = () => mock.timers.tick(1);

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
  page = new Page();
  load();
  form = page.form();
  name = page.control(form, "text", "name");
  pay = page.control(form, "submit", "pay");
  save = page.control(form, "image", "save");
});

it("the buttons are disabled while the form is sent", async () => {
  await page.submit(form, pay);
  next();
  assert.deepEqual([pay.disabled, save.disabled, name.disabled], [true, true, false]);
  assert.equal(pay.getAttribute("aria-busy"), "true");
  assert.equal(save.getAttribute("aria-busy"), null);
});

it("the form is served also if the page's own handler keeps the event to itself", async () => {
  form.listeners.push((event) => event.stopImmediatePropagation());
  await page.submit(form, pay);
  next();
  assert.equal(pay.disabled, true);
});

it("the name of the clicked button is sent", async () => {
  assert.deepEqual(await page.submit(form, save), ["name", "save"]);
});

it("other forms and their buttons are left alone", async () => {
  const plain = page.form({}), other = page.form();
  const [a, b] = [page.control(plain, "submit", "a"), page.control(other, "submit", "b")];
  for (let i = 0; i < 2; i++) assert.deepEqual(await page.submit(plain, a), ["a"]);
  await page.submit(form, pay);
  next();
  assert.deepEqual([a.disabled, b.disabled], [false, false]);
  assert.deepEqual(await page.submit(other, b), ["b"]);
});

describe("a form is left alone if its answer does not take the place of the page", () => {
  const served = async (served) => {
    await page.submit(form, pay);
    next();
    assert.equal(pay.disabled, served);
    assert.deepEqual(await page.submit(form, pay), served ? null : ["name", "pay"]);
  };
  for (const [of, button, alone] of [
    [{ method: "dialog" }, {}, true], [{ method: "DIALOG" }, {}, true], [{}, { formmethod: "dialog" }, true],
    [{ method: "dialog" }, { formmethod: "post" }, false], [{ method: "post" }, {}, false],
    [{ target: "_blank" }, {}, true], [{ target: "frame" }, {}, true], [{}, { formtarget: "frame" }, true],
    [{ target: "frame" }, { formtarget: "_self" }, false], [{ target: "_TOP" }, {}, false], [{ target: "_parent" }, {}, false],
    [{ target: "" }, { base: "_blank" }, false], [{}, { base: "_blank" }, true], [{}, { base: "_self" }, false],
  ]) {
    it(`${alone ? "" : "not "}with ${JSON.stringify(of)} and ${JSON.stringify(button)}`, () => {
      page.base = button.base && { target: button.base };
      for (const [name, value] of Object.entries(of)) form.setAttribute(name, value);
      for (const [name, value] of Object.entries(button)) pay.setAttribute(name, value);
      return served(!alone);
    });
  }
});

it("fields may be called like what the script asks a form for", async () => {
  form.status = page.form({ "data-idem-status": "Sending…" });
  for (const method of ["hasAttribute", "getAttribute", "querySelector", "method", "target"]) {
    Object.defineProperty(form, method, { value: page.control(form, "text", method) });
  }
  await page.submit(form, pay);
  next();
  assert.equal(form.status.textContent, "Sending…");
  assert.equal(await page.submit(form, pay), null);
});

describe("a second submit is blocked, and nobody hears it", () => {
  for (const [when, between] of Object.entries({ "at once": () => {}, "later": next })) {
    it(when, async () => {
      let heard = 0;
      form.listeners.push(() => { heard++; });
      await page.submit(form, pay);
      between();
      assert.equal(await page.submit(form), null);
      assert.equal(await page.submit(form, save), null);
      assert.equal(heard, 1);
    });
  }
});

describe("the form is enabled again", () => {
  const enabled = async () => {
    assert.deepEqual([pay.disabled, save.disabled], [false, false]);
    assert.notEqual(pay.getAttribute("aria-busy"), "true");
    assert.deepEqual(await page.submit(form, pay), ["name", "pay"]);
    next();
    assert.equal(pay.disabled, true);
  };
  const sent = async () => {
    await page.submit(form, pay);
    next();
    assert.equal(pay.disabled, true);
  };

  it("when the page comes out of the back/forward cache", async () => {
    await sent();
    page.show("pageshow", true);
    await enabled();
  });

  it("when the page was left before the button was disabled", async () => {
    await page.submit(form, pay);
    page.show("pageshow", true);
    next();
    await enabled();
  });

  it("but not when a page that was slow to load is shown", async () => {
    await sent();
    page.show("pageshow", false);
    assert.equal(pay.disabled, true);
    assert.equal(await page.submit(form, pay), null);
  });

  it("when another handler has cancelled the submission", async () => {
    form.listeners = [(event) => event.preventDefault()];
    assert.equal(await page.submit(form, pay), null);
    next();
    form.listeners = [];
    await enabled();
  });

  it("when another handler has cancelled the submission, and submits by itself at once", async () => {
    let inner;
    form.listeners = [(event) => {
      event.preventDefault();
      form.listeners = [];
      inner = page.submit(form, pay);
    }];
    assert.equal(await page.submit(form, pay), null);
    assert.deepEqual(await inner, ["name", "pay"]);
    next();
    assert.equal(pay.disabled, true);
    assert.equal(await page.submit(form, pay), null);
  });

  for (const [value, seconds] of [["", 60], ["5", 5], ["true", 60], ["-1", 60], ["0", 60], ["1e9", 2147483.647]]) {
    it(`after ${seconds} seconds with data-idem="${value}": the answer was a download, or somebody has pressed Stop`, async () => {
      form.setAttribute("data-idem", value);
      await page.submit(form, pay);
      next();
      mock.timers.tick(seconds * 1000 - 1);
      assert.equal(pay.disabled, true);
      mock.timers.tick(1);
      await enabled();
    });
  }

  const asks = (event) => event.preventDefault();
  for (const handler of [asks, (event) => { event.returnValue = "Unsaved"; }]) {
    it("when the person was asked whether to leave the page by " + handler, async () => {
      for (const submit of [() => page.submit(form, pay), sent]) { // asked before and after the button is disabled
        await submit();
        page.leave(handler);
        next();
        await enabled();
        page.show("pageshow", true);
      }
    });
  }

  it("and no listener stays if the page sends the form by itself", async () => {
    form.listeners.push((event) => event.preventDefault());
    await page.submit(form, pay);
    next();
    assert.deepEqual(getEventListeners(page.window, "beforeunload"), []);
  });

  it("but not when nobody asks, or later: no listener stays", async () => {
    await sent();
    for (const handler of [() => {}, asks]) {
      page.leave(handler);
      next();
      assert.equal(pay.disabled, true);
    }
  });

  it("and the button has the focus again, unless something else has it", async () => {
    for (const other of [pay, name]) {
      pay.focus();
      await sent();
      assert.equal(document.activeElement, document.body);
      if (other != pay) other.focus();
      page.show("pageshow", true);
      assert.equal(document.activeElement, other);
    }
  });

  it("but not by the timer of an earlier submission", async () => {
    await sent();
    mock.timers.tick(59_000);
    page.show("pageshow", true);
    await enabled();
    mock.timers.tick(2000);
    assert.equal(pay.disabled, true);
  });

  it("but not what the page itself has disabled", async () => {
    save.disabled = true;
    await sent();
    page.show("pageshow", true);
    assert.deepEqual([pay.disabled, save.disabled], [false, true]);
  });
});

it("the status says that the form is being sent, as long as it is", async () => {
  form.status = page.form({ "data-idem-status": "Sending…" });
  await page.submit(form);
  next();
  assert.equal(form.status.textContent, "Sending…");
  page.show("pageshow", true);
  assert.equal(form.status.textContent, "");
});
