package core_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

var (
	tokenSecret = []byte("0123456789abcdef0123456789abcdef")
	otherSecret = []byte("fedcba9876543210fedcba9876543210")
)

func checkout(t *core.Tokens) core.Policy {
	p := core.OneShotToken(t)
	p.Name = "checkout"
	return p
}

func tokensFor(secrets ...[]byte) *core.Tokens {
	return core.MustTokens(core.TokenConfig{Secrets: secrets})
}

// tokenFor gets a token for a user.
func tokenFor(t testing.TB, g *core.Guard, user string) string {
	t.Helper()
	token, err := g.NewToken(t.Context(), &core.Request{Headers: &call{header: map[string][]string{"X-User": {user}}}})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// submit is a form of alice's with a token in it.
func submit(token, fields string, ledger *atomic.Int64) *call {
	c := post(core.TokenField+"="+url.QueryEscape(token)+fields, ledger)
	c.contentType = "application/x-www-form-urlencoded"
	return c
}

// forged is a token as its documentation has it.
func forged(expiry time.Time, id [16]byte, secret []byte, user, purpose string) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(expiry.UnixMilli()))[2:]
	raw = append(raw, id[:]...)
	mac := hmac.New(sha256.New, secret)
	mac.Write(append([]byte("idem t1\x00"), raw...))
	mac.Write(binary.AppendUvarint(nil, uint64(len(user))))
	mac.Write([]byte(user + purpose))
	return "t1." + base64.RawURLEncoding.EncodeToString(mac.Sum(raw))
}

func TestATokenIsAsDocumented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := core.MustNew(core.Config{User: byUser})
		g := e.MustGuard(checkout(tokensFor(tokenSecret)))
		token := tokenFor(t, g, "alice@example.com")
		assert.Len(t, token, 75)
		raw, err := base64.RawURLEncoding.DecodeString(token[len("t1."):])
		require.NoError(t, err)
		expiry := time.UnixMilli(int64(binary.BigEndian.Uint64(append([]byte{0, 0}, raw[:6]...))))
		assert.Equal(t, time.Now().Add(core.DefaultTokenLifetime).UnixMilli(), expiry.UnixMilli())
		assert.Equal(t, forged(expiry, [16]byte(raw[6:22]), tokenSecret, "alice@example.com", "checkout"), token)
		assert.NotEqual(t, token, tokenFor(t, g, "alice@example.com"))

		id := [16]byte{0: 1, 15: 255}
		c := serve(t, g, submit(forged(time.Now().Add(time.Millisecond), id, tokenSecret, "alice", "checkout"), "&n=1", nil))
		assert.Equal(t, 201, c.response.Status)
		r := core.Request{Method: "POST", Route: "/orders", ContentType: c.contentType, Headers: c, Body: []byte(c.body)}
		key, fingerprint, err := g.Key(&r)
		require.NoError(t, err)
		assert.Equal(t, core.NewKey("idem:U=M=checkoutT=AQAAAAAAAAAAAAAAAAAA_w"), key)
		r.Body = []byte(strings.ReplaceAll(c.body, core.TokenField, "x"))
		token = forged(time.Now(), id, tokenSecret, "alice", "checkout")
		r.Headers = &call{header: map[string][]string{"X-User": {"alice"}, core.TokenHeader: {token}}}
		_, other, err := g.Key(&r)
		require.NoError(t, err)
		assert.NotEqual(t, fingerprint, other, "the field counts under another name")
	})
}

// Users and purposes stand in a key and in the HMAC escaped; 192 bytes have a length of two.
func TestATokenOfOtherLetters(t *testing.T) {
	p := checkout(tokensFor(tokenSecret))
	p.Name = "check out"
	g := core.MustNew(core.Config{User: byUser, Service: "shop"}).MustGuard(p)
	c := submit(forged(time.Now().Add(time.Minute), [16]byte{}, tokenSecret, strings.Repeat("%C3%BC", 32), "check out"), "", nil)
	c.header.Set("X-User", strings.Repeat("ü", 32))
	assert.Equal(t, 201, serve(t, g, c).response.Status)
	key, _, err := g.Key(&core.Request{Headers: c, ContentType: c.contentType, Body: []byte(c.body)})
	require.NoError(t, err)
	assert.Equal(t, core.NewKey("idem:shop:U=M=check%20outT=AAAAAAAAAAAAAAAAAAAAAA"), key)
}

// Nothing can be guessed: no byte of an id is ever the same, and a random secret is one of its own.
func TestTokensAreRandom(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	g := e.MustGuard(checkout(core.MustTokens(core.TokenConfig{})))
	var varied [16]byte
	first := [16]byte(decoded(t, tokenFor(t, g, "alice"))[6:])
	for range 64 {
		for i, b := range decoded(t, tokenFor(t, g, "alice"))[6:22] {
			varied[i] |= b ^ first[i]
		}
	}
	assert.NotContains(t, varied, byte(0))

	other := e.MustGuard(checkout(core.MustTokens(core.TokenConfig{Secrets: [][]byte{}})))
	assert.Equal(t, "token_invalid", serve(t, other, submit(tokenFor(t, g, "alice"), "", nil)).code())
	assert.Equal(t, 201, serve(t, other, submit(tokenFor(t, other, "alice"), "", nil)).response.Status)
}

func decoded(t *testing.T, token string) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, "t1."))
	require.NoError(t, err)
	return raw
}

// A decoder that skips line feeds leaves out the last byte, which is zero in any case: that would be another text for
// the same token. So would one with blanks around it.
func TestNoOtherTextIsAToken(t *testing.T) {
	g := core.MustNew(core.Config{User: byUser}).MustGuard(checkout(tokensFor(tokenSecret)))
	expiry := time.Now().Add(time.Minute)
	var id [16]byte
	token := ""
	for token == "" || decoded(t, token)[53] != 0 {
		binary.BigEndian.PutUint64(id[:], binary.BigEndian.Uint64(id[:])+1)
		token = forged(expiry, id, tokenSecret, "alice", "checkout")
	}
	for _, text := range []string{token[:74] + "\n", token + " ", " " + token, token + "\n"} {
		c := post(`{}`, nil)
		c.header[core.TokenHeader] = []string{text}
		assert.Equal(t, "token_invalid", serve(t, g, c).code(), "%q", text)
	}
	assert.Equal(t, 201, serve(t, g, submit(token, "", nil)).response.Status)
}

