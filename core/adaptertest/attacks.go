package adaptertest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idem/sign"
)

// attackGroups are attacks on what an adapter shows to a verifier, and on what it leaves to the handler. What a verifier makes of
// times, keys, nonces and signatures is no business of an adapter's: package sign tests that.
var attackGroups = []attackGroup{
	{name: "methods", attacks: slices.Concat(methods, methodAttacks)},
	{name: "paths", attacks: slices.Concat(apart("the path is signed as it was sent, whatever routers make of it", paths...), pathAttacks)},
	{
		name:   "a route with a parameter",
		change: func(s *service) { s.pattern = "/accounts/:id" },
		attacks: apart("what a router decodes for the handler is not what was signed",
			[2]string{"/accounts/%61b", "/accounts/ab"}, [2]string{"/accounts/7",
				"/accounts/8"}, [2]string{"/accounts/7?x=1", "/accounts/7?x=2"}),
	},
	{name: "queries", attacks: slices.Concat(
		apart("the query is signed as it was sent, although URL.Query() sorts, decodes and drops pairs", queries...), queryAttacks)},
	{name: "hosts", attacks: hostAttacks},
	{name: "HTTP 2", needs: Features{HTTP2: true}, attacks: http2Attacks},
	{name: "duplicated fields", attacks: doubled},
	{name: "fields that override", attacks: overrides},
	{name: "signed fields", attacks: fieldAttacks},
	{name: "the size of the header", attacks: sizeAttacks},
	{name: "bodies", attacks: bodyAttacks},
	{name: "trailers", attacks: trailerAttacks},
	{name: "incomplete messages", attacks: framingAttacks},
	{name: "the body's limit", change: func(s *service) { s.sign.BodyLimit = 64 }, attacks: limitAttacks},
	{name: "answers", attacks: answerAttacks},
	{name: "a body of the service's own", change: ownBody, attacks: []attack{{
		why: "services have an error format of their own (sign.Config.Refuse): status and fields stay",
		do: func(p *attackRun) {
			r := p.send(good.with(by(forger)).message(), badMAC).reply
			if string(r.body) != `{"msg":"invalid"}` || r.get("Content-Type") != "application/json" {
				p.problem("the answer is %v", r)
			}
		},
	}}},
	{name: "requests over one connection", attacks: []attack{{
		why: "a framework such as Fiber uses the memory of a request again: an event in a queue, and a context that a " +
			"handler keeps, must go on to say the same",
		do: func(p *attackRun) {
			c, err := dial(p.e.addr)
			if err != nil {
				p.problem("%v", err)
				return
			}
			defer c.Close()
			for i := range 24 {
				r := good.with(by([]*signer{demo, bob, newDemo}[i%3])).then(kept)
				p.check(p.try(r.message(), func(m *message) (reply, error) {
					c.write(m)
					return c.receive(m.method)
				}), accepted)
			}
		},
	}}},
}

// single is an attack of one request.
func single(name, why string, r signedRequest, w verdict) attack {
	return attack{name: name, why: why, front: w.front || w.either || w.refused, do: func(p *attackRun) { p.send(r.message(), w) }}
}

// apart are attacks for two targets that somebody takes for one: each is accepted as it was signed, and is not the other.
func apart(why string, pairs ...[2]string) (all []attack) {
	for _, pair := range pairs {
		a, b := target(pair[0]), target(pair[1])
		all = append(all, attack{name: pair[0] + " and " + pair[1], why: why, do: func(p *attackRun) {
			p.send(good.with(a).message(), accepted)
			p.send(good.with(b).message(), accepted)
			p.send(good.with(a).then(b).message(), badMAC)
			p.send(good.with(b).then(a).message(), badMAC)
		}})
	}
	return all
}

// methods are an attack for each: signed it is accepted, and exchanged for another it is not.
var methods = func() (all []attack) {
	names := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	for i, name := range names {
		all = append(all, attack{name: name, why: "the method is signed, whichever it is", do: func(p *attackRun) {
			r := good.with(method(name), empty())
			p.send(r.message(), accepted)
			p.send(r.with(uncovered()).message(), accepted)
			p.send(r.then(method(names[(i+1)%len(names)])).message(), badMAC)
			p.send(r.then(drop("X-Signature")).message(), missing)
		}})
	}
	return all
}()

