package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// greetTimeout bounds what a store says to the servers at its start.
var greetTimeout = 5 * time.Second // a variable for tests

// greet gives the servers the scripts, in the background, so that no first request has to, and
// looks whether one may drop records that stand, and what its user may not do, which is reported. A server that does not
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
			commands := rueidis.Commands{b.Info().Section("memory").Build(), b.Arbitrary("ACL", "WHOAMI").Build()}
			for _, source := range []string{acquireSource, renewSource, completeSource, releaseSource, watchSource} {
				commands = append(commands, b.ScriptLoad().Script(source).Build())
			}
			answers := node.DoMulti(ctx, commands...)
			info, _ := answers[0].ToString()
			user, _ := answers[1].ToString()
			for _, err := range []error{evicts(addr, info), forbids(ctx, node, addr, user)} {
				if err != nil && ctx.Err() == nil {
					s.warn(err)
				}
			}
		}()
	}
}

// forbids returns what to report of the server at addr if user, who is ours, may not run a command that calls and scripts
// take. The server is asked whether he may; where that can't be asked, the commands are run on a key that does not
// exist, in a form that changes nothing.
func forbids(ctx context.Context, node rueidis.Client, addr, user string) error {
	key := "idem:" + rand.Text() // if it may not be accessed, that is said later: whether a command may be run comes first
	needed := [][]string{
		{"EVAL", "return 1", "0"}, {"EVALSHA", strings.Repeat("0", 40), "0"}, {"GET", key}, {"SET", key, "", "XX", "PX", "1"}, {"DEL", key},
		{"PEXPIRE", key, "1"}, {"PTTL", key}, {"GETRANGE", key, "0", "0"}, {"SETRANGE", key, "-1", ""}, {"PUBLISH", channel, ""},
	}
	lacking, asked := forbidden(ctx, node, needed, "ACL", "DRYRUN", user)
	if !asked {
		lacking, _ = forbidden(ctx, node, needed)
	}
	if lacking == nil {
		return nil
	}
	return fmt.Errorf("redisstore: the user at %s may not run %s: calls that take it will fail (without publish, waiters only look again); "+
		"see Permissions in the package documentation", addr, strings.Join(lacking, ", "))
}

// forbidden returns those of the commands that may not be run, and whether what stands in front of them has been understood.
func forbidden(ctx context.Context, node rueidis.Client, all [][]string, front ...string) (lacking []string, understood bool) {
	var commands rueidis.Commands
	for _, words := range all {
		commands = append(commands, node.B().Arbitrary(slices.Concat(front, words)...).Build())
	}
	understood = true
	for i, answer := range node.DoMulti(ctx, commands...) {
		text, err := answer.ToString()
		if refusal, is := rueidis.IsRedisErr(err); is {
			text, understood = refusal.Error(), false
		}
		if strings.Contains(text, "permissions to run the") {
			lacking = append(lacking, strings.ToLower(all[i][0]))
		}
	}
	return lacking, understood
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