// A secret that is a user's credential stands in the token's HMAC as in keys; two users, or a user and a purpose, that are
// one text when they are put together are two.
func TestATokenBelongsToUserAndPurpose(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	tokens := tokensFor(tokenSecret)
	g := e.MustGuard(checkout(tokens))
	for _, user := range []string{"alic", "alicec", "ALICE", "alice ", strings.Repeat("a", 65)} {
		c := serve(t, g, submit(tokenFor(t, g, user), "", nil))
		assert.Equal(t, "token_invalid", c.code(), user)
		assert.Equal(t, 403, c.response.Status)
	}
	p := checkout(tokens)
	p.Name = "echeckout"
	elsewhere := e.MustGuard(p)
	assert.Equal(t, "token_invalid", outcome(t, g, submit(tokenFor(t, elsewhere, "alic"), "", nil)))
	assert.Equal(t, "attempt 1", outcome(t, elsewhere, submit(tokenFor(t, elsewhere, "alice"), "", nil)))

	p = checkout(tokens)
	p.User = core.SharedByAllCallers()
	shared := e.MustGuard(p)
	assert.Equal(t, "token_invalid", outcome(t, g, submit(tokenFor(t, shared, "alice"), "", nil)), "a permit for all is none for one")
	assert.Equal(t, "attempt 1", outcome(t, shared, submit(tokenFor(t, shared, "bob"), "", nil)))

	_, err := g.NewToken(t.Context(), &core.Request{})
	assert.ErrorIs(t, err, codes.UserMissing)
	ctx := core.WithCaller(t.Context(), "partner")
	for who, r := range map[string]core.Request{"the verified caller": {}, "the caller of the request": {Caller: "partner"}} {
		from, asked := ctx, r
		if r.Caller != "" {
			from = core.WithCaller(t.Context(), "somebody else")
		}
		verified, err := g.NewToken(from, &asked)
		require.NoError(t, err)
		assert.Equal(t, r, asked, "it is the caller's")
		assert.Equal(t, "token_invalid", outcome(t, g, submit(verified, "", nil)))
		c := submit(verified, "", nil)
		delete(c.header, "X-User")
		require.NoError(t, g.Serve(ctx, c))
		assert.Equal(t, 201, c.response.Status, who)
	}
}

// A user of whom nothing, or nothing certain, is known is nobody.
func TestATokenForNobody(t *testing.T) {
	for name, find := range map[string]func(*core.Request) (core.User, error){
		"an error": func(*core.Request) (core.User, error) { return core.User{ID: "alice"}, errDown },
		"no ID":    func(*core.Request) (core.User, error) { return core.User{}, nil },
	} {
		e := core.MustNew(core.Config{User: core.UserFunc(find)})
		g := e.MustGuard(checkout(tokensFor(tokenSecret)))
		_, err := g.NewToken(t.Context(), &core.Request{})
		assert.ErrorIs(t, err, codes.UserMissing, name)
		assert.Equal(t, name == "an error", errors.Is(err, errDown))
		for _, user := range []string{"", "alice"} {
			c := submit(forged(time.Now().Add(time.Minute), [16]byte{}, tokenSecret, user, "checkout"), "", nil)
			assert.Equal(t, "user_missing", serve(t, g, c).code(), name)
		}
	}
}

// What can be refused without the body is refused before it is read, and why it can't be read is told.
func TestATokenAndABodyThatCannotBeRead(t *testing.T) {
	var ledger atomic.Int64
	var seen events
	g := core.MustNew(core.Config{User: byUser, Observe: seen.add}).MustGuard(checkout(tokensFor(tokenSecret)))
	for header, code := range map[string]string{
		tokenFor(t, g, "alice"): "body_unreadable", "t1.x": "token_invalid", "": "body_unreadable",
	} {
		c := submit(tokenFor(t, g, "alice"), "", &ledger)
		c.bodyErr = errDown
		c.header.Set(core.TokenHeader, header)
		assert.Equal(t, code, serve(t, g, c).code(), header)
		assert.Equal(t, code == "body_unreadable", errors.Is(seen.last().Err, errDown))
	}
	assert.Zero(t, ledger.Load())
}

func TestSecretsAreRotated(t *testing.T) {
	var ledger atomic.Int64
	older, newer := tokenSecret, otherSecret
	e := core.MustNew(core.Config{User: byUser})
	before := e.MustGuard(checkout(tokensFor(older)))
	during := e.MustGuard(checkout(tokensFor(newer, older)))
	after := e.MustGuard(checkout(tokensFor(newer)))
	issued := tokenFor(t, before, "alice")
	assert.False(t, serve(t, during, submit(issued, "", &ledger)).replayed())
	assert.True(t, serve(t, before, submit(issued, "", &ledger)).replayed(), "the record is the same")
	assert.Equal(t, "token_invalid", serve(t, after, submit(issued, "", &ledger)).code())
	assert.False(t, serve(t, after, submit(tokenFor(t, during, "alice"), "", &ledger)).replayed(), "the first one issues")
	assert.False(t, serve(t, during, submit(tokenFor(t, during, "alice"), "", &ledger)).replayed())
	assert.EqualValues(t, 3, ledger.Load())

	changed := bytes.Clone(older)
	own := e.MustGuard(checkout(tokensFor(changed)))
	clear(changed)
	assert.True(t, serve(t, own, submit(issued, "", &ledger)).replayed(), "the caller's bytes are not kept")
}