var methodAttacks = []attack{
	single("PROPFIND", "a method that is not in a framework's list is signed as well", good.with(method("PROPFIND")), accepted.orFront()),
	single("post", "methods are case-sensitive (RFC 9110, section 9.1)", good.then(method("post")), badMAC.orFront()),
	single("DELETE with a body", "the body is signed under every method", good.with(method("DELETE")).then(flip(0)), badMAC),
	single("GET with a body", "the body is signed under every method: one that the signature does not cover is refused, or nobody sees it",
		good.with(method("GET"), empty()).then(body("x=1")), verdict{err: badMAC.err, front: true}),
	single("OPTIONS *", "RFC 9112, section 3.2.4: a server may answer it by itself", good.with(method("OPTIONS"), target("*"), empty()),
		verdict{either: true, itself: true}),
}

var paths = [][2]string{
	{"/transfers/a%2Fb", "/transfers/a/b"},
	{"/transfers/a%2Fb", "/transfers/a%2fb"},
	{"/transfers/%61b", "/transfers/ab"},
	{"/transfers/a%20b", "/transfers/a+b"},
	{"/transfers%3Fx=1", "/transfers?x=1"},
	{"/transfers;admin=1", "/transfers"},
	{"/transfers//a", "/transfers/a"},
	{"//transfers/a", "/transfers/a"}, // it looks like an authority
	{"/transfers/../admin", "/admin"},
	{"/transfers/%2e%2e/admin", "/transfers/../admin"},
	{"/transfers/", "/transfers"},
	{`/transfers\a`, "/transfers/a"},
	{"/transfers/%C3%A9", "/transfers/e%CC%81"},
}

var pathAttacks = []attack{
	single("a URL behind two slashes", "a path that holds a URL is refused, or the handler sees what was signed: servers differ "+
		"about its host", good.with(target("//evil.example.com/a://b")), verdict{either: true}),
	single("bytes beyond ASCII", "the path is signed as it was sent, if the server takes it at all",
		good.with(target("/transfers/é")), accepted.orFront()),
	single("%00", "an escaped NUL does not end the path", good.with(target("/transfers/a%00b")), accepted.orFront()),
	single("a bad escape", "nothing is decoded, so a bad escape is no error; a server may refuse it",
		good.with(target("/transfers/%zz")), accepted.orFront()),
	single("a fragment", "RFC 9112, section 3.2: a target has no fragment, which would hide a part of the path",
		good.with(target("/transfers")).then(target("/transfers#/../admin")), malformed.orFront()),
}

var queries = [][2]string{
	{"/t?a=1&b=2", "/t?b=2&a=1"},
	{"/t?a=1&b=2;c=3", "/t?a=1"},
	{"/t?a=1&b=%zz", "/t?a=1"},
	{"/t?a=b+c", "/t?a=b%20c"},
	{"/t?%61=1", "/t?a=1"},
	{"/t?a=1%26b=2", "/t?a=1&b=2"},
	{"/t?a=", "/t?a"},
	{"/t?&&a=1&", "/t?a=1"},
	{"/t?a=1", "/t"},
	{"/t?a=1", "/t%3Fa=1"},
}

var queryAttacks = []attack{
	single("an empty query", "a question mark alone is no query", good.with(target("/t?")), accepted),
	single("an empty query added", "a question mark alone is no query", good.with(target("/t")).then(target("/t?")), accepted),
}

