#!/usr/bin/env python3
"""A second implementation of keys and fingerprints, which the expected ones in keys.json come from.

It is written from the documentation (the package comments of core and of core/internal/canon), not
from the Go code, and shares nothing with it but the file. It is made to be read: bytes are bytes, a
request is taken apart, and put together as the documentation says. It knows the multipart forms that
clients write; where the Go code leaves odd ones to mime/multipart, it takes them for malformed.

    keys.py           prints the name, the key and the fingerprint of each entry
    keys.py --text    prints what the digests are made of as well
    keys.py --check   exits with 1 if an expected key, fingerprint or refusal is another one
    keys.py --write   writes the expected ones into the file

A file other than the keys.json beside this program may be given as the last argument.
"""

import base64
import email.message
import hashlib
import json
import os
import quopri
import re
import sys
from urllib.parse import quote_plus, unquote_to_bytes


class Refusal(Exception):
    """The request gets no key; the argument is the code."""


class Raw(Exception):
    """The body can't be read as what it says it is, and counts as its raw bytes."""


# ---------------------------------------------------------------- the request


class Request:
    """An entry of the file, in bytes."""

    def __init__(self, entry):
        self.method = entry["method"].encode()
        path, _, query = entry["target"].encode().partition(b"?")
        self.route = entry.get("route", "").encode() or path
        self.query = query
        self.params = [(n.encode(), v.encode()) for n, v in entry.get("params") or []]
        self.header = [(n.lower(), v.encode()) for n, v in entry.get("headers") or []]
        self.body = entry.get("body", "").encode() or base64.b64decode(entry.get("body_base64", ""))
        self.consumed = [n.encode() for n in entry.get("consumed") or []]

    def lines(self, name):
        return [value for n, value in self.header if n == name.lower()]

    def first(self, name):
        return (self.lines(name) or [b""])[0]

    def the_only(self, name):
        """A field that tells who asks: not twice, and not empty."""
        lines = self.lines(name)
        return lines[0] if len(lines) == 1 and lines[0] else None


# ---------------------------------------------------------------- the parts of a key

PLAIN_IN_A_PART = b"-._~/:@,+*!$&'();"


def part(value):
    """Everything but letters, digits and -._~/:@,+*!$&'(); is percent-escaped."""
    return b"".join(
        bytes([c]) if bytes([c]).isalnum() or c in PLAIN_IN_A_PART else b"%%%02X" % c for c in value
    )


def hashed(value):
    return b"#" + base64.urlsafe_b64encode(hashlib.sha256(value).digest()).rstrip(b"=")


def user_part(user, secret=False):
    return hashed(user) if secret or len(user) > 64 else part(user)


def find_user(request, source):
    if source == "shared":
        return b""
    if source == "authorization":
        found = request.the_only("Authorization")
        found = found and user_part(found, secret=True)
    elif source == "authorization or real IP":
        if request.lines("Authorization"):
            found = find_user(request, "authorization")
        else:  # the second source: 1
            found = request.the_only("X-Real-IP")
            found = found and b"1#" + user_part(found)
    elif source == "":
        found = request.the_only("X-User")
        found = found and user_part(found)
    else:
        raise ValueError("no such user source: %r" % source)
    if found is None:
        raise Refusal("user_missing")
    return found


def client_key(request):
    """An RFC 8941 string without parameters, or a bare token, of at most 255 bytes."""
    lines = request.lines("Idempotency-Key")
    if not lines:
        raise Refusal("key_missing")
    if len(lines) > 1:
        raise Refusal("key_invalid")
    field = lines[0].strip(b" \t")
    if re.fullmatch(rb'"(?:[ !#-\[\]-~]|\\["\\])*"', field):
        key = re.sub(rb"\\(.)", rb"\1", field[1:-1])
    elif re.fullmatch(rb"[A-Za-z0-9!#$%&'*+.^_`|~:/=-]+", field):
        key = field
    else:
        raise Refusal("key_invalid")
    if not 0 < len(key) <= 255:
        raise Refusal("key_invalid")
    return key


# ---------------------------------------------------------------- what does not count

STAMPS = {b"timestamp", b"ts", b"requesttime", b"nonce"}
SIGNATURES = {b"sign", b"signature"}
COORDINATES = {b"lat", b"lng", b"lon", b"latitude", b"longitude"}


def folded(name):
    """In any case, with _ and - ignored; but _t is not t."""
    return b"_t" if name.lower() == b"_t" else re.sub(b"[_-]", b"", name.lower())


ONE, MANY = object(), object()  # * and **


def compile_path(path):
    segments = []
    for segment in re.findall(r"(?:^|\.)((?:[^\\.]|\\.)*)", path):
        wildcard = {"*": ONE, "**": MANY}.get(segment)
        segments.append(wildcard or re.sub(r"\\(.)", r"\1", segment).encode())
    return segments


