package canon_test

import (
	"bytes"
	"fmt"
	"math"
	"mime/multipart"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/internal/race"
)

// shape makes bodies of one kind in any size.
type shape struct {
	name  string
	make  func(size int) canon.Input
	rules func(testing.TB) canon.Rules // nil: the zero Rules
	raw   bool                         // the body counts as raw bytes
}

// jsonShape makes a JSON text out of a begin, as many units as there is room for, and an end.
// unit gets the number of the unit; a comma comes between two.
func jsonShape(name, begin string, unit func(i int) string, end string) shape {
	return shape{name: name, make: func(size int) canon.Input {
		var b strings.Builder
		b.WriteString(begin)
		for i := 0; i == 0 || b.Len() < size-len(end); i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(unit(i))
		}
		b.WriteString(end)
		return jsonInput(b.String())
	}}
}

// filled makes a JSON text of begin, one piece again and again, and end.
func filled(name, begin, piece, end string) shape {
	return shape{name: name, make: func(size int) canon.Input {
		return jsonInput(begin + strings.Repeat(piece, max(1, (size-len(begin)-len(end))/len(piece))) + end)
	}}
}

func (s shape) excluding(list ...string) shape {
	s.rules = func(t testing.TB) canon.Rules { return canon.Rules{Exclude: paths(t, list...)} }
	return s
}

func (s shape) selecting(list ...string) shape {
	s.rules = func(t testing.TB) canon.Rules { return canon.Rules{Select: paths(t, list...)} }
	return s
}

func (s shape) withDefaultNames() shape {
	s.rules = func(testing.TB) canon.Rules { return canon.Rules{DefaultNames: true} }
	return s
}

func (s shape) asRaw() shape {
	s.raw = true
	return s
}

// scattered returns numbers in no order, none of them twice.
func scattered(i int) uint32 { return uint32(i) * 2654435761 }

func formShape(name string, unit func(i int) string) shape {
	return shape{name: name, make: func(size int) canon.Input {
		var b bytes.Buffer
		for i := 0; b.Len() < size; i++ {
			b.WriteString(unit(i))
			b.WriteByte('&')
		}
		return canon.Input{ContentType: typeForm, Body: b.Bytes()}
	}}
}

func multipartShape(name string, write func(w *multipart.Writer, body *bytes.Buffer, size int)) shape {
	return shape{name: name, make: func(size int) canon.Input {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		if err := w.SetBoundary("boundary"); err != nil {
			panic(err)
		}
		write(w, &body, size)
		if err := w.Close(); err != nil {
			panic(err)
		}
		return canon.Input{ContentType: w.FormDataContentType(), Body: body.Bytes()}
	}}
}

