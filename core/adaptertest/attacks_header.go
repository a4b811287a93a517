package adaptertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/sign"
)

// doubled are rows for a field that is sent twice, with a bad value in front, a bad value behind, and the
// good value twice. The message is signed as the good value alone makes it.
func doubled(name, bad string, w verdict) []attack {
	const why = "the verifier may look at the first line and the handler at the last, or the other way round"
	return []attack{
		one(name+" twice, the bad one first", why, good.then(first(name, bad)), w),
		one(name+" twice, the bad one last", why, good.then(last(name, bad)), w),
		one(name+" twice, the same", why, good.then(twice(name)), w),
		one(name+" twice, in another spelling", "names are the same in any case", good.then(last(strings.ToLower(name), bad)), w),
		one(name+" twice, the second empty", "an empty line is a line", good.then(last(name, "")), w),
	}
}

// override are rows for a field by which some servers let a client say that its request is another one.
// meant is what a proxy would have made of a request in which from was changed.
func override(name, value string, swapped change) []attack {
	return []attack{
		one(name+" beside a good request", "what is not signed changes nothing: the request is as it was sent", good.then(last(name, value)), accepted),
		one(name+" to make up for a change", "a path taken from an unsigned X-Request-Uri: the signature must be that of what was sent",
			good.then(swapped, last(name, value)), badMAC),
	}
}

