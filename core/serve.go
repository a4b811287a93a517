package core

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"sync"

	"github.com/idem-go/idem/core/internal/canon"
)

// Digest is a digest algorithm for parameters: [MD5] or [SHA256].
type Digest = canon.Algorithm

// The algorithms. MD5 tells parameters apart; it protects nothing here.
const (
	MD5    = canon.MD5
	SHA256 = canon.SHA256
)

// Serve carries out the operation behind x at most once: it runs the handler, replays,
// waits or refuses. It is all that an adapter calls. ctx is the request's context; the
// error is the one that the framework's handler returned, or that writing met with.
// Requests with a safe method (RFC 9110, section 9.2.1) pass untouched.
func (g *Guard) Serve(ctx context.Context, x Exchange) error {
	f := flights.Get().(*flight)
	f.guard, f.x = g, x
	x.Describe(&f.req)
	f.req.Headers = x
	f.req.Caller, _ = CallerFrom(ctx)

	var err error
	if isSafe(f.req.Method) {
		err = x.Pass()
	} else {
		err = g.once(ctx, f)
	}
	// A panic leaves the flight to the garbage collector: nobody knows who still holds it.
	f.reset()
	flights.Put(f)
	return err
}

// Key derives the key and the fingerprint of a request whose Body (and Caller, if it has one)
// is filled in, as Serve would. It touches no store. The error is a *[Refusal]; a request that needs
// no key and has none gives an empty one.
func (g *Guard) Key(r *Request) (key Key, fingerprint string, err error) {
	f := flights.Get().(*flight)
	own := f.req.PathParams
	f.guard, f.req = g, *r
	f.req.PathParams = append(own, r.PathParams...) // reset clears it
	if f.req.Headers == nil {
		f.req.Headers = noHeaders{}
	}
	id := f.derive(func() ([]byte, *Refusal, error) { return f.req.Body, nil, nil })
	f.reset()
	flights.Put(f)
	if id.refusal != nil {
		refused := *id.refusal
		refused.cause = id.cause
		return "", "", &refused
	}
	return id.key, id.fingerprint, nil
}

type noHeaders struct{}

func (noHeaders) Header(string) (string, int) { return "", 0 }

// flight is the state of one exchange. Flights are pooled; reset makes sure that none
// carries anything of one request to the next. (The bytes of scratch stay, but it is
// only ever appended to from its start, and handed out up to its length.)
type flight struct {
	guard   *Guard
	x       Exchange
	req     Request
	resp    Response
	scratch []byte // the key under construction, then the result to be stored
	routing string
}

var flights = sync.Pool{New: func() any { return new(flight) }}

// maxScratch is the largest buffer that a pooled flight keeps.
const maxScratch = 64 << 10

func (f *flight) reset() {
	params, fields, scratch := f.req.PathParams, f.resp.Header, f.scratch
	clear(params[:cap(params)])
	clear(fields[:cap(fields)])
	if cap(scratch) > maxScratch {
		scratch = nil
	}
	*f = flight{scratch: scratch[:0]}
	f.req.PathParams, f.resp.Header = params[:0], fields[:0]
}

func (f *flight) request() *Request { return &f.req }

// route is for events only, so it is put together only if somebody listens.
func (f *flight) route() string {
	if f.guard.engine.observer == nil {
		return ""
	}
	if f.routing == "" {
		f.routing = f.req.Method + " " + f.req.Route
	}
	return f.routing
}

func (f *flight) identify() identity {
	return f.derive(func() ([]byte, *Refusal, error) {
		body, err := f.x.ReadBody(f.guard.policy.BodyLimit)
		switch {
		case errors.Is(err, ErrBodyTooLarge):
			return nil, refusalBodyTooLarge, err
		case err != nil:
			return nil, refusalBodyUnreadable, err
		}
		return body, nil, nil
	})
}

var (
	refusalBodyTooLarge   = refusal(CodeBodyTooLarge)
	refusalBodyUnreadable = refusal(CodeBodyUnreadable)
	refusalUserMissing    = refusal(CodeUserMissing)
	refusalNotAuthorized  = refusal(CodeNotAuthorized)
)

// derive makes key and fingerprint. What can be refused without the body is refused
// before the body is read.
func (f *flight) derive(readBody func() ([]byte, *Refusal, error)) identity {
	g, r := f.guard, &f.req
	var clientKey string
	if g.policy.Key.kind == keyHeader {
		field, lines := r.Headers.Header(g.policy.Key.name)
		switch {
		case lines == 0 && g.policy.Key.presence == Optional:
			if g.user.caller && r.Caller == "" {
				return identity{refusal: refusalUserMissing, cause: ErrNoUser}
			}
			return identity{pass: true}
		case lines == 0:
			return identity{refusal: ErrKeyMissing}
		case lines > 1:
			return identity{refusal: ErrKeyInvalid}
		}
		var err error
		if clientKey, err = canon.ParseClientKey(field); err != nil {
			return identity{refusal: ErrKeyInvalid, cause: err}
		}
	}
	user, err := g.findUser(r)
	if err != nil || user.ID == "" && !user.Shared {
		return identity{refusal: refusalUserMissing, cause: err}
	}
	body, refused, err := readBody()
	if refused != nil {
		return identity{refusal: refused, cause: err}
	}
	r.Body = body
	if g.policy.Key.kind == keyFunc {
		if clientKey, err = g.policy.Key.fn(r); err != nil || len(clientKey) > 255 {
			return identity{refusal: ErrKeyInvalid, cause: err}
		}
		if clientKey == "" {
			return identity{refusal: ErrKeyMissing}
		}
	}

	in := canon.Input{PathParams: r.PathParams, RawQuery: r.RawQuery,
		ContentType: r.ContentType, ContentEncoding: r.ContentEncoding, Body: r.Body}
	k := append(f.scratch[:0], g.engine.prefix...)
	k = append(k, "U="...)
	k = appendUser(k, user)
	k = append(k, "M="...)
	k = appendRoute(k, r.Method, r.Route)

	if g.policy.Key.kind == keyParams || g.policy.Key.kind == keyFields {
		var info canon.Info
		k = append(k, "P="...)
		k, info = g.identity.AppendDigest(k, &in)
		f.scratch = k
		if g.policy.Key.kind == keyFields && info.Selected == 0 {
			return identity{refusal: ErrKeyMissing}
		}
		// The parameters are in the key: there is nothing left to compare.
		return identity{key: Key(k)}
	}

	k = append(k, "K="...)
	k = canon.AppendPart(k, clientKey)
	n := len(k)
	if !g.policy.AnyParameters {
		k, _ = g.params.AppendDigest(k, &in)
	}
	f.scratch = k
	both := string(k) // one allocation for the two
	return identity{key: Key(both[:n]), fingerprint: both[n:]}
}

