package benchmarks

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/idemclient"
)

// wire answers each request with 201, without a network.
type wire struct {
	sent, keyed int
	read        bytes.Buffer
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.sent++
	if r.Header.Get(core.DefaultKeyHeader) != "" {
		w.keyed++
	}
	if r.Body != nil {
		w.read.Reset()
		if _, err := w.read.ReadFrom(r.Body); err != nil {
			return nil, err
		}
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	answer := []byte(`{"payment_id":"pay_lfdfs2d2lft63izw3uouktrqnp"}`)
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, ContentLength: int64(len(answer)),
		Body: io.NopCloser(bytes.NewReader(answer)), Request: r}, nil
}

// BenchmarkClient is what idemclient.Transport adds to a RoundTrip with a body of 200 bytes, without a network; and to
// one by net/http's transport over TCP, whose server does nothing.
func BenchmarkClient(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"payment_id":"pay_lfdfs2d2lft63izw3uouktrqnp"}`)
	}))
	defer server.Close()
	tcp := server.Client().Transport
	for _, bench := range []struct {
		name, method string
		hosts        []string // nil: the bare base
		limit        int      // TryTimeout
		tcp, buffer  bool
		keyed        bool
	}{
		{name: "bare"},
		{name: "passed", hosts: []string{"other.test"}},
		{name: "safe", method: http.MethodGet, hosts: []string{"127.0.0.1"}},
		{name: "keyed", hosts: []string{"127.0.0.1"}, keyed: true},
		{name: "keyed-without-limit", hosts: []string{"127.0.0.1"}, limit: -1, keyed: true},
		{name: "keyed-buffered", hosts: []string{"127.0.0.1"}, buffer: true, keyed: true},
		{name: "tcp-bare", tcp: true},
		{name: "tcp-keyed", tcp: true, hosts: []string{"127.0.0.1"}, keyed: true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			require.Len(b, order.body, 200)
			w := new(wire)
			var base http.RoundTripper = w
			if bench.tcp {
				base = tcp
			}
			transport := base
			if bench.hosts != nil {
				transport = &idemclient.Transport{Hosts: bench.hosts, Base: base, TryTimeout: -1}
				if bench.limit == 0 {
					transport.(*idemclient.Transport).TryTimeout = 0
				}
			}
			method := http.MethodPost
			if bench.method != "" {
				method = bench.method
			}
			body := bytes.NewReader(order.body)
			r, err := http.NewRequest(method, server.URL+"/orders", body)
			require.NoError(b, err)
			if bench.buffer {
				r.GetBody = nil
			}
			send := func() {
				body.Reset(order.body)
				resp, err := transport.RoundTrip(r)
				if err != nil || resp.StatusCode != http.StatusCreated {
					b.Fatal(resp, err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if !bench.tcp {
				send()
				require.Equal(b, order.body, w.read.Bytes())
				require.Equal(b, bench.keyed, w.keyed == 1)
			}
			w.sent = 0
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				send()
				n++
			}
			if !bench.tcp {
				require.Equal(b, n, w.sent)
			}
		})
	}
}
