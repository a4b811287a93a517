package sign_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// down is a store of keys that does not answer.
type down struct{}

func (down) Keys(context.Context, string) ([]*sign.Key, error) {
	return nil, errors.New("no route to host")
}

func TestLogEvents(t *testing.T) {
	for _, c := range []struct {
		keys    sign.KeyStore
		refused slog.Level
		want    string // begins with the level; empty: nothing
	}{
		{sign.Must(sign.NewRing(signtest.Demo)), slog.LevelInfo,
			`level=DEBUG msg="sign: verified" scheme=v1 key_id=demo method=POST path=/hooks remote=`},
		{new(sign.Ring), slog.LevelInfo, `level=INFO msg="sign: refused" scheme=v1 key_id=demo method=POST path=/hooks remote=`},
		{new(sign.Ring), slog.LevelDebug - 1, ""},
		{down{}, slog.LevelInfo, `level=WARN msg="sign: refused" scheme=v1 key_id=demo method=POST path=/hooks remote=`},
	} {
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		r := signtest.NewRequest(t, nil, "https://shop.test/hooks", "{}")
		fixture.Sign(t, r, signtest.Demo, sign.RequestOptions{})
		_ = fixture.Verify(t, sign.Config{Keys: c.keys, Observe: sign.LogEvents(logger, c.refused)}, r)
		_, line, _ := strings.Cut(log.String(), " ") // the time
		require.True(t, strings.HasPrefix(line, c.want) && (c.want == "") == (line == ""), line)
		if strings.Contains(c.want, "refused") {
			require.Regexp(t,
				` code=(invalid reason=unknown_key|store_unavailable reason=keys_unavailable) err=".*" signed="v1\\ndemo\\nPOST`, line)
		}
	}
}
