package rfc9421

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// inputRow is a row of testdata/signature-input.txt.
type inputRow struct{ why, what, value string }

var escapedByte = regexp.MustCompile(`\\x[0-9a-f]{2}`)

func inputRows(t testing.TB) (rows []inputRow) {
	t.Helper()
	text, err := os.ReadFile("testdata/signature-input.txt")
	require.NoError(t, err)
	why := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "##"):
		case strings.HasPrefix(line, "# "):
			why = line[2:]
		default:
			what, value, ok := strings.Cut(line, " ")
			require.True(t, ok, line)
			require.NotEmpty(t, why, line)
			value = escapedByte.ReplaceAllStringFunc(value, func(s string) string {
				b, _ := strconv.ParseUint(s[2:], 16, 8)
				return string([]byte{byte(b)})
			})
			rows = append(rows, inputRow{why, what, value})
			why = ""
		}
	}
	return rows
}

func TestSignatureInput(t *testing.T) {
	s, key := newScheme(t, Config{UnsignedContentType: true}), signtest.Demo // most lists are as short as can be
	wanted := map[string]error{"malformed": sign.CodeMalformed, "missing": sign.CodeMissing, "uncovered": sign.ReasonUncovered}
	count := make(map[string]int)
	for _, row := range inputRows(t) {
		count[row.what]++
		t.Run(row.why, func(t *testing.T) {
			m := testMessage()
			if row.what == "good" {
				signByHand(t, s, m, key, row.value)
				require.NoError(t, verify(t, s, m, key))
				m.Method = "PUT"
				require.ErrorIs(t, verify(t, s, m, key), sign.ReasonBadSignature)
				return
			}
			signByHand(t, s, m, key, "sig1="+strictList+strictParams)
			require.NoError(t, verify(t, s, m, key))
			headerOf(m).Set("Signature-Input", row.value)
			require.Contains(t, wanted, row.what)
			require.ErrorIs(t, verify(t, s, m, key), wanted[row.what])
		})
	}
	require.GreaterOrEqual(t, count["malformed"], 20)
	require.Positive(t, count["good"])
}

// Too many components are refused before they are compared with each other.
func TestTooManyComponents(t *testing.T) {
	names := `"a0"`
	for n := 1; n < maxComponents; n++ {
		names += fmt.Sprintf(` "a%d"`, n)
	}
	var p parameters
	require.NoError(t, p.read("("+names+")"))
	require.ErrorIs(t, p.read("("+names+` "a")`), sign.CodeMalformed)
	require.ErrorContains(t, p.read(`("a";sf)`), "parameters of components")
}

// Nobody knows who has sent it: what a long field costs is bounded, whatever is in it.
func TestParsingIsBounded(t *testing.T) {
	const size = 31_000
	fill := func(before, unit, after string) string {
		return before + strings.Repeat(unit, (size-len(before)-len(after))/len(unit)) + after
	}
	for _, value := range []string{
		fill("sig1=(", `"a" `, ")"), fill("sig1=(", "1 ", ")"), fill("sig1=(", `"a";b `, ")"), fill("", "a,", "a"),
		fill("sig1=()", ";a", ""), fill("sig1=(", `"x"\t`, ")"), fill("", "a=(),", "a"), fill("sig1=", "(", ""),
		fill(`sig1=("`, `\"`, `")`), fill("sig1=:", "AAAA", ":"), fill("sig1=(", " ", ")"), fill("sig1=", "1", ""), fill("", "a", "=1"),
		fill(`sig1=();a="`, "x", `"`), "sig1=(" + strings.Repeat(`"a"  `, maxParts/2-1) + ")", strings.Repeat("a=1,", maxParts) + "a=1",
		"sig1=()" + strings.Repeat(";a=1", maxParts-2),
	} {
		for _, field := range []string{"Signature-Input", "Signature", "Content-Digest"} {
			s, m := newScheme(t, Config{}), testMessage()
			signWith(t, s, m, signtest.Demo)
			headerOf(m).Set(field, value)
			var sig sign.Signature
			allocs := testing.AllocsPerRun(10, func() {
				sig = sign.Signature{}
				if s.Parse(m, &sig) == nil {
					t.Error("it is good")
				}
			})
			require.LessOrEqual(t, allocs, 1000.0, "%s: %.40s", field, value)
		}
	}
}