var hostAttacks = []attack{
	single("another", "a signature for one service is not good at its neighbour's", good.then(host("evil.example.com")), badMAC),
	single("in capitals", "the host is signed in lower case (RFC 9110, section 4.2.3)", good.then(host("API.Example.COM")), accepted),
	single("a port", "the host is signed with the port, if one was sent", good.with(host("api.example.com:8443")), accepted),
	single("an empty port", "nothing is normalised but the case", good.then(host("api.example.com:")), badMAC.orFront()),
	single("an IPv6 address", "the host is signed with the brackets of an IPv6 address", good.with(host("[::1]:8080")), accepted),
	single("empty", "a request names its host", good.with(host("")), malformed.orFront()),
	single("missing", "RFC 9112, section 3.2: a request without Host is refused", good.then(drop("Host")), malformed.orFront()),
	single("with a path", "a host has no slash: the line for the path is another one",
		good.with(host("api.example.com/transfers")), malformed.orFront()),
	single("with a user", "a host has no @", good.with(host("api.example.com@evil.example.com")), malformed.orFront()),

	single("absolute form", "RFC 9112, section 3.2.2: path and query of a target in absolute form are those behind its host",
		good.with(target("http://api.example.com/t?x=1"), signs("api.example.com", "/t", "x=1")), accepted),
	single("absolute form without a path", "RFC 9112, section 3.2.2: an empty path is /",
		good.with(target("http://api.example.com"), signs("api.example.com", "/", "")), verdict{unrouted: true}),
	single("absolute form over another Host",
		"what is verified must be what is routed; a server that shows no Host but the target's (RFC 9112, section 3.2.2) may go by that",
		good.with(target("http://api.example.com/t"), host("proxy.example.com"), signs("api.example.com", "/t", "")),
		malformed.orHidden(accepted)),
	single("absolute form against the Host field",
		"what is verified must be what is routed: a signature for what Host says is not good for what the target says",
		good.with(target("http://evil.example.com/t"), signs("api.example.com", "/t", "")), malformed.orHidden(badMAC)),
	single("absolute form with another port", "what is verified must be what is routed: two ports are two services",
		good.with(target("http://api.example.com:8443/t"), signs("api.example.com:8443", "/t", "")), malformed.orHidden(accepted)),
	single("absolute form with a user", "credentials in a target are no part of a host",
		good.with(target("http://demo@api.example.com/t"), signs("api.example.com", "/t", "")), malformed.orFront()),
}

var noHost = good.with(drop("Host"), signs("api.example.com", "/transfers/a%2Fb", "x=2&x=1"))

var http2Attacks = []attack{
	overHTTP2("as signed", "RFC 9113, section 8.3.1: :authority stands for Host", "api.example.com", noHost, accepted),
	overHTTP2("Host alone", "RFC 9113, section 8.3.1: a request that was translated from HTTP/1.1 may have Host in place of :authority",
		"", good, accepted),
	overHTTP2("Host beside it", "RFC 9113, section 8.3.1: :authority and Host may both be there if they are the same",
		"api.example.com", good, accepted),
	overHTTP2("another :authority", "the host is signed", "evil.example.com", noHost, badMAC),
	overHTTP2("another Host",
		"RFC 9113, section 8.3.1: :authority and Host must not differ: a router may go by one and a service behind it by the other",
		"api.example.com", good.with(host("evil.example.com")), malformed),
	overHTTP2("an absolute :path", "a target in absolute form names the same host", "api.example.com",
		good.with(drop("Host"), target("http://api.example.com/t?x=1"), signs("api.example.com", "/t", "x=1")),
		accepted.orFrontFrom("go1.27")),
	overHTTP2("an absolute :path of another host",
		"verifier and router must take the host from one place: else a signature for one host is good at another",
		"evil.example.com", good.with(drop("Host"), target("http://api.example.com/t"), signs("api.example.com", "/t", "")),
		malformed.orFrontFrom("go1.27")),
	overHTTP2("an absolute :path against :authority",
		"verifier and router must take the host from one place: else a signature for one host is good at another",
		"api.example.com", good.with(drop("Host"), target("http://evil.example.com/t"), signs("api.example.com", "/t", "")),
		malformed.orFrontFrom("go1.27")),
}

