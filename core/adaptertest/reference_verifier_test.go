package adaptertest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/idem-go/idem/sign"
)

// referenceVerifier is another verifier of v1, written after its definition and without the code of package sign
// that verifies. Without a fault it passes the suite, so that the suite does not only say what
// package sign does; with one it must not.
type referenceVerifier struct {
	c     sign.Config
	fault string
	rules *sign.Verifier // for the answers

	mu   sync.Mutex
	seen map[string]bool // nonces, for one that keeps them by itself
	live []liveNonce     // those that were accepted
	id   [1 << 10]byte   // the key id of the last message, for one that uses its memory again
}

func newReferenceVerifier(c sign.Config, fault string) *referenceVerifier {
	return &referenceVerifier{c: c, fault: fault, rules: sign.Must(sign.NewVerifier(c)), seen: make(map[string]bool)}
}

func (r *referenceVerifier) has(fault string) bool { return r.fault == fault }

func (r *referenceVerifier) Verify(ctx context.Context, m *sign.Message) (sign.Verified, error) {
	var err *sign.Error
	v, refusal := r.verify(ctx, m)
	if own, ok := errors.AsType[*sign.Error](refusal); ok {
		err = own
	} else if refusal != nil {
		err = sign.Errorf(refusal, "")
	}
	e := sign.Event{Scheme: "v1", KeyID: v.KeyID, Err: err}
	switch {
	case r.has("events name no key"):
		e.KeyID = ""
	case r.has("events in memory that is used again"):
		e.KeyID = unsafe.String(&r.id[0], copy(r.id[:], e.KeyID))
	}
	r.c.Observe(ctx, e)
	return v, refusal
}

func (r *referenceVerifier) Answer(ctx context.Context, err error) *sign.Answer {
	answer := r.rules.Answer(ctx, err)
	set := func(name, value string) {
		answer.Header.Del(name)
		if value != "" {
			answer.Header.Set(name, value)
		}
	}
	switch {
	case r.has("refusals may be cached"):
		set("Cache-Control", "")
	case r.has("refusals are not marked"):
		set("Idempotency-Refused", "")
	case r.has("no challenge"):
		set("Www-Authenticate", "")
	case r.has("no Retry-After"):
		set("Retry-After", "")
	case r.has("the server's Date"):
		set("Date", "")
	case r.has("refusals as plain text"):
		set("Content-Type", "text/plain")
	case r.has("refusals with 403"):
		answer.Status = http.StatusForbidden
	case r.has("the reason goes out"):
		answer.Body = []byte(fmt.Sprintf(`{"status":%d,"code":%q}`, answer.Status, err.Error()))
	case r.has("an unknown key has a title of its own") && errors.Is(err, sign.ReasonUnknownKey):
		answer.Body = bytes.Replace(answer.Body, []byte("Signature invalid"), []byte("Key unknown"), 1)
	}
	return answer
}

// line returns the value of a field that must be sent once.
func (r *referenceVerifier) line(m *sign.Message, name string) (string, error) {
	values := m.Source.Values(name)
	switch {
	case len(values) > 1 && r.has("the first of two lines"):
		return values[0], nil
	case len(values) > 1 && r.has("the last of two lines"):
		return values[len(values)-1], nil
	case len(values) > 1 && r.has("equal lines are one") && values[0] == values[1]:
		return values[0], nil
	case len(values) > 1:
		return "", sign.CodeDuplicateHeader
	case len(values) == 0 || values[0] == "":
		return "", sign.CodeMissing
	}
	return values[0], nil
}

