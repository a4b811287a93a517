package redisstore

import (
	"context"
	"crypto/fips140"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
	"sync/atomic"
)

// The scripts. Each is one step on one key. The client must not send one twice: the second
// Acquire would find the claim of the first.
var (
	//go:embed about.lua
	aboutSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew.lua
	renewSource string
	//go:embed complete.lua
	completeSource string
	//go:embed release.lua
	releaseSource string
	//go:embed checkpoint.lua
	checkpointSource string
	//go:embed watch.lua
	watchSource string
	//go:embed change.lua
	changeSource string
	//go:embed lookup.lua
	lookupSource string

	acquireScript    = newScript(aboutSource + acquireSource)
	renewScript      = newScript(renewSource)
	completeScript   = newScript(aboutSource + completeSource)
	releaseScript    = newScript(aboutSource + releaseSource)
	checkpointScript = newScript(aboutSource + checkpointSource)
	watchScript      = newScript(watchSource)
	changeScript     = newScript(aboutSource + changeSource)
	lookupScript     = newScript(lookupSource)
)

// script is a script that is called by its digest, and sent whole to a server that does not have it.
type script struct {
	source string
	digest atomic.Pointer[string] // nil: not known yet
}

// newScript makes a script. Where SHA-1 is forbidden, the first server called computes the digest.
func newScript(source string) *script {
	s := &script{source: source}
	if !fips140.Enforced() {
		sum := sha1.Sum([]byte(source))
		digest := hex.EncodeToString(sum[:])
		s.digest.Store(&digest)
	}
	return s
}

// runScript runs a script on a flight's key, and returns where its reply is.
func (f *flight) runScript(ctx context.Context, s *script, args []string) *Reply {
	sent := &f.commands[0]
	if s.digest.Load() == nil {
		*sent = Command{Args: append(f.words[:0], "SCRIPT", "LOAD", s.source)}
		if f.do(ctx, 1); sent.Err != nil {
			return &sent.Reply
		}
		digest := sent.Text
		s.digest.Store(&digest)
	}
	f.prepare(s, args)
	if f.do(ctx, 1); isServerError(sent.Err) && strings.HasPrefix(sent.Err.Error(), "NOSCRIPT") {
		sent.Args[0], sent.Args[1] = "EVAL", s.source
		f.do(ctx, 1)
	}
	return &sent.Reply
}

// prepare makes the flight's command the call of a script by its digest.
func (f *flight) prepare(s *script, args []string) {
	f.commands[0] = Command{Args: append(append(f.words[:0], "EVALSHA", *s.digest.Load(), "1", f.command.key), args...), Key: 3}
}
