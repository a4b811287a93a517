package benchmarks

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// kind is a kind of request body.
type kind struct {
	name        string
	contentType string
	// make returns a body of exactly size bytes.
	make func(size int) []byte
	// again returns another spelling of the same parameters, with its content type; nil if
	// there is none.
	again func(body []byte) (contentType string, other []byte)
}

var kinds = []kind{
	{"json", "application/json", jsonBody, func(body []byte) (string, []byte) {
		v := jsontext.Value(bytes.Clone(body))
		if err := v.Indent(); err != nil {
			panic(err)
		}
		return "application/json", v
	}},
	{"form", "application/x-www-form-urlencoded", formBody, func(body []byte) (string, []byte) {
		pairs := strings.Split(string(body), "&")
		slices.Reverse(pairs)
		return "application/x-www-form-urlencoded", []byte(strings.Join(pairs, "&"))
	}},
	{"multipart", "multipart/form-data; boundary=0a1b2c3d", multipartBody, func(body []byte) (string, []byte) {
		return "multipart/form-data; boundary=another", bytes.ReplaceAll(body, []byte("--0a1b2c3d"), []byte("--another"))
	}},
	{"binary", "application/octet-stream", func(size int) []byte {
		b := make([]byte, size)
		rand.New(rand.NewSource(1)).Read(b)
		return b
	}, nil},
}

// jsonBody is a list of orders whose members are in no order.
func jsonBody(size int) []byte {
	r := rand.New(rand.NewSource(1))
	b := []byte(`{"orders":[`)
	for i := 0; ; i++ {
		order := fmt.Sprintf(`{"order_id":%d,"customer":"customer %d","amount":%d.5,"currency":"EUR",`+
			`"lines":[{"sku":"A-%d","qty":%d}],"note":"leave at the door"},`,
			i, r.Intn(1000), r.Intn(1000), r.Intn(9)+1, r.Intn(9)+1)
		if len(b)+len(order)+len(`],"fill":""}`) > size {
			break
		}
		b = append(b, order...)
	}
	b = append(bytes.TrimSuffix(b, []byte(",")), `],"fill":"`...)
	return append(fill(b, size-2), `"}`...)
}

// formBody has fields with blanks and characters that are escaped.
func formBody(size int) []byte {
	var b []byte
	for i := 0; ; i++ {
		field := fmt.Sprintf("field%d=leave+at+the+door&amount%d=%d.5&city%d=M%%C3%%BCnchen&", i, i, i, i)
		if len(b)+len(field)+len("fill=x") > size {
			break
		}
		b = append(b, field...)
	}
	return fill(append(b, "fill="...), size)
}

// multipartBody is a form with a file, which makes up most of it.
func multipartBody(size int) []byte {
	const end = "\r\n--0a1b2c3d--\r\n"
	b := []byte("--0a1b2c3d\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n" +
		"--0a1b2c3d\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n")
	return append(fill(b, size-len(end)), end...)
}

// fill makes b as long as size.
func fill(b []byte, size int) []byte {
	return append(b, bytes.Repeat([]byte("x"), size-len(b))...)
}

var bodySizes = []struct {
	name  string
	bytes int
}{{"200B", 200}, {"4KiB", 4 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}}

// BenchmarkKeys is what it costs to derive a key from the parameters, by the kind and the
// size of the body, beside the digest of the same bytes alone; for JSON also beside the
// canonicalisation by jsontext, alone and with the digest.
func BenchmarkKeys(b *testing.B) {
	guard := core.MustNew(core.Config{User: core.SharedByAllCallers()}).MustGuard(core.Policy{})
	for _, kind := range kinds {
		for _, size := range bodySizes {
			body := kind.make(size.bytes)
			r := &core.Request{Method: "POST", Route: "/orders", ContentType: kind.contentType, Body: body}
			name := kind.name + "/" + size.name

			b.Run(name+"/key", func(b *testing.B) {
				require.Len(b, body, size.bytes)
				kind.check(b, guard, body)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := guard.Key(r); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"/md5", func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					md5.Sum(body)
				}
			})
			if kind.name != "json" {
				continue
			}
			for _, peer := range []struct {
				name   string
				digest bool
			}{{"jsontext", false}, {"jsontext-md5", true}} {
				b.Run(name+"/"+peer.name, func(b *testing.B) {
					var v jsontext.Value
					b.SetBytes(int64(len(body)))
					b.ReportAllocs()
					for b.Loop() {
						v = append(v[:0], body...)
						if err := v.Canonicalize(); err != nil {
							b.Fatal(err)
						}
						if peer.digest {
							md5.Sum(v)
						}
					}
				})
			}
		}
	}
}

// check asserts that a body of the kind is understood: that another spelling has the same
// key, and another content another one.
func (k kind) check(b *testing.B, guard *core.Guard, body []byte) {
	b.Helper()
	keyOf := func(contentType string, body []byte) string {
		key, _, err := guard.Key(&core.Request{Method: "POST", Route: "/orders", ContentType: contentType, Body: body})
		require.NoError(b, err)
		return key.Raw()
	}
	key := keyOf(k.contentType, body)
	places := []int{bytes.IndexByte(body, 'x'), bytes.LastIndexByte(body, 'x')} // what bodies are filled up with
	if k.again == nil {
		places = []int{0, len(body) - 1}
	}
	for _, at := range places {
		other := bytes.Clone(body)
		other[at] ^= 1
		require.NotEqual(b, key, keyOf(k.contentType, other), "byte %d does not count", at)
	}
	digest := func(b []byte) string {
		sum := md5.Sum(b)
		return "P=" + hex.EncodeToString(sum[:])
	}
	raw := digest(append([]byte{0}, body...)) // the mark of raw bytes goes first
	if k.again == nil {
		raw = digest(append([]byte("type:"+k.contentType+"\n\x00"), body...))
		require.True(b, strings.HasSuffix(key, raw), "the body does not count as raw bytes")
		return
	}
	require.False(b, strings.HasSuffix(key, raw), "the body counts as raw bytes")
	contentType, other := k.again(body)
	require.NotEqual(b, body, other)
	require.Equal(b, key, keyOf(contentType, other))
	if k.name == "json" {
		v := jsontext.Value(bytes.Clone(body))
		require.NoError(b, v.Canonicalize())
		require.True(b, strings.HasSuffix(key, digest(v)), "the key is not the digest that jsontext gives")
	}
}