def matches(pattern, path):
    """path is a list of names, and of indices as decimal numbers."""
    if not pattern:
        return not path
    if pattern[0] is MANY:
        return matches(pattern[1:], path) or bool(path) and matches(pattern, path[1:])
    return bool(path) and pattern[0] in (ONE, path[0]) and matches(pattern[1:], path[1:])


class Rules:
    def __init__(self, policy, consumed, algorithm):
        self.algorithm = algorithm
        self.consumed = consumed
        by_params = policy.get("key", "") == "" and policy.get("fields") is None
        self.default_names = by_params and policy.get("exclude_only") is None
        self.counting = set()  # the default names that count all the same
        self.there = set()  # those that there are, folded
        excluded = (policy.get("exclude") or []) + (policy.get("exclude_only") or [])
        self.excluded = [compile_path(p) for p in excluded]
        fields = policy.get("fields")
        self.fields = None if fields is None else [compile_path(p) for p in fields]
        self.files = not policy.get("without_files")
        self.file_names = not policy.get("without_file_names")
        self.selected = 0  # values that the fields have found

    def digest(self, content):
        return hashlib.new(self.algorithm, content).hexdigest().encode()

    def leaves_out(self, path, is_file=False):
        if any(matches(p, path) for p in self.excluded):
            return True
        if len(path) > 1 or is_file:
            return False
        if path[0] in self.consumed:
            return True
        name = folded(path[0])
        if not self.default_names or name not in {b"_t"} | STAMPS | SIGNATURES | COORDINATES:
            return False
        self.there.add(name)
        return name not in self.counting

    def decide(self, anything):
        """What counts of the default names; anything says whether anything else does, in query or body."""
        if not self.there & STAMPS:
            self.counting |= self.there & SIGNATURES
        if not anything and not self.counting:
            self.counting |= self.there & COORDINATES
        return self.counting

    def selects(self, path):
        return self.fields is None or any(matches(p, path) for p in self.fields)

    def counts(self, name, is_file=False):
        """Whether a pair of this name does."""
        if self.leaves_out([name], is_file) or not self.selects([name]):
            return False
        self.selected += self.fields is not None
        return True


# ---------------------------------------------------------------- pairs


def read_component(raw):
    """What a name or value stands for, and how it is written."""
    if re.search(rb"%(?![0-9A-Fa-f]{2})", raw):
        return raw, b"%!" + quote_plus(raw).encode()
    decoded = unquote_to_bytes(raw.replace(b"+", b" "))
    return decoded, quote_plus(decoded).encode()


def urlencoded(text, rules, prefix=b""):
    """The pairs of a query or form: where they are sorted in, and how they are written."""
    pairs = []
    for segment in text.split(b"&"):
        if not segment:
            continue
        name, _, value = segment.partition(b"=")
        name, name_text = read_component(name)
        _, value_text = read_component(value)
        if rules.counts(name):
            pairs.append((prefix + name, False, prefix + name_text + b"=" + value_text))
    return pairs


def parameters(value):
    """A media type, or a disposition, and its parameters."""
    message = email.message.Message()
    message["Content-Type"] = value.decode("utf-8", "surrogateescape")
    found = message.get_params(failobj=[("", "")], unquote=True)
    values = {}
    for name, text in found[1:]:
        if isinstance(text, tuple):  # RFC 2231
            text = email.utils.collapse_rfc2231_value(text)
        values.setdefault(name.lower(), text.encode("utf-8", "surrogateescape"))
    return found[0][0].strip(), values


def multipart(content_type, body, rules):
    boundary = parameters(content_type)[1].get("boundary", b"").rstrip()
    if not boundary:
        raise Raw
    delimiter = re.compile(rb"\r\n--" + re.escape(boundary) + rb"(?:(--)[ \t]*(?:\r\n|\Z)|[ \t]*\r\n)")
    text = b"\r\n" + body
    found = delimiter.search(text)
    pairs = []
    while True:
        if not found:
            raise Raw  # the end is missing
        if found[1]:
            break
        start = found.end()
        found = delimiter.search(text, start - 2)  # a part may be empty
        if not found:
            raise Raw
        pairs += form_part(text[start : found.start()], rules)
    return pairs