// doubled are attacks for fields that are sent twice. The message is signed as the good value alone makes it.
var doubled = func() (all []attack) {
	const why = "the verifier may look at the first line and the handler at the last, or the other way round"
	for _, field := range [][2]string{
		{"X-Signature", "v1=" + strings.Repeat("0", 64)}, {"X-Key-Id", "bob"}, {"X-Timestamp", "1700000001"},
		{"X-Nonce", "n-0123456789abcdef"}, {"X-Signed-Headers", "content-type"}, {"Content-Type", "text/plain"},
		{"Idempotency-Key", `"k-2"`}, {"Host", "evil.example.com"}, {"X-Tenant", "b"},
	} {
		name, bad := field[0], field[1]
		w := duplicate
		if name == "Host" {
			w = duplicate.orFront()
		}
		r := good.with(last("X-Tenant", "a"), cover("content-type;idempotency-key;x-tenant"))
		all = append(all,
			single(name+", the bad one first", why, r.then(first(name, bad)), w),
			single(name+", the bad one last", why, r.then(last(name, bad)), w),
			single(name+", the same", why, r.then(func(m *message) { last(name, m.value(name))(m) }), w),
			single(name+", in another spelling", "names are the same in any case", r.then(last(strings.ToLower(name), bad)), w),
			single(name+", the second empty", "a line with an empty value is a line", r.then(last(name, "")), w),
		)
	}
	return append(all,
		single("Idempotency-Key, not signed", "two Idempotency-Keys are refused, signed or not",
			good.with(cover("content-type")).then(last("Idempotency-Key", `"k-1"`)), duplicate),
		single("Content-Type, not signed", "two Content-Types are refused, signed or not",
			good.with(cover("idempotency-key")).then(last("Content-Type", "text/plain")), duplicate),
		single("another field, not signed", "a field that is not signed may be sent twice: it is not the verifier's business",
			good.then(last("X-Other", "1"), last("X-Other", "2")), accepted),
	)
}()

// overrides are attacks for fields by which some servers let a client say that its request is another one: what a proxy would have
// made of a request that was changed so.
var overrides = func() (all []attack) {
	evilPath, evilHost := target("/transfers/evil?x=2&x=1"), host("evil.example.com")
	for _, o := range []struct {
		name, value string
		changed     change
	}{
		{"X-Request-Uri", goodTarget, evilPath}, {"X-Original-URL", goodTarget, evilPath}, {"X-Original-URI", goodTarget, evilPath},
		{"X-Rewrite-URL", goodTarget, evilPath}, {"X-Forwarded-Uri", goodTarget, evilPath},
		{"X-Forwarded-Prefix", "/transfers", target("/a%2Fb?x=2&x=1")}, {"X-Forwarded-Host", "api.example.com", evilHost},
		{"X-Host", "api.example.com", evilHost}, {"X-Original-Host", "api.example.com", evilHost},
		{"Forwarded", "host=api.example.com;proto=https", evilHost}, {"X-Forwarded-Port", "8080", host("api.example.com:8080")},
		{"X-Forwarded-Proto", "https", host("api.example.com:443")}, {"X-Forwarded-Method", "POST", method("PUT")},
		{"X-HTTP-Method-Override", "POST", method("PUT")}, {"X-HTTP-Method", "POST", method("DELETE")},
		{"X-Method-Override", "POST", method("PATCH")},
	} {
		all = append(all,
			single(o.name+" beside a good request", "what is not signed changes nothing: the request is as it was sent",
				good.then(last(o.name, o.value)), accepted),
			single(o.name+" to make up for a change",
				"the signature must be that of the request as it was sent, whatever an unsigned field says",
				good.then(o.changed, last(o.name, o.value)), badMAC))
	}
	return append(all,
		single("X-Forwarded-Host with another host", "the host is the one that was sent",
			good.then(last("X-Forwarded-Host", "evil.example.com")), accepted),
		single("X-HTTP-Method-Override with another method", "the handler sees the method that was signed",
			good.then(last("X-HTTP-Method-Override", "DELETE")), accepted),
		single("X-Original-URL with another path", "the handler is the one for the path that was signed",
			good.then(last("X-Original-URL", "/admin")), accepted),
		single("_method in the query", "a parameter is a part of the query, not the method",
			good.with(target("/transfers?_method=DELETE")), accepted),
	)
}()