func (g *Guard) findUser(r *Request) (User, error) {
	if g.callers && r.Caller != "" {
		return g.user.of(r)
	}
	return g.user.find(r)
}

// appendUser appends the user part of a key. A '#' is never left by appendPart, so that
// what follows one can't be somebody's plain ID.
func appendUser(k []byte, u User) []byte {
	if u.source != "" {
		k = append(k, u.source...)
		k = append(k, '#')
	}
	if !u.Credential && len(u.ID) <= 64 {
		return appendPart(k, u.ID)
	}
	sum := sha256.Sum256([]byte(u.ID))
	k = append(k, '#')
	return base64.RawURLEncoding.AppendEncode(k, sum[:])
}

func appendRoute(k []byte, method, route string) []byte {
	k = appendPart(k, method)
	k = append(k, ' ')
	return appendPart(k, route)
}

func appendPart(k []byte, s string) []byte { return canon.AppendPart(k, s) }

func (f *flight) perform(c *runContext) (outcome, error) {
	captured, err := f.x.Run(c, f.guard.policy.ResponseLimit)
	c.done = true
	if captured.Deferred {
		c.done = false // whether it has succeeded is not known yet
		f.x.(Deferrer).Defer(&Pending{run: c})
		return outcome{deferred: true}, err
	}
	var o outcome
	o, f.scratch = f.guard.outcome(&captured, f.scratch[:0])
	return o, err
}

// outcome makes an outcome of a capture, with the result in buf.
func (g *Guard) outcome(c *Capture, buf []byte) (outcome, []byte) {
	if c.Unrendered || c.Response == nil {
		return outcome{failed: true, unrendered: true, result: unavailable, err: c.Err}, buf
	}
	o := outcome{failed: g.policy.Failed(c.Response), status: c.Response.Status, streaming: c.Streaming, err: c.Err}
	switch {
	case g.policy.Duplicate == Reject:
		// Nothing of it will ever be shown.
	case c.Incomplete || len(c.Response.Body) > g.policy.ResponseLimit:
		o.result = unavailable
	default:
		buf = appendResponse(buf, c.Response, &g.policy.StoredHeaders)
		o.result = buf
	}
	return o, buf
}

func (f *flight) deliver() error { return f.x.Deliver() }

func (f *flight) replay(ctx context.Context, result []byte) (int, *Refusal, error) {
	if authorize := f.guard.policy.Authorize; authorize != nil {
		if err := authorize(ctx, &f.req); err != nil {
			return 0, refusalNotAuthorized, err
		}
	}
	if !decodeResponse(&f.resp, result) {
		return 0, ErrResultUnavailable, nil
	}
	return f.resp.Status, nil, f.x.Answer(&f.resp)
}

func (f *flight) refuse(r *Refusal) error {
	return f.x.Answer(r.response(f.guard.engine.refusalBody))
}

func (f *flight) unprotected(context.Context) error { return f.x.Pass() }

func (f *flight) settle(v Verdict) ([]byte, error) {
	if v.response == nil || v.response.Status < 200 || v.response.Status > 999 {
		return nil, errors.New("idem: a settled request needs a response with a final status")
	}
	if len(v.response.Body) > f.guard.policy.ResponseLimit {
		return unavailable, nil
	}
	return appendResponse(nil, v.response, &f.guard.policy.StoredHeaders), nil
}

// Pending is a claim whose outcome a middleware further out decides, see [Deferrer].
type Pending struct {
	run  *runContext
	once sync.Once
}

// Finish settles the claim with what was answered in the end; nil means that a panic came
// out instead. The adapter delivers the response afterwards. Calls after the first do
// nothing.
func (p *Pending) Finish(c *Capture) {
	p.once.Do(func() {
		if c == nil {
			p.run.settlePanic()
			return
		}
		p.run.done = true
		finished := false
		defer func() {
			if !finished { // Policy.Failed has panicked
				p.run.settlePanic()
			}
		}()
		o, _ := p.run.guard.outcome(c, nil)
		finished = true
		p.run.settle(o)
	})
}

func isSafe(method string) bool {
	return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "TRACE"
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := lowerASCII(s[i])
		alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
