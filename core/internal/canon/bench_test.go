package canon_test

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/idem-go/idem/core/internal/canon"
)

const body200 = `{"requestKey":"key-0123456789","requestTime":"20190101120001","requestValue":"1000","items":[{"sku":"A-1","qty":2,"price":19.99},{"sku":"B-2","qty":1,"price":5}],"note":"leave at the door","customer":42}`

// orders returns a JSON text of at least size bytes: many small objects, their members
// out of order.
func orders(size int) []byte {
	r := rand.New(rand.NewSource(1))
	var b bytes.Buffer
	b.WriteString(`{"orders":[`)
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"order_id":%d,"customer":"customer %d","amount":%d.%02d,"currency":"EUR","lines":[{"sku":"A-%d","qty":%d}],"note":%q}`,
			i, r.Intn(1000), r.Intn(1000), r.Intn(89)+11, r.Intn(99), r.Intn(9)+1, strings.Repeat("words ", r.Intn(9)))
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// manyMembers returns one object with n members in no order.
func manyMembers(n int) []byte {
	var b bytes.Buffer
	for _, i := range rand.New(rand.NewSource(1)).Perm(n) {
		fmt.Fprintf(&b, `,"m%d":%d`, i, i)
	}
	b.WriteByte('}')
	b.Bytes()[0] = '{'
	return b.Bytes()
}

// long returns members whose names have long common beginnings.
func long(n int) []byte {
	var b bytes.Buffer
	for _, i := range rand.New(rand.NewSource(1)).Perm(n) {
		fmt.Fprintf(&b, `,"%s%06d":1`, strings.Repeat("n", n), i)
	}
	b.WriteByte('}')
	b.Bytes()[0] = '{'
	return b.Bytes()
}

func benchmark(b *testing.B, rules canon.Rules, in canon.Input, raw bool) {
	b.SetBytes(int64(len(in.Body)))
	b.ReportAllocs()
	dst := make([]byte, 0, 64)
	for b.Loop() {
		_, info := rules.AppendDigest(dst, &in)
		if info.Raw != raw {
			b.Fatalf("raw = %v", info.Raw)
		}
	}
}

func benchmarkMD5(b *testing.B, body []byte) {
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		md5.Sum(body)
	}
}

// BenchmarkJSON sets the derivation beside the canonicalisation of jsontext with the
// same digest, and beside the digest alone.
func BenchmarkJSON(b *testing.B) {
	for _, size := range []struct {
		name string
		body []byte
	}{{"200B", []byte(body200)}, {"1MiB", orders(1 << 20)}} {
		b.Run(size.name+"/canon", func(b *testing.B) {
			benchmark(b, canon.Rules{DefaultNames: true}, jsonInput(string(size.body)), false)
		})
		b.Run(size.name+"/jsontext", func(b *testing.B) {
			b.SetBytes(int64(len(size.body)))
			b.ReportAllocs()
			var v jsontext.Value
			for b.Loop() {
				v = append(v[:0], size.body...)
				if err := v.Canonicalize(); err != nil {
					b.Fatal(err)
				}
				md5.Sum(v)
			}
		})
		b.Run(size.name+"/md5", func(b *testing.B) { benchmarkMD5(b, size.body) })
	}
}

// fields returns an urlencoded form of about size bytes, with blanks and escapes, its names in no
// order.
func fields(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "field%d=leave+at+the+door&amount%d=%d.5&city%d=M%%C3%%BCnchen&", i, i, i, i)
	}
	return b.Bytes()[:b.Len()-1]
}

// BenchmarkForms sets the derivation from forms and from raw bytes beside the digest of the same bytes alone.
func BenchmarkForms(b *testing.B) {
	for _, size := range []int{200, 64 << 10, 1 << 20} {
		binary := strings.Repeat("\x00binary\xff", size/8)
		for kind, in := range map[string]canon.Input{
			"form":      {ContentType: typeForm, Body: fields(size)},
			"multipart": multipartInput(b, "----WebKitFormBoundary0123456789abcdef", part{name: "sku", content: "A-1"}, part{name: "photo", filename: "a.png", content: binary}),
			"binary":    {RawQuery: "a=1", ContentType: "image/png", Body: []byte(binary)},
		} {
			b.Run(fmt.Sprintf("%s/%dB/canon", kind, size), func(b *testing.B) { benchmark(b, canon.Rules{DefaultNames: true}, in, kind == "binary") })
			b.Run(fmt.Sprintf("%s/%dB/md5", kind, size), func(b *testing.B) { benchmarkMD5(b, in.Body) })
		}
	}
}
