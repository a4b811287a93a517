package profiles

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/examples/internal/program"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/profile"
)

const uuid = "550e8400-e29b-41d4-a716-446655440000"

// rows are the rows of the table, each with its case for each protocol.
var rows = []struct {
	name           string
	acp, ucp, adcp func(*client)
}{
	{
		name: "key",
		acp: func(c *client) {
			first := c.post(strings.Repeat("k", 255), `{}`)
			first.ran(1)
			c.post(`"`+strings.Repeat("k", 255)+`"`, `{}`).replays(first)
			c.post(strings.Repeat("k", 256), `{}`).refuses(400, `{"type":"invalid_request","code":"key_invalid",`+
				`"message":"The idempotency key must be sent once, as one string or token of 1 to 255 bytes."}`)
			c.user = "bob" // "authenticated identity + endpoint path" (6.1)
			c.post(strings.Repeat("k", 255), `{}`).ran(2)
			c.task = "cancel"
			c.post(strings.Repeat("k", 255), `{}`).ran(3)
		},
		ucp: func(c *client) {
			c.post(uuid, `{}`).ran(1)
			c.post("22CharactersOfTheAlpha", `{}`).ran(2)
			c.post("21CharactersAreTooFew", `{}`).refuses(400, `{"code":"key_invalid",`+
				`"content":"Idempotency-Key must be sent once, as one string or token of 22 to 255 bytes."}`)
			c.user = "bob"
			c.post(uuid, `{}`).ran(3)
		},
		adcp: func(c *client) {
			for i, key := range []string{uuid, "_:.-azAZ09.-:_az", strings.Repeat("k", 255)} {
				c.post("", `{"idempotency_key":"`+key+`"}`).ran(int64(i + 1))
			}
			const invalid = `{"code":"INVALID_REQUEST",` +
				`"message":"idempotency_key must match ^[A-Za-z0-9_.:-]{16,255}$, and the request must be well-formed JSON",` +
				`"recovery":"correctable","field":"idempotency_key"}`
			for _, key := range []string{`"fifteen-letters"`, `"` + strings.Repeat("k", 256) + `"`, `"sixteen letters!"`,
				`"sixteen-letters-\n"`, "17", "null"} {
				c.post("", `{"idempotency_key":`+key+`,"context":{"trace":7}}`).refuses(400,
					`{"status":"failed","errors":[`+invalid+`],"adcp_error":`+invalid+`,"context":{"trace":7}}`)
			}
			// "They have no meaning across agents on the same seller, across accounts under the same agent."
			of := func(more string) reply { return c.post("", `{"idempotency_key":"`+uuid+`"`+more+`}`) }
			of(`,"account":{"brand":{"domain":"a.example"},"operator":"o"}`).ran(4)
			of(`,"account":{"account_id":"a"}`).ran(5)
			of(`,"session_id":"s-1"`).ran(6)
			of(`,"account":"s-1"`).ran(7)
			assert.Contains(c, of(`,"account":{"operator":"o", "brand":{"domain":"a.example"}}`).body, `"replayed":true`)
			of(`,"account":{"account_id":9007199254740992}`).ran(8)
			of(`,"account":{"account_id":9007199254740993}`).ran(9)
			c.user = "bob"
			of("").ran(10)
		},
	},
	{
		name: "missing",
		acp: func(c *client) {
			c.post("", `{}`).refuses(400, `{"type":"invalid_request","code":"idempotency_key_required",`+
				`"message":"Idempotency-Key header is required on all POST requests"}`)
		},
		ucp: func(c *client) {
			c.post("", `{}`).refuses(400, `{"code":"key_missing","content":"This operation needs an idempotency key."}`)
		},
		adcp: func(c *client) {
			const e = `{"code":"INVALID_REQUEST","message":"idempotency_key is required",` +
				`"recovery":"correctable","field":"idempotency_key"}`
			c.post("", `{"context":{"trace":"r"}}`).refuses(400,
				`{"status":"failed","errors":[`+e+`],"adcp_error":`+e+`,"context":{"trace":"r"}}`)
			c.post(uuid, "").refuses(400, `{"status":"failed","errors":[`+e+`],"adcp_error":`+e+`}`)
		},
	},
	{
		name: "other payload",
		acp: func(c *client) {
			const conflict = `{"type":"invalid_request","code":"idempotency_conflict",` +
				`"message":"Idempotency-Key has already been used with a different request body"}`
			c.whileRunning("k", `{"hold":true}`, func() { c.post("k", `{"hold":true,"n":1}`).refuses(422, conflict) })
			c.post("k", `{"hold":true,"n":1}`).refuses(422, conflict)
		},
		ucp: func(c *client) {
			const conflict = `{"code":"key_reused","content":"This idempotency key was used with other parameters."}`
			c.whileRunning(uuid, `{"hold":true}`, func() { c.post(uuid, `{"hold":true,"n":1}`).refuses(409, conflict) })
			c.post(uuid, `{"hold":true,"n":1}`).refuses(409, conflict)
			c.task = "cancel" // another session's, say
			c.post(uuid, `{"hold":true}`).refuses(409, conflict)
		},
		adcp: func(c *client) {
			const e = `{"code":"IDEMPOTENCY_CONFLICT","recovery":"correctable",` +
				`"message":"idempotency_key was used with a different payload within the replay window. ` +
				`Either resend the exact original payload (to return the cached response) ` +
				`or generate a fresh UUID v4 to submit this new payload."}`
			const conflict = `{"status":"failed","errors":[` + e + `],"adcp_error":` + e + `,"context":{"trace":"own"}}`
			ask := func(more string) reply {
				return c.post("", `{"idempotency_key":"`+uuid+`","hold":true,"context":{"trace":"own"}`+more+`}`)
			}
			c.whileRunning("", `{"idempotency_key":"`+uuid+`","hold":true,"secret":"x"}`,
				func() { ask(`,"secret":"y"`).refuses(409, conflict) })
			ask("").refuses(409, conflict)
			c.task = "update" // "reusing a key on another tool is a different payload"
			ask(`,"secret":"x"`).refuses(409, conflict)
		},
	},
	{
		name: "in flight",
		acp: func(c *client) {
			c.whileRunning("k", `{"hold":true}`, func() {
				r := c.post("k", `{"hold":true}`)
				r.refuses(409, `{"type":"invalid_request","code":"idempotency_in_flight",`+
					`"message":"A request with this Idempotency-Key is currently being processed"}`)
				assert.Equal(c, "1", r.header.Get("Retry-After"))
			})
		},
		ucp: func(c *client) {
			c.whileRunning(uuid, `{"hold":true}`, func() {
				r := c.post(uuid, `{"hold":true}`)
				r.refuses(409, `{"code":"in_progress",`+
					`"content":"The same operation is being carried out. Try again later to get its result."}`)
				assert.Equal(c, "1", r.header.Get("Retry-After"))
			})
		},
		adcp: func(c *client) {
			const e = `{"code":"IDEMPOTENCY_IN_FLIGHT",` +
				`"message":"A request with this idempotency_key is being processed. Retry with the same key.",` +
				`"recovery":"transient","retry_after":1}`
			const body = `{"idempotency_key":"` + uuid + `","hold":true}`
			c.whileRunning("", body, func() { c.post("", body).refuses(409, `{"status":"failed","errors":[`+e+`],"adcp_error":`+e+`}`) })
		},
	},
	{
		name: "compared",
		acp: func(c *client) {
			first := c.post("k", `{"items":[{"id":"a","n":1},2],"note":null}`)
			c.post("k", ` {"note":null,"items":[{"n":1.0,"id":"\u0061"},2.00]}`).replays(first)
			for _, other := range []string{`{"items":[{"id":"a","n":1},2]}`, `{"items":[2,{"id":"a","n":1}],"note":null}`,
				`{"items":[{"id":"a","n":"1"},2],"note":null}`, `{"items":[{"id":"a","n":1},2],"note":null,"extension":1}`} {
				assert.Equal(c, 422, c.post("k", other).status, other)
			}
		},
		ucp: func(c *client) {
			first := c.post(uuid, `{"a":1,"b":2}`)
			c.post(uuid, `{"a":1,"b":2}`).replays(first)
			for _, other := range []string{`{"b":2,"a":1}`, `{"a":1,"b":2} `, `{"a":1.0,"b":2}`, ``} {
				assert.Equal(c, 409, c.post(uuid, other).status, other)
			}
		},
		adcp: func(c *client) {
			scheme := "Bearer"
			body := func(context, governance, credentials, rest string) string {
				return `{"idempotency_key":"` + uuid + `","context":` + context + `,"governance_context":` + governance +
					`,"push_notification_config":{"url":"https://b.example",` +
					`"authentication":{"schemes":["` + scheme + `"],"credentials":` + credentials + `}}` + rest + `}`
			}
			c.post("", body(`{"a":1}`, `"g"`, `"c"`, `,"n":1,"ext":{"x":null}`)).ran(1)
			assert.Contains(c, c.post("", body(`{"b":2}`, `"h"`, `"d"`, ` , "ext":{"x":null}, "n":1.0`)).body, `"replayed":true`)
			for _, rest := range []string{`,"n":1,"ext":{}`, `,"n":1,"ext":{"x":1}`, `,"n":1,"ext":{"x":null},"timestamp":1`,
				`,"n":1,"ext":{"x":null},"nested":{"context":1}`} {
				assert.Equal(c, 409, c.post("", body(`{}`, `"g"`, `"c"`, rest)).status, rest)
			}
			scheme = "Basic"
			assert.Equal(c, 409, c.post("", body(`{"a":1}`, `"g"`, `"c"`, `,"n":1,"ext":{"x":null}`)).status)
		},
	},
	{
		name: "stored",
		acp: func(c *client) {
			for i, status := range []string{"500", "503", "599"} {
				c.post("k", `{"status":`+status+`}`).ran(int64(2*i + 1))
				c.post("k", `{"status":`+status+`}`).ran(int64(2*i + 2))
			}
			for _, status := range []string{"201", "400", "402", "404", "429"} {
				first := c.post("k-"+status, `{"status":`+status+`}`)
				c.post("k-"+status, `{"status":`+status+`}`).replays(first)
			}
		},
		ucp: func(c *client) { // as under core.ClientKey
			c.post(uuid, `{"status":503}`).ran(1)
			first := c.post(uuid, `{"status":400}`)
			first.ran(2)
			c.post(uuid, `{"status":400}`).replays(first)
			c.engine.Fail(idemtest.Acquire) // "Fail closed (reject request with 503)"
			c.post(uuid, `{"n":2}`).refuses(503, `{"code":"store_unavailable",`+
				`"content":"The operation was not carried out, because the service cannot recognise duplicates at the moment. `+
				`Try again later."}`)
		},
		adcp: func(c *client) {
			ask := func(answer string) reply {
				return c.post("", `{"idempotency_key":"`+uuid+`","status":200,"answer":`+answer+`}`)
			}
			for i, answer := range []string{`{"status":"failed","errors":[]}`, `{"status":"rejected"}`,
				`{"status":"input-required"}`, `{"status":"working"}`} {
				ask(answer).ran(int64(2*i + 1))
				ask(answer).ran(int64(2*i + 2))
			}
			c.post("", `{"idempotency_key":"`+uuid+`","status":422}`).ran(9)
			ask(`{"status":"submitted","task_id":"t-1"}`).ran(10)
			assert.JSONEq(c, `{"status":"submitted","task_id":"t-1","replayed":true}`, ask(`{"status":"submitted","task_id":"t-1"}`).body)
		},
	},
	{
		name: "kept",
		acp:  func(c *client) { c.kept(24*time.Hour, "k", `{}`).ran(2) },
		ucp:  func(c *client) { c.kept(48*time.Hour, uuid, `{}`).ran(2) },
		adcp: func(c *client) {
			const e = `{"code":"IDEMPOTENCY_EXPIRED",` +
				`"message":"The request with this idempotency_key was processed, and its response is not available.",` +
				`"recovery":"correctable"}`
			const body = `{"idempotency_key":"` + uuid + `"}`
			c.kept(24*time.Hour, "", body).refuses(410, `{"status":"failed","errors":[`+e+`],"adcp_error":`+e+`}`)
			c.engine.Advance(7*24*time.Hour - 2*time.Second)
			assert.Equal(c, 410, c.post("", body).status)
			c.engine.Advance(2 * time.Second)
			c.post("", body).ran(2)
		},
	},
	{
		name: "marker",
		acp: func(c *client) {
			first := c.post("k", `{}`)
			again := c.post("k", `{}`)
			again.replays(first)
			c.post("k", `{"n":1}`).refuses(422, c.post("k", `{"n":2}`).body)
			for _, r := range []reply{first, again, c.post("k", `{"n":1}`)} {
				assert.Equal(c, []string{"k"}, r.header["Idempotency-Key"])
			}
		},
		ucp: func(c *client) {
			first := c.post(uuid, `{}`)
			c.post(uuid, `{}`).replays(first)
		},
		adcp: func(c *client) {
			first := c.post("", `{"idempotency_key":"`+uuid+`","context":{"trace":"first"}}`)
			assert.Equal(c, `{"run": 1,"context":{"trace":"stored"}}`, first.body)
			again := c.post("", `{"context":{"trace": 2},"idempotency_key":"`+uuid+`"}`)
			assert.Equal(c, `{"replayed":true,"run": 1,"context":{"trace": 2}}`, again.body,
				"the rest byte for byte, and the context of this request")
			assert.Equal(c, first.status, again.status)
			assert.Equal(c, "true", again.header.Get(core.ReplayedHeader))
			assert.Equal(c, `{"replayed":true,"run": 1}`, c.post("", `{"idempotency_key":"`+uuid+`"}`).body)
		},
	},
}

