package canon_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/internal/race"
)

const typeMultipart = "multipart/form-data; boundary=boundary"

// shape makes requests of one kind in any size.
type shape struct {
	name  string
	make  func(size int) canon.Input
	rules canon.Rules
	raw   bool // the body counts as raw bytes
}

// units makes a body out of a begin, as many units as there is room for, and an end. unit gets the number of the unit;
// between comes between two.
func units(contentType, begin, between, end string, unit func(i int) string) func(int) canon.Input {
	return func(size int) canon.Input {
		var b bytes.Buffer
		b.WriteString(begin)
		for i := 0; i == 0 || b.Len() < size-len(end); i++ {
			if i > 0 {
				b.WriteString(between)
			}
			b.WriteString(unit(i))
		}
		b.WriteString(end)
		return canon.Input{ContentType: contentType, Body: b.Bytes()}
	}
}

// filled makes a body out of begin, one piece again and again, and end.
func filled(contentType, begin, piece, end string) func(int) canon.Input {
	return func(size int) canon.Input {
		n := max(1, (size-len(begin)-len(end))/len(piece))
		return canon.Input{ContentType: contentType, Body: []byte(begin + strings.Repeat(piece, n) + end)}
	}
}

// consuming makes what in does, with names that do not count.
func consuming(in func(int) canon.Input) func(int) canon.Input {
	return func(size int) canon.Input {
		in := in(size)
		in.Consumed = []string{"timestamp", "nonce", "sign"}
		return in
	}
}

const body200 = `{"requestKey":"key-0123456789","requestTime":"20190101120001","requestValue":"1000",` +
	`"items":[{"sku":"A-1","qty":2,"price":19.99},{"sku":"B-2","qty":1,"price":5}],"note":"leave at the door","customer":42}`

// orders makes many small objects, their members out of order.
var orders = units(typeJSON, `{"orders":[`, ",", "]}", func(i int) string {
	return fmt.Sprintf(`{"order_id":%d,"customer":"customer %d","amount":%d.50,"currency":"EUR","lines":[{"sku":"A-1","qty":2}],"note":%q}`,
		i, scattered(i), i, strings.Repeat("words ", i%9))
})

