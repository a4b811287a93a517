package rfc9421_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/rfc9421"
)

// A server that requires signed requests, a client that signs them, and one that does not.
func Example() {
	key, err := sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, []byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		log.Fatal(err)
	}
	scheme, err := rfc9421.New(rfc9421.Config{})
	if err != nil {
		log.Fatal(err)
	}

	verifier, err := sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: scheme})
	if err != nil {
		log.Fatal(err)
	}
	receive := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed, _ := sign.From(r.Context())
		covered, _, _ := strings.Cut(r.Header.Get("Signature-Input"), ";")
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s has signed %s\n%s", signed.KeyID, body, covered)
	})
	server := httptest.NewServer(httpidem.Verify(verifier)(receive))
	defer server.Close()

	signing := &http.Client{Transport: &sign.Transport{Key: key, Options: sign.RequestOptions{Scheme: scheme}}}
	for _, client := range []*http.Client{signing, http.DefaultClient} {
		resp, err := client.Post(server.URL+"/webhooks?from=shop", "application/json", strings.NewReader(`{"event":"paid"}`))
		if err != nil {
			log.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			fmt.Println(resp.StatusCode, resp.Header.Get("WWW-Authenticate"))
			continue
		}
		fmt.Printf("%d %s\n", resp.StatusCode, body)
	}
	// Output:
	// 200 demo has signed {"event":"paid"}
	// sig1=("@method" "@authority" "@path" "@query" "content-digest" "content-type")
	// 401 Signature scheme="rfc9421"
}
