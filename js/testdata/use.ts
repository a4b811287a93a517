// What the types must allow, and what they must not.

import { fetch, intent, type IdemInit, type Intent } from "idem-js";

const pay: Intent = intent("pay");
const init: IdemInit = { method: "POST", body: "{}", intent: pay, tries: 3, timeout: Infinity };
export const answers: Promise<Response>[] = [
  fetch("/payments", init),
  fetch(new URL("https://shop.example/payments"), { intent: "pay", signal: AbortSignal.timeout(1) }),
  fetch(new Request("/payments")),
];
export const key: string = intent().key;
pay.forget();
pay.forget(key);

// @ts-expect-error: the key is the script's to make
pay.key = "k-1";
// @ts-expect-error: a name is a string
intent(1);
// @ts-expect-error: no such option
fetch("/payments", { retries: 3 });