func TestWhereATokenIsReadFrom(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	form := e.MustGuard(checkout(tokensFor(tokenSecret)))
	query := e.MustGuard(checkout(core.MustTokens(core.TokenConfig{Secrets: [][]byte{tokenSecret}, FromQuery: true})))
	multi := func(write func(w *multipart.Writer)) (contentType, body string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		write(w)
		require.NoError(t, w.Close())
		return w.FormDataContentType(), b.String()
	}
	const urlencoded = "application/x-www-form-urlencoded"
	token := tokenFor(t, form, "alice")
	pair := "idempotency_token=" + token
	fields, inFields := multi(func(w *multipart.Writer) { _ = w.WriteField(core.TokenField, token) })
	file, inFile := multi(func(w *multipart.Writer) {
		part, _ := w.CreateFormFile(core.TokenField, "token")
		_, _ = part.Write([]byte(token))
	})
	for name, tc := range map[string]struct {
		guard                            *core.Guard
		header, query, contentType, body string
		code                             string // "": it runs
	}{
		"header":                      {form, token, "", "application/json", `{}`, ""},
		"header without a body":       {form, token, "", "", "", ""},
		"form":                        {form, "", "", urlencoded, "a=1&" + pair, ""},
		"form, escaped name":          {form, "", "", urlencoded, "idempotency%5Ftoken=" + token, ""},
		"multipart":                   {form, "", "", fields, inFields, ""},
		"query":                       {query, "", pair, "application/json", `{}`, ""},
		"header before form":          {form, token, "", urlencoded, "idempotency_token=t1.x", ""},
		"form before query":           {query, "", "idempotency_token=t1.x", urlencoded, pair, ""},
		"a bad header":                {form, "t1.x", "", urlencoded, pair, "token_invalid"},
		"a bad form field":            {query, "", pair, urlencoded, "idempotency_token=t1.x", "token_invalid"},
		"an empty form field":         {query, "", pair, urlencoded, "idempotency_token=", "token_missing"},
		"an empty header is none":     {form, "", "", urlencoded, pair, ""},
		"query, not read":             {form, "", pair, urlencoded, "a=1", "token_missing"},
		"twice in a form":             {form, "", "", urlencoded, pair + "&" + pair, "token_invalid"},
		"JSON is no form":             {form, "", "", "application/json", `{"idempotency_token":"` + token + `"}`, "token_missing"},
		"text that reads like a form": {form, "", "", "text/plain", "body:" + pair, "token_missing"},
		"a file":                      {form, "", "", file, inFile, "token_invalid"},
		"nowhere":                     {query, "", "a=1", "", "", "token_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			var ledger atomic.Int64
			c := post(tc.body, &ledger)
			c.contentType, c.query, c.route = tc.contentType, tc.query, "/"+name // another request each time
			if tc.header != "" || strings.Contains(name, "empty header") {
				c.header[core.TokenHeader] = []string{tc.header}
			}
			fresh := core.MustNew(core.Config{User: byUser})
			p := checkout(core.MustTokens(core.TokenConfig{Secrets: [][]byte{tokenSecret}, FromQuery: tc.guard == query}))
			serve(t, fresh.MustGuard(p), c)
			assert.Equal(t, tc.code, c.code())
			assert.Equal(t, tc.code == "", ledger.Load() == 1)
		})
	}
	beside := post(`{"idempotency_token":"t1.x"}`, nil)
	beside.query = pair
	assert.Equal(t, 201, serve(t, query, beside).response.Status, "a member of JSON is nothing beside the query")
	_, _, err := form.Key(&core.Request{ContentType: urlencoded, ContentEncoding: "gzip", Headers: post("", nil), Body: []byte(pair)})
	assert.ErrorIs(t, err, codes.TokenMissing, "what is encoded counts by its raw bytes")
	twice := post(`{}`, nil)
	twice.header[core.TokenHeader] = []string{token, token}
	assert.Equal(t, "token_invalid", serve(t, form, twice).code())
}

func TestATokenIsTooOldForAFirstUseOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger atomic.Int64
		store := &spy{Store: newStore(t)}
		var seen events
		e := core.MustNew(core.Config{User: byUser, Store: store, Observe: seen.add})
		g := e.MustGuard(checkout(tokensFor(tokenSecret)))
		used, unused, failed, crashed := tokenFor(t, g, "alice"), tokenFor(t, g, "alice"), tokenFor(t, g, "alice"), tokenFor(t, g, "alice")
		serve(t, g, submit(used, "", &ledger))
		bad := submit(failed, "", &ledger).doing(handlerOf(402))
		assert.Equal(t, 402, serve(t, g, bad).response.Status)
		bad = submit(crashed, "", &ledger)
		bad.handler = abandoning
		serve(t, g, bad)

		time.Sleep(core.DefaultTokenLifetime - time.Millisecond)
		serve(t, g, submit(tokenFor(t, g, "alice"), "", &ledger))
		assert.EqualValues(t, 2, ledger.Load())
		time.Sleep(time.Millisecond)
		for _, token := range []string{unused, failed, unused} {
			c := serve(t, g, submit(token, "", &ledger))
			assert.Equal(t, "token_expired", c.code())
			assert.Equal(t, 410, c.response.Status)
		}
		assert.EqualValues(t, 2, ledger.Load())
		assert.True(t, serve(t, g, submit(used, "", &ledger)).replayed(), "who submits again gets the receipt")
		assert.Equal(t, "key_reused", serve(t, g, submit(used, "&n=2", &ledger)).code())

		// A run that was begun in time and abandoned is a standing record: it is taken over.
		assert.Equal(t, "attempt 2", outcome(t, g, submit(crashed, "", nil)))
		assert.True(t, serve(t, g, submit(crashed, "", &ledger)).replayed())
		for _, ev := range seen.all {
			assert.False(t, ev.Code == codes.TokenExpired && ev.Kind != core.Refused)
		}
	})
}

