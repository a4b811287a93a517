package signtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	"github.com/idem-go/idem/sign"
)

// source shows a request of net/http to a verifier.
type source struct{ r *http.Request }

func (s *source) Values(name string) []string { return s.r.Header.Values(name) }

func (s *source) HeaderSize() (lines, size int) {
	for name, values := range s.r.Header {
		for _, v := range values {
			lines++
			size += len(name) + len(v)
		}
	}
	return lines, size
}

func (s *source) ReadBody(limit int64) ([]byte, error) {
	if s.r.ContentLength > limit {
		return nil, sign.CodeBodyTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(s.r.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(body)) > limit:
		return nil, sign.CodeBodyTooLarge
	}
	s.r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// verifying is a verifier, or something that looks like one.
type verifying interface {
	Verify(ctx context.Context, m *sign.Message) (sign.Verified, error)
	Refusal(ctx context.Context, err error) *sign.Refusal
}

// adapter is a plain adapter for net/http, with a flaw if it is one of those that it can have.
func adapter(v verifying, flaw string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := &sign.Message{Method: r.Method, Target: r.RequestURI, Host: r.Host, Source: &source{r}}
		if tamper := tampers[flaw]; tamper != nil {
			tamper(m, r)
		}
		verified, err := v.Verify(r.Context(), m)
		if err == nil {
			serve(w, r, flaw, verified, next)
			return
		}
		refusal := v.Refusal(r.Context(), err)
		for _, f := range refusal.Header {
			w.Header().Set(f.Name, f.Value)
		}
		if flaw == "Date twice" {
			w.Header().Add("Date", "Tue, 14 Nov 2023 22:12:19 GMT")
			w.Header().Add("Date", "Tue, 14 Nov 2023 22:12:19 GMT")
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(refusal.Body)))
		w.WriteHeader(refusal.Status)
		_, _ = w.Write(refusal.Body)
		if flaw == "the handler runs all the same" {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
	})
}

// serve calls the handler behind the verifier.
func serve(w http.ResponseWriter, r *http.Request, flaw string, v sign.Verified, next http.Handler) {
	switch flaw {
	case "the handler gets no body":
		r.Body = http.NoBody
	case "the handler gets the method that it wants":
		if m := r.Header.Get("X-HTTP-Method-Override"); m != "" {
			r.Method = m
		}
	case "the context knows nothing":
		next.ServeHTTP(w, r)
		return
	case "the context knows the wrong one":
		v.KeyID = "bob"
	case "the handler gets the trailer as header":
		for name, values := range r.Trailer {
			r.Header[name] = values
		}
	}
	next.ServeHTTP(w, r.WithContext(sign.NewContext(r.Context(), v)))
}

func trusting(field string, change func(m *sign.Message, value string)) func(*sign.Message, *http.Request) {
	return func(m *sign.Message, r *http.Request) {
		if v := r.Header.Get(field); v != "" {
			change(m, v)
		}
	}
}

func setHost(m *sign.Message, v string)   { m.Host = v }
func setTarget(m *sign.Message, v string) { m.Target = v }
func setMethod(m *sign.Message, v string) { m.Method = v }

// tampers are the ways in which an adapter hands on something else than what was sent.
var tampers = map[string]func(m *sign.Message, r *http.Request){
	"trusts X-Request-Uri":          trusting("X-Request-Uri", setTarget),
	"trusts X-Original-URL":         trusting("X-Original-URL", setTarget),
	"trusts X-Rewrite-URL":          trusting("X-Rewrite-URL", setTarget),
	"trusts X-Forwarded-Host":       trusting("X-Forwarded-Host", setHost),
	"trusts X-HTTP-Method-Override": trusting("X-HTTP-Method-Override", setMethod),
	"trusts Forwarded": trusting("Forwarded", func(m *sign.Message, v string) {
		for part := range strings.SplitSeq(v, ";") {
			if host, ok := strings.CutPrefix(part, "host="); ok {
				m.Host = host
			}
		}
	}),
	"the method in capitals": func(m *sign.Message, _ *http.Request) { m.Method = strings.ToUpper(m.Method) },
	"a panic on what is not ASCII": func(_ *sign.Message, r *http.Request) {
		if strings.Trim(r.Header.Get("X-Timestamp"), visible+" \t") != "" {
			panic("a digit that is none")
		}
	},
	"HEAD is GET": func(m *sign.Message, _ *http.Request) {
		if m.Method == http.MethodHead {
			m.Method = http.MethodGet
		}
	},
	"PATCH is left out": func(m *sign.Message, _ *http.Request) {
		if m.Method == http.MethodPatch {
			m.Method = http.MethodPost
		}
	},
	"URL.Path":           func(m *sign.Message, r *http.Request) { m.Target = r.URL.Path + "?" + r.URL.RawQuery },
	"URL.String()":       func(m *sign.Message, r *http.Request) { m.Target = r.URL.String() },
	"URL without query":  func(m *sign.Message, r *http.Request) { m.Target = r.URL.EscapedPath() },
	"Query().Encode()":   func(m *sign.Message, r *http.Request) { m.Target = r.URL.EscapedPath() + "?" + r.URL.Query().Encode() },
	"Host without port":  func(m *sign.Message, _ *http.Request) { m.Host, _, _ = strings.Cut(m.Host, ":") },
	"no Host of its own": func(m *sign.Message, _ *http.Request) { m.Host = "api.example.com" },
	"Get for Values":     func(m *sign.Message, r *http.Request) { m.Source = &firsts{source{r}} },
}

// firsts knows the first line of each field.
type firsts struct{ source }

func (f *firsts) Values(name string) []string {
	return f.source.Values(name)[:min(1, len(f.source.Values(name)))]
}
