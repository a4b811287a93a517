package adaptertest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// victim is a permit of alice's. In the text of its token stand both characters in which the two alphabets of
// RFC 4648 differ.
func victim() tokenFields {
	return tokenFields{time.Now().Add(time.Hour), [16]byte{0xfb, 0xef, 0xbe, 0xff, 0xff, 0xff}, "alice", "checkout"}
}

// forgery is a text that is no token for alice's checkout, although it is close to one.
type forgery struct{ name, text string }

// forgeries are made from the token of v, by a forger who has it or another one, and no secret or a wrong one.
func forgeries(v tokenFields) []forgery {
	token := v.token(tokenSecret)
	encoded := strings.TrimPrefix(token, "t1.")
	raw, _ := base64.RawURLEncoding.DecodeString(encoded) // it is well formed
	signed := raw[:len(raw)-sha256.Size]
	with := func(sum []byte) string {
		return "t1." + base64.RawURLEncoding.EncodeToString(append(signed[:len(signed):len(signed)], sum...))
	}
	digest := sha256.Sum256(append(signed[:len(signed):len(signed)], v.user+v.purpose...))
	all := []forgery{
		{"another version", "t2." + encoded},
		{"the version in capitals", "T1." + encoded},
		{"no version", encoded},
		{"no dot", "t1" + encoded},
		{"the version twice", "t1." + token},
		{"the version alone", "t1."},
		{"one letter", "t"},
		{"any text", "this is no token"},
		{"zeros", strings.Repeat("0", len(token))},

		{"one character less", token[:len(token)-1]},
		{"four characters less", token[:len(token)-4]},
		{"one character less in front", "t1." + encoded[1:]},
		{"half of it", token[:len(token)/2]},
		{"without its HMAC", "t1." + base64.RawURLEncoding.EncodeToString(signed)},
		{"one character more", token + "A"},
		{"four characters more", token + "AAAA"},
		{"twice in a row", token + token},
		{"a list of two", token + "," + token},
		{"very long", strings.Repeat(token, 1000)},

		{"the other alphabet", strings.NewReplacer("-", "+", "_", "/").Replace(token)},
		{"padding", token + "="},
		{"more padding", token + "=="},
		{"encoded twice", "t1." + base64.RawURLEncoding.EncodeToString([]byte(encoded))},
		{"hexadecimal", fmt.Sprintf("t1.%x", raw)},
		{"capitals", strings.ToUpper(token)},
		{"small letters", strings.ToLower(token)},
		{"quoted", `"` + token + `"`},
		{"a scheme in front", "Bearer " + token},
		{"percent-escaped once more", strings.ReplaceAll(token, ".", "%2E")},
		{"an ending in NUL", token + "\x00"},
		{"letters that look alike", strings.Replace(token, "t", "т", 1)},

		{"a line feed inside", token[:40] + "\n" + token[40:]},
		{"a line feed for a character", token[:40] + "\n" + token[41:]},
		{"line feeds for the last four", token[:len(token)-4] + "\n\n\n\n"},
		{"CR LF at the end", token + "\r\n"},
		{"a blank inside", token[:40] + " " + token[40:]},
		{"a blank for a character", token[:40] + " " + token[41:]},
		{"a blank in front", " " + token},
		{"a tab at the end", token + "\t"},

		{"another secret", v.token(otherSecret)},
		{"no secret", v.token(nil)},
		{"half the secret", v.token(tokenSecret[:16])},
		{"an HMAC of zeros", with(make([]byte, sha256.Size))},
		{"a digest for an HMAC", with(digest[:])},

		{"another user", tokenFields{v.expiry, v.id, "bob", v.purpose}.token(tokenSecret)},
		{"the user in capitals", tokenFields{v.expiry, v.id, "Alice", v.purpose}.token(tokenSecret)},
		{"no user", tokenFields{v.expiry, v.id, "", v.purpose}.token(tokenSecret)},
		{"another purpose", tokenFields{v.expiry, v.id, v.user, "refund"}.token(tokenSecret)},
		{"the purpose in capitals", tokenFields{v.expiry, v.id, v.user, "Checkout"}.token(tokenSecret)},
		{"no purpose", tokenFields{v.expiry, v.id, v.user, ""}.token(tokenSecret)},
		{"another limit between the two", tokenFields{v.expiry, v.id, "alic", "echeckout"}.token(tokenSecret)},
	}
	for i := range raw {
		flipped := append([]byte(nil), raw...)
		flipped[i] ^= 1 << (i % 8)
		part := "HMAC"
		switch {
		case i < 6:
			part = "expiry"
		case i < len(signed):
			part = "id"
		}
		all = append(all, forgery{fmt.Sprintf("another bit in byte %d, of the %s", i, part), "t1." + base64.RawURLEncoding.EncodeToString(flipped)})
	}
	return all
}

// forgeTokens tries each forgery in each place that can hold it.
func forgeTokens(s *env) {
	s.Helper()
	v := victim()
	for _, f := range forgeries(v) {
		if f.text == v.token(tokenSecret) {
			s.Fatalf("%s is no forgery", f.name)
		}
		escaped := url.QueryEscape(f.text)
		tried := []request{form(core.TokenField + "=" + escaped + "&sku=A-1&quantity=2")}
		if len(f.text) < 1000 { // servers have limits for the other places
			tried = append(tried, posted("/orders?"+core.TokenField+"="+escaped, order))
			if !strings.ContainsAny(f.text, "\x00\r\n") && strings.TrimSpace(f.text) == f.text {
				tried = append(tried, request{body: order, fields: []adapter.Field{field(core.TokenHeader, f.text)}})
			}
		}
		for i, r := range tried {
			c := s.connect("forger")
			c.send(r.orDefaults())
			got, err := c.receive("POST")
			if err != nil || got.status != http.StatusForbidden || got.get(core.RefusedHeader) != string(codes.TokenInvalid) {
				s.Errorf("%s, in the %s: %v (%v)", f.name, []string{"form", "query", "header"}[i], got, err)
			}
			if err != nil {
				return
			}
		}
	}
}
