package sortedparams

import (
	"net/url"
	"strings"

	"github.com/idem-go/idem/sign"
)

// addPairs adds the pairs of a query or a form. It refuses what a framework would drop silently, because that would be signed
// and not seen, or seen and not signed.
func (l *params) addPairs(text string) error {
	if strings.Contains(text, ";") {
		return sign.Errorf(sign.CodeMalformed, "a ; in a query or a form must be escaped")
	}
	for more := true; more; {
		var pair string
		if pair, text, more = strings.Cut(text, "&"); pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err == nil {
			value, err = url.QueryUnescape(value)
		}
		if err != nil {
			return sign.Errorf(sign.CodeMalformed, "a query or a form has a bad escape")
		}
		if err := l.add(name, value); err != nil {
			return err
		}
	}
	return nil
}

// pairsOf returns parameters as the text of a query or a form.
func pairsOf(list []param) string {
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(p.name) + "=" + url.QueryEscape(p.value))
	}
	return b.String()
}

// appendPairs returns a copy of a form with more parameters.
func appendPairs(form []byte, added []param) []byte {
	b := append([]byte(nil), form...)
	if len(b) > 0 && b[len(b)-1] != '&' {
		b = append(b, '&')
	}
	return append(b, pairsOf(added)...)
}
