package core_test

import (
	"crypto/fips140"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adaptertest"
)

// The keys of adaptertest's keys.json, derived without a framework. The adapters are held
// to the same file over TCP.
func TestKeysOfTheGoldenFile(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("most of the keys hold an MD5, which FIPS 140 does not allow")
	}
	engine := core.MustNew(core.Config{})
	entries := adaptertest.KeyCases()
	require.GreaterOrEqual(t, len(entries), 60)
	for _, entry := range entries {
		t.Run(entry.Name, func(t *testing.T) {
			guard, err := engine.Guard(entry.Policy())
			require.NoError(t, err)
			key, fingerprint, err := guard.Key(entry.Request())
			if entry.Refusal != "" {
				var refusal *core.Refusal
				require.ErrorAs(t, err, &refusal)
				assert.Equal(t, entry.Refusal, refusal.Code, entry.Why)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, entry.Key, string(key), entry.Why)
			assert.Equal(t, entry.Fingerprint, fingerprint, entry.Why)
		})
	}
}

// Entries that say that two requests are, or are not, one operation.
func TestKeysOfTheGoldenFileAmongEachOther(t *testing.T) {
	byName := map[string]string{}
	for _, entry := range adaptertest.KeyCases() {
		require.NotContains(t, byName, entry.Name)
		byName[entry.Name] = entry.Key
	}
	for _, same := range [][2]string{
		{"JSON, sorted and without space", "JSON, in another order and with space"},
		{"a multipart form", "a multipart form, another boundary"},
		{"a multipart form, files before fields of their name", "a multipart form, fields before files of their name"},
		{"a query like a form", "a form"},
		{"a client key, bare", "a client key, quoted"},
	} {
		assert.Equal(t, byName[same[0]], byName[same[1]], same)
	}
	for _, other := range [][2]string{
		{"nothing at all", "an empty object"},
		{"JSON, integers beyond float64", "JSON, integers beyond float64, the neighbour"},
		{"JSON as text, sorted and without space", "JSON, sorted and without space"},
		{"text like a form", "a form"},
		{"text like a form", "a query like a form"},
		{"a multipart form", "a multipart form, a field like a file"},
		{"a path parameter, percent", "a path parameter, escaped percent"},
		{"a query and JSON", "a query with a line feed and JSON"},
		{"a user of 65 bytes", "a user like a digest"},
	} {
		assert.NotEqual(t, byName[other[0]], byName[other[1]], other)
	}
}