var headerGroups = []attackGroup{
	{
		name: "duplicated fields",
		attacks: slices.Concat(
			doubled("X-Signature", "v1="+strings.Repeat("0", 64), duplicate),
			doubled("X-Key-Id", "bob", duplicate),
			doubled("X-Timestamp", "1700000001", duplicate),
			doubled("X-Nonce", "n-0123456789abcdef", duplicate),
			doubled("X-Signed-Headers", "content-type", duplicate),
			doubled("Content-Type", "text/plain", duplicate),
			doubled("Idempotency-Key", `"k-2"`, duplicate),
			doubled("Host", "evil.example.com", duplicate.orFront()),
			[]attack{
				one("Idempotency-Key twice, not signed", "two keys are not one, signed or not", good.with(cover("content-type")).then(twice("Idempotency-Key")), duplicate),
				one("Content-Type twice, not signed", "two types are not one, signed or not", good.with(cover("idempotency-key")).then(last("Content-Type", "text/plain")), duplicate),
				one("another field twice, not signed", "what is not signed is not the verifier's: it says nothing", good.then(last("X-Other", "1"), last("X-Other", "2")), accepted),
				one("a signed field of one's own twice", "each signed field is sent once", good.with(last("X-Tenant", "a"), cover("content-type;idempotency-key;x-tenant")).then(last("X-Tenant", "b")), duplicate),
				one("a signed field of one's own twice, the bad one first", "each signed field is sent once", good.with(last("X-Tenant", "a"), cover("content-type;idempotency-key;x-tenant")).then(first("X-Tenant", "b")), duplicate),
				one("a signed field joined by a comma", "what a proxy makes of two lines is another value", good.with(last("X-Tenant", "a"), cover("content-type;idempotency-key;x-tenant")).then(set("X-Tenant", "a, b")), badMAC),
			},
		),
	},
	{
		name: "fields that override",
		attacks: slices.Concat(
			override("X-Request-Uri", goodTarget, target("/transfers/evil?x=2&x=1")),
			override("X-Original-URL", goodTarget, target("/transfers/evil?x=2&x=1")),
			override("X-Original-URI", goodTarget, target("/transfers/evil?x=2&x=1")),
			override("X-Rewrite-URL", goodTarget, target("/transfers/evil?x=2&x=1")),
			override("X-Forwarded-Uri", goodTarget, target("/transfers/evil?x=2&x=1")),
			override("X-Forwarded-Prefix", "/transfers", target("/a%2Fb?x=2&x=1")),
			override("X-Forwarded-Host", "api.example.com", host("evil.example.com")),
			override("X-Host", "api.example.com", host("evil.example.com")),
			override("X-Original-Host", "api.example.com", host("evil.example.com")),
			override("Forwarded", `host=api.example.com;proto=https`, host("evil.example.com")),
			override("X-Forwarded-Port", "8080", host("api.example.com:8080")),
			override("X-Forwarded-Method", "POST", method("PUT")),
			override("X-HTTP-Method-Override", "POST", method("PUT")),
			override("X-HTTP-Method", "POST", method("DELETE")),
			override("X-Method-Override", "POST", method("PATCH")),
			[]attack{
				one("X-Forwarded-Proto", "v1 signs no scheme, and no field may say another one", good.then(last("X-Forwarded-Proto", "https")), accepted),
				one("X-Forwarded-Host with another host", "the host is the one that was sent", good.then(last("X-Forwarded-Host", "evil.example.com")), accepted),
				one("X-HTTP-Method-Override with another method", "the handler sees the method that was signed", good.then(last("X-HTTP-Method-Override", "DELETE")), accepted),
				one("X-Original-URL with another path", "the handler is the one for the path that was signed", good.then(last("X-Original-URL", "/admin")), accepted),
				one("_method in the query", "a parameter is a part of the query, not the method", good.with(target("/transfers?_method=DELETE")), accepted),
				one("X-Signature in another spelling", "X_Signature is another field: CGI makes one name of both", good.then(rename("X-Signature", "X_Signature")), missing.orFront()),
				one("X_Nonce beside X-Nonce", "what is not the field's name changes nothing", good.then(last("X_Nonce", "n-0123456789abcdef")), accepted.orFront()),
			},
		),
	},
	{
		name: "the list of signed fields",
		attacks: []attack{
			one("not sorted", "one list has one form", good.with(cover("idempotency-key;content-type")), malformed),
			one("upper case", "names are lower case", good.with(cover("Content-Type;Idempotency-Key")), malformed),
			one("a name twice", "each once", good.with(cover("content-type;content-type;idempotency-key")), malformed),
			one("comma", "the separator is a semicolon", good.with(cover("content-type,idempotency-key")), malformed),
			one("blanks", "nothing is trimmed inside", good.with(cover("content-type; idempotency-key")), malformed),
			one("an empty name", "names have characters", good.with(cover(";content-type;idempotency-key")), malformed),
			one("an empty name at the end", "as above", good.with(cover("content-type;idempotency-key;")), malformed),
			one("a separator alone", "as above", good.with(uncovered(), cover(";")), malformed),
			one("a name that is none", "a colon would end the name", good.with(cover("content-type;idempotency-key;x:y")), malformed),
			one("a wildcard", "a name is a name", good.with(cover("*;content-type;idempotency-key")), notCovered),
			one("host", "the host is signed on a line of its own; frameworks keep the field apart", good.with(cover("content-type;host;idempotency-key")), malformed),
			one("content-length", "proxies change it, and the body is signed by its digest", good.with(cover("content-length;content-type;idempotency-key")), malformed),
			one("transfer-encoding", "it belongs to one connection", good.with(cover("content-type;idempotency-key;transfer-encoding")), malformed),
			one("connection", "it belongs to one connection", good.with(cover("connection;content-type;idempotency-key")), malformed),
			one("x-signature", "the signature cannot sign itself", good.with(cover("content-type;idempotency-key;x-signature")), malformed),
			one("x-signed-headers", "the list is signed on a line of its own", good.with(cover("content-type;idempotency-key;x-signed-headers")), malformed),
			one("a field that is not there", "what is said to be signed must be there", good.with(cover("content-type;idempotency-key;x-absent")), notCovered),
			one("a field that is not there, as empty", "no field is not an empty field", good.with(last("X-Absent", ""), cover("content-type;idempotency-key;x-absent")).then(drop("X-Absent")), notCovered),
			one("an empty field", "an empty field is a field", good.with(last("X-Note", ""), cover("content-type;idempotency-key;x-note")), accepted),
			one("a field of one's own", "any end-to-end field can be signed", good.with(last("X-Tenant", "a:b"), cover("content-type;idempotency-key;x-tenant")), accepted),
			one("the Authorization field", "a credential can be signed, and does not appear in what is logged",
				good.with(last("Authorization", "Bearer 5ecr3t-t0ken-0f-s0mebody"), cover("authorization;content-type;idempotency-key")), accepted),
			one("empty, with an Idempotency-Key", "Idempotency-Key must be covered when present", good.with(cover("")), notCovered),
			one("missing, with an Idempotency-Key", "as above", good.with(drop("X-Signed-Headers")), notCovered),
			one("without the Idempotency-Key", "as above: else anybody may put another key on the request", good.with(cover("content-type")), notCovered),
			one("an Idempotency-Key that was added", "as above: a signed request without a key gets none on its way", good.with(uncovered()).then(last("Idempotency-Key", `"k-1"`)), notCovered),
			one("an empty Idempotency-Key that was added", "an empty field is a field", good.with(uncovered()).then(last("Idempotency-Key", "")), notCovered),
			one("idempotency-key in lower case", "names are the same in any case", good.with(uncovered()).then(last("idempotency-key", `"k-1"`)), notCovered),
			one("without the Content-Type", "Content-Type must be covered when present: it says how the body is read", good.with(cover("idempotency-key")), notCovered),
			one("a Content-Type that was added", "as above", good.with(drop("Content-Type"), cover("idempotency-key")).then(last("Content-Type", "text/xml")), notCovered),
			one("no Content-Type", "what is not there need not be signed", good.with(drop("Content-Type"), cover("idempotency-key")), accepted),
			one("the list shortened", "the list itself is signed", good.with(last("X-Tenant", "a"), cover("content-type;idempotency-key;x-tenant")).then(cover("content-type;idempotency-key")), badMAC),
			one("the list gone, and all on it", "as above", good.then(drop("X-Signed-Headers", "Idempotency-Key", "Content-Type")), badMAC),
		},
	},
	{
		name: "an unsigned Content-Type",
		change: func(_ *signedEnv, s *service) {
			scheme, err := sign.NewV1(sign.V1Options{UnsignedContentType: true})
			if err != nil {
				panic(err) // the suite's own options
			}
			s.sign.Scheme = scheme
		},
		attacks: []attack{
			one("is taken", "clients that do not sign it are let in where the configuration says so", good.with(cover("idempotency-key")), accepted),
			one("is not the key", "nothing else is", good.with(cover("content-type")), notCovered),
			one("signed and changed", "who signs it is protected all the same", good.then(set("Content-Type", "text/xml")), badMAC),
		},
	},
	{
		name: "signed fields",
		attacks: []attack{
			one("the key removed", "a covered field cannot be taken away", good.then(drop("Idempotency-Key")), notCovered),
			one("the key changed", "a covered field cannot be changed", good.then(set("Idempotency-Key", `"k-2"`)), badMAC),
			one("the key emptied", "as above", good.then(set("Idempotency-Key", "")), badMAC),
			one("the key without its quotes", "values are signed as sent", good.then(set("Idempotency-Key", "k-1")), badMAC),
			one("the key in capitals", "values are signed as sent", good.then(set("Idempotency-Key", `"K-1"`)), badMAC),
			one("the type removed", "a covered field cannot be taken away", good.then(drop("Content-Type")), notCovered),
			one("the type changed", "JSON read as a form is another request", good.then(set("Content-Type", "application/x-www-form-urlencoded")), badMAC),
			one("a parameter of the type added", "values are signed as sent", good.then(set("Content-Type", "application/json; charset=utf-7")), badMAC),
			one("the type in capitals", "values are signed as sent, also those that mean the same", good.then(set("Content-Type", "Application/JSON")), badMAC),
			one("two values exchanged", "each line has its name", good.then(set("Content-Type", `"k-1"`), set("Idempotency-Key", "application/json")), badMAC),
			one("space around", "RFC 9110, section 5.5: space around a value is not of it", good.then(raw("Content-Type", "  application/json  "), raw("Idempotency-Key", `"k-1"`)), accepted),
			one("tabs around", "a server may take them for a part of the value: what is not signed must not reach the handler", good.then(raw("Content-Type", "\t application/json \t ")), verdict{either: true}),
			one("no space", "as above", good.then(raw("X-Key-Id", "demo"), raw("X-Signed-Headers", "content-type;idempotency-key")), accepted),
			one("space inside", "space inside a value is of it", good.with(set("Content-Type", "application/json;  charset=utf-8")).then(set("Content-Type", "application/json; charset=utf-8")), badMAC),
			one("space inside, kept", "as above", good.with(set("Content-Type", "application/json;  charset=utf-8")), accepted),
			one("names in lower case", "RFC 9110, section 5.1: names are the same in any case", good.then(
				rename("X-Signature", "x-signature"), rename("X-Key-Id", "x-key-id"), rename("X-Timestamp", "x-timestamp"), rename("X-Nonce", "x-nonce"),
				rename("X-Signed-Headers", "x-signed-headers"), rename("Content-Type", "content-type"), rename("Idempotency-Key", "idempotency-key"), rename("Host", "host")), accepted),
			one("names in capitals", "as above", good.then(
				rename("X-Signature", "X-SIGNATURE"), rename("X-Key-Id", "X-KEY-ID"), rename("X-Timestamp", "X-TIMESTAMP"), rename("X-Nonce", "X-NONCE"),
				rename("X-Signed-Headers", "X-SIGNED-HEADERS"), rename("Content-Type", "CONTENT-TYPE"), rename("Idempotency-Key", "IDEMPOTENCY-KEY"), rename("Host", "HOST")), accepted),
			one("in another order", "lines are found by their names", good.then(func(m *message) { slices.Reverse(m.lines) }), accepted),
			one("a blank in front of the colon", "RFC 9112, section 5.1: such a message is refused", good.then(rename("X-Nonce", "X-Nonce ")), missing.orFront()),
			one("a folded line", "RFC 9112, section 5.2: a fold is refused, or is a blank", good.then(raw("Content-Type", " application/\r\n json")), badMAC.orFront()),
			one("a bare line feed", "a value that ends a line of the signing string", good.with(set("Content-Type", "text/plain\nidempotency-key:x")), verdict{either: true}),
			one("a bare carriage return", "RFC 9112, section 2.2: refused, or a blank", good.then(set("X-Key-Id", "de\rmo")), malformed.orFront()),
			one("a line without a colon", "no field at all", good.then(func(m *message) { m.lines[1] = line{"X-Nothing\r\nX-Rest", " 1"} }), notCovered.orFront()),
		},
	},
	{
		name: "the size of the header",
		attacks: []attack{
			one("80 lines", "what is in the limits is good", good.then(lines(70, 10)), accepted),
			one("120 lines", "header count and size come first", good.then(lines(112, 10)), malformed.orFront()),
			one("40 KiB", "as above", good.then(lines(40, 1024)), malformed.orFront()),
			one("a target of 40 KiB", "the target is looked at as the header is", good.with(target("/hooks?x="+strings.Repeat("x", 40<<10))), malformed.orFront()),
			one("120 lines with nothing signed", "as above, whatever it is", good.then(drop("X-Signature"), lines(120, 10)), malformed.orFront()),
			one("a list of a thousand names", "a long list is a short denial of service", good.with(cover(strings.Join(headerNames(1000), ";"))), notCovered.orFront()),
		},
	},
}

// lines adds n lines of a value of so many bytes.
func lines(n, bytes int) change {
	return func(m *message) {
		for i := range n {
			m.lines = append(m.lines, line{fmt.Sprintf("X-Filler-%d", i), " " + strings.Repeat("f", bytes)})
		}
	}
}

func headerNames(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("x-name-%04d", i)
	}
	return list
}
