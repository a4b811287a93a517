package core_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// However a key is printed, logged or encoded, its digest comes out.
func TestKeysPrintAsDigests(t *testing.T) {
	key := core.NewKey("idem:U=alice")
	const digest = "f86b3730625e0f62"
	type event struct {
		Key core.Key `json:"key"`
	}
	for name, value := range map[string]any{
		"a key": key, "a pointer": &key, "a map's key": map[core.Key]int{key: 1}, "a map's value": map[string]core.Key{"k": key},
		"a list": []core.Key{key}, "a struct": event{key}, "an array's map": [1]map[core.Key]event{{key: {key}}},
		"an Event": core.Event{Key: key}, "an Uncertainty": core.Uncertainty{Key: key},
	} {
		var out bytes.Buffer
		fmt.Fprintln(&out, value)
		if name != "a pointer" { // which %d and %x show as a number
			fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d %t %20v %T", value, value, value, value, value, value, value, value, value, value)
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("logged", "value", value, slog.Group("group", "value", value))
		}
		require.NoError(t, json.NewEncoder(&out).Encode(value), name)
		require.NoError(t, json.NewEncoder(&out).Encode(map[string]any{"value": value}), name)
		assert.NotContains(t, out.String(), "alice", name)
		assert.NotContains(t, out.String(), fmt.Sprintf("%x", "alice"), name)
		assert.Contains(t, out.String(), digest, name)
	}
	assert.Equal(t, "map["+digest+":1]", fmt.Sprint(map[core.Key]int{key: 1}))
	encoded, err := json.Marshal(map[core.Key]event{key: {key}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"`+digest+`":{"key":"`+digest+`"}}`, string(encoded))

	assert.Equal(t, "idem:U=alice", key.Raw())
	assert.Empty(t, core.Key{}.String())
}
