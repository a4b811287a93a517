package adaptertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/sign"
)

// doubled are attacks for a field that is sent twice, with a bad value in front, a bad value behind, and the
// good value twice. The message is signed as the good value alone makes it.
func doubled(name, bad string, w verdict) []attack {
	const why = "the verifier may look at the first line and the handler at the last, or the other way round"
	return []attack{
		single(name+" twice, the bad one first", why, good.then(first(name, bad)), w),
		single(name+" twice, the bad one last", why, good.then(last(name, bad)), w),
		single(name+" twice, the same", why, good.then(twice(name)), w),
		single(name+" twice, in another spelling", "names are the same in any case", good.then(last(strings.ToLower(name), bad)), w),
		single(name+" twice, the second empty", "a line with an empty value is a line", good.then(last(name, "")), w),
	}
}

// override are attacks for a field by which some servers let a client say that its request is another one.
// meant is what a proxy would have made of a request in which from was changed.
func override(name, value string, swapped change) []attack {
	return []attack{
		single(name+" beside a good request", "what is not signed changes nothing: the request is as it was sent", good.then(last(name, value)), accepted),
		single(name+" to make up for a change", "the signature must be that of the request as it was sent, whatever an unsigned field says",
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
				single("Idempotency-Key twice, not signed", "two Idempotency-Keys are refused, signed or not", good.with(cover("content-type")).then(twice("Idempotency-Key")), duplicate),
				single("Content-Type twice, not signed", "two Content-Types are refused, signed or not", good.with(cover("idempotency-key")).then(last("Content-Type", "text/plain")), duplicate),
				single("another field twice, not signed", "a field that is not signed may be sent twice: it is not the verifier's business", good.then(last("X-Other", "1"), last("X-Other", "2")), accepted),
				single("a signed field of one's own twice", "each signed field is sent once", good.with(last("X-Tenant", "a"), cover("content-type;idempotency-key;x-tenant")).then(last("X-Tenant", "b")), duplicate),
				single("a signed field of one's own twice, the bad one first", "each signed field is sent once", good.with(last("X-Tenant", "a"), cover("content-type;idempotency-key;x-tenant")).then(first("X-Tenant", "b")), duplicate),
				single("a signed field joined by a comma", "lines that a proxy has joined are another value than the one that was signed", good.with(last("X-Tenant", "a"), cover("content-type;idempotency-key;x-tenant")).then(set("X-Tenant", "a, b")), badMAC),
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
				single("X-Forwarded-Proto", "v1 signs no URL scheme, so a field that names one changes nothing", good.then(last("X-Forwarded-Proto", "https")), accepted),
				single("X-Forwarded-Host with another host", "the host is the one that was sent", good.then(last("X-Forwarded-Host", "evil.example.com")), accepted),
				single("X-HTTP-Method-Override with another method", "the handler sees the method that was signed", good.then(last("X-HTTP-Method-Override", "DELETE")), accepted),
				single("X-Original-URL with another path", "the handler is the one for the path that was signed", good.then(last("X-Original-URL", "/admin")), accepted),
				single("_method in the query", "a parameter is a part of the query, not the method", good.with(target("/transfers?_method=DELETE")), accepted),
				single("X-Signature in another spelling", "names with an underscore are other fields, although CGI makes one name of both", good.then(rename("X-Signature", "X_Signature")), missing.orFront()),
				single("X_Nonce beside X-Nonce", "what is not the field's name changes nothing", good.then(last("X_Nonce", "n-0123456789abcdef")), accepted.orFront()),
			},
		),
	},
	{
		name: "the list of signed fields",
		attacks: []attack{
			single("not sorted", "the list of signed fields is sorted: one list has one form", good.with(cover("idempotency-key;content-type")), malformed),
			single("upper case", "names in the list of signed fields are in lower case", good.with(cover("Content-Type;Idempotency-Key")), malformed),
			single("a name twice", "each name is on the list once", good.with(cover("content-type;content-type;idempotency-key")), malformed),
			single("comma", "names on the list are separated by semicolons", good.with(cover("content-type,idempotency-key")), malformed),
			single("blanks", "nothing inside a value is trimmed", good.with(cover("content-type; idempotency-key")), malformed),
			single("an empty name", "a name on the list is not empty", good.with(cover(";content-type;idempotency-key")), malformed),
			single("an empty name at the end", "a name on the list is not empty", good.with(cover("content-type;idempotency-key;")), malformed),
			single("a separator alone", "a separator alone is no list", good.with(uncovered(), cover(";")), malformed),
			single("a name that is none", "a name on the list is a field name: a colon would end it", good.with(cover("content-type;idempotency-key;x:y")), malformed),
			single("a wildcard", "the list names fields: a wildcard stands for none", good.with(cover("*;content-type;idempotency-key")), notCovered),
			single("host", "the host is signed on a line of its own; frameworks keep the field apart", good.with(cover("content-type;host;idempotency-key")), malformed),
			single("content-length", "Content-Length is not signed: proxies change it, and the signature covers the body by its digest", good.with(cover("content-length;content-type;idempotency-key")), malformed),
			single("transfer-encoding", "fields that belong to one connection are not signed", good.with(cover("content-type;idempotency-key;transfer-encoding")), malformed),
			single("connection", "fields that belong to one connection are not signed", good.with(cover("connection;content-type;idempotency-key")), malformed),
			single("x-signature", "X-Signature is not signed: a signature cannot sign itself", good.with(cover("content-type;idempotency-key;x-signature")), malformed),
			single("x-signed-headers", "the list is signed on a line of its own", good.with(cover("content-type;idempotency-key;x-signed-headers")), malformed),
			single("a field that is not there", "a field on the list must be there", good.with(cover("content-type;idempotency-key;x-absent")), notCovered),
			single("a field that is not there, as empty", "a missing field is not an empty one", good.with(last("X-Absent", ""), cover("content-type;idempotency-key;x-absent")).then(drop("X-Absent")), notCovered),
			single("an empty field", "an empty field counts as a field", good.with(last("X-Note", ""), cover("content-type;idempotency-key;x-note")), accepted),
			single("a field of one's own", "any end-to-end field can be signed", good.with(last("X-Tenant", "a:b"), cover("content-type;idempotency-key;x-tenant")), accepted),
			single("the Authorization field", "a credential can be signed, and does not appear in what is logged",
				good.with(last("Authorization", "Bearer 5ecr3t-t0ken-0f-s0mebody"), cover("authorization;content-type;idempotency-key")), accepted),
			single("empty, with an Idempotency-Key", "an Idempotency-Key must be signed when present", good.with(cover("")), notCovered),
			single("missing, with an Idempotency-Key", "an Idempotency-Key must be signed when present", good.with(drop("X-Signed-Headers")), notCovered),
			single("without the Idempotency-Key", "an Idempotency-Key must be signed when present: else anybody may put another key on the request", good.with(cover("content-type")), notCovered),
			single("an Idempotency-Key that was added", "an Idempotency-Key must be signed when present: a signed request without one gets none on its way", good.with(uncovered()).then(last("Idempotency-Key", `"k-1"`)), notCovered),
			single("an empty Idempotency-Key that was added", "an empty field counts as a field", good.with(uncovered()).then(last("Idempotency-Key", "")), notCovered),
			single("idempotency-key in lower case", "names are the same in any case", good.with(uncovered()).then(last("idempotency-key", `"k-1"`)), notCovered),
			single("without the Content-Type", "a Content-Type must be signed when present: it says how the body is read", good.with(cover("idempotency-key")), notCovered),
			single("a Content-Type that was added", "a Content-Type must be signed when present: it says how the body is read", good.with(drop("Content-Type"), cover("idempotency-key")).then(last("Content-Type", "text/xml")), notCovered),
			single("no Content-Type", "a field that is not there need not be signed", good.with(drop("Content-Type"), cover("idempotency-key")), accepted),
			single("the list shortened", "the list itself is signed", good.with(last("X-Tenant", "a"), cover("content-type;idempotency-key;x-tenant")).then(cover("content-type;idempotency-key")), badMAC),
			single("the list gone, and all on it", "the list itself is signed", good.then(drop("X-Signed-Headers", "Idempotency-Key", "Content-Type")), badMAC),
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
			single("is taken", "clients that do not sign it are let in where the configuration says so", good.with(cover("idempotency-key")), accepted),
			single("is not the key", "UnsignedContentType exempts the Content-Type and no other field", good.with(cover("content-type")), notCovered),
			single("signed and changed", "a client that signs its Content-Type is protected, whatever the configuration allows others", good.then(set("Content-Type", "text/xml")), badMAC),
		},
	},
	{
		name: "signed fields",
		attacks: []attack{
			single("the key removed", "a covered field cannot be taken away", good.then(drop("Idempotency-Key")), notCovered),
			single("the key changed", "a covered field cannot be changed", good.then(set("Idempotency-Key", `"k-2"`)), badMAC),
			single("the key emptied", "a covered field cannot be changed", good.then(set("Idempotency-Key", "")), badMAC),
			single("the key without its quotes", "values are signed as sent", good.then(set("Idempotency-Key", "k-1")), badMAC),
			single("the key in capitals", "values are signed as sent", good.then(set("Idempotency-Key", `"K-1"`)), badMAC),
			single("the type removed", "a covered field cannot be taken away", good.then(drop("Content-Type")), notCovered),
			single("the type changed", "the Content-Type is signed: JSON read as a form is another request", good.then(set("Content-Type", "application/x-www-form-urlencoded")), badMAC),
			single("a parameter of the type added", "values are signed as sent", good.then(set("Content-Type", "application/json; charset=utf-7")), badMAC),
			single("the type in capitals", "values are signed as sent, also those that mean the same", good.then(set("Content-Type", "Application/JSON")), badMAC),
			single("two values exchanged", "each signed line has its name: values cannot be exchanged", good.then(set("Content-Type", `"k-1"`), set("Idempotency-Key", "application/json")), badMAC),
			single("space around", "RFC 9110, section 5.5: the space around a value is not part of it", good.then(raw("Content-Type", "  application/json  "), raw("Idempotency-Key", `"k-1"`)), accepted),
			single("tabs around", "a server may take tabs around a value for a part of it: then the message is refused, for the handler must not see what was not signed", good.then(raw("Content-Type", "\t application/json \t ")), verdict{either: true}),
			single("no space", "RFC 9110, section 5.5: the space around a value is not part of it, and may be missing", good.then(raw("X-Key-Id", "demo"), raw("X-Signed-Headers", "content-type;idempotency-key")), accepted),
			single("space inside", "RFC 9110, section 5.5: the space inside a value is part of it", good.with(set("Content-Type", "application/json;  charset=utf-8")).then(set("Content-Type", "application/json; charset=utf-8")), badMAC),
			single("space inside, kept", "RFC 9110, section 5.5: the space inside a value is part of it", good.with(set("Content-Type", "application/json;  charset=utf-8")), accepted),
			single("names in lower case", "RFC 9110, section 5.1: names are the same in any case", good.then(
				rename("X-Signature", "x-signature"), rename("X-Key-Id", "x-key-id"), rename("X-Timestamp", "x-timestamp"), rename("X-Nonce", "x-nonce"),
				rename("X-Signed-Headers", "x-signed-headers"), rename("Content-Type", "content-type"), rename("Idempotency-Key", "idempotency-key"), rename("Host", "host")), accepted),
			single("names in capitals", "RFC 9110, section 5.1: names are the same in any case", good.then(
				rename("X-Signature", "X-SIGNATURE"), rename("X-Key-Id", "X-KEY-ID"), rename("X-Timestamp", "X-TIMESTAMP"), rename("X-Nonce", "X-NONCE"),
				rename("X-Signed-Headers", "X-SIGNED-HEADERS"), rename("Content-Type", "CONTENT-TYPE"), rename("Idempotency-Key", "IDEMPOTENCY-KEY"), rename("Host", "HOST")), accepted),
			single("in another order", "lines are found by their names", good.then(func(m *message) { slices.Reverse(m.lines) }), accepted),
			single("a blank in front of the colon", "RFC 9112, section 5.1: a blank in front of the colon is refused", good.then(rename("X-Nonce", "X-Nonce ")), missing.orFront()),
			single("a folded line", "RFC 9112, section 5.2: a folded line is refused, or the fold becomes a blank", good.then(raw("Content-Type", " application/\r\n json")), badMAC.orFront()),
			single("a bare line feed", "a line feed in a value must not end a line of the signing string", good.with(set("Content-Type", "text/plain\nidempotency-key:x")), verdict{either: true}),
			single("a bare carriage return", "RFC 9112, section 2.2: a bare carriage return is refused, or becomes a blank", good.then(set("X-Key-Id", "de\rmo")), malformed.orFront()),
			single("a line without a colon", "RFC 9112, section 5: a line without a colon is no field", good.then(func(m *message) { m.lines[1] = line{"X-Nothing\r\nX-Rest", " 1"} }), notCovered.orFront()),
		},
	},
	{
		name: "the size of the header",
		attacks: []attack{
			single("80 lines", "a header within the limits is accepted", good.then(lines(70, 10)), accepted),
			single("120 lines", "the number of header lines and their size are checked first", good.then(lines(112, 10)), malformed.orFront()),
			single("40 KiB", "the number of header lines and their size are checked first", good.then(lines(40, 1024)), malformed.orFront()),
			single("a target of 40 KiB", "the target counts towards the size of the header", good.with(target("/hooks?x="+strings.Repeat("x", 40<<10))), malformed.orFront()),
			single("120 lines with nothing signed", "the number of header lines is checked first, also of what is not signed", good.then(drop("X-Signature"), lines(120, 10)), malformed.orFront()),
			single("a list of a thousand names", "the work for a long list of names is bounded", good.with(cover(strings.Join(headerNames(1000), ";"))), notCovered.orFront()),
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
