package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// greetTimeout bounds what a store says to the servers at its start.
const greetTimeout = 5 * time.Second

// greet gives the servers the scripts, in the background, so that no first request has to, and
// looks whether one may drop records that stand, which is reported. A server that does not
// say is not reported, and one that does not take scripts in advance gets them when they are
// called.
func (s *Store) greet() {
	for addr, node := range s.client.Nodes() {
		if s.begin() != nil {
			return
		}
		go func() {
			defer s.wg.Done()
			ctx, cancel := context.WithTimeout(s.alive, greetTimeout)
			defer cancel()
			b := node.B()
			commands := rueidis.Commands{b.Info().Section("memory").Build()}
			for _, source := range []string{acquireSource, renewSource, completeSource, releaseSource, watchSource} {
				commands = append(commands, b.ScriptLoad().Script(source).Build())
			}
			info, err := node.DoMulti(ctx, commands...)[0].ToString()
			if err != nil || ctx.Err() != nil {
				return
			}
			if err := evicts(addr, info); err != nil {
				s.warn(err)
			}
		}()
	}
}

// evicts returns what to report of the server at addr, which says info of its memory.
func evicts(addr, info string) error {
	policy := field(info, "maxmemory_policy")
	if policy == "" || policy == "noeviction" {
		return nil
	}
	return fmt.Errorf("redisstore: the maxmemory-policy of %s is %s: when its memory is full, records are dropped, and operations run again; set it to noeviction", addr, policy)
}

// field returns the value of a field of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, is := strings.CutPrefix(line, name+":"); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
