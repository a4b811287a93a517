package sign_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/idem-go/idem/sign"
)

// A server without a framework, and a client. Adapters replace the server's code here by one line, such as httpidem.Verify.
func Example() {
	key, err := sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, []byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		log.Fatal(err)
	}
	verifier, err := sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verified, err := verifier.Verify(r.Context(), &sign.Message{
			Method: r.Method, Target: r.RequestURI, Host: r.Host, Source: source{r},
		})
		if err != nil {
			answer := verifier.Answer(r.Context(), err)
			w.WriteHeader(answer.Status)
			w.Write(answer.Body)
			return
		}
		fmt.Fprintf(w, "hello, %s", verified.KeyID)
	}))
	defer server.Close()

	client := &http.Client{Transport: &sign.Transport{Key: key}}
	for _, c := range []*http.Client{client, http.DefaultClient} {
		resp, err := c.Post(server.URL+"/webhooks", "application/json", strings.NewReader(`{"event":"paid"}`))
		if err != nil {
			log.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%d %.12s\n", resp.StatusCode, body)
	}
	client.CloseIdleConnections()
	// Output:
	// 200 hello, demo
	// 401 {"type":"htt
}

// source is the header and the body of a request of net/http.
type source struct{ r *http.Request }

func (s source) Values(name string) []string { return s.r.Header[name] }

func (s source) HeaderSize() (lines, bytes int) {
	for name, values := range s.r.Header {
		for _, v := range values {
			lines, bytes = lines+1, bytes+len(name)+len(v)
		}
	}
	return lines, bytes
}

func (s source) RemoteAddr() string { return s.r.RemoteAddr }

func (s source) ReadBody(limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(s.r.Body, limit+1))
	if err == nil && int64(len(body)) > limit {
		return nil, sign.CodeBodyTooLarge
	}
	return body, err
}

// partners are keys in a database, which the service keeps in memory for a while.
type partners map[string]*sign.Key

// Keys is called for each message.
func (p partners) Keys(_ context.Context, id string) ([]*sign.Key, error) {
	key, ok := p[id]
	if !ok {
		return nil, sign.ReasonUnknownKey
	}
	return []*sign.Key{key}, nil
}

// Keys in a database.
func ExampleKeyStore() {
	acme := sign.KeyConfig{ID: "acme", ValidFrom: time.Unix(0, 0)}
	keys := partners{"acme": sign.Must(sign.NewHMACKey(acme, []byte("0123456789abcdef0123456789abcdef")))}
	_, err := sign.NewVerifier(sign.Config{Keys: keys})
	fmt.Println(err)
	// Output: <nil>
}

// The service sees why a message was refused, and the client does not.
func ExampleConfig_observe() {
	key := sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, []byte("0123456789abcdef0123456789abcdef")))
	verifier := sign.Must(sign.NewVerifier(sign.Config{
		Keys:  sign.Must(sign.NewRing(key)),
		Clock: func() time.Time { return time.Unix(1700000000, 0) },
		Observe: func(_ context.Context, e sign.Event) {
			fmt.Println(e.Err)
			fmt.Println(e.SigningString())
		},
	}))
	r := httptest.NewRequest("POST", "http://api.example.com/transfers?x=1", strings.NewReader("{}"))
	r.Header.Set("X-Key-Id", "demo")
	r.Header.Set("X-Timestamp", "1700000000")
	r.Header.Set("X-Nonce", "n-0123456789abcdef")
	r.Header.Set("X-Signature", "v1="+strings.Repeat("0", 64))
	_, err := verifier.Verify(r.Context(), &sign.Message{Method: r.Method, Target: r.RequestURI, Host: r.Host, Source: source{r}})
	var problem struct{ Title, Detail string }
	_ = json.Unmarshal(verifier.Answer(r.Context(), err).Body, &problem)
	fmt.Printf("%s: %s\n", problem.Title, problem.Detail)
	// Output:
	// sign: invalid (bad_signature)
	// v1
	// demo
	// POST
	// api.example.com
	// /transfers
	// x=1
	// 1700000000
	// n-0123456789abcdef
	// 44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a
	//
	// Signature invalid: The signature was not made for this request by a known key.
}
