// The types of idem.mjs, and of the global idem that idem.js sets.

export as namespace idem;

/** What a person wants once. Its key stands until an answer finishes the intent, or until it is forgotten. */
export interface Intent {
  /** The Idempotency-Key: a random UUID, or 32 hexadecimal digits on a page without TLS. The first look makes it. */
  readonly key: string;
  /** Forgets the key, so that the next look makes another. With an argument: only if that is the key. */
  forget(key?: string): void;
}

/** The options of the platform's fetch, and three of our own. */
export interface IdemInit extends RequestInit {
  /** The intent, or its name. Without one, the key is good for this call only. */
  intent?: Intent | string;
  /** How many requests are sent at most: 8 by default, 1 if the body is a stream. */
  tries?: number;
  /** How long the call may take until there is an answer, in milliseconds: 60 000 by default. It may be Infinity. */
  timeout?: number;
}

/**
 * Returns the intent with a name. Its key is kept in sessionStorage, which a tab keeps over a reload, or in the
 * memory of the page if there is no such storage. Two intents with one name are the same. One without a name
 * lives as long as the object.
 */
export function intent(name?: string): Intent;

/**
 * Does what the platform's fetch does; GET, HEAD, OPTIONS, TRACE and QUERY pass untouched. All others get an
 * Idempotency-Key, and are tried again with the same key after a network error, 409 in_progress, 429 and 503.
 *
 * A redirect does not take the key to another origin, unless init has redirect: "follow".
 *
 * It returns the answer that is final, or the last one when there are no more tries or no more time. It throws
 * what the platform's fetch throws: for wrong arguments at once, after a network error when there are no more
 * tries, and the signal's reason when that aborts. When the time is up during a try, it throws a DOMException
 * with the name TimeoutError. What it throws leaves the key for the next call.
 */
export function fetch(input: RequestInfo | URL, init?: IdemInit): Promise<Response>;
