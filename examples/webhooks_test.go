package examples_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/program"
)

// delivery is a webhook: a body, and what is signed with it.
type delivery struct {
	key, body string
	ahead     time.Duration // of the clock
	operation string        // the Idempotency-Key, empty: none
}

const shopHost = "Shop.example:8080"

// request signs the delivery, without any help of package sign.
func (d delivery) request(t *testing.T, c *client) *http.Request {
	r, err := http.NewRequest(http.MethodPost, c.process.URL+"/webhooks?b=2&a=%31", nil)
	require.NoError(t, err)
	r.Host = shopHost
	r.Header.Set("X-User", "ann")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Key-Id", d.key)
	r.Header.Set("X-Timestamp", strconv.FormatInt(time.Now().Add(d.ahead).Unix(), 10))
	r.Header.Set("X-Nonce", rand.Text())
	names := "content-type"
	fields := "content-type:application/json"
	if d.operation != "" {
		r.Header.Set("Idempotency-Key", d.operation)
		names += ";idempotency-key"
		fields += "\nidempotency-key:" + d.operation
	}
	r.Header.Set("X-Signed-Headers", names)

	digest := sha256.Sum256([]byte(d.body))
	mac := hmac.New(sha256.New, []byte("0123456789abcdef0123456789abcdef"))
	mac.Write([]byte(strings.Join([]string{
		"v1", d.key, "POST", strings.ToLower(shopHost), "/webhooks", "b=2&a=%31",
		r.Header.Get("X-Timestamp"), r.Header.Get("X-Nonce"), hex.EncodeToString(digest[:]), names, fields,
	}, "\n")))
	r.Header.Set("X-Signature", "v1="+hex.EncodeToString(mac.Sum(nil)))
	return r
}

// sendBody sends r with a body. It may be called concurrently, also with the same request.
func (c *client) sendBody(r *http.Request, body string) answer {
	r = r.Clone(r.Context())
	r.Body = http.NoBody
	if body != "" {
		r.Body = reader{strings.NewReader(body)}
		r.ContentLength = int64(len(body))
	}
	return c.do(r)
}

// reader is a body that net/http can't send twice by itself.
type reader struct{ *strings.Reader }

func (reader) Close() error { return nil }

// expectWebhook is expect for signed requests. Nonces and signatures are not written down.
func (c *client) expectWebhook(summary, what string, r *http.Request, body string) answer {
	c.t.Helper()
	a := c.sendBody(r, body)
	require.NoError(c.t, a.err)
	c.transcript = append(c.transcript, fmt.Sprintf("/webhooks %s: %s", what, a.summary()))
	require.Equal(c.t, summary, a.summary(), "%s\n%.200s", what, a.body)
	return a
}

func webhooks(c *client) {
	const route = "POST /webhooks"
	const body = `{"event":"paid","amount":500}`
	signed := func(d delivery) *http.Request { return d.request(c.t, c) }
	good := delivery{key: "demo", body: body, operation: "event-1"}

	a := c.expect("401 missing", "/webhooks", body)
	require.Equal(c.t, `Signature scheme="v1"`, a.header.Get("WWW-Authenticate"))
	c.ran(0, route)

	first := signed(good)
	done := c.expectWebhook("202", "signed", first, body)
	require.Equal(c.t, "demo", done.member("key_id"))
	require.NotEmpty(c.t, done.member("webhook_id"))
	c.expectWebhook("401 replayed", "the same again", first, body)

	a = c.expectWebhook("202 replayed", "the same operation, signed anew", signed(good), body)
	require.Equal(c.t, string(done.body), string(a.body))
	asBob := signed(good)
	asBob.Header.Set("X-User", "bob")
	c.expectWebhook("202 replayed", "X-User does not count", asBob, body)
	c.ran(1, route)

	other := strings.Replace(body, "500", "900", 1)
	tampered := signed(good)
	c.expectWebhook("401 invalid", "another body", tampered, other)
	c.expectWebhook("401 invalid", "no body", tampered, "")
	c.expectWebhook("202 replayed", "the nonce was not used up", tampered, body)
	uncovered := signed(delivery{key: "demo", body: body})
	uncovered.Header.Set("Idempotency-Key", "event-2")
	c.expectWebhook("401 invalid", "an Idempotency-Key that is not signed", uncovered, body)
	c.expectWebhook("401 invalid", "a key that nobody knows", signed(delivery{key: "demo2", body: body}), body)
	c.ran(0, route)

	c.expectWebhook("401 expired", "expired", signed(delivery{key: "demo", body: body, ahead: -2 * time.Minute}), body)
	c.ran(0, route)

	one := c.expectWebhook("202", "without an Idempotency-Key", signed(delivery{key: "demo", body: body}), body)
	two := c.expectWebhook("202", "another without an Idempotency-Key", signed(delivery{key: "demo", body: body}), body)
	require.NotEqual(c.t, one.member("webhook_id"), two.member("webhook_id"))
	c.ran(2, route)

	reused := good
	reused.body = other
	c.expectWebhook("422 key_reused", "the operation's key for another event", signed(reused), other)

	failing := delivery{key: "demo", body: body, operation: "event-3"}
	for _, want := range []string{"503", "202", "202 replayed"} {
		r := signed(failing)
		if want == "503" {
			r.Header.Set("X-Demo-Error", want) // what is not signed, anybody may add
		}
		c.expectWebhook(want, "a handler that fails once", r, body)
	}
	c.ran(2, route)

	large := delivery{key: "demo", body: strings.Repeat(" ", 1<<20)}
	c.expectWebhook("202", "a body at the limit", signed(large), large.body)
	large.body += " "
	c.expectWebhook("413 body_too_large", "a body over the limit", signed(large), large.body)
	c.ran(1, route)
}

// signclientPrints is what signclient prints when everything is as it should be.
const signclientPrints = `request   status  code      Idempotent-Replayed
good      202     -         -
stale     401     expired   -
tampered  401     invalid   -
replayed  401     replayed  -
retry     202     -         true
`

func signclientIsContent(t *testing.T, dir string) {
	run := func(t *testing.T, args ...string) (stdout string, code int) {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "signclient"), args...)
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	const other = "another secret, which is as long as it must be"
	for _, name := range program.Names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, program.Start(t, filepath.Join(dir, name)))
			url := c.process.URL + "/webhooks"
			out, code := run(t, "-url", url)
			require.Equal(t, signclientPrints, out)
			require.Equal(t, 0, code)
			c.ran(1, "POST /webhooks")

			out, code = run(t, "-url", url, "-secret", other)
			require.Contains(t, out, "but expected:")
			require.Equal(t, 1, code)
			c.ran(0, "POST /webhooks")
		})
	}

	c := newClient(t, program.Start(t, filepath.Join(dir, "gin"), "-secret", other))
	out, code := run(t, "-url", c.process.URL+"/webhooks", "-secret", other)
	require.Equal(t, signclientPrints, out)
	require.Equal(t, 0, code)

	_, code = run(t, "-url", "http://127.0.0.1:1/webhooks")
	assert.Equal(t, 1, code, "nobody is there")
	for _, wrong := range [][]string{{"-secret", "short"}, {"-key", ""}, {"-url", "ftp://127.0.0.1/"}, {"extra"}, {"-unknown"}} {
		_, code = run(t, wrong...)
		assert.Equal(t, 2, code, "%v", wrong)
	}
}
