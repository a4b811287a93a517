// Package keycases has the requests of testdata/keys.json, and the keys that they have: derived without a framework in the tests of
// core, and through every adapter in core/adaptertest.
package keycases

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

//go:embed testdata/keys.json
var keyFile []byte

// Case is one entry of testdata/keys.json: a request, and the key that it has through
// every adapter. The expected keys come from testdata/keys.py, a second implementation of the
// rules that was written from their documentation; they are a promise to everybody who has
// records in a store.
type Case struct {
	// Name and Why say what the entry is there for.
	Name string `json:"name"`
	Why  string `json:"why"`
	// Method, Route, Target and Headers are the request's; the target holds path and
	// query as sent.
	Method  string      `json:"method"`
	Route   string      `json:"route"`
	Target  string      `json:"target"`
	Headers [][2]string `json:"headers"`
	// Params are the decoded path parameters, which an adapter finds by itself.
	Params [][2]string `json:"params"`
	// Body, or BodyBase64 for what is no text.
	Body       string `json:"body"`
	BodyBase64 []byte `json:"body_base64"`
	// Consumed are the names of parameters that a middleware in front has consumed.
	Consumed []string `json:"consumed"`
	// Options are the knobs of the policy.
	Options Options `json:"policy"`
	// Key is the whole key under the default prefix, Fingerprint what is kept beside it.
	Key         string `json:"key"`
	Fingerprint string `json:"fingerprint"`
	// Refusal is the code of the refusal that a request without a key gets.
	Refusal codes.Code `json:"refusal"`
}

// Options are the parts of a policy that keys depend on. The zero value is the zero
// core.Policy with the user from X-User.
type Options struct {
	Key               string   `json:"key"`    // "header"; "": parameters
	Fields            []string `json:"fields"` // core.Fields
	User              string   `json:"user"`   // "authorization", "authorization or real IP", "shared"; "": X-User
	Exclude           []string `json:"exclude"`
	ExcludeOnly       []string `json:"exclude_only"`
	RequestHeaders    []string `json:"request_headers"`
	WithoutFiles      bool     `json:"without_files"`
	WithoutFileNames  bool     `json:"without_file_names"`
	SHA256            bool     `json:"sha256"`
	IgnoreFingerprint bool     `json:"ignore_fingerprint"`
}

// All returns the entries of testdata/keys.json. It panics if the file, which is
// compiled in, cannot be read.
func All() []Case {
	var entries []Case
	if err := json.Unmarshal(keyFile, &entries); err != nil {
		panic("keycases: keys.json: " + err.Error())
	}
	return entries
}

// Policy returns the policy under which the entry's key is derived.
func (k Case) Policy() core.Policy {
	var p core.Policy
	switch k.Options.User {
	case "":
		p.User = core.UserFromHeader("X-User")
	case "authorization":
		p.User = core.UserFromSecretHeader("Authorization")
	case "authorization or real IP":
		p.User = core.FirstUser(core.UserFromSecretHeader("Authorization"), core.UserFromRealIP())
	case "shared":
		p.User = core.SharedByAllCallers()
	default:
		panic(fmt.Sprintf("keycases: keys.json: %q: no such user source: %q", k.Name, k.Options.User))
	}
	options := []core.Option{core.Exclude(k.Options.Exclude...), core.RequestHeaders(k.Options.RequestHeaders...)}
	if k.Options.WithoutFiles {
		options = append(options, core.WithoutFiles())
	}
	if k.Options.WithoutFileNames {
		options = append(options, core.WithoutFileNames())
	}
	var chosen []core.HeaderOption
	var params []core.ParamsOption
	for _, o := range options {
		chosen, params = append(chosen, o), append(params, o)
	}
	if k.Options.IgnoreFingerprint {
		chosen = append(chosen, core.IgnoreFingerprint())
	}
	if k.Options.Fields != nil {
		params = append(params, core.Fields(k.Options.Fields...))
	}
	if k.Options.ExcludeOnly != nil {
		params = append(params, core.ExcludeOnly(k.Options.ExcludeOnly...))
	}
	p.Key = core.Params(params...)
	if k.Options.Key == "header" {
		p.Key = core.Header(core.Required, chosen...)
	}
	if k.Options.SHA256 {
		p.Digest = core.SHA256
	}
	return p
}

// Request returns the entry's request as an adapter should describe it, with its Body.
func (k Case) Request() *core.Request {
	path, query, _ := strings.Cut(k.Target, "?")
	if k.Route == "" {
		k.Route = path
	}
	headers := keyHeaders{}
	for _, h := range k.Headers {
		name := http.CanonicalHeaderKey(h[0])
		headers[name] = append(headers[name], h[1])
	}
	r := &core.Request{Method: k.Method, Route: k.Route, RawQuery: query, Headers: headers, Consumed: k.Consumed, Body: []byte(k.Text())}
	r.ContentType, _ = headers.Header("Content-Type", 0)
	r.ContentEncoding, _ = headers.Header("Content-Encoding", 0)
	for _, p := range k.Params {
		r.PathParams = append(r.PathParams, adapter.Pair{Name: p[0], Value: p[1]})
	}
	return r
}

// Text is the body of the request.
func (k Case) Text() string {
	if k.Body == "" {
		return string(k.BodyBase64)
	}
	return k.Body
}

type keyHeaders map[string][]string

func (h keyHeaders) Header(name string, i int) (string, int) {
	lines := h[name]
	if i >= len(lines) {
		return "", len(lines)
	}
	return lines[i], len(lines)
}