func (r *referenceVerifier) verify(ctx context.Context, m *sign.Message) (v sign.Verified, err error) {
	n, size := m.Source.HeaderSize()
	if !r.has("targets are free") {
		size += len(m.Target)
	}
	if (n > 100 || size > 32<<10) && !r.has("no limit of the header") {
		return v, sign.CodeMalformed
	}
	if len(m.Source.Values("Host")) > 1 {
		return v, sign.CodeDuplicateHeader
	}
	host := m.Host
	target := m.Target
	if strings.Contains(target, "#") {
		return v, sign.CodeMalformed
	}
	if _, rest, ok := strings.Cut(target, "://"); ok && target[0] != '/' {
		at := strings.IndexAny(rest+"/", "/?")
		host, target = rest[:at], rest[at:]
	}
	if host == "" || strings.ContainsAny(host, " \t/?#@\\") {
		return v, sign.CodeMalformed
	}
	for _, other := range append(m.Source.Values("Host"), m.Host) {
		if !strings.EqualFold(other, host) && !r.has("hosts may differ") {
			return v, sign.CodeMalformed
		}
	}
	if !r.has("every host is ours") && len(r.c.Hosts) > 0 && !slices.ContainsFunc(r.c.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return v, sign.CodeInvalid
	}
	if r.c.Host != "" && !r.has("the public host is forgotten") {
		host = r.c.Host
	}

	signature, err := r.line(m, "X-Signature")
	if err != nil {
		return v, err
	}
	if v.KeyID, err = r.line(m, "X-Key-Id"); err != nil {
		return v, err
	}
	stamp, err := r.line(m, "X-Timestamp")
	if err != nil {
		return v, err
	}
	nonce, err := r.line(m, "X-Nonce")
	if err != nil && !(errors.Is(err, sign.CodeMissing) && r.has("a nonce is no must")) {
		return v, err
	}
	list, err := r.line(m, "X-Signed-Headers")
	if errors.Is(err, sign.CodeDuplicateHeader) {
		return v, err
	}

	if !consistsOf(v.KeyID, visible) || len(v.KeyID) > 128 {
		return v, sign.CodeMalformed
	}
	created, canonical, ok := r.timestamp(stamp)
	if !ok {
		return v, sign.CodeMalformed
	}
	if !r.has("a nonce is no must") && !r.isNonce(nonce) {
		return v, sign.CodeMalformed
	}
	tag, mac, ok := r.signature(signature)
	if !ok {
		return v, sign.CodeMalformed
	}
	fields, err := r.fields(m, list)
	if err != nil {
		return v, err
	}
	if err := r.window(created); err != nil {
		return v, err
	}

	now := r.c.Clock()
	if r.has("keys are good by the message's time") {
		now = time.Unix(created, 0)
	}
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	keys, unknown := r.c.Keys.Keys(ctx, v.KeyID)
	switch {
	case unknown == nil:
	case !errors.Is(unknown, sign.CodeInvalid) && r.has("a key source that is down says unknown"):
		return v, sign.ReasonUnknownKey
	case !errors.Is(unknown, sign.CodeInvalid):
		return v, sign.CodeStoreUnavailable
	case r.has("an unknown key is refused before the body is read"):
		return v, unknown
	}
	if v.KeyID == future.id && now.Before(noon.Add(minute)) && !r.has("keys have no validity") {
		unknown = sign.ReasonKeyNotYetValid
	}
	if v.KeyID == past.id && !now.Before(noon) && !r.has("keys have no validity") {
		unknown = sign.ReasonKeyExpired
	}
	if v.KeyID == revoked.id && r.has("revoked keys are good") {
		unknown, keys = nil, []*sign.Key{nil}
	}
	useNonce := func() error {
		return r.use(ctx, v.KeyID, nonce, created)
	}
	if r.has("the nonce before the signature") {
		if err := useNonce(); err != nil {
			return v, err
		}
	}

	limit := int64(1 << 20)
	if r.c.BodyLimit != 0 {
		limit = r.c.BodyLimit
	}
	if r.has("no limit of the body") {
		limit = 1 << 40
	}
	body, err := m.Source.ReadBody(limit)
	if errors.Is(err, sign.CodeBodyTooLarge) {
		return v, sign.CodeBodyTooLarge
	}
	if err != nil {
		return v, sign.CodeMalformed
	}
	good, alg, err := r.check(m, v.KeyID, tag, mac, keys, unknown, func(tag string) string {
		return r.base(tag, v.KeyID, m.Method, host, target, canonical, nonce, body, list, fields)
	})
	switch {
	case err != nil:
		return v, err
	case !good:
		return v, sign.ReasonBadSignature
	}
	if !r.has("the time is looked at once") {
		if err := r.window(created); err != nil {
			return v, err
		}
	}
	if !r.has("the nonce before the signature") {
		if err := useNonce(); err != nil {
			return v, err
		}
	}
	v.Scheme, v.Algorithm, v.Time, v.Nonce, v.Owner = "v1", alg, time.Unix(created, 0), nonce, v.KeyID
	return v, nil
}

