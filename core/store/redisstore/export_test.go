package redisstore

import "time"

// What a store finds out at its start is waited for, however slow the machine is.
func init() { startupTimeout = time.Minute }
