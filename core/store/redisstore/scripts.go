package redisstore

import (
	"crypto/fips140"
	_ "embed"

	"github.com/redis/rueidis"
)

// The scripts. Each is one step on one key. None may be sent again by the client, for
// a claim that was made is in the way of itself.
var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew.lua
	renewSource string
	//go:embed complete.lua
	completeSource string
	//go:embed release.lua
	releaseSource string
	//go:embed watch.lua
	watchSource string
	//go:embed limit.lua
	limitSource string

	acquireScript  = newScript(acquireSource)
	renewScript    = newScript(renewSource)
	completeScript = newScript(completeSource)
	releaseScript  = newScript(releaseSource)
	watchScript    = newScript(watchSource)
	limitScript    = newScript(limitSource)
)

// newScript makes a script that is called by its digest, and sent whole to a server that
// does not know it. Where SHA-1 is forbidden, the first server called says what the digest is.
func newScript(source string) *rueidis.Lua {
	return rueidis.NewLuaScript(source, rueidis.WithLoadSHA1(fips140.Enforced()))
}
