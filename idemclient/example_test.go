package idemclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/sign"
)

// An answer is lost, and the payment happens once.
func ExampleTransport() {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	payments := httpidem.New(engine.MustGuard(core.ClientKey()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("paid")
		w.WriteHeader(http.StatusCreated)
	}))
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			payments.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // the connection breaks
		}
		payments.ServeHTTP(w, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")

	client := &http.Client{Transport: &idemclient.Transport{Hosts: []string{host}}}
	resp, err := client.Post(server.URL+"/payments", "application/json", strings.NewReader(`{"amount":500}`))
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, resp.Header.Get("Idempotent-Replayed"))
	client.CloseIdleConnections()
	// Output:
	// paid
	// 201 true
}

// Each try of a signed request has a signature of its own.
func ExampleTransport_signed() {
	key, err := sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, []byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: &idemclient.Transport{
		Hosts: []string{"api.example.com"},
		Base:  &sign.Transport{Key: key},
	}}
	resp, err := client.Post("https://api.example.com/webhooks", "application/json", strings.NewReader(`{"event":"paid"}`))
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
}

// payment is a row in the caller's database.
type payment struct {
	Amount    int
	Key       string
	FirstSent time.Time
}

// What must not happen twice after a crash either has a key that was stored before it was first sent.
func ExampleWithKey() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Header.Get("Idempotency-Key"), string(body))
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	client := &http.Client{Transport: &idemclient.Transport{Hosts: []string{strings.TrimPrefix(server.URL, "http://")}}}

	p := payment{Amount: 500, Key: `"pay-17"`, FirstSent: time.Now()} // committed; after a restart it is found there
	err := pay(context.Background(), client, server.URL, p)
	switch {
	case errors.Is(err, idemclient.ErrOutcomeUnknown):
		fmt.Println("find out what has become of it")
	case err != nil:
		fmt.Println("later again, with the same key")
	default:
		fmt.Println("done")
	}
	client.CloseIdleConnections()
	// Output:
	// "pay-17" {"amount":500}
	// done
}

func pay(ctx context.Context, client *http.Client, url string, p payment) error {
	ctx = idemclient.WithKey(ctx, p.Key, p.FirstSent)
	body := strings.NewReader(fmt.Sprintf(`{"amount":%d}`, p.Amount))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/payments", body)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("refused: %s", resp.Status)
	}
	return nil
}

// A call downstream has a key that is the same in all attempts of the handler's operation. It is sent for as long as the bank
// remembers it, counted from the first attempt.
func ExampleWithKey_derived() {
	keys := make(map[string]bool)
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")] = true
		if r.Header.Get("X-Attempt") == "1" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer bank.Close()
	host := strings.TrimPrefix(bank.URL, "http://")
	client := &http.Client{Transport: &idemclient.Transport{Hosts: []string{host}, MaxTries: 2, KeyLifetime: 24 * time.Hour}}
	secrets := []core.Secret{{Name: "s1", Key: []byte("32 random bytes from a safe place")}}
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers(), Secrets: secrets})
	orders := httpidem.New(engine.MustGuard(core.Policy{}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := charge(r.Context(), client, bank.URL); err != nil {
			w.WriteHeader(http.StatusBadGateway) // the next attempt has the same key, and knows when it was first sent
		}
	}))
	for range 2 {
		w := httptest.NewRecorder()
		orders.ServeHTTP(w, httptest.NewRequest("POST", "/orders", strings.NewReader("coffee=1")))
		fmt.Println(w.Code)
	}
	fmt.Println(len(keys), "key")
	client.CloseIdleConnections()
	// Output:
	// 502
	// 200
	// 1 key
}

func charge(ctx context.Context, client *http.Client, url string) error {
	run := core.RunFrom(ctx)
	key, err := run.Derive("bank/charge")
	if err != nil {
		return err
	}
	begun, err := run.Begun(ctx)
	if err != nil {
		return err
	}
	ctx = idemclient.WithKey(ctx, key, begun)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", strings.NewReader(`{"amount":500}`))
	if err != nil {
		return err
	}
	r.Header.Set("X-Attempt", strconv.FormatUint(run.Attempt(), 10))
	resp, err := client.Do(r)
	if err != nil {
		return err // idemclient.ErrOutcomeUnknown: the key is too old; a person has to look
	}
	return resp.Body.Close()
}
