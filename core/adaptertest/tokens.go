package adaptertest

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// checkout is a policy with tokens.
var checkout = func() core.Policy {
	p := core.OneShotToken(core.MustTokens(core.TokenConfig{Secrets: [][]byte{[]byte("0123456789abcdef0123456789abcdef")}}))
	p.Name = "checkout"
	return p
}()

// shop is POST /orders under checkout, and GET /tokens, which issues its tokens.
var shop = []route{{policy: &checkout}, {method: "GET", pattern: "/tokens", issues: &checkout}}

// name lets "{as}" stand for a token from now on: in what is sent, and in the transcript, for a token is another
// one each time.
func (s *env) name(as, token string) { s.tokens = append(s.tokens, "{"+as+"}", token) }

// asked writes r down, and returns it as it is sent.
func (s *env) asked(r request) request {
	r = r.orDefaults()
	s.text.asked(r)
	return s.filled(r)
}

// filled is r with tokens in the places of their names.
func (s *env) filled(r request) request {
	if len(s.tokens) == 0 {
		return r
	}
	names := strings.NewReplacer(s.tokens...)
	r.target, r.body = names.Replace(r.target), names.Replace(r.body)
	r.keys, r.fields = slices.Clone(r.keys), slices.Clone(r.fields)
	for i, k := range r.keys {
		r.keys[i] = names.Replace(k)
	}
	for i, f := range r.fields {
		r.fields[i].Value = names.Replace(f.Value)
	}
	return r
}

// masked is text with the names of tokens in the places of tokens, and of their ids, which stand in keys.
func (s *env) masked(text string) string {
	var masks []string
	for i := 0; i < len(s.tokens); i += 2 {
		name, token := s.tokens[i], s.tokens[i+1]
		id := idOf(token)
		masks = append(masks, token, name, base64.RawURLEncoding.EncodeToString(id[:]), name)
	}
	return strings.NewReplacer(masks...).Replace(text)
}

// idOf returns the id of a token that is well formed.
func idOf(token string) (id [16]byte) {
	raw, _ := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, "t1."))
	copy(id[:], raw[6:])
	return id
}

// issueToken asks for a token, and names it. The zero request is alice's GET of /tokens.
type issueToken struct {
	as string
	request
	on string // a connection to be kept; "": a new one
}

func (i issueToken) do(s *env) {
	s.Helper()
	if i.method == "" {
		i.method = "GET"
	}
	if i.target == "" {
		i.target = "/tokens"
	}
	got := ask{i.request, tokenAnswer, i.on}.answer(s)
	var answer map[string]string
	if err := json.Unmarshal(got.body, &answer); err != nil || len(answer) != 1 || len(answer["token"]) != 75 {
		s.Fatalf("this is no token: %s", got.body)
	}
	s.name(i.as, answer["token"])
}

// tokenAnswer is what an issuer answers.
var tokenAnswer = want{status: 200, kind: foreign,
	fields: []adapter.Field{field("Cache-Control", "no-store"), field("Content-Type", "application/json")}}

// getPage asks for a page with a form, and names the token in it.
type getPage struct {
	as string
	request
	want
}

// aPage is the answer of checkoutPage to a GET.
var aPage = want{status: 200, kind: passed}

func (p getPage) do(s *env) {
	s.Helper()
	got := ask{p.request, p.want, ""}.answer(s)
	_, input, _ := strings.Cut(string(got.body), `name="`+core.TokenField+`" value="`)
	token, _, _ := strings.Cut(input, `"`)
	if len(token) != 75 || !strings.Contains(string(got.body), string(core.TokenInput(token))) {
		s.Fatalf("there is no token in the page: %s", got.body)
	}
	s.name(p.as, token)
}

// storeNotCalled checks that nobody has called the store so far.
type storeNotCalled struct{}

func (storeNotCalled) do(s *env) {
	s.Helper()
	if n := s.store.count(0); n > 0 {
		s.Errorf("the store has been called %d times", n)
	}
}