def form_part(text, rules):
    header, _, content = (b"\r\n" + text).partition(b"\r\n\r\n")
    name, file = b"", b""
    for line in header.split(b"\r\n")[1:]:
        field, colon, value = line.partition(b":")
        if not colon or not re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+", field):
            raise Raw
        if field.lower() == b"content-disposition":
            kind, values = parameters(value.strip())
            file = values.get("filename", b"")
            if kind.lower() == "form-data":
                name = values.get("name", b"")
        elif field.lower() == b"content-transfer-encoding" and value.strip().lower() == b"quoted-printable":
            content = quopri.decodestring(content)
    if file:
        if not rules.files or not rules.counts(name, is_file=True):
            return []
        file = os.path.basename(file.rstrip(b"/")) or b"/"
        value = b"@" + rules.digest(content)
        if rules.file_names:
            value += b";" + quote_plus(file).encode()
    else:
        if not rules.counts(name):
            return []
        value = quote_plus(content).encode()
    return [(b"body:" + name, bool(file), b"body:" + quote_plus(name).encode() + b"=" + value)]


# ---------------------------------------------------------------- JSON


class Number(str):
    """A number as it was written."""


NOTHING = object()  # an element that is not selected

MAX_DEPTH = 64


def read_json(body):
    def members(pairs):
        if len({name for name, _ in pairs}) < len(pairs):
            raise Raw
        return dict(pairs)

    def no_constant(_):
        raise Raw

    try:
        text = body.decode("utf-8")
        if text.startswith("\ufeff"):
            raise Raw
        value = json.loads(
            text, parse_int=Number, parse_float=Number, parse_constant=no_constant, object_pairs_hook=members
        )
    except (ValueError, RecursionError):
        raise Raw from None
    check_depth(value, 0)
    return value


def check_depth(value, depth):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None:
        return
    if depth == MAX_DEPTH:
        raise Raw
    for v in inner:
        check_depth(v, depth + 1)


def reduced(value, path, rules, selected):
    """What of the value counts; NOTHING if nothing of it does. All within a selected one does."""
    if isinstance(value, dict):
        left = {}
        for name, v in value.items():
            below = path + [name.encode("utf-8", "surrogatepass")]
            if not rules.leaves_out(below):
                v = chosen(v, below, rules, selected)
                if v is not NOTHING:
                    left[name] = v
        return left if left or selected else NOTHING
    if isinstance(value, list):
        left = []
        for i, v in enumerate(value):
            below = path + [b"%d" % i]
            if not any(matches(p, below) for p in rules.excluded):  # an index is no name
                left.append(chosen(v, below, rules, selected))
        while left and left[-1] is NOTHING:
            left.pop()
        return left if left or selected else NOTHING
    return value if selected else NOTHING


def chosen(value, path, rules, selected):
    if not selected and rules.selects(path):
        rules.selected += 1
        selected = True
    return reduced(value, path, rules, selected)


def write_json(value):
    if value is NOTHING:
        return ""
    if isinstance(value, Number):
        return write_number(value)
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(write_string(n) + ":" + write_json(value[n]) for n in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write_json, value)) + "]"
    return {True: "true", False: "false", None: "null"}[value]


def write_string(text):
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    return '"' + "".join(short.get(c) or ("\\u%04x" % ord(c) if c < " " else c) for c in text) + '"'


def write_number(text):
    """As ECMAScript does (Number::toString), but with all of its digits."""
    sign, whole, fraction, exponent = re.fullmatch(
        r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?", text
    ).groups(default="")
    digits = (whole + fraction).lstrip("0")
    if not digits.rstrip("0"):
        return "0"
    if len(exponent.lstrip("+-").lstrip("0")) > 18:
        raise Raw
    # The value is 0.DIGITS * 10^n.
    n = len(whole) + int(exponent or "0") - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    k = len(digits)
    if k <= n <= 21:
        return sign + digits + "0" * (n - k)
    if 0 < n <= 21:
        return sign + digits[:n] + "." + digits[n:]
    if -6 < n <= 0:
        return sign + "0." + "0" * -n + digits
    tail = "." + digits[1:] if k > 1 else ""
    return sign + digits[0] + tail + "e" + ("+" if n > 0 else "-") + str(abs(n - 1))


def json_text(body, rules):
    """The canonical JSON, or None if nothing of it was selected."""
    value = read_json(body)
    check_text(value)
    before = rules.selected
    value = reduced(value, [], rules, rules.fields is None)
    if rules.fields is not None and rules.selected == before:
        return None
    return write_json(value).encode("utf-8")


def check_text(value):
    """All of it must be well-formed, also what does not count: no lone surrogates, no huge exponents."""
    try:
        write_json(value).encode("utf-8")
    except UnicodeEncodeError:
        raise Raw from None


# ---------------------------------------------------------------- the canonical text

CONDITIONS = [
    "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range", "Content-Range",
]  # fmt: skip


def media_type(content_type):
    text = content_type.partition(b";")[0].strip(b" \t")
    return re.sub(rb"[A-Z]", lambda m: m[0].lower(), text)


def is_json(media):
    return media == b"application/json" or re.fullmatch(rb"[^/]+/.+\+json", media, re.DOTALL)


def canonical_text(request, rules, policy):
    text, anything = read(request, rules, policy)
    return read(request, rules, policy)[0] if rules.decide(anything) else text


