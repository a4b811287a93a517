package core

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/store"
)

// Digest is the digest algorithm for parameters: [MD5] or [SHA256].
type Digest = canon.Algorithm

// The digest algorithms. A digest tells parameters apart; it does not authenticate them.
const (
	MD5    = canon.MD5
	SHA256 = canon.SHA256
)

// fill fills in all but the body.
func (r *Request) fill(ctx context.Context, x Exchange) {
	x.Describe(r)
	r.Headers = x
	r.Caller, r.CallerEvent, r.Consumed = callerFrom(ctx)
}

// appendOperation appends what every key begins with, but that of a token.
func (g *Guard) appendOperation(k []byte, u User, method, route string) []byte {
	k = append(k, g.engine.prefix...)
	k = append(k, "U="...)
	k = appendUser(k, u)
	k = append(k, "M="...)
	return appendRoute(k, method, route)
}

// Serve carries out the operation behind x at most once: it runs the handler, replays, waits or
// refuses. It is what an adapter calls. ctx is the request's context. The error is that of the
// framework's handler, or of writing the answer. Requests with a safe method (RFC 9110, section 9.2.1)
// pass untouched.
func (g *Guard) Serve(ctx context.Context, x Exchange) error {
	f := httpOperations.Get().(*httpOperation)
	f.guard, f.x = g, x
	f.req.fill(ctx, x)

	var err error
	if isSafe(f.req.Method) {
		err = x.Pass(ctx)
	} else {
		err = f.serve(ctx)
	}
	// A panic leaves f to the garbage collector: the handler may have kept something of it.
	f.reset()
	httpOperations.Put(f)
	return err
}

// serve does what the guard decides about the request.
func (f *httpOperation) serve(ctx context.Context) error {
	g, id := f.guard, f.identify()
	d := g.decide(ctx, &id)
	switch d.action {
	case toRun:
		return f.run(d.run)
	case toPass:
		return f.x.Pass(d.passing(ctx))
	case toReplay:
		if d.refusal, d.cause = f.replayable(ctx, d.grant); d.refusal == nil {
			err := f.x.Answer(&f.resp)
			g.observe(ctx, Event{Kind: Replayed, Route: id.route, Key: id.key, Status: f.resp.Status})
			return err
		}
	}
	r := g.refuse(ctx, &id, d.refusal, d.cause)
	if r.Code == CodeKeyReused {
		r.Stored = f.stored(ctx, d.grant)
	}
	return f.refuse(ctx, r)
}

// Key derives the key and the fingerprint of a request as Serve would, without calling the store. r has
// its Body filled in, and its Caller and Consumed if a verifier has set them. The error is a *[Refusal].
// A request that needs no key and has none has the zero Key.
func (g *Guard) Key(r *Request) (key Key, fingerprint string, err error) {
	f := httpOperations.Get().(*httpOperation)
	own := f.req.PathParams
	f.guard, f.req = g, *r
	f.req.PathParams = append(own, r.PathParams...) // reset clears it
	if f.req.Headers == nil {
		f.req.Headers = noHeaders{}
	}
	id := f.derive(func() ([]byte, *Refusal, error) { return f.req.Body, nil, nil })
	f.reset()
	httpOperations.Put(f)
	if id.refusal != nil {
		return Key{}, "", id.refusal.because(id.cause)
	}
	return id.key, id.fingerprint, nil
}

type noHeaders struct{}

func (noHeaders) Header(string, int) (string, int) { return "", 0 }

// httpOperation is an operation that is an [Exchange]. They are pooled; reset makes sure that none
// carries anything of one request to the next. (The bytes of scratch stay, but it is
// only ever appended to from its start, and handed out up to its length.)
type httpOperation struct {
	guard   *Guard
	x       Exchange
	req     Request
	resp    Response
	scratch []byte   // the key under construction, then the result to be stored
	echo    [2]Field // of EchoKey; the first is empty if nothing is to be echoed
	counted []Pair   // the header fields that count as parameters
	done    store.Grant
}

var httpOperations = sync.Pool{New: func() any { return new(httpOperation) }}

// maxScratch is the largest buffer that a pooled httpOperation keeps.
const maxScratch = 64 << 10

