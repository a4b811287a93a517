"""Sends a request until there is an answer, under one Idempotency-Key (see docs/clients.md).

Sends what comes by stdin to a URL, and prints the status and the body of the answer:

    python3 send.py URL [IDEMPOTENCY-KEY [FIELD: VALUE]...] <body.json

It needs Python 3.9 or later.
"""

import email.utils
import http.client
import io
import random
import sys
import time
import urllib.error
import urllib.request
import uuid

PASSES = {408, 425, 429, 502, 503, 504}
PASSES_AS = {"rate_limited", "store_unavailable", "shutting_down", "unfinished"}


class NoAnswer(Exception):
    """There is no answer yet, and the operation may have been carried out. Go on with the same key."""

    def __init__(self, key, why):
        super().__init__(f"{why}; go on with the key {key}")
        self.key = key


class Timed(io.RawIOBase):
    """What comes from a socket, until the time is up: a timeout of the socket is for each part of it."""

    def __init__(self, raw, sock):
        self.raw, self.sock, self.end = raw, sock, time.monotonic() + sock.gettimeout()

    def readable(self):
        return True

    def readinto(self, part):
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        self.sock.settimeout(left)
        return self.raw.readinto(part)

    def close(self):
        self.raw.close()
        super().close()


class Response(http.client.HTTPResponse):
    def __init__(self, sock, *args, **kwargs):
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(Timed(self.fp.detach(), sock))

    def begin(self):
        super().begin()
        while 101 < self.status < 200:  # 102 and 103 announce an answer, as 100 does
            self.headers = self.length = None
            super().begin()


class Connection(http.client.HTTPConnection):
    response_class = Response


class TLSConnection(http.client.HTTPSConnection):
    response_class = Response


class Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def http_open(self, request):
        return self.do_open(Connection, request)

    def https_open(self, request):
        return self.do_open(TLSConnection, request)


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """The key is for one host."""

    def redirect_request(self, *args):
        return None


def retry_after(headers):
    """Returns what Retry-After asks for, in seconds: 0 if it is not there, or is nothing."""
    value = headers.get("Retry-After", "")
    if value.isascii() and value.isdigit():
        return int(value[-9:]) if len(value.lstrip("0")) < 10 else 10**9
    now = date(headers.get("Date", ""))
    return max(0, (date(value) or 0) - (time.time() if now is None else now))


def date(value):
    """Returns a date in seconds since 1970: None if it is none."""
    try:
        return email.utils.mktime_tz(email.utils.parsedate_tz(value))
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def send(url, body, headers=None, key=None, method="POST", tries=8, patience=60, try_timeout=30):
    """Returns the status, the header and the body of the operation's answer; or raises NoAnswer.

    The key is a new one, or one that was stored with the operation before it was first sent. Do not send one that is older than
    the service keeps results: a day, as a rule. While the operation runs on the server, it is asked for more often than tries.
    """
    key = key or f'"{uuid.uuid4()}"'
    end = time.monotonic() + patience
    opener = urllib.request.build_opener(Handler, NoRedirects)
    n = 0
    while True:
        n += 1
        request = urllib.request.Request(url, body, {**(headers or {}), "Idempotency-Key": key}, method=method)
        code, asked = None, 0
        try:
            try:
                response = opener.open(request, timeout=max(0.1, min(try_timeout, end - time.monotonic())))
            except urllib.error.HTTPError as refused:
                response = refused
            with response:
                status, answer = response.status, response.read()
            code, asked = response.headers.get("Idempotency-Refused"), retry_after(response.headers)
            if code != "in_progress" and code not in PASSES_AS and status not in PASSES:
                return status, response.headers, answer
            why = f"{status} {code or ''}".rstrip()
        except (OSError, http.client.HTTPException) as failed:
            why = str(failed) or type(failed).__name__
        if code == "in_progress":
            n -= 1
        grown = min(0.1 * 2 ** n, 5)
        pause = max(asked, grown / 2) + random.uniform(0, grown)
        if n >= tries or time.monotonic() + pause > end:
            raise NoAnswer(key, why)
        time.sleep(pause)


def main(url=None, key=None, *fields):
    if not url:
        sys.exit("usage: python3 send.py URL [IDEMPOTENCY-KEY [FIELD: VALUE]...] <body.json")
    headers = {"Content-Type": "application/json", **dict(field.split(": ", 1) for field in fields)}
    try:
        status, _, body = send(url, sys.stdin.buffer.read(), headers, key)
    except NoAnswer as none:
        print("no answer:", none, file=sys.stderr)
        return 3  # it may have been carried out
    sys.stdout.buffer.write(b"%d %b\n" % (status, body))
    return 0 if 200 <= status < 300 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