var fieldAttacks = []attack{
	single("empty", "an empty field is a field", good.with(last("X-Note", ""), cover("content-type;idempotency-key;x-note")), accepted),
	single("empty, and taken away", "a missing field is not an empty one",
		good.with(last("X-Note", ""), cover("content-type;idempotency-key;x-note")).then(drop("X-Note")), notCovered),
	single("space around", "RFC 9110, section 5.5: the space around a value is not part of it",
		good.then(raw("Content-Type", "  application/json  "), raw("Idempotency-Key", `"k-1"`)), accepted),
	single("tabs around", "a server may take tabs around a value for a part of it: then the message is refused, for the "+
		"handler must not see what was not signed",
		good.then(raw("Content-Type", "\t application/json \t ")), verdict{either: true}),
	single("space inside", "RFC 9110, section 5.5: the space inside a value is part of it",
		good.with(set("Content-Type", "application/json;  charset=utf-8")), accepted),
	single("names in lower case", "RFC 9110, section 5.1: names are the same in any case", good.then(spelled(strings.ToLower)), accepted),
	single("names in capitals", "RFC 9110, section 5.1: names are the same in any case", good.then(spelled(strings.ToUpper)), accepted),
	single("an underscore in a name", "names with an underscore are other fields, although CGI makes one name of both",
		good.then(spelled(func(string) string { return "X_Signature" }, "X-Signature")), missing.orFront()),
	single("a name with an underscore beside it", "what is not the field's name changes nothing",
		good.then(last("X_Nonce", "n-0123456789abcdef")), accepted.orFront()),
	single("a blank in front of the colon", "RFC 9112, section 5.1: a blank in front of the colon is refused",
		good.then(spelled(func(string) string { return "X-Nonce " }, "X-Nonce")), missing.orFront()),
	single("a folded line", "RFC 9112, section 5.2: a folded line is refused, or the fold becomes a blank",
		good.then(raw("Content-Type", " application/\r\n json")), badMAC.orFront()),
	single("a bare line feed", "a line feed in a value must not end a line of the signing string",
		good.with(set("Content-Type", "text/plain\nidempotency-key:x")), verdict{either: true}),
	single("a bare carriage return", "RFC 9112, section 2.2: a bare carriage return is refused, or becomes a blank",
		good.then(set("X-Key-Id", "de\rmo")), malformed.orFront()),
}

var sizeAttacks = []attack{
	single("120 lines", "the verifier knows the number of header lines", good.then(lines(112, 10)), malformed.orFront()),
	single("40 KiB", "the verifier knows the size of the header", good.then(lines(40, 1024)), malformed.orFront()),
	single("a target of 40 KiB", "the target counts towards the size of the header",
		good.with(target("/hooks?x="+strings.Repeat("x", 40<<10))), malformed.orFront()),
}

// lines adds n lines of a value of so many bytes.
func lines(n, bytes int) change {
	return func(m *message) {
		for i := range n {
			m.lines = append(m.lines, line{fmt.Sprintf("X-Filler-%d", i), " " + strings.Repeat("f", bytes)})
		}
	}
}

const multipartForm = "--b\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n2\r\n--b\r\nContent-Disposition: " +
	"form-data; name=\"a\"\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"cat.png\"\r\nContent-Type: " +
	"image/png\r\n\r\nmeow\r\n--b--\r\n"

var (
	large    = good.with(set("Content-Type", "text/plain"), body(strings.Repeat("0123456789", 50_000)))
	multi    = good.with(set("Content-Type", "multipart/form-data; boundary=b"), body(multipartForm))
	zipped   = last("Content-Encoding", "gzip")
	coverZip = cover("content-encoding;content-type;idempotency-key")
)

var bodyAttacks = []attack{
	single("the last byte", "the signature covers every byte of the body", good.then(flip(-1)), badMAC),
	single("a line feed more", "the signature covers every byte of the body and no other", good.then(body(goodBody+"\n")), badMAC),
	single("added", "what was signed without a body cannot be given one", good.with(body("")).then(body(goodBody)), badMAC),
	single("empty", "no body and an empty one have the same digest", good.with(empty()), accepted),
	single("empty, without a length", "no body and an empty one have the same digest", good.with(empty()).then(length("-")), accepted),
	single("empty, in chunks", "no body and an empty one have the same digest", good.with(empty()).then(inChunks()), accepted),
	single("in chunks", "how a body is framed is not signed", good.then(inChunks()), accepted),
	single("all bytes", "the signature covers the bytes as sent: nothing is decoded",
		good.with(set("Content-Type", "application/octet-stream"), body(allBytes)), accepted),
	single("a large one", "a body that is larger than every buffer on the way is verified and handed on whole", large, accepted),
	single("a large one in chunks", "a body that is larger than every buffer on the way is verified and handed on whole",
		large.then(inChunks()), accepted),
	single("a large one, the last byte", "the signature covers every byte of the body", large.then(flip(-1)), badMAC),
	single("a form", "the handler reads what the verifier has read, and so does a parser of forms",
		good.with(set("Content-Type", "application/x-www-form-urlencoded"), body("a=1&b=%zz&c=2;d=3")), accepted),
	single("a multipart form", "the bytes as sent are signed, not the parts in an order of the framework's", multi, accepted),
	single("compressed", "the signature covers the bytes as sent, not what a framework decompresses",
		good.with(zipped, body(gzipped(goodBody)), coverZip), accepted),
	single("an Expect field", "a client that waits for 100 (Continue) gets it", good.then(last("Expect", "100-continue")), accepted),
}