func (f *httpOperation) reset() {
	params, fields, scratch, counted := f.req.PathParams, f.resp.Header, f.scratch, f.counted
	clear(params[:cap(params)])
	clear(fields[:cap(fields)])
	clear(counted[:cap(counted)])
	if cap(scratch) > maxScratch {
		scratch = nil
	}
	*f = httpOperation{scratch: scratch[:0], counted: counted[:0]}
	f.req.PathParams, f.resp.Header = params[:0], fields[:0]
}

// endpoint is a copy of what events call the route.
func (r *Request) endpoint() string {
	pattern := r.Route
	if r.Unmatched {
		pattern = r.Mount
	}
	return r.Method + " " + pattern
}

func (f *httpOperation) identify() identity {
	id := f.derive(func() ([]byte, *Refusal, error) {
		body, err := f.x.ReadBody(f.guard.policy.BodyLimit)
		switch {
		case errors.Is(err, ErrBodyTooLarge):
			return nil, refusalBodyTooLarge, err
		case errors.Is(err, ErrBodyConsumed):
			return nil, refusalBodyConsumed, err
		case err != nil:
			return nil, refusalBodyUnreadable, err
		}
		return body, nil, nil
	})
	id.request, id.forgets = &f.req, f.guard.forgets && isIdempotent(f.req.Method)
	if f.guard.engine.observer != nil { // it is for events only
		id.route = f.req.endpoint()
	}
	return id
}

var (
	refusalBodyTooLarge   = refusal(CodeBodyTooLarge)
	refusalBodyConsumed   = refusal(CodeBodyConsumed)
	refusalKeyMissing     = refusal(CodeKeyMissing)
	refusalKeyInvalid     = refusal(CodeKeyInvalid)
	refusalTokenMissing   = refusal(CodeTokenMissing)
	refusalTokenInvalid   = refusal(CodeTokenInvalid)
	refusalTokenExpired   = refusal(CodeTokenExpired)
	refusalUnavailable    = refusal(CodeResultUnavailable)
	refusalNotShared      = refusal(CodeStoreNotShared)
	refusalBodyUnreadable = refusal(CodeBodyUnreadable)
	refusalUserMissing    = refusal(CodeUserMissing)
	refusalNotAuthorized  = refusal(CodeNotAuthorized)
)

// derive makes key and fingerprint. What can be refused without the body is refused before the body is
// read.
func (f *httpOperation) derive(readBody func() ([]byte, *Refusal, error)) identity {
	g, r := f.guard, &f.req
	if r.Preforked && g.engine.inProcess {
		return identity{refusal: refusalNotShared, cause: errPreforked}
	}
	var clientKey string
	if g.policy.Key.kind == keyHeader {
		field, lines := r.Headers.Header(g.policy.Key.name, 0)
		switch {
		case lines == 0 && g.policy.Key.presence == Optional:
			if g.user.caller && r.Caller == "" {
				return identity{refusal: refusalUserMissing, cause: ErrNoUser}
			}
			return identity{pass: true}
		case lines == 0:
			return identity{refusal: refusalKeyMissing}
		case lines > 1:
			return identity{refusal: refusalKeyInvalid}
		}
		var err error
		if clientKey, err = canon.ParseClientKey(field); err != nil {
			return identity{refusal: refusalKeyInvalid, cause: err}
		}
		if g.policy.EchoKey {
			f.echo[0] = Field{g.policy.Key.name, strings.Clone(field)}
		}
	}
	user, err := g.findUser(r)
	if err != nil || user.ID == "" && !user.Shared {
		return identity{refusal: refusalUserMissing, cause: err}
	}
	if g.policy.Key.kind == keyToken {
		return f.deriveFromToken(user, readBody)
	}
	body, refused, err := readBody()
	if refused != nil {
		return identity{refusal: refused, cause: err}
	}
	r.Body = body
	if g.policy.Key.kind == keyFunc {
		if clientKey, err = g.policy.Key.fn(r); err != nil || len(clientKey) > 255 {
			return identity{refusal: refusalKeyInvalid, cause: err}
		}
		if clientKey == "" {
			return identity{refusal: refusalKeyMissing}
		}
	}

	in := f.parameters()
	k := g.appendOperation(f.scratch[:0], user, r.Method, r.Route)

	if g.policy.Key.kind == keyParams || g.policy.Key.kind == keyFields {
		var info canon.Info
		k = append(k, "P="...)
		k, info = g.identity.AppendDigest(k, &in)
		f.scratch = k
		if g.policy.Key.kind == keyFields && info.Selected == 0 {
			return identity{refusal: refusalKeyMissing}
		}
		// The parameters are in the key: there is nothing left to compare.
		return identity{key: Key{string(k)}, done: f.recall(k, 0)}
	}

	k = append(k, "K="...)
	k = canon.AppendPart(k, clientKey)
	return f.withFingerprint(k, &in)
}

