package core

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/internal/canon"
)

// Whatever can make two fingerprints differ makes two raws differ, and nothing can move from one part of a request to
// another unnoticed.
func TestRawTellsRequestsApart(t *testing.T) {
	require.Equal(t, 7, reflect.TypeFor[canon.Input]().NumField(), "a new part of the input must be hashed, and drawn below")

	e := MustNew(Config{User: SharedByAllCallers()})
	g, other := e.MustGuard(ClientKey()), e.MustGuard(ClientKey())
	texts := []string{"", "a", "\x01a"}
	pairs := [][]adapter.Pair{nil, {{}}, {{Name: "a"}}, {{Value: "a"}}, {{Name: "a"}, {}}, {{Name: "a", Value: "a"}}}
	encodings := append(texts, "\x00\x02")
	names := [][]string{nil, {""}, {"", ""}, {"a"}, {"", "a"}, {"\x01a"}}
	seen := map[uint64]canon.Input{}
	for _, params := range pairs {
		for _, query := range texts {
			for _, contentType := range texts {
				for _, encoding := range encodings {
					for _, header := range pairs {
						for _, consumed := range names {
							for _, body := range texts {
								in := canon.Input{PathParams: params, RawQuery: query, ContentType: contentType, ContentEncoding: encoding,
									Header: header, Consumed: consumed, Body: []byte(body)}
								raw, _ := g.raw([]byte("any key"), &in)
								if before, is := seen[raw]; is {
									t.Fatalf("one raw for %+v and %+v", before, in)
								}
								seen[raw] = in
								again, _ := g.raw(nil, &in)
								require.Equal(t, raw, again, "the key is not a part of it")
								of, _ := other.raw(nil, &in)
								require.NotEqual(t, raw, of, "another guard has other rules")
							}
						}
					}
				}
			}
		}
	}
	require.Len(t, seen, 6*3*3*4*6*6*3)
}
