package adaptertest

import (
	"context"
	"strings"

	"github.com/idem-go/idem/sign"
)

// publicHost is for a proxy that changes the Host field.
func publicHost(_ *signedEnv, s *service) {
	s.sign.Host, s.sign.Hosts = "api.example.com", []string{"10.0.0.7:8080"}
}

func twoHosts(_ *signedEnv, s *service) {
	s.sign.Hosts = []string{"api.example.com", "WWW.example.com:8443"}
}

const multipartForm = "--b\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n2\r\n--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n" +
	"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"cat.png\"\r\nContent-Type: image/png\r\n\r\nmeow\r\n--b--\r\n"

var bodyGroups = []attackGroup{
	{
		name: "bodies",
		attacks: []attack{
			one("the first byte", "signing without the body", good.then(flip(0)), badMAC),
			one("a byte in the middle", "all of it is signed", good.then(flip(11)), badMAC),
			one("the last byte", "all of it is signed", good.then(flip(-1)), badMAC),
			one("cut by a byte", "as above", good.then(body(goodBody[:len(goodBody)-1])), badMAC),
			one("a byte more", "as above", good.then(body(goodBody+" ")), badMAC),
			one("a line feed more", "as above", good.then(body(goodBody+"\n")), badMAC),
			one("a NUL more", "C ends a string there", good.then(body(goodBody+"\x00")), badMAC),
			one("members in another order", "bytes are signed, not what they mean", good.then(body(`{"to":"bob","amount":5}`)), badMAC),
			one("gone", "no body is not any body", good.then(body("")), badMAC),
			one("added", "nor the other way round", good.with(body("")).then(body(goodBody)), badMAC),
			one("a hash in its place", "the digest is made here, not taken from the message", good.then(body("x"), last("X-Content-Sha256", "29ddb7bb"), last("Digest", "SHA-256=Kd23")), badMAC),
			{
				name: "empty and none", why: "no body and an empty one have the same digest", steps: []attackStep{
					sendSigned{request: good.with(empty()), want: accepted},
					sendSigned{request: good.with(empty()).then(length("-")), want: accepted},
					sendSigned{request: good.with(empty()).then(inChunks()), want: accepted},
				},
			},
			one("in chunks", "how a body is framed is not signed", good.then(inChunks()), accepted),
			one("in chunks, flipped", "the body is signed, however it is framed", good.then(inChunks(), flip(-1)), badMAC),
			one("all bytes", "nothing is decoded", good.with(set("Content-Type", "application/octet-stream"), body(allBytes)), accepted),
			one("a large one", "more than any buffer on the way", good.with(set("Content-Type", "text/plain"), body(strings.Repeat("0123456789", 50_000))), accepted),
			one("a large one in chunks", "as above", good.with(set("Content-Type", "text/plain"), body(strings.Repeat("0123456789", 50_000))).then(inChunks()), accepted),
			one("a large one, the last byte", "all of it is signed", good.with(set("Content-Type", "text/plain"), body(strings.Repeat("0123456789", 50_000))).then(flip(-1)), badMAC),
			one("a form", "the handler reads what the verifier has read, and so does a parser of forms", good.with(set("Content-Type", "application/x-www-form-urlencoded"), body("a=1&b=%zz&c=2;d=3")), accepted),
			one("a multipart form", "the bytes as sent are signed, not the parts in an order of the framework's", good.with(set("Content-Type", "multipart/form-data; boundary=b"), body(multipartForm)), accepted),
			one("a multipart form, another file", "files are of the body", good.with(set("Content-Type", "multipart/form-data; boundary=b"), body(multipartForm)).then(body(strings.Replace(multipartForm, "meow", "woof", 1))), badMAC),
			one("compressed", "Fiber's c.Body() decompresses: the bytes as sent are signed",
				good.with(last("Content-Encoding", "gzip"), body(gzipped(goodBody)), cover("content-encoding;content-type;idempotency-key")), accepted),
			one("compressed, signed as plain", "as above", good.with(last("Content-Encoding", "gzip"), cover("content-encoding;content-type;idempotency-key")).then(body(gzipped(goodBody))), badMAC),
			one("said to be compressed", "a Content-Encoding makes another body of the one that was signed: it must be signed if it is there", good.then(last("Content-Encoding", "gzip")), notCovered),
			one("an Expect field", "a client that waits for 100 gets one", good.then(last("Expect", "100-continue")), accepted),

			one("a trailer", "trailers are not signed and count for nothing", good.then(trailer("X-Checksum", "1")), accepted),
			one("a signature in the trailer", "what comes behind the body is not in the header", good.then(drop("X-Signature"), trailer("X-Signature", "v1="+strings.Repeat("0", 64))), verdict{refused: true}),
			one("an Idempotency-Key in the trailer", "Idempotency-Key must be covered when present: the handler must not find one in the header that was not signed",
				good.with(uncovered()).then(trailer("Idempotency-Key", `"k-2"`)), verdict{either: true}),
			one("another Idempotency-Key in the trailer", "as above: nor two of them", good.then(trailer("Idempotency-Key", `"k-2"`)), verdict{either: true}),
			one("another type in the trailer", "as above", good.then(trailer("Content-Type", "text/plain")), verdict{either: true}),

			one("less than was said", "RFC 9112, section 8: an incomplete message is none", good.then(cutAfter(10)), malformed.orFront()),
			one("less than was said, signed as it came", "as above, also if the signature is that of the part", good.with(body(goodBody[:10])).then(body(goodBody), cutAfter(10)), malformed.orFront()),
			one("two lengths", "RFC 9112, section 6.3: a server must refuse it", good.then(last("Content-Length", "5")), verdict{either: true}),
			one("a length and chunks", "RFC 9112, section 6.1: smuggling: chunks count, or it is refused", good.then(inChunks(), length("5")), verdict{either: true}),
			one("a negative length", "RFC 9110, section 8.6: digits only", good.then(length("-1")), verdict{refused: true}),
		},
	},
	{
		name:   "the body's limit",
		change: func(_ *signedEnv, s *service) { s.sign.BodyLimit = 64 },
		attacks: []attack{
			one("at the limit", "the limit is inclusive", good.with(body(strings.Repeat("x", 64))), accepted),
			one("at the limit, in chunks", "as above", good.with(body(strings.Repeat("x", 64))).then(inChunks()), accepted),
			one("over it, with a good signature", "413, whatever else is good", good.with(body(strings.Repeat("x", 65))), tooLarge),
			one("over it, in chunks", "a body without a length is read up to the limit", good.with(body(strings.Repeat("x", 65))).then(inChunks()), tooLarge),
			one("far over it, in chunks", "and no further", good.with(body(strings.Repeat("x", 100_000))).then(inChunks()), tooLarge),
			one("over it by what it says", "a body read without limit before authentication: nothing is read of one that is too long by its own word",
				good.with(body(strings.Repeat("x", 16<<10))).then(length("1099511627776"), cutOff()), tooLarge.orFront()),
			one("over it, and late", "the timestamp is checked first: the body is not read at all", good.with(secondsAhead(-window-1), body(strings.Repeat("x", 65))), expired),
			one("over it, and not signed", "as above", good.with(body(strings.Repeat("x", 65))).then(drop("X-Signature")), missing),
			{
				name: "over it, whoever has signed",
				why:  "an unknown key must not be told from a known one by the answer to a long body",
				steps: []attackStep{sameAnswers{
					{request: good.with(body(strings.Repeat("x", 65))), want: tooLarge},
					{request: good.with(body(strings.Repeat("x", 65))).then(signature(zeros)), want: tooLarge},
					{request: good.with(body(strings.Repeat("x", 65)), by(stranger)), want: tooLarge},
					{request: good.with(body(strings.Repeat("x", 65)), by(revoked)), want: tooLarge},
					{request: good.with(body(strings.Repeat("x", 65)), by(future)), want: tooLarge},
					{request: good.with(body(strings.Repeat("x", 65)), by(past)), want: tooLarge},
				}},
			},
		},
	},
}