// parameters are the parts of the request that count. Its body has been read.
func (f *httpOperation) parameters() canon.Input {
	f.count(conditions[:])
	f.count(f.guard.policy.RequestHeaders)
	r := &f.req
	return canon.Input{PathParams: r.PathParams, RawQuery: r.RawQuery, ContentType: r.ContentType,
		ContentEncoding: r.ContentEncoding, Body: r.Body, Header: f.counted, Consumed: r.Consumed}
}

// withFingerprint is the identity of key, which the client has chosen, with the fingerprint of in.
func (f *httpOperation) withFingerprint(key []byte, in *canon.Input) identity {
	n := len(key)
	var raw uint64
	if f.recalls() && !f.guard.policy.IgnoreFingerprint {
		raw, key = f.guard.raw(key, in)
	}
	if done := f.recall(key[:n], raw); done != nil {
		f.scratch = key // which may have grown
		return identity{key: Key{string(key[:n])}, done: done}
	}
	if !f.guard.policy.IgnoreFingerprint {
		key, _ = f.guard.params.AppendDigest(key[:n], in)
	}
	f.scratch = key
	both := string(key) // one allocation for the two
	return identity{key: Key{both[:n]}, fingerprint: both[n:], raw: raw}
}

// conditions are the preconditions and ranges of RFC 9110, sections 13 and 14, which are a part of the
// request's meaning.
var conditions = [...]string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
	"If-Range", "Range", "Content-Range"}

// count adds the header fields called names to those that count as parameters.
func (f *httpOperation) count(names []string) {
	for _, name := range names {
		value, lines := f.req.Headers.Header(name, 0)
		for i := 0; i < lines; {
			f.counted = append(f.counted, Pair{Name: strings.ToLower(name), Value: value})
			if i++; i < lines {
				value, _ = f.req.Headers.Header(name, i)
			}
		}
	}
}

var errPreforked = errors.New("idem: the application runs as several processes (Prefork), and the store is one of each process; set Config.Store to one that they share")

func (g *Guard) findUser(r *Request) (User, error) {
	if g.callers && r.Caller != "" {
		return g.user.of(r)
	}
	return g.user.find(r)
}

// appendUser appends the user part of a key. A '#' is never left by appendPart, so that
// what follows one can't be a plain ID.
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

// appendRoute appends the part of method and route, in which the blank between them is escaped like
// any other.
func appendRoute(k []byte, method, route string) []byte {
	k = appendPart(k, method)
	k = append(k, "%20"...)
	return appendPart(k, route)
}

func appendPart(k []byte, s string) []byte { return canon.AppendPart(k, s) }

// run runs the handler under the claim of c, unless the response is yet to come, settles the run, and answers.
func (f *httpOperation) run(c *runContext) error {
	captured, err := f.runHandler(c)
	if captured.Deferred {
		f.x.(Deferrer).Defer(&Pending{run: c, x: f.x, echo: f.echo, reported: captured.Err})
		return err
	}
	if derr := f.finish(c, &captured); err == nil {
		err = derr
	}
	return err
}

func (f *httpOperation) runHandler(c *runContext) (captured Capture, err error) {
	returned := false
	defer func() {
		if !returned {
			c.finishPanic() // a panic or runtime.Goexit, which goes on
		}
	}()
	c.begun()
	if f.echo[0].Name != "" {
		echoes(c, f.echo[0].Name)
	}
	captured, err = f.x.Run(c, f.guard.policy.ResponseLimit)
	c.returned()
	returned = true
	return captured, err
}

// finish finishes the run by what was captured, and sends the answer.
func (f *httpOperation) finish(c *runContext, captured *Capture) error {
	returned := false
	defer func() {
		if !returned { // Policy.Failed has panicked, or an observer: the client gets the handler's answer
			c.finishPanic()
			_ = deliver(f.x, &f.echo, c.keptFor)
		}
	}()
	c.done = true
	var o outcome
	o, f.scratch = c.outcome(captured, f.scratch[:0])
	instead := c.finish(o)
	returned = true
	if instead != nil {
		return f.refuse(c.values, instead)
	}
	return deliver(f.x, &f.echo, c.keptFor)
}