func (r *referenceVerifier) check(m *sign.Message, id, tag string, mac []byte, keys []*sign.Key, unknown error, base func(string) string) (bool, sign.Algorithm, error) {
	isEd := id == ed.id && unknown == nil
	wantTag := "v1"
	if isEd {
		wantTag = "v1-ed25519"
	}
	if isEd && tag == "v1" && r.has("the message picks the algorithm") {
		return hmac.Equal(mac, hmacOf(edPublic(), []byte(base("v1")))), sign.HMACSHA256, nil
	}
	if unknown == nil && tag != wantTag && !r.has("the tag does not count") {
		return false, "", sign.ReasonWrongAlgorithm
	}
	if isEd {
		return ed25519.Verify(edPublic(), []byte(base(wantTag)), mac), sign.Ed25519, nil
	}
	for _, who := range signers {
		if who.id != id || who.secret == nil || unknown != nil || len(keys) == 0 {
			continue
		}
		expected := hmacOf(who.secret, []byte(base("v1")))
		switch {
		case r.has("Sum instead of Write"):
			expected = hmacOf(who.secret, nil)
		case r.has("as many bytes as there are") && len(mac) < len(expected):
			expected = expected[:len(mac)]
		case r.has("half of it") && len(mac) == len(expected):
			expected, mac = expected[:16], mac[:16]
		}
		if hmac.Equal(expected, mac) {
			return true, sign.HMACSHA256, nil
		}
		if r.has("the expected signature in the log") {
			return false, "", sign.Errorf(sign.ReasonBadSignature, "expected %x", expected)
		}
		if r.has("the body in the log") {
			body, _ := m.Body()
			return false, "", sign.Errorf(sign.ReasonBadSignature, "of %s", body)
		}
	}
	if r.has("what is not known has an empty secret") && unknown != nil {
		return hmac.Equal(mac, hmacOf(nil, []byte(base("v1")))), sign.HMACSHA256, nil
	}
	return false, "", unknown
}

func (r *referenceVerifier) base(tag, id, method, host, target, stamp, nonce string, body []byte, list string, fields []string) string {
	p, query, _ := strings.Cut(target, "?")
	if p == "" {
		p = "/"
	}
	host = strings.ToLower(host)
	left := func(what, value string) string {
		if r.has("signs no " + what) {
			return ""
		}
		return value
	}
	switch {
	case r.has("the decoded path"):
		p, _ = url.PathUnescape(p)
	case r.has("the cleaned path"):
		slash := strings.HasSuffix(p, "/") && p != "/"
		if p = path.Clean(p); slash {
			p += "/"
		}
	case r.has("no trailing slash"):
		p = strings.TrimSuffix(p, "/")
	case r.has("the path in lower case"):
		p = strings.ToLower(p)
	case r.has("escapes in capitals"):
		if u, err := url.Parse(p); err == nil {
			p = (&url.URL{Path: u.Path}).EscapedPath()
		}
	case r.has("the sorted query"):
		pairs := strings.Split(query, "&")
		slices.Sort(pairs)
		query = strings.Join(pairs, "&")
	case r.has("the parsed query"):
		values, _ := url.ParseQuery(query)
		query = values.Encode()
	case r.has("the unescaped query"):
		if text, err := url.QueryUnescape(query); err == nil {
			query = text
		}
	case r.has("a query without sign"):
		pairs := slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
			return strings.HasPrefix(pair, "sign=") || strings.HasPrefix(pair, "key=")
		})
		query = strings.Join(pairs, "&")
	case r.has("the host without its port"):
		host, _, _ = strings.Cut(host, ":")
	case r.has("the body as text"):
		body = bytes.TrimSpace(body)
	case r.has("the first kilobyte of the body"):
		body = body[:min(len(body), 1024)]
	case r.has("the body decompressed"):
		if z, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, _ = io.ReadAll(z)
		}
	}
	digest := sha256.Sum256(body)
	lines := []string{
		tag, left("key id", id), left("method", method), left("host", host), left("path", p), left("query", query),
		left("timestamp", stamp), left("nonce", nonce), left("body", hex.EncodeToString(digest[:])), left("list", list),
	}
	return strings.Join(append(lines, fields...), "\n")
}

