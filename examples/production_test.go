package examples_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/program"
)

// TestProduction: the program that docs/production.md explains, on both of its stores.
func TestProduction(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	t.Setenv("JWT_SECRET", secret)
	t.Setenv("OPERATOR_PASSWORD", "hidden")
	t.Setenv("IDEM_SECRET", "fedcba9876543210fedcba9876543210")
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(collector.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	executable := filepath.Join(program.Build(t, ".", "production"), "production")
	token := func(user string) string {
		claims := jwt.RegisteredClaims{Issuer: "https://id", Subject: user, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))}
		signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
		require.NoError(t, err)
		return signed
	}
	ann, bob := token("ann"), token("bob")
	for _, name := range []string{"redis", "postgres"} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			charged := map[string]int{} // by key
			called, goOn := make(chan struct{}), make(chan struct{})
			bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				charged[r.Header.Get("Idempotency-Key")]++
				mu.Unlock()
				if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "slow") {
					called <- struct{}{}
					<-goOn
				}
				fmt.Fprintf(w, `{"charge_id":%q}`, r.Header.Get("Idempotency-Key"))
			}))
			t.Cleanup(bank.Close)
			url := stores[name](t)
			start := func() *program.Process {
				return program.Start(t, executable, "-private", "127.0.0.1:0", "-store", url, "-bank", bank.URL)
			}
			p := start()
			send := func(path, token, key, body string) (status int, replayed, answer string) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+path, strings.NewReader(body))
				assert.NoError(t, err)
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Authorization", "Bearer "+token)
				if key != "" {
					req.Header.Set("Idempotency-Key", key)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return 0, "", err.Error() // the program was killed
				}
				defer resp.Body.Close()
				text, _ := io.ReadAll(resp.Body)
				return resp.StatusCode, resp.Header.Get("Idempotent-Replayed"), string(text)
			}
			want := func(status int, replayed, path, token, key, body string) string {
				t.Helper()
				got, mark, answer := send(path, token, key, body)
				require.Equal(t, status, got, answer)
				require.Equal(t, replayed, mark, answer)
				return answer
			}

			want(401, "", "/orders", "", "", `{}`)
			order := want(201, "", "/orders", ann, "", `{"sku":"tea","qty":1}`)
			require.Equal(t, order, want(201, "true", "/orders", ann, "", `{"qty":1,"sku":"tea"}`))
			require.NotEqual(t, order, want(201, "", "/orders", bob, "", `{"sku":"tea","qty":1}`))
			want(400, "", "/payments", ann, "", `{"amount":5}`)
			paid := want(200, "", "/payments", ann, "k-1", `{"amount":5}`)

			// It is killed while it waits for the bank. The next process replays what is finished, and does not run what may not be.
			answered := make(chan int, 1)
			go func() { status, _, _ := send("/payments", ann, "k-2", `{"amount":7,"how":"slow"}`); answered <- status }()
			<-called
			require.Contains(t, want(409, "", "/payments", ann, "k-2", `{"amount":7,"how":"slow"}`), "in_progress")
			p.Kill(t)
			require.Zero(t, <-answered)
			goOn <- struct{}{}
			p = start()
			require.Equal(t, paid, want(200, "true", "/payments", ann, "k-1", `{"amount":5}`))
			want(422, "", "/payments", ann, "k-1", `{"amount":6}`)
			require.Contains(t, want(409, "", "/payments", ann, "k-2", `{"amount":7,"how":"slow"}`), "in_progress")

			// Asked to end, it lets a payment end.
			get := func(path, login string) (int, string) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Metrics+path, nil)
				require.NoError(t, err)
				req.SetBasicAuth("ana", login)
				resp, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				return resp.StatusCode, string(text)
			}
			status, metrics := get("/metrics", "")
			require.Equal(t, 200, status)
			require.Contains(t, metrics, `idem_operations_total{http_request_method="POST",http_route="/payments",`+
				`idem_outcome="replayed",idem_policy="client-key"} 1`)
			status, _ = get("/admin/idempotency/", "wrong")
			require.Equal(t, 401, status)
			status, page := get("/admin/idempotency/", "hidden")
			require.Equal(t, 200, status)
			require.Contains(t, page, "client-key")
			_, health := get("/health", "")
			require.Equal(t, "unsettled runs: 0\n", health)
			go func() { status, _, _ := send("/payments", ann, "k-3", `{"amount":9,"how":"slow"}`); answered <- status }()
			<-called
			p.Ask(t)
			goOn <- struct{}{}
			require.Equal(t, 200, <-answered)
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, charged, 3)
			for key, n := range charged {
				require.Equal(t, 1, n, key)
			}
		})
	}
}
