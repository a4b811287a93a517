package redisstore

import (
	"time"

	"github.com/redis/rueidis"
)

// SendsTogether reports whether a store on client sends the commands of concurrent callers together.
func SendsTogether(client rueidis.Client) bool { return inBatches(client) != client }

// What a store finds out at its start is waited for, however slow the machine is.
func init() { startupTimeout = time.Minute }
