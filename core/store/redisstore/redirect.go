package redisstore

import (
	"fmt"

	"github.com/redis/rueidis"
)

// followsRedirections reports whether client is one of rueidis' with options for Standalone, which may have it follow
// redirections. Nothing but the name of its type tells; a client that wraps another one is not known.
func followsRedirections(client rueidis.Client) bool {
	return fmt.Sprintf("%T", client) == "*rueidis.standalone"
}