// The claim of a token that is too old may stay behind: the store is down when it is to be released, or the process
// ends. What it leaves must not pass for a run that was begun.
func TestTheClaimOfAnOldTokenStaysBehind(t *testing.T) {
	runAgain := func(context.Context, core.Uncertainty) (core.Verdict, error) { return core.RunAgain(), nil }
	for name, set := range map[string]func(p *core.Policy){
		"TakeOver":  func(*core.Policy) {},
		"Uncertain": func(p *core.Policy) { p.Abandoned = core.Uncertain(runAgain) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var ledger atomic.Int64
			var seen events
			records := &spy{Store: newStore(t)}
			p := checkout(tokensFor(tokenSecret))
			set(&p)
			g := core.MustNew(core.Config{User: byUser, Store: records, Observe: seen.add}).MustGuard(p)
			token := tokenFor(t, g, "alice")
			// The same one in a process whose clock is behind.
			young := forged(time.Now().Add(time.Hour), [16]byte(decoded(t, token)[6:]), tokenSecret, "alice", "checkout")
			time.Sleep(core.DefaultTokenLifetime)
			refused := func(token, fields, when string) {
				code := "token_expired"
				if token == young && when == "while it stands" { // it may just be about to be released
					code = "in_progress"
				}
				assert.Equal(t, code, serve(t, g, submit(token, fields, &ledger)).code(), "%s, %s", name, when)
			}
			records.release = func(context.Context) error { return errDown }
			refused(token, "", "at first")
			records.release = nil
			last := seen.last()
			assert.ErrorIs(t, last.Err, errDown)
			assert.Contains(t, last.Key.Raw(), "M=checkoutT=")
			refused(young, "", "while it stands")
			refused(token, "&n=2", "while it stands")
			time.Sleep(core.DefaultLease)

			// 0.1.0 let such a record stand for longer.
			grant, err := records.Store.Acquire(t.Context(), last.Key.Raw(), store.Claim{
				Owner: store.NewOwner(), Fingerprint: "expired", Lease: core.DefaultLease, Retention: 4 * core.DefaultLease})
			require.NoError(t, err)
			require.Equal(t, store.Acquired, grant.State)
			for _, when := range []string{"while it stands", "when its lease has passed", "again"} {
				refused(token, "", when)
				refused(token, "&n=2", when)
				refused(young, "", when)
				refused(young, "&n=2", when)
				time.Sleep(core.DefaultLease)
			}
			assert.Zero(t, ledger.Load())
			time.Sleep(2 * core.DefaultLease)
			assert.Equal(t, 201, serve(t, g, submit(young, "", &ledger)).response.Status)
		})
	}
}

// Of two who take over from a run that was begun in time, one does it first; the other waits for it, and may then do
// the same.
func TestOldTokensTakeOverOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &spy{Store: newStore(t)}
		p := checkout(tokensFor(tokenSecret))
		p.Duplicate = core.Wait(time.Minute)
		g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(p)
		token := tokenFor(t, g, "alice")
		crashing := func() *call {
			c := submit(token, "", nil).doing(func(ctx context.Context) adapter.Capture {
				time.Sleep(time.Second)
				core.RunFrom(ctx).Abandon()
				return answer(500, "")
			})
			return c
		}
		serve(t, g, crashing())
		time.Sleep(core.DefaultTokenLifetime)
		looks := 0
		store.acquire = func(context.Context) error {
			if looks++; looks == 2 { // the first has told of the abandoned run
				store.acquire = nil
				go serve(t, g, crashing())
				synctest.Wait()
			}
			return nil
		}
		assert.Equal(t, "attempt 3", outcome(t, g, submit(token, "", nil)))
	})
}

// While the store is down nobody knows whether the token was used before.
func TestAnOldTokenAndAStoreThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &spy{Store: newStore(t)}
		p := checkout(tokensFor(tokenSecret))
		p.FailOpen = true
		g := core.MustNew(core.Config{User: byUser, Store: store}).MustGuard(p)
		token := tokenFor(t, g, "alice")
		store.acquire = func(context.Context) error { return errDown }
		assert.Equal(t, 1, serve(t, g, submit(token, "", nil)).passed)
		time.Sleep(core.DefaultTokenLifetime)
		assert.Equal(t, "store_unavailable", serve(t, g, submit(token, "", nil)).code())
		synctest.Wait()
		assert.EqualValues(t, 1, store.releases.Load(), "the claim may stand all the same")
	})
}

// An uncertain run that was begun in time, and what is asked about it later. It may be run again if it was abandoned, by
// whatever run; not if a run has left nothing but its number.
func TestAnOldTokenAndAnUncertainRun(t *testing.T) {
	for name, tc := range map[string]struct {
		verdict core.Verdict
		wants   []string // one after the other
		end     func(*core.Run)
	}{
		"unknown":                      {core.Unknown(), []string{"uncertain", "uncertain"}, nil},
		"finished":                     {core.Finished(&core.Response{Status: 202}), []string{"replay", "replay"}, nil},
		"run again":                    {core.RunAgain(), []string{"attempt 2", "replay"}, (*core.Run).Keep},
		"run again, and abandon again": {core.RunAgain(), []string{"attempt 2", "attempt 3"}, (*core.Run).Abandon},
		"run again, and release":       {core.RunAgain(), []string{"attempt 2", "token_expired"}, (*core.Run).Release},
	} {
		bubble(t, name, func(t *testing.T) {
			p := checkout(tokensFor(tokenSecret))
			p.Abandoned = finding(tc.verdict)
			g := core.MustNew(core.Config{User: byUser, Store: newStore(t)}).MustGuard(p)
			token := tokenFor(t, g, "alice")
			serve(t, g, submit(token, "", nil).doing(abandoning))
			for _, want := range tc.wants {
				time.Sleep(core.DefaultTokenLifetime)
				assert.Equal(t, want, outcome(t, g, submit(token, "", nil).after(func(ctx context.Context) { tc.end(core.RunFrom(ctx)) })))
			}
		})
	}
}