func (r *referenceVerifier) timestamp(text string) (n int64, canonical string, ok bool) {
	var err error
	switch {
	case r.has("ParseInt"):
		n, err = strconv.ParseInt(text, 10, 64)
	case r.has("ParseInt with base 0"):
		n, err = strconv.ParseInt(text, 0, 64)
	case r.has("ParseFloat"):
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		n = int64(f)
	case r.has("Sscan"):
		_, err = fmt.Sscan(text, &n)
	case r.has("a wrapped number"):
		for _, c := range []byte(text) {
			if c < '0' || '9' < c {
				return 0, "", false
			}
			n = n*10 + int64(c-'0')
		}
	case r.has("milliseconds"):
		if n, err = strconv.ParseInt(text, 10, 64); n > 1e12 {
			n /= 1000
		}
		return n, text, err == nil
	default:
		if !consistsOf(text, "0123456789") || len(text) > 1 && text[0] == '0' {
			return 0, "", false
		}
		n, err = strconv.ParseInt(text, 10, 64)
		return n, text, err == nil
	}
	return n, strconv.FormatInt(n, 10), err == nil
}

func (r *referenceVerifier) window(created int64) error {
	now := r.c.Clock()
	age := now.Unix() - created
	switch {
	case r.has("no window at all"):
		return nil
	case r.has("the past is not looked at") && age > 0, r.has("the future is not looked at") && age < 0:
		return nil
	case r.has("the window is exclusive") && (age == window || age == -window):
		return sign.CodeExpired
	case r.has("fractions count") && now.Sub(time.Unix(created, 0)) > window*time.Second:
		return sign.CodeExpired
	case age > window:
		return sign.CodeExpired
	case -age > window || age < 0 && created > now.Unix()+window:
		return sign.CodeNotYetValid
	}
	return nil
}

const (
	lowerLetters = "abcdefghijklmnopqrstuvwxyz"
	letters      = lowerLetters + "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	visible      = letters + "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
)

func consistsOf(s, allowed string) bool { return s != "" && strings.Trim(s, allowed) == "" }

func (r *referenceVerifier) isNonce(nonce string) bool {
	switch {
	case r.has("nonces of any length"):
		return consistsOf(nonce, letters+"._~-")
	case r.has("nonces of any characters"):
		return 16 <= len(nonce) && len(nonce) <= 128
	}
	return 16 <= len(nonce) && len(nonce) <= 128 && consistsOf(nonce, letters+"._~-")
}

func (r *referenceVerifier) signature(text string) (tag string, mac []byte, ok bool) {
	switch {
	case r.has("signatures in a list"):
		text, _, _ = strings.Cut(text, ",")
	case r.has("signatures in capitals"):
		text = strings.ToLower(text)
	case r.has("blanks in signatures"):
		text = strings.ReplaceAll(text, " ", "")
	case r.has("signatures in base64"):
		if mac, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "v1=")); err == nil && len(mac) == 32 {
			return "v1", mac, true
		}
	}
	tag, d, found := strings.Cut(text, "=")
	if !found || !consistsOf(tag, letters+"-") || !consistsOf(d, "0123456789abcdef") || len(d) > 128 {
		return "", nil, false
	}
	if r.has("as many bytes as there are") && tag == "v1" {
		mac, err := hex.DecodeString(d)
		return tag, mac, err == nil
	}
	if tag == "v1" && len(d) != 64 || tag == "v1-ed25519" && len(d) != 128 {
		return "", nil, false
	}
	mac, err := hex.DecodeString(d)
	return tag, mac, err == nil
}

