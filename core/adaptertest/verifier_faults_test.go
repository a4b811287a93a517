package adaptertest

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign"
)

// verifierFaults are ways in which an adapter's Verify can be wrong.
var verifierFaults = []fault{
	verifierSees("no Verify at all", nil, "signatures/methods/POST", "signed and guarded/refusals create nothing"),
	verifierSees("the cleaned path", func(r *http.Request) {
		before, query, _ := strings.Cut(r.RequestURI, "?")
		r.RequestURI = path.Clean(before) + "?" + query
	}, "signatures/paths//transfers/../admin and /admin", "signatures/paths//transfers/ and /transfers"),
	verifierSees("no query", func(r *http.Request) { r.RequestURI = r.URL.EscapedPath() },
		"signatures/a route with a parameter//accounts/7?x=1 and /accounts/7?x=2"),
	verifierSees("one host for all", func(r *http.Request) { r.Host = "api.example.com" }, "signatures/hosts/another",
		"signatures/HTTP 2/another :authority"),
	verifierSees("X-HTTP-Method-Override", func(r *http.Request) { r.Method = cmp.Or(r.Header.Get("X-Http-Method-Override"), r.Method) },
		"signatures/fields that override/X-HTTP-Method-Override to make up for a change"),
	verifierSees("the first of two lines", func(r *http.Request) {
		for name, values := range r.Header {
			r.Header[name] = values[:1]
		}
	}, "signatures/duplicated fields/Content-Type, the bad one last"),
	verifierSees("the first 64 bytes of the body", func(r *http.Request) {
		body := tee(r).Next(64)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}, "signatures/bodies/a large one", "signatures/the body's limit/far over it, in chunks"),
	handlerGets("no body", func(r *http.Request) { r.Body = http.NoBody }, "signatures/bodies/in chunks",
		"signed and guarded/bound by the framework"),
	handlerGets("a trailer", func(r *http.Request) { r.Trailer = http.Header{theirTrailer: {"1"}} }, "signatures/trailers/one"),
	handlerKnows("no caller", func(ctx context.Context, v sign.Verified) context.Context { return core.WithCaller(ctx, "") },
		"signed and guarded/two owners, and a key that is changed"),
	handlerKnows("nothing of what is consumed",
		func(ctx context.Context, v sign.Verified) context.Context { return core.WithCaller(ctx, v.Owner) },
		"signed and guarded/signatures among the parameters"),
	handlerKnows("another signer", func(ctx context.Context, v sign.Verified) context.Context {
		v.KeyID = "bob"
		return sign.NewContext(ctx, v)
	}, "signatures/methods/POST"),
	handlerKnows("the first one's signature", func() func(context.Context, sign.Verified) context.Context {
		var first sign.Verified
		return func(ctx context.Context, v sign.Verified) context.Context {
			if first.KeyID == "" {
				first = v
			}
			return sign.NewContext(ctx, first)
		}
	}(), "signatures/requests over one connection"),
	refusals("are run", func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(httptest.NewRecorder(), r)
	}, "signatures/hosts/another"),
	refusals("are dropped", func(http.Handler, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"signatures/hosts/another", "signed and guarded/one connection"),
	refusalHeader("has the server's Date", func(h http.Header) { h.Del("Date") }, "signatures/answers/too late"),
	refusalHeader("has no challenge", func(h http.Header) { h.Del("Www-Authenticate") }, "signatures/hosts/another"),
	refusalHeader("closes the connection", func(h http.Header) { h.Set("Connection", "close") }, "signed and guarded/one connection"),
	refusalHeader("has two types", func(h http.Header) { h.Add("Content-Type", "text/plain") },
		"signed and guarded/a refusal's own fields"),
}

// verifierSees is the fault that a verifier sees another request than the handler. Nil: there is none.
func verifierSees(name string, change func(*http.Request), noticed ...string) fault {
	f := fault{name: "verifies " + name, verifies: true, noticed: noticed}
	if change == nil {
		return f
	}
	f.front = func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		was, changed := stash(r, r)
		changed = changed.Clone(changed.Context())
		change(changed)
		was.Body = changed.Body
		next.ServeHTTP(w, changed)
	}
	f.behind = func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		was := unstash[*http.Request](r).WithContext(r.Context())
		was.Body, was.ContentLength, was.Trailer = r.Body, r.ContentLength, nil
		next.ServeHTTP(w, was)
	}
	return f
}

// tee reads the body of r, puts it back, and returns it.
func tee(r *http.Request) *bytes.Buffer {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), broke{err}))
	return bytes.NewBuffer(body)
}

func handlerGets(name string, change func(*http.Request), noticed ...string) fault {
	return fault{name: "leaves the handler " + name, verifies: true, behind: onRequest(change), noticed: noticed}
}

func handlerKnows(name string, change func(context.Context, sign.Verified) context.Context, noticed ...string) fault {
	return fault{name: "tells " + name, verifies: true, noticed: noticed,
		behind: func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			v, _ := sign.From(r.Context())
			next.ServeHTTP(w, r.WithContext(change(r.Context(), v)))
		}}
}

// refusals is the fault that something else becomes of them.
func refusals(name string, become func(http.Handler, http.ResponseWriter, *http.Request), noticed ...string) fault {
	return fault{name: "refuses, and refusals " + name, verifies: true, noticed: noticed, change: func(a *NetHTTPAdapter) {
		a.Verify = func(v *sign.Verifier) func(http.Handler) http.Handler {
			return func(next http.Handler) http.Handler {
				verified := httpidem.Verify(v)(next)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					verified.ServeHTTP(&changing{w, func(h http.Header, _ int) {
						if h.Get(core.RefusedHeader) != "" {
							become(next, w, r)
						}
					}}, r)
				})
			}
		}
	}}
}

func refusalHeader(name string, change func(http.Header), noticed ...string) fault {
	return fault{name: "refuses with a header that " + name, verifies: true, noticed: noticed, front: onHeader(func(h http.Header, _ int) {
		if h.Get(core.RefusedHeader) != "" {
			change(h)
		}
	})}
}