// The page of a refusal tells of the finished run, if its client may know. Under Reject there is no response to tell of.
func TestWhatAPageCanSayAboutAUsedToken(t *testing.T) {
	var seen []*core.Refusal
	var forbidden error
	e := core.MustNew(core.Config{User: byUser, Refuse: func(_ context.Context, r *core.Refusal) *core.Response {
		seen = append(seen, r)
		return nil
	}})
	p := checkout(tokensFor(tokenSecret))
	p.Authorize = func(context.Context, *core.Request) error { return forbidden }
	g := e.MustGuard(p)
	token := tokenFor(t, g, "alice")
	serve(t, g, submit(token, "", nil).doing(func(context.Context) adapter.Capture {
		serve(t, g, submit(token, "&n=2", nil)) // while it runs
		return answer(303, "", core.Field{Name: "Location", Value: "/receipts/1"})
	}))
	serve(t, g, submit(token, "&n=2", nil))
	forbidden = errors.New("no")
	serve(t, g, submit(token, "&n=2", nil))
	rejecting := checkout(tokensFor(tokenSecret))
	rejecting.Duplicate = core.Reject("")
	token = tokenFor(t, g, "alice")
	serve(t, e.MustGuard(rejecting), submit(token, "", nil))
	serve(t, e.MustGuard(rejecting), submit(token, "&n=2", nil))
	require.Len(t, seen, 4)
	for i, r := range seen {
		assert.Equal(t, codes.KeyReused, r.Code)
		if i != 1 {
			assert.Nil(t, r.Stored)
			continue
		}
		assert.Equal(t, "/receipts/1", r.Stored.Get("Location"))
		assert.Equal(t, 303, r.Stored.Status)
		assert.Empty(t, r.Stored.Get(core.ReplayedHeader))
	}
}

func TestTokenInput(t *testing.T) {
	assert.Equal(t, `<input type="hidden" name="idempotency_token" value="t1.&#34;&gt;" autocomplete="off">`,
		string(core.TokenInput(`t1.">`)))
}

// limiter is a [core.TokenConfig].Limit with one answer. It records the users.
type limiter struct {
	retryAfter time.Duration
	err        error
	users      []core.User
}

func (l *limiter) tokens() *core.Tokens {
	return core.MustTokens(core.TokenConfig{Limit: func(ctx context.Context, user core.User) (time.Duration, error) {
		l.users = append(l.users, user)
		return l.retryAfter, errors.Join(l.err, ctx.Err())
	}})
}

func TestIssuingIsLimited(t *testing.T) {
	var seen events
	l := new(limiter)
	e := core.MustNew(core.Config{User: byUser, Observe: seen.add})
	g := e.MustGuard(checkout(l.tokens()))
	ask := func() *call {
		c := post("", nil)
		c.method, c.route = "GET", "/tokens"
		require.NoError(t, g.ServeTokens()(t.Context(), c))
		return c
	}
	c := ask()
	assert.Regexp(t, `^\{"token":"t1\.[A-Za-z0-9_-]{72}"\}$`, string(c.response.Body))
	assert.Equal(t, "no-store", c.response.Get("Cache-Control"))
	assert.Equal(t, "application/json", c.response.Get("Content-Type"))

	for wait, after := range map[time.Duration]string{
		1: "1", time.Second: "1", time.Second + 1: "2", 90 * time.Second: "90", math.MaxInt64: "9223372037",
	} {
		l.retryAfter = wait
		c = ask()
		assert.Equal(t, 429, c.response.Status)
		assert.Equal(t, "rate_limited", c.code())
		assert.Equal(t, after, c.response.Get("Retry-After"))
		assert.Equal(t, "rate_limited", c.response.Get(core.RefusedHeader))
	}
	l.retryAfter = -1
	assert.Equal(t, 200, ask().response.Status)

	l.retryAfter, l.err = time.Minute, errDown
	c = ask()
	assert.Equal(t, 503, c.response.Status)
	assert.Equal(t, "store_unavailable", c.code())
	assert.Equal(t, "1", c.response.Get("Retry-After"))
	assert.NotContains(t, string(c.response.Body), errDown.Error())
	_, err := g.NewToken(t.Context(), &core.Request{Headers: c})
	assert.ErrorIs(t, err, errDown)
	assert.Equal(t, slices.Repeat([]core.User{{ID: "alice"}}, 9), l.users)

	delete(c.header, "X-User")
	require.NoError(t, g.ServeTokens()(t.Context(), c))
	assert.Equal(t, "user_missing", c.code())
	assert.Len(t, l.users, 9, "nobody is not counted")
	last := seen.last()
	assert.Equal(t, core.Refused, last.Kind)
	assert.Equal(t, "GET /tokens", last.Route)
	assert.Equal(t, codes.UserMissing, last.Code)
	assert.Equal(t, 400, last.Status)
	assert.ErrorIs(t, last.Err, core.ErrNoUser)
	assert.Equal(t, "checkout", last.Policy)
}