// The shapes. Many of them are made by an enemy: each aims at something that could be done
// once more for each byte, member or level.
func shapes() []shape {
	member := func(format string) func(int) string {
		return func(i int) string { return fmt.Sprintf(format, scattered(i)) }
	}
	constant := func(text string) func(int) string { return func(int) string { return text } }
	const depth = 64 // as deep as JSON may be
	return []shape{
		{name: "orders", make: func(size int) canon.Input { return jsonInput(string(orders(size))) }},
		{name: "orders, default names", make: func(size int) canon.Input { return jsonInput(string(orders(size))) },
			rules: func(testing.TB) canon.Rules { return canon.Rules{DefaultNames: true} }},

		// Members.
		jsonShape("members in order", "{", func(i int) string { return fmt.Sprintf(`"%09d":1`, i) }, "}"),
		jsonShape("members backwards", "{", func(i int) string { return fmt.Sprintf(`"%09d":1`, 999_999_999-i) }, "}"),
		jsonShape("members in no order", "{", member(`"%d":1`), "}"),
		jsonShape("members that differ late", "{", member(`"the same beginning of all %d":1`), "}"),
		jsonShape("members with escapes", "{", member(`"\u0061\n%d":1`), "}"),
		jsonShape("members beyond ASCII", "{", member(`"é😀%d":1`), "}"),
		jsonShape("members with blanks around", " { ", member(" \"%d\" :\n 1\t"), " } "),
		jsonShape("one member twice, at the end", "{", member(`"%d":1`), `,"1":1,"1":1}`).asRaw(),
		{name: "few members with long names", make: func(size int) canon.Input {
			name := strings.Repeat("n", size/16)
			var b strings.Builder
			for i := 16; i > 0; i-- {
				fmt.Fprintf(&b, `,"%s%02d":1`, name, i)
			}
			return jsonInput("{" + b.String()[1:] + "}")
		}},
		{name: "names as long as there are many", make: func(size int) canon.Input {
			return jsonInput(string(long(int(math.Sqrt(float64(size))))))
		}},

		// Nesting.
		filled("nested, a long string inside", strings.Repeat(`{"b":`, depth)+`"`, "x", `"`+strings.Repeat(`,"a":1}`, depth)),
		jsonShape("nested, many members inside", strings.Repeat(`{"b":`, depth-1)+"{", member(`"%d":1`), "}"+strings.Repeat(`,"a":1}`, depth-1)),
		filled("nested, out of order and left out", strings.Repeat(`{"ts":1,"b":`, depth)+`"`, "x", `"`+strings.Repeat(`,"a":1}`, depth)).excluding("**.ts"),
		filled("nested arrays", "", "[", "").asRaw(),
		filled("nested too deep, complete", strings.Repeat(`[`, depth+1)+`"`, "x", `"`+strings.Repeat(`]`, depth+1)).asRaw(),
		jsonShape("arrays in arrays", "[", constant("[[],[[1],[]]]"), "]"),

		// Strings and numbers.
		filled("a plain string", `"`, "x", `"`),
		filled("a string beyond ASCII", `"`, "你😀", `"`),
		filled("escapes", `"`, `\u0041`, `"`),
		filled("escapes, malformed at the end", `"`, `\u0041`, `\u004"`).asRaw(),
		filled("blanks between", "[", "1 ,\n", "1]"),
		filled("digits", "", "1", ""),
		filled("zeros behind the point", "0.", "0", "1"),
		filled("zeros in front of an exponent", "1e", "0", "1"),
		filled("an exponent", "1e", "1", "").asRaw(),
		jsonShape("numbers", "[", member("%d.50e-3"), "]"),

		// Rules.
		jsonShape("elements left out", "[", constant(`{"sku":1,"ts":2}`), "]").excluding("*.ts", "**.x.y", "**.x.*"),
		jsonShape("elements selected", "[", constant(`{"b":[1,2],"a":{"sku":1}}`), "]").selecting("*.a.sku", "**.b.1"),
		jsonShape("the last one selected", "[", constant("[]"), `,{"sku":1}]`).selecting("*.sku"),
		jsonShape("all members left out", "{", member(`"%d":1`), "}").excluding("*"),

		// Pairs.
		formShape("form in order", func(i int) string { return fmt.Sprintf("n%09d=1", i) }),
		formShape("form in no order", func(i int) string { return fmt.Sprintf("n%d=1", scattered(i)) }),
		formShape("form, one name", func(i int) string { return fmt.Sprintf("name=%d", scattered(i)) }),
		formShape("form with escapes", func(i int) string { return fmt.Sprintf("%%6e%d=%%E4%%BD%%A0+x", scattered(i)) }),
		formShape("form, bad escapes", func(i int) string { return fmt.Sprintf("%d%%=%%4", scattered(i)) }),
		formShape("form, default names", func(i int) string { return fmt.Sprintf("n%d=1&request_time=%d", scattered(i), i) }).withDefaultNames(),
		formShape("form, names with a long common beginning, escaped", func(i int) string { return strings.Repeat("%c3%9f", 40) + fmt.Sprintf("%d=1", scattered(i)) }),
		formShape("form, two letters in turn", func(i int) string { return string(byte('b' - i%2)) }),
		{name: "form, each name one longer", make: func(size int) canon.Input {
			var b bytes.Buffer
			for n := int(math.Sqrt(float64(2 * size))); n > 0; n-- {
				b.WriteString(strings.Repeat("n", n) + "&")
			}
			return canon.Input{ContentType: typeForm, Body: b.Bytes()}
		}},
		{name: "form, one value, bad at the end", make: func(size int) canon.Input {
			return canon.Input{ContentType: typeForm, Body: []byte("a=" + strings.Repeat("%41", size/3) + "%")}
		}},
		{name: "form of nothing", make: func(size int) canon.Input {
			return canon.Input{ContentType: typeForm, Body: bytes.Repeat([]byte("&"), size)}
		}},
		{name: "query in no order", make: func(size int) canon.Input {
			in := formShape("", func(i int) string { return fmt.Sprintf("n%d=1", scattered(i)) }).make(size)
			return canon.Input{RawQuery: string(in.Body)}
		}},

		// Multipart.
		multipartShape("many fields of one name, and files", func(w *multipart.Writer, body *bytes.Buffer, size int) {
			for body.Len() < size {
				if file, err := w.CreateFormFile("name", "file"); err == nil {
					_, _ = file.Write([]byte("content"))
				}
				_ = w.WriteField("name", "value")
			}
		}),
		multipartShape("one file of what looks like boundaries", func(w *multipart.Writer, body *bytes.Buffer, size int) {
			if file, err := w.CreateFormFile("name", "file"); err == nil {
				_, _ = file.Write(bytes.Repeat([]byte("\r\n--boundar"), size/11))
			}
		}),
		multipartShape("one field", func(w *multipart.Writer, body *bytes.Buffer, size int) {
			_ = w.WriteField("name", strings.Repeat("é ", size/3))
		}),
		multipartShape("fields with names to be escaped", func(w *multipart.Writer, body *bytes.Buffer, size int) {
			for i := 0; body.Len() < size; i++ {
				_ = w.WriteField(fmt.Sprint("the same / beginning ", scattered(i)), "é")
			}
		}),
		multipartShape("fields that the standard library reads", func(w *multipart.Writer, body *bytes.Buffer, size int) {
			for body.Len() < size {
				_ = w.WriteField(`a "quoted" name`, "value")
			}
		}),
		multipartShape("one file of line ends", func(w *multipart.Writer, body *bytes.Buffer, size int) {
			if file, err := w.CreateFormFile("name", "file"); err == nil {
				_, _ = file.Write(bytes.Repeat([]byte("\r\n--"), size/4))
			}
		}),
		{name: "a header without an end", make: func(size int) canon.Input {
			return canon.Input{ContentType: "multipart/form-data; boundary=boundary", Body: []byte("--boundary\r\nX: " + strings.Repeat("x", size))}
		}},
		{name: "fields without an end", raw: true, make: func(size int) canon.Input {
			part := "--boundary\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\nvalue\r\n"
			return canon.Input{ContentType: "multipart/form-data; boundary=boundary", Body: []byte(strings.Repeat(part, size/len(part)))}
		}},

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
			return canon.Input{Header: []pair{{Name: "a", Value: strings.Repeat("\n", size)}, {Name: "b", Value: strings.Repeat(" ", size)}}}
		}},
		{name: "media type", make: func(size int) canon.Input {
			return canon.Input{ContentType: "A/" + strings.Repeat("B", size)}
		}},
		consuming("form, consumed names", formShape("", func(i int) string { return fmt.Sprintf("sign=%d&n%d=1", i, scattered(i)) })),
		consuming("members consumed", jsonShape("", "{", member(`"%d":1`), `,"sign":1,"\u006eonce":2}`)),
		{name: "query and form, names through each other", make: func(size int) canon.Input {
			var query, form strings.Builder
			for i := 0; query.Len()+form.Len() < size; i++ {
				fmt.Fprintf(&query, "&body:n%d=1", scattered(2*i))
				fmt.Fprintf(&form, "&n%d=1", scattered(2*i+1))
			}
			return canon.Input{RawQuery: query.String(), ContentType: typeForm, Body: []byte(form.String())}
		}},
		{name: "path parameters", make: func(size int) canon.Input {
			return canon.Input{PathParams: []canon.Pair{{Name: "b", Value: strings.Repeat("é/", size/3)}, {Name: "a", Value: "1"}}}
		}},
	}
}

