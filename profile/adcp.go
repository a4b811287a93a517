package profile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// AdCP is the policy for state-mutating tasks of a seller in the Ad Context Protocol (Security, Idempotency) over plain HTTP. The
// key is the member idempotency_key of the body. It is unique to one user (the authenticated agent) and the account that the body
// names, and for si_send_message to the session as well.
//
// A duplicate gets the first response, with replayed: true and its own context, for 24 hours. Set Retention to what
// replay_ttl_seconds declares, 1 hour to 7 days. For 7 more days a duplicate gets IDEMPOTENCY_EXPIRED. While the first request
// runs, it gets IDEMPOTENCY_IN_FLIGHT; set Duplicate to [core.Wait] to make it wait. Another payload under a known key is refused
// with IDEMPOTENCY_CONFLICT.
//
// Accounts are compared by their identity: account_id, or the natural key. In the natural key, countries have no order, sandbox is
// false by default, and names and overrides do not count. The store gets an HMAC of the identity under secret, so that nobody can
// guess accounts. secret must have at least 32 bytes, or an error is returned. AdCP copies it. All processes of a service need the
// same secret. Under another secret, earlier keys are unknown.
//
// Only a success is stored: a status below 400 and, in a JSON body, the status completed, submitted or none.
//
// Mount it on one route, such as POST /adcp/:task, so that a key that was used for one task is refused for another.
func AdCP(secret []byte) (core.Policy, error) { return adcp(core.Required, secret) }

// AdCPRead is [AdCP] for tasks that only read. Their key is optional: without one, a request passes unprotected. Give it the same
// secret as AdCP.
func AdCPRead(secret []byte) (core.Policy, error) { return adcp(core.Optional, secret) }

// minSecret is the length of the shortest secret, in bytes.
const minSecret = 32

func adcp(p core.Presence, secret []byte) (core.Policy, error) {
	if len(secret) < minSecret {
		return core.Policy{}, fmt.Errorf("profile: AdCP: the secret has %d bytes; at least %d are needed", len(secret), minSecret)
	}
	secret = bytes.Clone(secret)
	return core.Policy{
		Name: "adcp",
		Key: core.BodyKey("idempotency_key", p, core.CheckKey(adcpKey.MatchString),
			core.ScopeKey(func(r *core.Request) string { return adcpScope(secret, r.Body) }),
			core.Exclude("context", "governance_context", "push_notification_config.authentication.credentials")),
		Digest:        core.SHA256,
		Failed:        core.FailedByCode("status", "completed", "submitted"),
		Refuse:        refuseAdCP,
		Replayed:      replayAdCP,
		Record:        core.Record{Retention: 24 * time.Hour},
		RefuseExpired: 7 * 24 * time.Hour,
	}, nil
}

var adcpKey = regexp.MustCompile(`^[A-Za-z0-9_.:-]{16,255}$`)

// adcpScope is where a key means something beside its agent: the account and the session, as a digest that nobody can guess without the
// secret.
func adcpScope(secret, body []byte) string {
	members := membersOf(body)
	mac := hmac.New(sha256.New, secret)
	text, _ := json.Marshal([]string{identity(members["account"]), normal(members["session_id"])})
	mac.Write(text)
	return string(mac.Sum(nil))
}

// accountRef is what identifies an account (core/account-ref.json, core/brand-key.json).
type accountRef struct {
	ID    string `json:"account_id"`
	Brand struct {
		Domain    string   `json:"domain"`
		ID        string   `json:"brand_id"`
		Countries []string `json:"countries"`
	} `json:"brand"`
	Operator string `json:"operator"`
	Unit     struct {
		ID string `json:"id"`
	} `json:"operator_unit"`
	Currency string `json:"currency"`
	Timezone string `json:"timezone"`
	Sandbox  bool   `json:"sandbox"`
}

// identity is one text for an account, however it is written.
func identity(account json.RawMessage) string {
	var a accountRef
	parts := []string{normal(account)} // no account, or what is no reference
	switch err := json.Unmarshal(account, &a); {
	case err != nil:
	case a.ID != "":
		parts = []string{"account_id", a.ID}
	case a.Brand.Domain != "" && a.Operator != "":
		countries := a.Brand.Countries
		for i, c := range countries {
			countries[i] = strings.ToUpper(c)
		}
		slices.Sort(countries)
		parts = append([]string{"natural", a.Brand.Domain, a.Brand.ID, a.Operator, a.Unit.ID, a.Currency, a.Timezone,
			strconv.FormatBool(a.Sandbox)}, slices.Compact(countries)...)
	}
	text, _ := json.Marshal(parts)
	return string(text)
}

// normal is one text for JSON whose members are in any order, and whose numbers are written in any way.
func normal(text json.RawMessage) string {
	var value any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // two 64-bit ids stay two
	if d.Decode(&value) != nil {
		return ""
	}
	sorted, _ := json.Marshal(exact(value)) // which has been read
	return string(sorted)
}

