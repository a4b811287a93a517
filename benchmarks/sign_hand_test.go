package benchmarks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
)

// byHand checks a message as a service would that uses no package for it: it parses the same header fields, demands that the same ones
// are signed, and makes the same hashes. It knows one key, and leaves the nonce to its caller.
type byHand func(r *http.Request, body, secret []byte, now time.Time) (nonce string, err error)

var errByHand = errors.New("not signed, or wrongly")

// fresh reports whether a Unix time in decimal digits is within five minutes of now.
func fresh(digits string, now time.Time) bool {
	seconds, err := strconv.ParseInt(digits, 10, 64)
	return err == nil && now.Sub(time.Unix(seconds, 0)).Abs() <= 5*time.Minute
}

// single returns the value of a field that was sent once.
func single(h http.Header, name string) string {
	if values := h.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

var mustBeSigned = []string{"idempotency-key", "content-type", "content-encoding"}

func v1ByHand(r *http.Request, body, secret []byte, now time.Time) (string, error) {
	id, timestamp, nonce := single(r.Header, "X-Key-Id"), single(r.Header, "X-Timestamp"), single(r.Header, "X-Nonce")
	signature, err := hex.DecodeString(strings.TrimPrefix(single(r.Header, "X-Signature"), "v1="))
	if err != nil || id != "demo" || len(nonce) < 16 || len(nonce) > 128 || !fresh(timestamp, now) {
		return "", errByHand
	}
	digest := sha256.Sum256(body)
	signed := single(r.Header, "X-Signed-Headers")
	lines := []string{"v1", id, r.Method, strings.ToLower(r.Host), r.URL.EscapedPath(), r.URL.RawQuery, timestamp, nonce,
		hex.EncodeToString(digest[:]), signed}
	names := strings.Split(signed, ";")
	for _, name := range names {
		value := single(r.Header, name)
		if value == "" {
			return "", errByHand
		}
		lines = append(lines, name+":"+value)
	}
	for _, name := range mustBeSigned {
		if len(r.Header.Values(name)) > 0 && !slices.Contains(names, name) {
			return "", errByHand
		}
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(strings.Join(lines, "\n")))
	if !hmac.Equal(mac.Sum(nil), signature) {
		return "", errByHand
	}
	return nonce, nil
}

func rfc9421ByHand(r *http.Request, body, secret []byte, now time.Time) (string, error) {
	inputs, err := httpsfv.UnmarshalDictionary(r.Header.Values("Signature-Input"))
	if err != nil {
		return "", err
	}
	signatures, err := httpsfv.UnmarshalDictionary(r.Header.Values("Signature"))
	if err != nil {
		return "", err
	}
	input, _ := inputs.Get("sig1")
	member, _ := signatures.Get("sig1")
	components, ok := input.(httpsfv.InnerList)
	item, ok2 := member.(httpsfv.Item)
	signature, ok3 := item.Value.([]byte)
	if !ok || !ok2 || !ok3 {
		return "", errByHand
	}
	param := func(name string) any {
		v, _ := components.Params.Get(name)
		return v
	}
	created, _ := param("created").(int64)
	nonce, _ := param("nonce").(string)
	if param("keyid") != "demo" || param("alg") != "hmac-sha256" || nonce == "" || now.Sub(time.Unix(created, 0)).Abs() > 5*time.Minute {
		return "", errByHand
	}
	digests, err := httpsfv.UnmarshalDictionary(r.Header.Values("Content-Digest"))
	if err != nil {
		return "", err
	}
	sent, _ := digests.Get("sha-256")
	digest := sha256.Sum256(body)
	if v, ok := sent.(httpsfv.Item); !ok || !slices.Equal(v.Value.([]byte), digest[:]) {
		return "", errByHand
	}
	var base strings.Builder
	var names []string
	for _, component := range components.Items {
		name, _ := component.Value.(string)
		names = append(names, name)
		value := ""
		switch name {
		case "@method":
			value = r.Method
		case "@authority":
			value = strings.ToLower(r.Host)
		case "@path":
			value = r.URL.EscapedPath()
		case "@query":
			value = "?" + r.URL.RawQuery
		default:
			value = strings.Join(r.Header.Values(name), ", ")
		}
		base.WriteString(strconv.Quote(name) + ": " + value + "\n")
	}
	for _, name := range append([]string{"@method", "@authority", "@path", "@query", "content-digest"}, mustBeSigned...) {
		if !slices.Contains(names, name) && (name[0] == '@' || len(r.Header.Values(name)) > 0) {
			return "", errByHand
		}
	}
	params, err := httpsfv.Marshal(httpsfv.List{components})
	if err != nil {
		return "", err
	}
	base.WriteString(`"@signature-params": ` + params)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(base.String()))
	if !hmac.Equal(mac.Sum(nil), signature) {
		return "", errByHand
	}
	return nonce, nil
}

// benchmarkByHand measures check on r, which has been signed with secret.
func benchmarkByHand(b *testing.B, check byHand, r *http.Request, body, secret []byte) {
	now := time.Now()
	other := slices.Clone(body)
	other[0] ^= 1
	_, err := check(r, other, secret, now)
	require.ErrorIs(b, err, errByHand)
	_, err = check(r, body, secret, now.Add(time.Hour))
	require.ErrorIs(b, err, errByHand)
	b.ReportAllocs()
	for b.Loop() {
		if nonce, err := check(r, body, secret, now); err != nil || nonce == "" {
			b.Fatal(err)
		}
	}
}
