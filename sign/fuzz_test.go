package sign_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// FuzzV1 sends anything: nothing panics, nothing that was not signed is accepted, and what is
// accepted cannot be sent again.
func FuzzV1(f *testing.F) {
	const nonce = "n-0123456789abcdef" // of all fuzzing processes
	m := &sign.Message{Method: "POST", Target: "/transfers/a%2Fb?x=2&x=1", Host: "api.example.com",
		Source: &fixture.Source{Header: http.Header{
			"Content-Type": {"application/json"}, "Idempotency-Key": {`"k-1"`},
		}, Body: []byte(body200)}}
	added, err := standardV1.Sign(m, &sign.Signature{KeyID: "demo", Created: now.Unix(), Nonce: nonce, Covered: []string{"Content-Type"}},
		signtest.Demo)
	if err != nil {
		f.Fatal(err)
	}
	genuine := []string{"POST", m.Target, "demo", "1700000000", nonce, added.Header.Get("X-Signature"), "content-type;idempotency-key",
		"application/json", `"k-1"`, body200}
	f.Add("POST", m.Target, m.Host, "demo", "1700000000", nonce, added.Header.Get("X-Signature"),
		genuine[6], genuine[7], genuine[8], body200)
	f.Add("GET", "http://h/?", "", "a", "0", "0123456789abcdef", "v1=00", "", "", "", "")
	f.Add("*", "*", "h:1", "a", "-1", "\n", "v1-ed25519=", ";", "\x00", ",", "\xff")
	f.Fuzz(func(t *testing.T, method, target, host, keyID, timestamp, nonce, signature, signed, contentType, idempotencyKey, body string) {
		header := http.Header{}
		for name, value := range map[string]string{
			"X-Key-Id": keyID, "X-Timestamp": timestamp, "X-Nonce": nonce, "X-Signature": signature, "X-Signed-Headers": signed,
			"Content-Type": contentType, "Idempotency-Key": idempotencyKey,
		} {
			if value != "" {
				header.Set(name, value)
			}
		}
		m := sign.Message{Method: method, Target: target, Host: host, Source: &fixture.Source{Header: header, Body: []byte(body)}}
		v := fixture.Verifier(sign.Config{}, signtest.Demo)
		first, again := m, m
		_, err := v.Verify(t.Context(), &first)
		if v.Answer(t.Context(), err) == nil {
			t.Fatal("there is no answer")
		}
		if err != nil {
			return
		}
		sent := []string{method, target, keyID, timestamp, nonce, signature, signed, strings.Trim(contentType, " \t"),
			strings.Trim(idempotencyKey, " \t"), body}
		for i, part := range sent {
			if i == 1 && strings.HasSuffix(part, genuine[1]) {
				continue // the absolute form
			}
			if part != genuine[i] {
				t.Fatalf("%q was accepted for %q", part, genuine[i])
			}
		}
		if _, err := v.Verify(t.Context(), &again); err == nil {
			t.Fatal("it was accepted twice")
		}
	})
}

// FuzzRequest signs anything that net/http takes for a request, and the other side verifies it.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "http://api.example.com/a%2Fb?x=1", "application/json", "body")
	f.Add("get", "http://[::1]:80/%zz?%zz;+#f", " ", "")
	f.Add("", "http://H", "a\x7f", "\x00")
	f.Add("POST", "http://h/", " application/json\t", "{}")
	f.Fuzz(func(t *testing.T, method, url, contentType, body string) {
		r, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", contentType)
		if sign.Request(r, signtest.Demo, sign.RequestOptions{Clock: fixture.Clock}) != nil {
			return
		}
		if err := fixture.Verify(t, sign.Config{}, r, signtest.Demo); err != nil {
			t.Fatalf("%s %s: %v", method, url, err)
		}
	})
}