// kept checks that a result is kept for retention, and returns what a request gets after that.
func (c *client) kept(retention time.Duration, key, body string) reply {
	c.post(key, body).ran(1)
	c.engine.Advance(retention - time.Second)
	assert.Equal(c, "true", c.post(key, body).header.Get(core.ReplayedHeader))
	c.engine.Advance(2 * time.Second)
	return c.post(key, body)
}

func TestRows(t *testing.T) {
	for framework, serve := range servers {
		t.Run(framework, func(t *testing.T) {
			for _, row := range rows {
				t.Run(row.name, func(t *testing.T) {
					t.Run("ACP", func(t *testing.T) { row.acp(newClient(t, profile.ACP(), serve)) })
					t.Run("UCP", func(t *testing.T) { row.ucp(newClient(t, profile.UCP(), serve)) })
					t.Run("AdCP", func(t *testing.T) { row.adcp(newClient(t, adcp(t, profile.AdCP), serve)) })
				})
			}
			t.Run("AdCP: waits", func(t *testing.T) { waits(t, serve) })
			t.Run("AdCP: reads", func(t *testing.T) { reads(t, serve) })
		})
	}
}

// adcp is a policy of AdCP.
func adcp(t *testing.T, of func(secret []byte) (core.Policy, error)) core.Policy {
	p, err := of(bytes.Repeat([]byte("s"), 32))
	require.NoError(t, err)
	return p
}

