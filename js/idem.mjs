import "./idem.js";

export const { fetch, intent } = globalThis.idem;