// outcome makes an outcome of a capture, with the result in buf.
func (c *runContext) outcome(captured *Capture, buf []byte) (outcome, []byte) {
	g := c.guard
	if captured.Unrendered || captured.Response == nil {
		o := outcome{failed: true, result: unavailable, err: unrendered(captured.Err)}
		if r := reported(captured.Err); r != nil && !captured.Incomplete {
			o.refused, o.status, o.err = r, r.Status, captured.Err
		}
		return o, buf
	}
	o := outcome{status: captured.Response.Status, cut: captured.Cut, empty: captured.Empty, err: captured.Err,
		refusal: captured.Response.Get(RefusedHeader) != "", runsOn: captured.RunsOn}
	if r := reported(captured.Err); r != nil {
		o.refusal = true
		if (captured.Empty || o.status == http.StatusInternalServerError) && !captured.Incomplete {
			o.refused, o.status = r, r.Status
		}
	}
	if captured.Empty && captured.Err != nil && o.refused == nil { // the middleware that was to render the error has ignored it
		o.failed, o.result, o.err = true, unavailable, unrendered(captured.Err)
		return o, buf
	}
	o.failed = o.refusal || g.policy.Failed(captured.Response) || o.runsOn
	switch {
	case g.policy.Duplicate == Reject:
		// The response is never replayed.
	case captured.Incomplete || len(captured.Response.Body) > g.policy.ResponseLimit:
		o.result = unavailable
	default:
		c.mu.Lock()
		buf = appendResponse(buf, captured.Response, &g.policy.StoredHeaders, c.echoed...)
		c.mu.Unlock()
		o.result = buf
	}
	return o, buf
}

// reported returns the refusal that err is, or holds, or nil.
func reported(err error) *Refusal {
	if err == nil {
		return nil // at no cost
	}
	var r *Refusal
	errors.As(err, &r)
	return r
}

func unrendered(err error) error {
	if err == nil {
		return ErrUnrendered
	}
	return fmt.Errorf("%w: %w", ErrUnrendered, err)
}

// deliver has the exchange deliver, with the fields of EchoKey. A result that was not kept has no expiry.
func deliver(x Exchange, echo *[2]Field, retention time.Duration) error {
	switch {
	case echo[0].Name == "":
		return x.Deliver(nil)
	case retention <= 0:
		return x.Deliver(echo[:1])
	}
	echo[1] = expires(retention)
	return x.Deliver(echo[:])
}

func expires(in time.Duration) Field {
	return Field{ExpiresHeader, time.Now().Add(in).UTC().Format(http.TimeFormat)}
}

// replayable decodes a stored result into f.resp, or says why it is not replayed.
func (f *httpOperation) replayable(ctx context.Context, grant store.Grant) (*Refusal, error) {
	if authorize := f.guard.policy.Authorize; authorize != nil {
		if err := authorize(ctx, &f.req); err != nil {
			return refusalNotAuthorized, err
		}
	}
	if !decodeResponse(&f.resp, grant.Result) {
		return refusalUnavailable, nil
	}
	if f.echo[0].Name != "" {
		echoes(ctx, f.echo[0].Name)
		f.resp.Header = append(f.resp.Header, f.echo[0], expires(grant.Remaining))
	}
	return nil, nil
}

func (f *httpOperation) refuse(ctx context.Context, r *Refusal) error {
	if r.Code != CodeTokenExpired { // another token is of no use, or this one is still good
		f.req.expired = nil
	}
	return f.x.Answer(f.guard.response(ctx, r, &f.req))
}

// stored returns the response of the finished run, for Config.Refuse.
func (f *httpOperation) stored(ctx context.Context, grant store.Grant) *Response {
	g := f.guard
	if g.engine.refuse == nil || grant.State != store.Done || g.policy.Authorize != nil && g.policy.Authorize(ctx, &f.req) != nil {
		return nil
	}
	r := new(Response)
	if !decodeResponse(r, grant.Result) {
		return nil
	}
	r.Header = r.Header[:len(r.Header)-1] // it is no replay
	return r
}

func isSafe(method string) bool {
	return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "TRACE"
}

// isIdempotent reports whether a method that is not safe is idempotent by itself (RFC 9110, section 9.2.2).
func isIdempotent(method string) bool { return method == "PUT" || method == "DELETE" }

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
