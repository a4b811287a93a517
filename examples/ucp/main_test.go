package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// The cases are those of https://github.com/Universal-Commerce-Protocol/conformance at commit fdced3a (Apache-2.0) that have to do with
// idempotency, one by one and under their names: idempotency_test.py whole, and two of checkout_lifecycle_test.py. The suite is Python; its
// requests are sent here as it sends them.

// suite is an IntegrationTestBase: a platform with the address that it has discovered.
type suite struct {
	*testing.T
	endpoint string
	keys     int
}

// answer is a response.
type answer struct {
	status int
	body   object
}

func newSuite(t *testing.T) *suite {
	server := httptest.NewServer(newHandler(core.MustNew(core.Config{User: core.UserFromHeader("Ucp-Agent")})))
	t.Cleanup(server.Close)
	s := &suite{T: t, endpoint: server.URL}
	discovered := s.send("GET", "/.well-known/ucp", "", nil)
	require.Equal(t, 200, discovered.status)
	shopping := discovered.body["ucp"].(object)["services"].(object)["dev.ucp.shopping"].(object)
	s.endpoint = strings.TrimSuffix(shopping["rest"].(object)["endpoint"].(string), "/")
	return s
}

// send sends body as JSON, unless it is nil, with the header of get_headers.
func (s *suite) send(method, path, key string, body any) answer {
	s.Helper()
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		require.NoError(s, err)
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequest(method, s.endpoint+path, content)
	require.NoError(s, err)
	r.Header.Set("UCP-Agent", `profile="http://localhost:8285/profiles/shopping-agent.json"`)
	r.Header.Set("Request-Signature", "test")
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Request-Id", s.key())
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(s, err)
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode}
	require.NoError(s, json.NewDecoder(resp.Body).Decode(&a.body))
	return a
}

// key returns a new UUID.
func (s *suite) key() string {
	s.keys++
	return "550e8400-e29b-41d4-a716-" + strings.Repeat("0", 12-s.keys) + strings.Repeat("1", s.keys)
}

// createPayload is create_checkout_payload.
func createPayload() object {
	return object{
		"id": "d9a1", "currency": "USD",
		"line_items": []object{{"quantity": 1, "item": object{"id": "bouquet_roses", "title": "Red Rose"}}},
		"payment": object{"instruments": []object{}, "selected_instrument_id": "instr_1",
			"handlers": []object{{"id": "google_pay", "name": "google.pay", "version": "2026-01-11"}}},
		"fulfillment": object{"methods": []object{{"type": "shipping", "destinations": []object{{"id": "dest_1", "address_country": "US"}},
			"selected_destination_id": "dest_1", "groups": []object{{"selected_option_id": "std-ship"}}}}},
	}
}

// paymentPayload is get_valid_payment_payload.
func paymentPayload(token string) object {
	return object{"risk_signals": object{},
		"payment_data": object{"id": "instr_1", "handler_id": "mock_payment_handler", "type": "card", "brand": "Visa",
			"last_digits": "1234", "credential": object{"type": "token", "token": token}}}
}

// createSession is create_checkout_session, with what ensure_fulfillment_ready looks for.
func (s *suite) createSession() object {
	created := s.send("POST", "/checkout-sessions", s.key(), createPayload())
	require.Contains(s, []int{200, 201}, created.status)
	session := s.send("GET", "/checkout-sessions/"+created.body["id"].(string), s.key(), nil).body
	method := session["fulfillment"].(object)["methods"].([]any)[0].(object)
	require.NotEmpty(s, method["selected_destination_id"])
	require.NotEmpty(s, method["groups"].([]any)[0].(object)["selected_option_id"])
	return session
}

// thrice sends a request twice, and then, unless conflicting is nil, another one with its key.
func (s *suite) thrice(method, path string, statuses []int, payload, conflicting any) {
	s.Helper()
	key := s.key()
	first := s.send(method, path, key, payload)
	require.Contains(s, statuses, first.status, first.body)
	assert.Equal(s, first, s.send(method, path, key, payload))
	if conflicting != nil {
		assert.Equal(s, 409, s.send(method, path, key, conflicting).status)
	}
}

func TestConformance(t *testing.T) {
	for name, test := range map[string]func(*suite){
		"idempotency_test/test_idempotency_create": func(s *suite) {
			conflict := createPayload()
			conflict["currency"] = "EUR"
			s.thrice("POST", "/checkout-sessions", []int{200, 201}, createPayload(), conflict)
		},
		"idempotency_test/test_idempotency_update": func(s *suite) {
			session := s.createSession()
			payload := func(quantity int) object {
				return object{"id": session["id"], "currency": session["currency"],
					"payment": object{"selected_instrument_id": "instr_1", "instruments": []any{}},
					"line_items": []object{{"id": "li_1", "quantity": quantity,
						"item": object{"id": "bouquet_roses", "title": "Bouquet of Red Roses"}}}}
			}
			s.thrice("PUT", "/checkout-sessions/"+session["id"].(string), []int{200}, payload(2), payload(3))
		},
		"idempotency_test/test_idempotency_complete": func(s *suite) {
			s.thrice("POST", "/checkout-sessions/"+s.createSession()["id"].(string)+"/complete", []int{200},
				paymentPayload("success_token"), paymentPayload("different_token"))
		},
		"idempotency_test/test_idempotency_cancel": func(s *suite) {
			s.thrice("POST", "/checkout-sessions/"+s.createSession()["id"].(string)+"/cancel", []int{200}, nil, nil)
		},
		"checkout_lifecycle_test/test_cancel_is_idempotent": func(s *suite) {
			path := "/checkout-sessions/" + s.createSession()["id"].(string) + "/cancel"
			require.Equal(s, 200, s.send("POST", path, s.key(), nil).status)
			assert.NotEqual(s, 200, s.send("POST", path, s.key(), nil).status, "another key")
		},
		"checkout_lifecycle_test/test_complete_is_idempotent": func(s *suite) {
			path := "/checkout-sessions/" + s.createSession()["id"].(string) + "/complete"
			require.Equal(s, 200, s.send("POST", path, s.key(), paymentPayload("success_token")).status)
			assert.NotEqual(s, 200, s.send("POST", path, s.key(), paymentPayload("success_token")).status, "another key")
		},
	} {
		t.Run(name, func(t *testing.T) { test(newSuite(t)) })
	}
}