// exact writes numbers without a fraction, and without zeros at the end: 1.0 is 1e0.
func exact(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = exact(member)
		}
	case []any:
		for i, element := range v {
			v[i] = exact(element)
		}
	case json.Number:
		mantissa, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e")
		e, err := strconv.ParseInt(cmp.Or(strings.TrimPrefix(exponent, "+"), "0"), 10, 32)
		if err != nil {
			return v // of no account
		}
		sign := strings.Repeat("-", strings.Count(mantissa, "-"))
		whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
		digits := strings.TrimLeft(whole+fraction, "0")
		short := strings.TrimRight(digits, "0")
		if short == "" {
			return json.Number("0")
		}
		return json.Number(fmt.Sprintf("%s%se%d", sign, short, e-int64(len(fraction))+int64(len(digits)-len(short))))
	}
	return value
}

// membersOf returns the members of a JSON object; nil if body is none.
func membersOf(body []byte) (members map[string]json.RawMessage) {
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	return members
}

type adcpError struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Recovery   string `json:"recovery"`
	Field      string `json:"field,omitempty"`
	RetryAfter int64  `json:"retry_after,omitempty"`
}

type adcpFailure struct {
	Status  string          `json:"status"`
	Errors  [1]adcpError    `json:"errors"`
	Error   adcpError       `json:"adcp_error"`
	Context json.RawMessage `json:"context,omitempty"`
}

// refuseAdCP makes a failed task's response, with the error in both layers and the request's context. It says nothing of what is stored.
func refuseAdCP(_ context.Context, r *core.Refusal) *core.Response {
	e := adcpError{Code: "INVALID_REQUEST", Message: r.Detail, Recovery: "correctable"}
	switch r.Code {
	case codes.KeyMissing:
		e.Message, e.Field = "idempotency_key is required", "idempotency_key"
	case codes.KeyInvalid:
		e.Message, e.Field = "idempotency_key must match "+adcpKey.String()+", and the request must be well-formed JSON", "idempotency_key"
	case codes.KeyReused:
		e.Code, e.Message = "IDEMPOTENCY_CONFLICT",
			"idempotency_key was used with a different payload within the replay window. Either resend the exact original payload "+
				"(to return the cached response) or generate a fresh UUID v4 to submit this new payload."
	case codes.InProgress:
		e.Code, e.Message, e.Recovery = "IDEMPOTENCY_IN_FLIGHT",
			"A request with this idempotency_key is being processed. Retry with the same key.", "transient"
	case codes.KeyExpired, codes.ResultUnavailable: // the key was seen, and its response is not there
		e.Code, e.Message = "IDEMPOTENCY_EXPIRED", "The request with this idempotency_key was processed, and its response is not available."
	case codes.UserMissing:
		e.Code = "AUTH_MISSING"
	case codes.NotAuthorized:
		e.Code = "PERMISSION_DENIED"
	case codes.RateLimited:
		e.Code, e.Recovery = "RATE_LIMITED", "transient"
	case codes.Uncertain, codes.StoreUnavailable, codes.ShuttingDown, codes.Unfinished:
		e.Code, e.Recovery = "SERVICE_UNAVAILABLE", "transient"
	default:
		if r.Status >= http.StatusInternalServerError {
			e.Code, e.Recovery = "CONFIGURATION_ERROR", "terminal"
		}
	}
	if r.RetryAfter > 0 {
		e.RetryAfter = min(1+int64((r.RetryAfter-1)/time.Second), 3600)
	}
	resp := answer(adcpFailure{"failed", [1]adcpError{e}, e, membersOf(r.Request.Body)["context"]})
	if r.Code == codes.KeyReused {
		resp.Status = http.StatusConflict
	}
	return resp
}

// ofBody are the header fields that are digests of a body, or tell one from another.
var ofBody = []string{"Content-Digest", "Repr-Digest", "Digest", "Content-Md5", "Etag"}

// replayAdCP sets what belongs to the envelope of the replay. The other members keep their bytes. It is another body, so that digests
// of the first one go.
func replayAdCP(_ context.Context, r *core.Request, stored *core.Response) *core.Response {
	d := json.NewDecoder(bytes.NewReader(stored.Body))
	if begin, _ := d.Token(); begin != json.Delim('{') || stored.Get("Content-Encoding") != "" || !json.Valid(stored.Body) {
		return nil
	}
	body := make([]byte, 0, len(stored.Body)+64)
	body = append(body, `{"replayed":true`...)
	for d.More() {
		start := d.InputOffset()
		name, _ := d.Token()
		var value json.RawMessage
		_ = d.Decode(&value) // of valid JSON
		if name != "replayed" && name != "context" {
			body = append(body, ',')
			body = append(body, bytes.TrimLeft(stored.Body[start:d.InputOffset()], ", \t\r\n")...)
		}
	}
	if own := membersOf(r.Body)["context"]; own != nil {
		body = append(append(body, `,"context":`...), own...)
	}
	replay := *stored
	replay.Body = append(body, '}')
	replay.Header = slices.DeleteFunc(slices.Clone(stored.Header),
		func(f core.Field) bool { return slices.Contains(ofBody, http.CanonicalHeaderKey(f.Name)) })
	return &replay
}