// consuming makes what s does, with names that do not count.
func consuming(name string, s shape) shape {
	body := s.make
	s.name, s.make = name, func(size int) canon.Input {
		in := body(size)
		in.Consumed = []string{"timestamp", "nonce", "sign"}
		return in
	}
	return s
}

// length is how many bytes there are in in to read.
func length(in canon.Input) int {
	n := len(in.Body) + len(in.RawQuery) + len(in.ContentType)
	for _, p := range slices.Concat(in.PathParams, in.Header) {
		n += len(p.Name) + len(p.Value)
	}
	return n
}

// TestGrowth holds that a body twice as long takes at most 2.3 times as long, from the
// smallest size to the largest: no shape of a body is an attack. (Sorting takes n log n; at
// these sizes that is 2.15.) One doubling may be the one at which the body leaves a cache of
// the machine, so that two in a row are judged together: they may take 6.5 times as long,
// while work that has become quadratic takes 8 at the least.
//
// It counts the time for which the thread has run, since a long derivation on a busy machine
// never has a processor to itself. It takes the fastest of many derivations, in turns so that
// what disturbs one size disturbs the others too. What is too slow is measured again: noise only ever makes things slower, so
// that the minimum goes on falling towards what the work itself takes, while work that grows
// faster than the body stays.
func TestGrowth(t *testing.T) {
	const most, mostOfTwo = 2.3, 6.5
	race.Skip(t, "the race detector's own work on large buffers grows faster than they do")
	sizes := []int{32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20}
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			rules := canon.Rules{}
			if s.rules != nil {
				rules = s.rules(t)
			}
			inputs := make([]canon.Input, len(sizes))
			fastest := slices.Repeat([]time.Duration{math.MaxInt64}, len(sizes))
			lengths := make([]int, len(sizes))
			dst := make([]byte, 0, 64)
			derive := func() {
				for i, size := range sizes {
					inputs[i] = s.make(size)
					lengths[i] = length(inputs[i])
				}
				for range 5 {
					for i := range inputs {
						began := cpuTime()
						_, info := rules.AppendDigest(dst, &inputs[i])
						fastest[i] = min(fastest[i], cpuTime()-began)
						require.Equal(t, s.raw, info.Raw)
					}
				}
			}
			// growth returns by how much too fast it grows at worst: over 1 is too much.
			growth := func() float64 {
				// A body is not exactly twice as long as the one before.
				per := func(i int) float64 { return float64(fastest[i]) / float64(lengths[i]) }
				last := len(sizes) - 1
				worst := math.Pow(per(last)/per(0), 1/float64(last)) / (most / 2)
				for i := range last - 1 {
					worst = max(worst, per(i+2)/per(i)/(mostOfTwo/4))
				}
				return worst
			}
			derive()
			// What else a machine does in its caches and on its memory may last for seconds. Memory that lies badly for
			// a cache stays so: the bodies, and what a derivation keeps for the next one, get other memory.
			for began := time.Now(); growth() > 1 && time.Since(began) < time.Minute; {
				runtime.GC()
				runtime.GC()
				derive()
			}
			assert.LessOrEqual(t, growth(), 1.0, "%v for %v bytes", fastest, lengths)
		})
	}
}

// TestMemoryGrowth holds that a derivation in fresh memory takes no more of it than a fixed
// multiple of the body: not for the most members that there can be, either.
func TestMemoryGrowth(t *testing.T) {
	race.Skip(t, "the race detector allocates, too")
	for _, s := range shapes() {
		rules := canon.Rules{}
		if s.rules != nil {
			rules = s.rules(t)
		}
		var perByte []float64
		for _, size := range []int{64 << 10, 1 << 20} {
			in := s.make(size)
			perByte = append(perByte, float64(canon.FreshBytes(&rules, &in))/float64(size))
		}
		assert.LessOrEqual(t, slices.Max(perByte), 40.0, "%s: %.1f bytes for each byte of the body", s.name, perByte)
	}
}