// A limit is for the user part of a key: it sees no secret, and all callers are one if they are so for the policy.
func TestWhomALimitIsFor(t *testing.T) {
	l := new(limiter)
	e := core.MustNew(core.Config{User: core.UserFromSecretHeader("X-User")})
	p := checkout(l.tokens())
	tokenFor(t, e.MustGuard(p), "secret")
	p.User = byUser
	tokenFor(t, e.MustGuard(p), "ann smith")
	p.User = core.SharedByAllCallers()
	tokenFor(t, e.MustGuard(p), "alice")
	digest := sha256.Sum256([]byte("secret"))
	assert.Equal(t, []core.User{{ID: "#" + base64.RawURLEncoding.EncodeToString(digest[:])}, {ID: "ann%20smith"}, {Shared: true}}, l.users)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.MustGuard(p).NewToken(ctx, &core.Request{})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestServeTokenTellsOfTheRequest(t *testing.T) {
	asked := 0
	e := core.MustNew(core.Config{User: core.UserFromCaller(), Refuse: func(_ context.Context, r *core.Refusal) *core.Response {
		asked++
		assert.Equal(t, "partner", r.Request.Caller)
		assert.Equal(t, []string{"X-Sign"}, r.Request.Consumed)
		assert.Equal(t, "/tokens", r.Request.Route)
		return nil
	}})
	g := e.MustGuard(checkout((&limiter{retryAfter: time.Second}).tokens()))
	c := post("", nil)
	c.method, c.route = "GET", "/tokens"
	ctx := core.WithCaller(t.Context(), "partner", "X-Sign")
	require.NoError(t, g.ServeTokens()(ctx, c))
	assert.Equal(t, "rate_limited", c.code())
	assert.Equal(t, 1, asked)

	c.gone = errDown // the client
	assert.ErrorIs(t, g.ServeTokens()(ctx, c), errDown)
	assert.ErrorIs(t, e.MustGuard(checkout(tokensFor(tokenSecret))).ServeTokens()(ctx, c), errDown)
}

func TestFaultsOfTokens(t *testing.T) {
	for _, c := range []core.TokenConfig{
		{Lifetime: -1},
		{Lifetime: 365*24*time.Hour + 1},
		{Secrets: [][]byte{tokenSecret[:31]}},
		{Secrets: [][]byte{nil}},
		{Secrets: [][]byte{tokenSecret, bytes.Clone(tokenSecret)}},
		{Secrets: [][]byte{tokenSecret, otherSecret, tokenSecret}},
		{Secrets: [][]byte{tokenSecret, make([]byte, 32)}},
		{Secrets: [][]byte{bytes.Repeat([]byte("x"), 64)}},
	} {
		_, err := core.NewTokens(c)
		assert.Len(t, faultyFields(t, err), 1, "%+v", c)
		assert.Panics(t, func() { core.MustTokens(c) })
	}
	_, err := core.NewTokens(core.TokenConfig{Lifetime: 365 * 24 * time.Hour})
	assert.NoError(t, err)
	_, err = core.NewTokens(core.TokenConfig{Lifetime: -1, Secrets: [][]byte{{1}, {1}}})
	assert.Equal(t, []string{"TokenConfig.Lifetime", "TokenConfig.Secrets", "TokenConfig.Secrets", "TokenConfig.Secrets"},
		faultyFields(t, err))

	local := core.MustNew(core.Config{User: byUser})
	assert.Panics(t, func() { local.MustGuard(core.Policy{}).ServeTokens() })
	assert.Panics(t, func() { _, _ = local.MustGuard(core.Policy{}).NewToken(t.Context(), &core.Request{}) })
	random := checkout(core.MustTokens(core.TokenConfig{}))
	local.MustGuard(random).ServeTokens()
	core.MustNew(core.Config{User: byUser, Store: &spy{Store: newStore(t)}}).MustGuard(random)
	_, err = core.MustNew(core.Config{User: byUser, Service: "shop", Store: shared{newStore(t)}}).Guard(random)
	assert.Equal(t, []string{"Policy.Key"}, faultyFields(t, err), "the other processes could not check it")

	_, err = local.Guard(core.Policy{Key: core.Token(nil)})
	assert.Equal(t, []string{"Policy.Name", "Policy.Key"}, faultyFields(t, err))
	long := core.MustTokens(core.TokenConfig{Lifetime: 48 * time.Hour})
	for name, tc := range map[string]struct {
		set   func(p *core.Policy)
		fault string // of the policy
	}{
		"as it is": {func(*core.Policy) {}, ""},
		"outlasts it": {func(p *core.Policy) {
			p.Retention, p.RememberAbandoned = 48*time.Hour+5*time.Minute, 48*time.Hour+5*time.Minute
		}, ""},
		"is forgotten too early": {func(p *core.Policy) { p.Retention = 48*time.Hour + 5*time.Minute - 1 }, "Retention"},
		"so is an abandoned one": {func(p *core.Policy) { p.RememberAbandoned = 48*time.Hour + 5*time.Minute - 1 }, "RememberAbandoned"},
		"used again and again":   {func(p *core.Policy) { p.Duplicate, p.OnSuccess = core.Reject(""), core.Release }, "OnSuccess"},
		"a header like another":  {func(p *core.Policy) { p.Key = core.Header(core.Required, core.RequestHeaders(core.TokenHeader)) }, ""},
		"the token is the key":   {func(p *core.Policy) { p.Key = core.Token(long, core.RequestHeaders("x-idempotency-token")) }, "Key"},
		"nor does its field":     {func(p *core.Policy) { p.Key = core.Token(long, core.Exclude(core.TokenField)) }, "Key"},
	} {
		p := checkout(long)
		tc.set(&p)
		_, err := local.Guard(p)
		if tc.fault == "" {
			assert.NoError(t, err, name)
		} else {
			assert.Equal(t, []string{"Policy." + tc.fault}, faultyFields(t, err), name)
		}
	}

	paths := make([]string, 1, 2)
	paths[0] = "note"
	p := checkout(long)
	p.Key = core.Token(long, core.Exclude(paths...))
	local.MustGuard(p)
	assert.Equal(t, []string{"note", ""}, paths[:2], "they are the caller's")
}

// The record of a token stands for 24 hours, done or abandoned, unless the policy says otherwise, or the token lives for longer.
func TestForHowLongARecordOutlastsItsToken(t *testing.T) {
	for _, tc := range []struct{ lifetime, retention, stands time.Duration }{
		{0, 0, 24 * time.Hour}, {0, 10 * time.Minute, 10 * time.Minute}, {48 * time.Hour, 0, 48*time.Hour + 5*time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := checkout(core.MustTokens(core.TokenConfig{Secrets: [][]byte{tokenSecret}, Lifetime: tc.lifetime}))
			p.Retention, p.RememberAbandoned = tc.retention, tc.retention
			g := core.MustNew(core.Config{User: byUser, Store: &spy{Store: newStore(t)}}).MustGuard(p)
			used, crashed := tokenFor(t, g, "alice"), tokenFor(t, g, "alice")
			serve(t, g, submit(used, "", nil))
			serve(t, g, submit(crashed, "", nil).doing(abandoning))
			time.Sleep(tc.stands - time.Millisecond)
			assert.Equal(t, "replay", outcome(t, g, submit(used, "", nil)))
			assert.Equal(t, "attempt 2", outcome(t, g, submit(crashed, "", nil).doing(abandoning)))
			time.Sleep(time.Millisecond)
			assert.Equal(t, "token_expired", outcome(t, g, submit(used, "", nil)))
			time.Sleep(tc.stands)
			assert.Equal(t, "token_expired", outcome(t, g, submit(crashed, "", nil)))
		})
	}
}

