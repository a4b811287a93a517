"""Signs a request for a verifier of github.com/idem-go/idem (scheme v1).

Sends what comes by stdin to a URL, and prints the status and the body of the answer:

    IDEM_KEY_ID=demo IDEM_SECRET=0123456789abcdef0123456789abcdef python3 sign.py URL [IDEMPOTENCY-KEY] <body.json

It needs Python 3.9 or later.
"""

import hashlib
import hmac
import os
import secrets
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


def sign(key_id, secret, method, url, headers, body, timestamp=None, nonce=None):
    """Returns headers with a signature (and Host) added; secret and body are bytes.

    Send them with the same method, url and body, once: another try needs another signature.
    """
    timestamp = str(int(time.time()) if timestamp is None else timestamp)
    nonce = nonce or secrets.token_hex(16)

    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower().removesuffix(":443" if parts.scheme == "https" else ":80")
    covered = sorted((name.lower(), value.strip(" \t")) for name, value in headers.items()
                     if name.lower() in ("content-encoding", "content-type", "idempotency-key"))
    names = ";".join(name for name, _ in covered)
    lines = ["v1", key_id, method, host, parts.path or "/", parts.query, timestamp, nonce,
             hashlib.sha256(body).hexdigest(),
             names] + [f"{name}:{value}" for name, value in covered]

    mac = hmac.new(secret, "\n".join(lines).encode(), hashlib.sha256).hexdigest()
    return {**headers, "Host": host, "X-Key-Id": key_id, "X-Timestamp": timestamp, "X-Nonce": nonce,
            "X-Signed-Headers": names, "X-Signature": "v1=" + mac}


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """The signature is good for one URL only."""

    def redirect_request(self, *args):
        return None


def main(url=None, idempotency_key=None):
    key_id, secret = os.environ.get("IDEM_KEY_ID"), os.fsencode(os.environ.get("IDEM_SECRET", ""))
    if not url or not key_id or not secret:
        sys.exit("usage: IDEM_KEY_ID=… IDEM_SECRET=… python3 sign.py URL [IDEMPOTENCY-KEY] <body.json")
    url = urllib.parse.quote(url, safe="%!#$&'()*+,/:;=?@[]~")  # urllib sends ASCII only
    body = sys.stdin.buffer.read()

    headers = {"Content-Type": "application/json"}
    if idempotency_key:
        headers["Idempotency-Key"] = idempotency_key
    request = urllib.request.Request(url, body, sign(key_id, secret, "POST", url, headers, body), method="POST")
    try:
        response = urllib.request.build_opener(NoRedirects).open(request, timeout=30)
    except urllib.error.HTTPError as refused:
        response = refused
    print(response.status, response.read().decode())
    return 0 if 200 <= response.status < 300 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
