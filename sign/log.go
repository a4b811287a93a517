package sign

import (
	"context"
	"log/slog"
)

// LogEvents returns an observer for [Config.Observe] that logs to logger. It logs refused messages at the level refusals, with the
// reason and the signing string, which the client does not see. Refusals that are the service's fault (5xx) are warnings. Verified
// messages are logged at the debug level.
func LogEvents(logger *slog.Logger, refusals slog.Level) func(context.Context, Event) {
	return func(ctx context.Context, e Event) {
		level, what := slog.LevelDebug, "verified"
		switch {
		case e.Err != nil && e.Err.Status() >= 500:
			level, what = slog.LevelWarn, "refused"
		case e.Err != nil:
			level, what = refusals, "refused"
		}
		if !logger.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{slog.String("scheme", e.Scheme), slog.String("key_id", e.KeyID), slog.String("method", e.Method),
			slog.String("path", e.Path), slog.String("remote", e.RemoteAddr), slog.Duration("elapsed", e.Elapsed)}
		if e.Err != nil {
			attrs = append(attrs, slog.String("code", string(e.Err.Code)), slog.String("reason", string(e.Err.Reason)),
				slog.Any("err", e.Err), slog.String("signed", e.SigningString()))
		}
		logger.LogAttrs(ctx, level, "sign: "+what, attrs...)
	}
}
