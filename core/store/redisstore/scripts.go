package redisstore

import (
	"crypto/fips140"
	_ "embed"

	"github.com/redis/rueidis"
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

// newScript makes a script that is called by its digest, and sent whole to a server that
// does not have it. Where SHA-1 is forbidden, the first server called computes the digest.
func newScript(source string) *rueidis.Lua {
	return rueidis.NewLuaScript(source, rueidis.WithLoadSHA1(fips140.Enforced()))
}