// Strings may have quotes and backslashes, which are escaped.
func TestEscapedStrings(t *testing.T) {
	key := fixture.HMAC(`a"b\c`)
	s, m := newScheme(t, Config{Tag: `say "x" \`}), testMessage()
	signWith(t, s, m, key)
	require.Contains(t, headerOf(m).Get("Signature-Input"), `;keyid="a\"b\\c";`)
	require.Contains(t, headerOf(m).Get("Signature-Input"), `;tag="say \"x\" \\"`)
	require.NoError(t, verify(t, s, m, key))
	require.ErrorIs(t, verify(t, newScheme(t, Config{Tag: "say"}), m, key), sign.CodeInvalid)
}

func TestSignatureField(t *testing.T) {
	s, key := newScheme(t, Config{}), signtest.Demo
	m := testMessage()
	signByHand(t, s, m, key, "sig1="+strictList+strictParams)
	good := headerOf(m).Get("Signature") // sig1=:<44 characters, the last of them "=">:
	for _, c := range []struct {
		name, value string
		want        error
	}{
		{"as made", good, nil},
		{"blanks around", " \t" + good + " ", nil},
		{"empty", "", sign.CodeMissing},
		{"other label", strings.Replace(good, "sig1", "sig2", 1), sign.CodeMalformed},
		{"twice", good + ", " + good, sign.CodeMalformed},
		{"a parameter", good + ";alg=none", sign.CodeMalformed},
		{"too long for any key", "sig1=:" + strings.Repeat("AAAA", 342) + ":", sign.CodeMalformed},
		{"truncated", "sig1=" + good[5:5+41] + ":", sign.ReasonBadSignature},
		{"one of another kind", "sig1=:" + strings.Repeat("A", 86) + "==:", sign.ReasonBadSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			headerOf(m).Set("Signature", c.value)
			require.ErrorIs(t, verify(t, s, m, key), c.want)
		})
	}

	// The bits that the last character has too many must be zero: one signature, one text.
	loose := []byte(good)
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	last := len(loose) - len("=:") - 1
	loose[last] = alphabet[strings.IndexByte(alphabet, loose[last])|1]
	require.NotEqual(t, good, string(loose))
	headerOf(m).Set("Signature", string(loose))
	require.ErrorIs(t, verify(t, s, m, key), sign.CodeMalformed)

	headerOf(m).Set("Signature", good)
	for _, name := range []string{"Signature", "Signature-Input"} {
		value := headerOf(m).Get(name)
		for _, lines := range [][]string{{value, value}, {"x=1", value}} {
			headerOf(m)[name] = lines
			require.ErrorIs(t, verify(t, s, m, key), sign.CodeDuplicateHeader)
		}
		delete(headerOf(m), name)
		require.ErrorIs(t, verify(t, s, m, key), sign.CodeMissing)
		headerOf(m).Set(name, value)
	}
}

// A configured label selects one of several signatures; what the others are made of does not count.
func TestLabel(t *testing.T) {
	key := signtest.Demo
	m := testMessage()
	open, labelled := newScheme(t, Config{}), newScheme(t, Config{Label: "mine"})
	signWith(t, labelled, m, key)
	input, signature := headerOf(m).Get("Signature-Input"), headerOf(m).Get("Signature")
	require.True(t, strings.HasPrefix(input, "mine=("))
	require.True(t, strings.HasPrefix(signature, "mine=:"))
	require.NoError(t, verify(t, open, m, key))
	require.NoError(t, verify(t, labelled, m, key))
	require.ErrorIs(t, verify(t, newScheme(t, Config{Label: "other"}), m, key), sign.CodeMissing)

	const proxyInput, proxySignature = `proxy=("@status";req "x";bs);created=1;proxied`, `proxy=:AAAA:;x`
	for _, c := range []struct {
		name             string
		input, signature string
		open, labelled   error
	}{
		{"a proxy's behind", input + ", " + proxyInput, signature + ", " + proxySignature, sign.CodeMalformed, nil},
		{"a proxy's in front", proxyInput + "," + input, proxySignature + " ,\t" + signature, sign.CodeMalformed, nil},
		{"in different orders", input + ", " + proxyInput, proxySignature + ", " + signature, sign.CodeMalformed, nil},
		{"the other has no signature", input + ", " + proxyInput, signature, sign.CodeMalformed, nil},
		{"this one has no signature", input + ", " + proxyInput, proxySignature, sign.CodeMalformed, sign.CodeMissing},
		{"this one twice", input + ", " + input, signature, sign.CodeMalformed, sign.CodeMalformed},
		{"the other one twice", input + ", " + proxyInput + ", " + proxyInput, signature, sign.CodeMalformed, sign.CodeMalformed},
		{"the other is broken", input + ", proxy=(", signature, sign.CodeMalformed, sign.CodeMalformed},
		{"this signature twice", input, signature + ", mine=:AAAA:", sign.CodeMalformed, sign.CodeMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			headerOf(m).Set("Signature-Input", c.input)
			headerOf(m).Set("Signature", c.signature)
			require.ErrorIs(t, verify(t, open, m, key), c.open)
			require.ErrorIs(t, verify(t, labelled, m, key), c.labelled)
		})
	}
}