// However often an expired form is sent, and renewed, and whoever of the service's processes answers: it is one operation.
func TestAnExpiredTokenIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger atomic.Int64
		var guards []*core.Guard // an old process, one that checks the new secret already, and one of another purpose
		var fresh [3]string      // what the page of the last refusal gets from each
		store := newStore(t)
		for i, secrets := range [][][]byte{{tokenSecret, otherSecret}, {otherSecret, tokenSecret}, {tokenSecret}} {
			e := core.MustNew(core.Config{User: byUser, Store: store, Refuse: func(ctx context.Context, r *core.Refusal) *core.Response {
				for i, g := range guards {
					fresh[i], _ = g.NewToken(ctx, r.Request)
				}
				return nil
			}})
			p := checkout(tokensFor(secrets...))
			p.Name = []string{"checkout", "checkout", "newsletter"}[i]
			guards = append(guards, e.MustGuard(p))
		}
		refused := func(g *core.Guard, token, fields string, code codes.Code) {
			assert.Equal(t, string(code), serve(t, g, submit(token, fields, &ledger)).code())
		}
		id := func(token string) string { return string(decoded(t, token)[6:22]) }

		first := tokenFor(t, guards[0], "alice")
		last := first
		for i := range 4 {
			time.Sleep(core.DefaultTokenLifetime)
			refused(guards[i%2], last, "", codes.TokenExpired)
			assert.Equal(t, []string{id(first), id(first)}, []string{id(fresh[0]), id(fresh[1])})
			assert.NotEqual(t, id(first), id(fresh[2]), "what another purpose permits is another thing")
			last = fresh[i%2]
		}
		time.Sleep(core.DefaultTokenLifetime - time.Millisecond)
		assert.Equal(t, 201, serve(t, guards[0], submit(last, "", &ledger)).response.Status, "each has its own time")
		for _, token := range []string{first, fresh[0], last} {
			assert.True(t, serve(t, guards[1], submit(token, "", &ledger)).replayed(), "who goes back and submits again gets the receipt")
			refused(guards[0], token, "&n=2", codes.KeyReused)
			assert.NotEqual(t, id(first), id(fresh[0]), "the page may have a form for another order")
		}
		refused(guards[0], forged(time.Now().Add(-time.Second), [16]byte{1}, tokenSecret, "bob", "checkout"), "", codes.TokenInvalid)
		assert.NotEqual(t, string(append([]byte{1}, make([]byte, 15)...)), id(fresh[0]), "a forged token is not renewed")
		assert.EqualValues(t, 1, ledger.Load())
	})
}

func TestSecretsOfTokensAreNotPrinted(t *testing.T) {
	c := core.TokenConfig{Secrets: [][]byte{[]byte("0123456789abcdef0123456789ABCDEF")}, Lifetime: time.Minute}
	var printed bytes.Buffer
	for _, v := range []any{c, &c, []core.TokenConfig{c}, struct{ Tokens *core.TokenConfig }{&c}, core.MustTokens(c), *core.MustTokens(c)} {
		for verb := range strings.SplitSeq("vsqxXdtbcoOUeEfFgG", "") {
			fmt.Fprintf(&printed, "%"+verb+"%+"+verb+"%#"+verb+"% 09.3"+verb, v, v, v, v)
		}
		slog.New(slog.NewTextHandler(&printed, nil)).Info("configured", "tokens", v)
		slog.New(slog.NewJSONHandler(&printed, nil)).Info("configured", "tokens", v) // by encoding/json
	}
	for _, leak := range []string{"0123456789", "30313233", "48 49 50 51", "48,49,50", "0x30, 0x31", "30 31 32 33",
		"MDEyMzQ1", "60 61 62 63", "110000 110001"} {
		assert.NotContains(t, printed.String(), leak)
	}
	assert.Equal(t, "{Secrets:1 Lifetime:1m0s FromQuery:false}", fmt.Sprint(c))
}

// The key names neither route nor method, and does not need to: what was done with a token is no other operation. So
// counts what is left out of keys that are made of parameters: somebody has chosen to do the one thing.
func TestATokenIsForOneOperation(t *testing.T) {
	var ledger atomic.Int64
	g := core.MustNew(core.Config{User: byUser}).MustGuard(checkout(tokensFor(tokenSecret)))
	token := tokenFor(t, g, "alice")
	serve(t, g, submit(token, "&latitude=1", &ledger))
	route, method := submit(token, "&latitude=1", &ledger), submit(token, "&latitude=1", &ledger)
	route.route, method.method = "/refunds", "PUT"
	for _, other := range []*call{route, method, submit(token, "&latitude=2", &ledger)} {
		assert.Equal(t, "key_reused", serve(t, g, other).code())
	}
	assert.EqualValues(t, 1, ledger.Load())
}