// manyMembers makes one object with n members in no order.
func manyMembers(n int) string {
	members := make([]string, n)
	for at, i := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		members[at] = fmt.Sprintf(`"m%d":%d`, i, i)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// scattered returns numbers in no order, none of them twice.
func scattered(i int) uint32 { return uint32(i) * 2654435761 }

// The shapes. Many of them are made by an enemy: each aims at something that could be done
// once more for each byte, member or level.
func shapes(t testing.TB) []shape {
	numbered := func(format string) func(int) string {
		return func(i int) string { return fmt.Sprintf(format, scattered(i)) }
	}
	constant := func(text string) func(int) string { return func(int) string { return text } }
	object := func(unit func(i int) string) func(int) canon.Input { return units(typeJSON, "{", ",", "}", unit) }
	form := func(unit func(i int) string) func(int) canon.Input { return units(typeForm, "", "&", "", unit) }
	part := func(parameters, content string) string {
		return "--boundary\r\nContent-Disposition: form-data; " + parameters + "\r\n\r\n" + content + "\r\n"
	}
	fields := func(unit func(i int) string) func(int) canon.Input {
		return units(typeMultipart, "", "", "--boundary--\r\n", unit)
	}
	content := func(parameters, piece string) func(int) canon.Input {
		return filled(typeMultipart, strings.TrimSuffix(part(parameters, ""), "\r\n"), piece, "\r\n--boundary--\r\n")
	}
	defaults := canon.Rules{DefaultNames: true}
	excluding := func(list ...string) canon.Rules { return canon.Rules{Exclude: paths(t, list...)} }
	selecting := func(list ...string) canon.Rules { return canon.Rules{Select: paths(t, list...)} }
	deep := strings.Repeat(`{"b":`, 64) // as deep as JSON may be
	shut := strings.Repeat(`,"a":1}`, 64)
	return []shape{
		{name: "orders", make: orders},
		{name: "orders, default names", make: orders, rules: defaults},

		// Members.
		{name: "members in order", make: object(func(i int) string { return fmt.Sprintf(`"%09d":1`, i) })},
		{name: "members backwards", make: object(func(i int) string { return fmt.Sprintf(`"%09d":1`, 999_999_999-i) })},
		{name: "members in no order", make: object(numbered(`"%d":1`))},
		{name: "members that differ late", make: object(numbered(`"the same beginning of all %d":1`))},
		{name: "members with escapes", make: object(numbered(`"\u0061\n%d":1`))},
		{name: "members beyond ASCII", make: object(numbered(`"é😀%d":1`))},
		{name: "members with blanks around", make: units(typeJSON, " { ", ",", " } ", numbered(" \"%d\" :\n 1\t"))},
		{name: "one member twice, at the end", make: units(typeJSON, "{", ",", `,"1":1,"1":1}`, numbered(`"%d":1`)), raw: true},
		{name: "few members with long names", make: func(size int) canon.Input {
			name := strings.Repeat("n", size/16)
			return object(func(i int) string { return fmt.Sprintf(`"%s%02d":1`, name, 16-i) })(size)
		}},
		{name: "names as long as there are many", make: func(size int) canon.Input {
			name := strings.Repeat("n", int(math.Sqrt(float64(size))))
			return object(numbered(`"` + name + `%010d":1`))(size)
		}},

		// Nesting.
		{name: "nested, a long string inside", make: filled(typeJSON, deep+`"`, "x", `"`+shut)},
		{name: "nested, many members inside", make: units(typeJSON, deep[5:]+"{", ",", "}"+shut[7:], numbered(`"%d":1`))},
		{name: "nested, out of order and left out", rules: excluding("**.ts"),
			make: filled(typeJSON, strings.Repeat(`{"ts":1,"b":`, 64)+`"`, "x", `"`+shut)},
		{name: "nested arrays", make: filled(typeJSON, "", "[", ""), raw: true},
		{name: "nested too deep, complete",
			make: filled(typeJSON, strings.Repeat(`[`, 65)+`"`, "x", `"`+strings.Repeat(`]`, 65)), raw: true},
		{name: "arrays in arrays", make: units(typeJSON, "[", ",", "]", constant("[[],[[1],[]]]"))},

		// Strings and numbers.
		{name: "a plain string", make: filled(typeJSON, `"`, "x", `"`)},
		{name: "a string beyond ASCII", make: filled(typeJSON, `"`, "你😀", `"`)},
		{name: "escapes", make: filled(typeJSON, `"`, `\u0041`, `"`)},
		{name: "escapes, malformed at the end", make: filled(typeJSON, `"`, `\u0041`, `\u004"`), raw: true},
		{name: "blanks between", make: filled(typeJSON, "[", "1 ,\n", "1]")},
		{name: "digits", make: filled(typeJSON, "", "1", "")},
		{name: "zeros behind the point", make: filled(typeJSON, "0.", "0", "1")},
		{name: "zeros in front of an exponent", make: filled(typeJSON, "1e", "0", "1")},
		{name: "an exponent", make: filled(typeJSON, "1e", "1", ""), raw: true},
		{name: "numbers", make: units(typeJSON, "[", ",", "]", numbered("%d.50e-3"))},

		// Rules.
		{name: "elements left out", make: units(typeJSON, "[", ",", "]", constant(`{"sku":1,"ts":2}`)),
			rules: excluding("*.ts", "**.x.y", "**.x.*")},
		{name: "elements selected", make: units(typeJSON, "[", ",", "]", constant(`{"b":[1,2],"a":{"sku":1}}`)),
			rules: selecting("*.a.sku", "**.b.1")},
		{name: "the last one selected", make: units(typeJSON, "[", ",", `,{"sku":1}]`, constant("[]")), rules: selecting("*.sku")},
		{name: "all members left out", make: object(numbered(`"%d":1`)), rules: excluding("*")},
		{name: "members consumed", make: consuming(units(typeJSON, "{", ",", `,"sign":1,"\u006eonce":2}`, numbered(`"%d":1`)))},

		// Pairs.
		{name: "form in order", make: form(func(i int) string { return fmt.Sprintf("n%09d=1", i) })},
		{name: "form in no order", make: form(numbered("n%d=1"))},
		{name: "form, one name", make: form(numbered("name=%d"))},
		{name: "form with escapes", make: form(numbered("%%6e%d=%%E4%%BD%%A0+x"))},
		{name: "form, bad escapes", make: form(numbered("%d%%=%%4"))},
		{name: "form, default names", make: form(numbered("n%d=1&request_time=1")), rules: defaults},
		{name: "form, names with a long common beginning, escaped", make: form(numbered(strings.Repeat("%%c3%%9f", 40) + "%d=1"))},
		{name: "form, two letters in turn", make: form(func(i int) string { return string(byte('b' - i%2)) })},
		{name: "form, each name one longer", make: func(size int) canon.Input {
			longest := int(math.Sqrt(float64(2 * size)))
			return form(func(i int) string { return strings.Repeat("n", max(longest-i, 1)) })(size)
		}},
		{name: "form, one value, bad at the end", make: filled(typeForm, "a=", "%41", "%")},
		{name: "form of nothing", make: filled(typeForm, "", "&", "")},
		{name: "form, consumed names", make: consuming(form(numbered("sign=1&n%d=1")))},
		{name: "query in no order", make: func(size int) canon.Input {
			return canon.Input{RawQuery: string(form(numbered("n%d=1"))(size).Body)}
		}},
		{name: "query and form, names through each other", make: func(size int) canon.Input {
			in := form(func(i int) string { return fmt.Sprintf("n%d=1", scattered(2*i+1)) })(size / 2)
			in.RawQuery = string(form(func(i int) string { return fmt.Sprintf("body:n%d=1", scattered(2*i)) })(size / 2).Body)
			return in
		}},

		// Multipart.
		{name: "many fields of one name, and files",
			make: fields(constant(part(`name="name"; filename="file"`, "content") + part(`name="name"`, "value")))},
		{name: "one file of what looks like boundaries", make: content(`name="name"; filename="file"`, "\r\n--boundar")},
		{name: "one field", make: content(`name="name"`, "é ")},
		{name: "fields with names to be escaped", make: fields(numbered(part(`name="the same / beginning %d"`, "é")))},
		{name: "fields that the standard library reads", make: fields(constant(part(`name="a \"quoted\" name"`, "value")))},
		{name: "one file of line ends", make: content(`name="name"; filename="file"`, "\r\n--")},
		{name: "a header without an end", make: filled(typeMultipart, "--boundary\r\nX: ", "x", "")},
		{name: "fields without an end", make: filled(typeMultipart, "", part(`name="n"`, "value"), ""), raw: true},

		// Others.
		{name: "binary, and a query", raw: true, make: func(size int) canon.Input {
			return canon.Input{RawQuery: "a=1", ContentType: "image/png", Body: bytes.Repeat([]byte("\x00binary\xff"), size/8)}
		}},
		{name: "header fields in no order", make: func(size int) canon.Input {
			var in canon.Input
			for i := range size / 12 {
				in.Header = append(in.Header, pair{Name: fmt.Sprint("x-", scattered(i)), Value: "1"})
			}
			return in
		}},
		{name: "header field of line feeds", make: func(size int) canon.Input {
			return canon.Input{Header: []pair{{Name: "a", Value: strings.Repeat("\n", size)},
				{Name: "b", Value: strings.Repeat(" ", size)}}}
		}},
		{name: "media type", make: func(size int) canon.Input { return canon.Input{ContentType: "A/" + strings.Repeat("B", size)} }},
		{name: "path parameters", make: func(size int) canon.Input {
			return canon.Input{PathParams: []pair{{Name: "b", Value: strings.Repeat("é/", size/3)}, {Name: "a", Value: "1"}}}
		}},
	}
}

// length is how many bytes there are in in to read.
func length(in canon.Input) int {
	n := len(in.Body) + len(in.RawQuery) + len(in.ContentType)
	for _, p := range slices.Concat(in.PathParams, in.Header) {
		n += len(p.Name) + len(p.Value)
	}
	return n
}

// TestGrowth holds that a body twice as long is at most 2.3 times as much work: no shape of a body is an attack. (Sorting
// takes n log n; at these sizes that is 2.14.)
//
// It measures no time. It runs itself in a second process, in whose product code each block of statements adds one to
// canon.Work, and each copy and call that takes a slice or text adds its length: see instrument. The same body is always
// the same work.
//
// It does not see what works within one expression but those: a comparison of two texts, a map, a buffer that is moved as it
// grows (TestMemoryGrowth holds that), and the standard library but for what reads multipart forms.
func TestGrowth(t *testing.T) {
	race.Skip(t, "the work is the same, and counting it compiles net/http anew")
	const counting = "IDEM_COUNT_WORK"
	if os.Getenv(counting) == "" {
		cmd := exec.Command("go", "test", "-count=1", "-vet=off", fmt.Sprintf("-v=%t", testing.Verbose()),
			"-overlay="+instrumented(t), "-run=^TestGrowth$", ".")
		cmd.Env = append(os.Environ(), counting+"=1")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		require.NoError(t, err)
		return
	}
	for _, s := range shapes(t) {
		t.Run(s.name, func(t *testing.T) {
			var perByte []float64
			for size := 32 << 10; size <= 1<<20; size *= 2 {
				in := s.make(size)
				runtime.GC()
				runtime.GC() // the pool is empty: what grows is the same each time
				before := canon.Work()
				_, info := s.rules.AppendDigest(nil, &in)
				work := canon.Work() - before
				require.Equal(t, s.raw, info.Raw)
				require.GreaterOrEqual(t, work, length(in), "somebody has to look at each byte")
				// A body is not exactly twice as long as the one before.
				perByte = append(perByte, float64(work)/float64(length(in)))
				if last := len(perByte) - 1; last > 0 {
					require.LessOrEqual(t, 2*perByte[last]/perByte[last-1], 2.3, "%.2f for each byte, the last of %d", perByte, size)
				}
			}
			t.Logf("%.2f for each byte", perByte)
		})
	}
}

// TestMemoryGrowth holds that a derivation in fresh memory takes no more of it than a fixed
// multiple of the body: not for the most members that there can be, either.
func TestMemoryGrowth(t *testing.T) {
	race.Skip(t, "the race detector allocates, too")
	for _, s := range shapes(t) {
		var perByte []float64
		for _, size := range []int{64 << 10, 1 << 20} {
			in := s.make(size)
			perByte = append(perByte, float64(canon.FreshBytes(&s.rules, &in))/float64(size))
		}
		assert.LessOrEqual(t, slices.Max(perByte), 40.0, "%s: %.1f bytes for each byte of the body", s.name, perByte)
	}
}