def read(request, rules, policy):
    """The text, and whether anything of query and body counts."""
    content_type = request.first("Content-Type")
    media = media_type(content_type)
    pairs = [(n, False, quote_plus(n).encode() + b"=" + quote_plus(v).encode()) for n, v in request.params]
    pairs += urlencoded(request.query, rules)
    document = raw = None

    if request.body:
        found, there = rules.selected, set(rules.there)
        try:
            if request.first("Content-Encoding").strip(b" \t").lower() not in (b"", b"identity"):
                raise Raw
            if media == b"application/x-www-form-urlencoded":
                pairs += urlencoded(request.body, rules, b"body:")
            elif media == b"multipart/form-data":
                pairs += multipart(content_type, request.body, rules)
            elif is_json(media):
                document = json_text(request.body, rules)
            else:
                raise Raw
        except Raw:
            rules.selected, rules.there = found, there
            raw = b"\0" + request.body

    anything = len(pairs) > len(request.params) or raw is not None or document not in (None, b"{}")
    # Repeats stay in their order, but the files come last.
    pairs.sort(key=lambda pair: pair[:2])

    header = []
    for name in sorted({n.lower() for n in CONDITIONS + (policy.get("request_headers") or [])}):
        for value in request.lines(name):
            # A space in front keeps two names apart from the pairs of a form and from the type.
            space = b" " if name in ("body", "type") else b""
            line = value.strip(b" \t").replace(b"\n", b"\n ")
            header.append(name.encode() + b":" + space + line)

    parts = [b"&".join(text for _, _, text in pairs)] if pairs else []
    parts += [document] if document is not None else []
    parts += header
    if media not in (b"", b"application/json", b"application/x-www-form-urlencoded") and not re.match(
        rb"multipart/.", media, re.DOTALL
    ):
        parts.append(b"type:" + media.replace(b"\n", b"\n "))
    parts += [raw] if raw is not None else []
    return b"\n".join(parts), anything


# ---------------------------------------------------------------- keys


def derive(entry):
    """The key, the fingerprint and the text that one of them is a digest of."""
    request, policy = Request(entry), entry.get("policy") or {}
    rules = Rules(policy, request.consumed, "sha256" if policy.get("sha256") else "md5")
    by_client = policy.get("key", "") == "header"
    chosen_key = client_key(request) if by_client else None
    user = find_user(request, policy.get("user", ""))
    text = canonical_text(request, rules, policy)
    if rules.fields is not None and rules.selected == 0:
        raise Refusal("key_missing")
    key = b"idem:U=" + user + b"M=" + part(request.method) + b"%20" + part(request.route)
    if not by_client:
        return (key + b"P=" + rules.digest(text)).decode(), "", text
    fingerprint = "" if policy.get("ignore_fingerprint") else rules.digest(text).decode()
    return (key + b"K=" + part(chosen_key)).decode(), fingerprint, text


def outcome(entry):
    """What the entry should say, and the text."""
    try:
        key, fingerprint, text = derive(entry)
    except Refusal as refusal:
        return {"refusal": str(refusal)}, b""
    return {"key": key} | ({"fingerprint": fingerprint} if fingerprint else {}), text


OUTCOMES = ("key", "fingerprint", "refusal")


def written(entries):
    """The file, a line for each field."""
    blocks = []
    for entry in entries:
        lines = ["    %s: %s" % (json.dumps(n), json.dumps(v)) for n, v in entry.items()]
        blocks.append("  {\n" + ",\n".join(lines) + "\n  }")
    return "[\n" + ",\n".join(blocks) + "\n]\n"


def main(arguments):
    options = [a for a in arguments if a.startswith("--")]
    files = [a for a in arguments if not a.startswith("--")]
    if len(options) > 1 or len(files) > 1 or set(options) - {"--check", "--write", "--text"}:
        print(__doc__, file=sys.stderr)
        return 2
    path = files[0] if files else os.path.join(os.path.dirname(os.path.abspath(__file__)), "keys.json")
    with open(path, encoding="utf-8", newline="") as file:
        entries = json.load(file)
    wrong = 0
    for entry in entries:
        got, text = outcome(entry)
        if "--check" in options:
            expected = {n: entry[n] for n in OUTCOMES if entry.get(n)}
            if got != expected:
                wrong += 1
                print("%s: %s, not %s\n\t%r" % (entry["name"], got, expected, text))
        elif "--write" in options:
            for name in OUTCOMES:
                entry.pop(name, None)
            entry.update(got)
        else:
            print("%s: %s" % (entry["name"], ", ".join(got.values())))
            if "--text" in options:
                print("\t%r" % text)
    if "--write" in options:
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(written(entries))
    if wrong:
        print("%d of %d entries differ" % (wrong, len(entries)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