// One who came too late may be answered by the store before one who came in time: each waits among his own, for a late
// one takes over nothing unasked, and what he finds is no answer to the others.
func TestThoseInTimeAndThoseTooLateWaitApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger atomic.Int64
		slow := make(chan bool, 1)
		store := &spy{Store: newStore(t)}
		store.acquire = func(context.Context) error {
			select {
			case <-slow:
				time.Sleep(time.Second)
			default:
			}
			return nil
		}
		p := checkout(tokensFor(tokenSecret))
		p.Duplicate = core.Wait(time.Minute)
		g := core.MustNew(core.Config{User: byUser, Store: store, StoreTimeout: 10 * time.Second}).MustGuard(p)
		token := tokenFor(t, g, "alice")
		time.Sleep(core.DefaultTokenLifetime - time.Millisecond)

		crash := submit(token, "", &ledger).doing(func(ctx context.Context) adapter.Capture {
			time.Sleep(10 * time.Second)
			core.RunFrom(ctx).Abandon()
			return answer(500, "")
		})
		go serve(t, g, crash)
		synctest.Wait()
		inTime, late := submit(token, "", &ledger), submit(token, "", &ledger)
		slow <- true
		go serve(t, g, inTime)
		synctest.Wait()
		time.Sleep(2 * time.Millisecond)
		go serve(t, g, late)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		statuses := []int{inTime.response.Status, late.response.Status}
		assert.Equal(t, []int{201, 201}, statuses, "%s %s", inTime.code(), late.code())
		assert.EqualValues(t, 1, ledger.Load())
	})
}

// Between the question whether a token was used in time and the takeover, another may have taken over, and crashed as
// well.
func TestAnOldTokenTakesOverWhatAnotherHasTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &spy{Store: newStore(t)}
		g := core.MustNew(core.Config{User: byUser, Store: records}).MustGuard(checkout(tokensFor(tokenSecret)))
		token := tokenFor(t, g, "alice")
		serve(t, g, submit(token, "", nil).doing(abandoning))
		time.Sleep(core.DefaultTokenLifetime)
		records.asked = func(key string, claim store.Claim) {
			if records.acquires.Load() != 3 { // the takeover
				return
			}
			claim.Owner = store.NewOwner()
			grant, err := records.Store.Acquire(t.Context(), key, claim)
			require.NoError(t, err)
			require.EqualValues(t, 2, grant.Attempt)
			require.NoError(t, records.Store.Abandon(t.Context(), key, claim.Owner))
		}
		assert.Equal(t, "attempt 3", outcome(t, g, submit(token, "", nil)))
	})
}

// The claim of one who came too late stands for a moment only. One who came in time, or at whose server it is earlier,
// meets with an operation that is running, as it were: it may run yet.
func TestInTimeBesideTheClaimOfAnOldToken(t *testing.T) {
	for name, duplicate := range map[string]core.Duplicate{"replay": core.Replay(), "wait": core.Wait(time.Minute)} {
		bubble(t, name, func(t *testing.T) {
			store := newStore(t)
			p := checkout(tokensFor(tokenSecret))
			p.Duplicate = duplicate
			g := core.MustNew(core.Config{User: byUser, Store: &spy{Store: store}}).MustGuard(p)
			ahead := &spy{Store: store}
			ahead.release = func(context.Context) error { time.Sleep(time.Second); return nil }
			fast := core.MustNew(core.Config{User: byUser, Store: ahead}).MustGuard(p)

			// The clock of one server is ahead of the other's: the one has a token that is not too old.
			id := [16]byte{9}
			old := forged(time.Now(), id, tokenSecret, "alice", "checkout")
			fresh := forged(time.Now().Add(time.Minute), id, tokenSecret, "alice", "checkout")
			late, inTime := submit(old, "", nil), submit(fresh, "", nil)
			go serve(t, fast, late)
			synctest.Wait()
			serve(t, g, inTime)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			assert.Equal(t, "token_expired", late.code())
			if name == "wait" {
				assert.Equal(t, 201, inTime.response.Status, inTime.code())
				return
			}
			assert.Equal(t, "in_progress", inTime.code())
			assert.Equal(t, 201, serve(t, g, submit(fresh, "", nil)).response.Status)
		})
	}
}

// A token that was issued with a longer lifetime, or by a server whose clock is ahead, must not outlive the record of
// its use.
func TestATokenThatWouldOutliveItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger atomic.Int64
		e := core.MustNew(core.Config{User: byUser, Store: &spy{Store: newStore(t)}})
		lasting := func(lifetime time.Duration) *core.Guard {
			return e.MustGuard(checkout(core.MustTokens(core.TokenConfig{Secrets: [][]byte{tokenSecret}, Lifetime: lifetime})))
		}
		before, after := lasting(72*time.Hour), lasting(0)
		used, unused := tokenFor(t, before, "alice"), tokenFor(t, before, "alice")
		serve(t, before, submit(used, "", &ledger))
		assert.True(t, serve(t, after, submit(used, "", &ledger)).replayed(), "its record stands for long enough")
		assert.Equal(t, "token_expired", serve(t, after, submit(unused, "", &ledger)).code())
		time.Sleep(48 * time.Hour)
		c := serve(t, after, submit(unused, "", &ledger))
		assert.Equal(t, 201, c.response.Status, "there is not more time left than a record stands")
		time.Sleep(24*time.Hour - time.Millisecond)
		serve(t, after, submit(unused, "", &ledger))
		time.Sleep(time.Millisecond)
		serve(t, after, submit(unused, "", &ledger))
		assert.EqualValues(t, 2, ledger.Load())
	})
}

// The mark that such a claim leaves is a token's own: a task's fingerprint may read alike.
func TestAFingerprintThatReadsLikeTheMarkOfAnOldToken(t *testing.T) {
	task := core.MustNew(core.Config{Store: newStore(t)}).MustTask(core.TaskPolicy{Name: "orders"})
	call := core.Call{Key: "order 7", User: "alice", Fingerprint: "expired"}
	for i := range 2 {
		r, err := core.Do(t.Context(), task, call, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		assert.Equal(t, i > 0, r.Replayed)
	}
}