// waits: a seller whose tasks are fast has duplicates wait, and then replays.
func waits(t *testing.T, serve func(*testing.T, *core.Guard, handler) string) {
	p := adcp(t, profile.AdCP)
	p.Duplicate = core.Wait(time.Minute)
	c := newClient(t, p, serve)
	const body = `{"idempotency_key":"` + uuid + `","hold":true}`
	second := make(chan reply, 1)
	c.whileRunning("", body, func() {
		go func() { second <- c.post("", body) }()
		time.Sleep(20 * time.Millisecond) // if it comes later, it is no waiter, and gets the same
	})
	assert.JSONEq(t, `{"replayed":true,"run":1}`, (<-second).body)
}

// reads: the key of a task that only reads is optional, and means the same if it is there.
func reads(t *testing.T, serve func(*testing.T, *core.Guard, handler) string) {
	c := newClient(t, adcp(t, profile.AdCPRead), serve)
	c.post("", `{}`).ran(1)
	c.post("", `{}`).ran(2)
	c.post("", `{"idempotency_key":"`+uuid+`"}`).ran(3)
	assert.Contains(t, c.post("", `{"idempotency_key":"`+uuid+`"}`).body, `"replayed":true,"run": 3`)
	assert.Equal(t, 409, c.post("", `{"idempotency_key":"`+uuid+`","n":1}`).status)
}

// The programs are tested in their folders. Here they start, and end as they are told.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts programs")
	}
	dir := program.Build(t, "..", "ucp", "adcp")
	for name, path := range map[string]string{"ucp": "/checkout-sessions", "adcp": "/adcp/create_media_buy"} {
		resp, err := http.Post(program.Start(t, filepath.Join(dir, name)).URL+path, "application/json", strings.NewReader("{}"))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, resp.StatusCode, 400, name)
		resp.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}
