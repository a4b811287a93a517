package sortedparams_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/sortedparams"
)

// A shop calls a gateway whose parameters have the names of XunhuPay.
func Example() {
	scheme, err := sortedparams.New(sortedparams.Config{
		InParams: true, KeyID: "appid", Timestamp: "time", Nonce: "nonce_str", Sign: "hash", Places: sortedparams.FromForm,
	})
	if err != nil {
		panic(err)
	}
	now := func() time.Time { return time.Unix(1700000000, 0) }
	key := sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "10000100"}, []byte("192006250b4c09247ec02edce69f6a2d")))

	// The shop.
	r := httptest.NewRequest("POST", "https://pay.example/do", strings.NewReader("trade_order_id=7&total_fee=5.00"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	err = sign.Request(r, key, sign.RequestOptions{Scheme: scheme, Clock: now, Observe: func(_ *http.Request, signed string) {
		names, _, _ := strings.Cut(signed, "=")
		fmt.Println("signs", names, "and so on")
	}})
	if err != nil {
		panic(err)
	}

	// The gateway, which gets the same message twice.
	verifier := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: scheme, Clock: now}))
	order := httpidem.Verify(verifier)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		signed, _ := sign.From(r.Context())
		fmt.Println("an order of", signed.KeyID)
	}))
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	for range 2 {
		r.Body = io.NopCloser(bytes.NewReader(body))
		w := httptest.NewRecorder()
		order.ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("Idempotency-Refused"))
	}
	// Output:
	// signs appid and so on
	// an order of 10000100
	// 200 ""
	// 401 "replayed"
}