func (r *referenceVerifier) fields(m *sign.Message, list string) (lines []string, err error) {
	previous := ""
	for name := range strings.SplitSeq(list, ";") {
		if list == "" {
			break
		}
		if r.has("names in any case") {
			name = strings.ToLower(name)
		}
		if r.has("blanks in the list") {
			name = strings.TrimSpace(name)
		}
		if !consistsOf(name, lowerLetters+"0123456789-*_") || name <= previous && !r.has("names in any order") {
			return nil, sign.CodeMalformed
		}
		previous = name
		switch name {
		case "host", "content-length", "transfer-encoding", "connection", "x-signature", "x-signed-headers":
			if !r.has("every name may be signed") {
				return nil, sign.CodeMalformed
			}
		}
		values := m.Source.Values(http.CanonicalHeaderKey(name))
		if len(values) == 0 && !r.has("what is not there is empty") {
			return nil, sign.ReasonUncovered
		}
		value, err := r.line(m, http.CanonicalHeaderKey(name))
		if errors.Is(err, sign.CodeDuplicateHeader) {
			if !r.has("signed fields are joined") {
				return nil, err
			}
			value = strings.Join(values, ", ")
		}
		if r.has("space inside is one blank") {
			value = strings.Join(strings.Fields(value), " ")
		}
		if r.has("values in lower case") {
			value = strings.ToLower(value)
		}
		lines = append(lines, name+":"+value)
	}
	if !strings.Contains(";"+list+";", ";idempotency-key;") && !r.has("the Idempotency-Key need not be signed") {
		if keys := m.Source.Values("Idempotency-Key"); len(keys) > 1 {
			return nil, sign.CodeDuplicateHeader
		} else if len(keys) > 0 && !(r.has("an empty Idempotency-Key need not be signed") && keys[0] == "") {
			return nil, sign.ReasonUncovered
		}
	}
	if !strings.Contains(";"+list+";", ";content-encoding;") && len(m.Source.Values("Content-Encoding")) > 0 && !r.has("the Content-Encoding need not be signed") {
		return nil, sign.ReasonUncovered
	}
	if types := m.Source.Values("Content-Type"); !strings.Contains(";"+list+";", ";content-type;") && !r.has("the Content-Type need not be signed") {
		if len(types) > 1 {
			return nil, sign.CodeDuplicateHeader
		} else if len(types) > 0 {
			return nil, sign.ReasonUncovered
		}
	}
	return lines, nil
}

// deadline bounds the calls of key source and nonce store.
func (r *referenceVerifier) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.c.StoreTimeout == 0 || r.has("no deadline for stores") {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, r.c.StoreTimeout)
}

func (r *referenceVerifier) use(ctx context.Context, id, nonce string, created int64) error {
	ttl := time.Unix(created+window+1, 0).Sub(r.c.Clock()) + 30*time.Second
	switch {
	case r.has("no nonces"):
		return nil
	case r.has("nonces are kept for W"):
		ttl = window * time.Second
	case r.has("nonces without a margin"):
		ttl -= 31 * time.Second
	case r.has("nonces are not per key"):
		id = ""
	case r.has("nonces are joined"):
		id, nonce = "", id+"."+nonce
	case r.has("nonces in lower case"):
		nonce = strings.ToLower(nonce)
	case r.has("a nonce store for each server"), r.has("look, then mark"):
		if !r.mark(nonce) {
			return sign.CodeReplayed
		}
		return nil
	}
	if err := r.full(id); err != nil {
		return err
	}
	unused, err := r.c.Nonces.Use(ctx, id, nonce, ttl)
	if err == nil && unused || r.has("replays count") {
		r.mu.Lock()
		r.live = append(r.live, liveNonce{id, r.c.Clock().Add(ttl)})
		r.mu.Unlock()
	}
	switch {
	case err != nil && (r.has("a store that is down lets in") || r.has("a full memory forgets")):
		return nil
	case err != nil && r.has("a store that is down says replayed"):
		return sign.CodeReplayed
	case err != nil:
		return sign.Errorf(sign.CodeStoreUnavailable, "%w", err)
	case !unused:
		return sign.CodeReplayed
	}
	return nil
}

// liveNonce is a nonce that is remembered.
type liveNonce struct {
	owner string
	until time.Time
}

// full returns an error if no more nonces of the owner, or of anybody, may be remembered.
func (r *referenceVerifier) full(owner string) error {
	if r.c.NonceQuota == 0 || r.has("no quota") {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, own := r.c.Clock(), 0
	r.live = slices.DeleteFunc(r.live, func(n liveNonce) bool { return n.until.Before(now) })
	for _, n := range r.live {
		if n.owner == owner {
			own++
		}
	}
	switch {
	case own >= r.c.NonceQuota:
		return sign.CodeRateLimited
	case len(r.live) >= r.c.MaxNonces && !r.has("a quota for each alone"):
		return sign.CodeStoreUnavailable
	}
	return nil
}

// mark marks a nonce by itself, in one step or in two.
func (r *referenceVerifier) mark(nonce string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[nonce] {
		return false
	}
	if r.has("look, then mark") {
		r.mu.Unlock()
		time.Sleep(500 * time.Millisecond) // the round trip between the two, in which the others arrive
		r.mu.Lock()
	}
	r.seen[nonce] = true
	return true
}
