package adaptertest

import (
	"context"
	"net/http"
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
			single("the first byte", "the signature covers every byte of the body", good.then(flip(0)), badMAC),
			single("a byte in the middle", "the signature covers every byte of the body", good.then(flip(11)), badMAC),
			single("the last byte", "the signature covers every byte of the body", good.then(flip(-1)), badMAC),
			single("cut by a byte", "the signature covers every byte of the body and no other", good.then(body(goodBody[:len(goodBody)-1])), badMAC),
			single("a byte more", "the signature covers every byte of the body", good.then(body(goodBody+" ")), badMAC),
			single("a line feed more", "the signature covers every byte of the body", good.then(body(goodBody+"\n")), badMAC),
			single("a NUL more", "a NUL is a byte like any other: nothing ends at it", good.then(body(goodBody+"\x00")), badMAC),
			single("members in another order", "the signature covers the bytes of the body, not what they mean", good.then(body(`{"to":"bob","amount":5}`)), badMAC),
			single("gone", "a body that was signed cannot be left out", good.then(body("")), badMAC),
			single("added", "what was signed without a body cannot be given one", good.with(body("")).then(body(goodBody)), badMAC),
			single("a hash in its place", "the verifier digests the body itself and trusts no digest field of the message", good.then(body("x"), last("X-Content-Sha256", "29ddb7bb"), last("Digest", "SHA-256=Kd23")), badMAC),
			{
				name: "empty and none", why: "no body and an empty one have the same digest", steps: []attackStep{
					sendSigned{request: good.with(empty()), want: accepted},
					sendSigned{request: good.with(empty()).then(length("-")), want: accepted},
					sendSigned{request: good.with(empty()).then(inChunks()), want: accepted},
				},
			},
			single("in chunks", "how a body is framed is not signed", good.then(inChunks()), accepted),
			single("in chunks, flipped", "the body is signed, however it is framed", good.then(inChunks(), flip(-1)), badMAC),
			single("all bytes", "the signature covers the bytes as sent: nothing is decoded", good.with(set("Content-Type", "application/octet-stream"), body(allBytes)), accepted),
			single("a large one", "a body that is larger than every buffer on the way is verified and handed on whole", good.with(set("Content-Type", "text/plain"), body(strings.Repeat("0123456789", 50_000))), accepted),
			single("a large one in chunks", "a body that is larger than every buffer on the way is verified and handed on whole", good.with(set("Content-Type", "text/plain"), body(strings.Repeat("0123456789", 50_000))).then(inChunks()), accepted),
			single("a large one, the last byte", "the signature covers every byte of the body", good.with(set("Content-Type", "text/plain"), body(strings.Repeat("0123456789", 50_000))).then(flip(-1)), badMAC),
			single("a form", "the handler reads what the verifier has read, and so does a parser of forms", good.with(set("Content-Type", "application/x-www-form-urlencoded"), body("a=1&b=%zz&c=2;d=3")), accepted),
			single("a multipart form", "the bytes as sent are signed, not the parts in an order of the framework's", good.with(set("Content-Type", "multipart/form-data; boundary=b"), body(multipartForm)), accepted),
			single("a multipart form, another file", "the signature covers the files of a form", good.with(set("Content-Type", "multipart/form-data; boundary=b"), body(multipartForm)).then(body(strings.Replace(multipartForm, "meow", "woof", 1))), badMAC),
			single("compressed", "the signature covers the bytes as sent, not what a framework decompresses",
				good.with(last("Content-Encoding", "gzip"), body(gzipped(goodBody)), cover("content-encoding;content-type;idempotency-key")), accepted),
			single("compressed, signed as plain", "the signature covers the bytes as sent, not what a framework decompresses", good.with(last("Content-Encoding", "gzip"), cover("content-encoding;content-type;idempotency-key")).then(body(gzipped(goodBody))), badMAC),
			single("said to be compressed", "a Content-Encoding makes another body of the one that was signed: it must be signed if it is there", good.then(last("Content-Encoding", "gzip")), notCovered),
			single("an Expect field", "a client that waits for 100 (Continue) gets it", good.then(last("Expect", "100-continue")), accepted),

			single("a trailer", "trailers are not signed: the handler must not find any", good.then(trailer(theirTrailer, "1")), accepted),
			single("a signature in the trailer", "a signature in the trailer is no signature in the header", good.then(drop("X-Signature"), trailer("X-Signature", "v1="+strings.Repeat("0", 64))), verdict{refused: true}),
			single("an Idempotency-Key in the trailer", "the handler must not find an Idempotency-Key in the header that was not signed",
				good.with(uncovered()).then(trailer("Idempotency-Key", `"k-2"`)), verdict{either: true}),
			single("another Idempotency-Key in the trailer", "the handler must not find an Idempotency-Key in the header that was not signed, nor two of them", good.then(trailer("Idempotency-Key", `"k-2"`)), verdict{either: true}),
			single("another type in the trailer", "the handler must not find a Content-Type in the header that was not signed", good.then(trailer("Content-Type", "text/plain")), verdict{either: true}),

			single("less than was said", "RFC 9112, section 8: an incomplete message is refused", good.then(cutAfter(10)), malformed.orFront()),
			single("less than was said, signed as it came", "RFC 9112, section 8: an incomplete message is refused, even if the signature is that of the part that came", good.with(body(goodBody[:10])).then(body(goodBody), cutAfter(10)), malformed.orFront()),
			single("two lengths", "RFC 9112, section 6.3: two lengths are refused", good.then(last("Content-Length", "5")), verdict{either: true}),
			single("a length and chunks", "RFC 9112, section 6.1: Transfer-Encoding overrides Content-Length, or the message is refused: anything else lets requests be smuggled", good.then(inChunks(), length("5")), verdict{either: true}),
			single("a negative length", "RFC 9110, section 8.6: a Content-Length is digits only", good.then(length("-1")), verdict{refused: true}),
		},
	},
	{
		name:   "the body's limit",
		change: func(_ *signedEnv, s *service) { s.sign.BodyLimit = 64 },
		attacks: []attack{
			single("at the limit", "the limit is inclusive", good.with(body(strings.Repeat("x", 64))), accepted),
			single("at the limit, in chunks", "the limit is inclusive", good.with(body(strings.Repeat("x", 64))).then(inChunks()), accepted),
			single("over it, with a good signature", "a body over the limit is refused with 413, however good the signature is", good.with(body(strings.Repeat("x", 65))), tooLarge),
			single("over it, in chunks", "a body without a length is read up to the limit", good.with(body(strings.Repeat("x", 65))).then(inChunks()), tooLarge),
			single("far over it, in chunks", "a body without a length is read up to the limit and no further", good.with(body(strings.Repeat("x", 100_000))).then(inChunks()), tooLarge),
			single("over it by what it says", "nothing is read of a body whose Content-Length is over the limit: nobody is authenticated yet",
				good.with(body(strings.Repeat("x", 16<<10))).then(length("1099511627776"), cutOff()), tooLarge.orFront()),
			single("over it, and late", "the timestamp is checked first: the body is not read at all", good.with(secondsAhead(-window-1), body(strings.Repeat("x", 65))), expired),
			single("over it, and not signed", "the signature is looked for first: the body is not read at all", good.with(body(strings.Repeat("x", 65))).then(drop("X-Signature")), missing),
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
		name: "a body of the service's own",
		change: func(_ *signedEnv, s *service) {
			s.sign.Refuse = func(_ context.Context, e *sign.Error) *sign.Answer {
				return &sign.Answer{
					Header: http.Header{"Content-Type": {"application/json"}},
					Body:   []byte(`{"code":50001,"msg":"` + string(e.Code) + `"}`),
				}
			}
		},
		attacks: []attack{{
			name: "for every refusal",
			why:  "services have an error format of their own (Config.Refuse): status and fields stay",
			steps: []attackStep{
				ownBody{good.then(signature(zeros)), badMAC, `{"code":50001,"msg":"invalid"}`},
				ownBody{good.with(secondsAhead(-window - 1)), expired, `{"code":50001,"msg":"expired"}`},
				ownBody{good.with(drop("X-Nonce")), missing, `{"code":50001,"msg":"missing"}`},
				fails(isDown), ownBody{good, unavailable, `{"code":50001,"msg":"store_unavailable"}`},
			},
		}},
	},
}

// ownBody checks a body that the service has made.
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
