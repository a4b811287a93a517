package adaptertest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/idem-go/idem/core"
)

//go:embed testdata/transcripts.txt
var transcriptFile string

// transcripts returns the agreed transcripts by the names of their cases.
func transcripts() map[string]string {
	texts := map[string]string{}
	for section := range strings.SplitSeq("\n"+transcriptFile, "\n=== ") {
		if name, text, ok := strings.Cut(section, "\n"); ok && name != "" {
			texts[name] = strings.TrimRight(text, "\n") + "\n"
		}
	}
	return texts
}

// addTranscripts writes the transcripts of the cases that h has the features for into the file at path, instead of checking
// them: those that it does not have yet. Run compares with them once the suite has been compiled anew. So an empty file is
// filled by net/http first, and then by frameworks with features that it lacks. The text is the suite's definition: read what has
// changed before you keep it.
func addTranscripts(t *testing.T, h Harness, path string) {
	t.Helper()
	texts := transcripts()
	var b bytes.Buffer
	for _, c := range cases { // what has no case any more goes
		if !c.loose && texts[c.name] == "" {
			t.Run(c.name, func(t *testing.T) { texts[c.name] = run(t, h, c, nil) })
		}
		if text := texts[c.name]; text != "" {
			fmt.Fprintf(&b, "=== %s\n%s\n", c.name, text)
		}
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

func compare(tb testing.TB, name, want, got string) {
	tb.Helper()
	if want == got {
		return
	}
	if want == "" {
		tb.Errorf("there is no transcript of %q; this is what was seen:\n%s", name, got)
		return
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(w) && i < len(g) && w[i] == g[i] {
		i++
	}
	tb.Errorf("the transcript is another from line %d on\nwant:\n%s\ngot:\n%s", i+1,
		strings.Join(w[max(0, i-3):min(len(w), i+8)], "\n"), strings.Join(g[max(0, i-3):min(len(g), i+8)], "\n"))
}

// perMessage are the fields that belong to one message and count in no comparison.
var perMessage = []string{"Date", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive"}

// comparable returns the field lines of r that count in a comparison, sorted by name;
// the lines of one name stay in order.
func comparable(r reply, dropped []string) []string {
	var lines []string
	for _, f := range r.fields {
		name := http.CanonicalHeaderKey(f.Name)
		if slices.Contains(perMessage, name) || slices.Contains(dropped, name) {
			continue
		}
		lines = append(lines, name+": "+f.Value)
	}
	slices.SortStableFunc(lines, func(a, b string) int {
		a, _, _ = strings.Cut(a, ":")
		b, _, _ = strings.Cut(b, ":")
		return strings.Compare(a, b)
	})
	return lines
}

// abridged is a body as a transcript and a message show it.
func abridged(body []byte) string {
	switch {
	case len(body) > 300:
		sum := sha256.Sum256(body)
		return fmt.Sprintf("%d bytes, SHA-256 %x", len(body), sum[:8])
	case utf8.Valid(body) && !bytes.ContainsAny(body, "\x00\r"):
		return strings.ReplaceAll(string(body), "\n", `\n`)
	}
	return strconv.QuoteToASCII(string(body))
}

// transcript is the text of a case under way.
type transcript struct{ strings.Builder }

func (t *transcript) line(format string, args ...any) {
	fmt.Fprintf(&t.Builder, format+"\n", args...)
}

func (t *transcript) asked(r request) {
	t.line("> %s %s", r.method, r.target)
	if r.user != "alice" {
		t.line("> X-User: %s", r.user)
	}
	for _, k := range r.keys {
		if len(k) > 100 {
			k = fmt.Sprintf("%s… (%d bytes)", k[:20], len(k))
		}
		t.line("> %s: %s", core.DefaultKeyHeader, k)
	}
	for _, f := range r.fields {
		t.line("> %s: %s", f.Name, abridged([]byte(f.Value)))
	}
	if r.chunked {
		t.line("> Transfer-Encoding: chunked")
	}
	if r.expect {
		t.line("> Expect: 100-continue")
	}
	if r.body != "" {
		t.line("> %s: %s", orDash(r.media), abridged([]byte(r.body)))
	}
	if r.cut > 0 {
		t.line("> and no more after %d bytes", r.cut)
	}
}

func (t *transcript) answered(r reply, ownText bool) {
	for _, h := range r.hints {
		t.line("< %d", h.status)
		for _, l := range comparable(h, nil) {
			t.line("< %s", l)
		}
	}
	t.line("< %d", r.status)
	var dropped []string
	if ownText {
		dropped = []string{"Content-Type", "X-Content-Type-Options"}
	}
	for _, l := range comparable(r, dropped) {
		t.line("< %s", l)
	}
	switch {
	case ownText:
		t.line("< (the framework's own text, or none)")
	case len(r.body) > 0:
		t.line("< %s", abridged(r.body))
	}
}