var answerGroups = []attackGroup{
	{
		name: "a body of the house's own",
		change: func(_ *signedEnv, s *service) {
			s.sign.Refuse = func(_ context.Context, e *sign.Error) *sign.Refusal {
				return &sign.Refusal{
					Header: []sign.Field{{Name: "Content-Type", Value: "application/json"}},
					Body:   []byte(`{"code":50001,"msg":"` + string(e.Code) + `"}`),
				}
			}
		},
		attacks: []attack{{
			name: "for every refusal",
			why:  "houses have an envelope of their own (Config.Refuse): status and fields stay",
			steps: []attackStep{
				ownBody{good.then(signature(zeros)), badMAC, `{"code":50001,"msg":"invalid"}`},
				ownBody{good.with(secondsAhead(-window - 1)), expired, `{"code":50001,"msg":"expired"}`},
				ownBody{good.with(drop("X-Nonce")), missing, `{"code":50001,"msg":"missing"}`},
				fails(isDown), ownBody{good, unavailable, `{"code":50001,"msg":"store_unavailable"}`},
			},
		}},
	},
}

// ownBody checks a body that the house has made.
type ownBody struct {
	request signedRequest
	want    verdict
	body    string
}

func (o ownBody) do(p *attackRun) {
	r := p.send(o.request.message(), o.want).reply
	if string(r.body) != o.body {
		p.problem("the body is %s, not %s", r.body, o.body)
	}
	for _, fault := range checkField(r, "Content-Type", "application/json") {
		p.problem("%s", fault)
	}
}