var trailerAttacks = []attack{
	single("one", "trailers are not signed: the handler must not find any", good.then(trailer(theirTrailer, "1")), accepted),
	single("a signature", "a signature in the trailer is no signature in the header",
		good.then(drop("X-Signature"), trailer("X-Signature", "v1="+strings.Repeat("0", 64))), verdict{refused: true}),
	single("an Idempotency-Key", "the handler must not find an Idempotency-Key in the header that was not signed",
		good.with(uncovered()).then(trailer("Idempotency-Key", `"k-2"`)), verdict{either: true}),
	single("another Idempotency-Key", "the handler must not find an Idempotency-Key in the header that was not signed, nor two of them",
		good.then(trailer("Idempotency-Key", `"k-2"`)), verdict{either: true}),
	single("another type", "the handler must not find a Content-Type in the header that was not signed",
		good.then(trailer("Content-Type", "text/plain")), verdict{either: true}),
}

var framingAttacks = []attack{
	single("less than was said, signed as it came",
		"RFC 9112, section 8: an incomplete message is refused, even if the signature is that of the part that came",
		good.with(body(goodBody[:10])).then(body(goodBody), cutAfter(10)), malformed.orFront()),
	single("two lengths", "RFC 9112, section 6.3: two lengths are refused", good.then(last("Content-Length", "5")), verdict{either: true}),
	single("a length and chunks", "RFC 9112, section 6.1: Transfer-Encoding overrides Content-Length, or the message is refused: "+
		"anything else lets requests be smuggled",
		good.then(inChunks(), length("5")), verdict{either: true}),
	single("a negative length", "RFC 9110, section 8.6: a Content-Length is digits only", good.then(length("-1")), verdict{refused: true}),
}

// bodyOf has a body of n bytes.
func bodyOf(n int) change { return body(strings.Repeat("x", n)) }

var limitAttacks = []attack{
	single("at it", "the limit is inclusive", good.with(bodyOf(64)), accepted),
	single("at it, in chunks", "the limit is inclusive", good.with(bodyOf(64)).then(inChunks()), accepted),
	single("over it", "a body over the limit is refused with 413, however good the signature is", good.with(bodyOf(65)), tooLarge),
	single("over it, in chunks", "a body without a length is read up to the limit", good.with(bodyOf(65)).then(inChunks()), tooLarge),
	single("far over it, in chunks", "a body without a length is read up to the limit and no further",
		good.with(bodyOf(100_000)).then(inChunks()), tooLarge),
	single("over it by what it says", "nothing is read of a body whose Content-Length is over the limit: nobody is authenticated yet",
		good.with(bodyOf(16<<10)).then(length("1099511627776"), cutOff()), tooLarge.orFront()),
}

var answerAttacks = []attack{
	single("too late", "the refusal's Date is the clock by which the message is late",
		good.with(secondsAhead(-61)), refusedBy(sign.CodeExpired)),
	single("too early", "the refusal's Date is the clock by which the message is early",
		good.with(secondsAhead(61)), refusedBy(sign.CodeNotYetValid)),
	{name: "sent again", why: "the same bytes again are a replay", do: func(p *attackRun) {
		m := p.send(good.message(), accepted).m
		p.send(m, refusedBy(sign.CodeReplayed))
	}},
	{name: "the nonce store is down", why: "503 and Retry-After; the nonce is not used up by that", do: func(p *attackRun) {
		p.e.nonces.down.Store(true)
		m := p.send(good.message(), unavailable).m
		p.e.nonces.down.Store(false)
		p.send(m, accepted)
	}},
}

func ownBody(s *service) {
	s.sign.Refuse = func(_ context.Context, e *sign.Error) *sign.Answer {
		return &sign.Answer{Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"msg":"` + string(e.Code) + `"}`)}
	}
}
