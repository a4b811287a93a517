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

// startupTimeout bounds prepareServers.
var startupTimeout = 5 * time.Second // a variable for tests

// prepareServers loads the scripts in the background, so that no request has to, and warns of
// servers that may drop records or whose user may not run a command. A server that does not
// answer is not reported; it gets the scripts when they are called.
func (s *Store) prepareServers() {
	for _, t := range []*trial{&s.natives.set, &s.natives.delifeq, &s.natives.delex} {
		t.refused() // until a server's version says more
	}
	for addr, node := range s.client.Nodes() {
		if s.begin() != nil {
			return
		}
		go func() {
			defer s.wg.Done()
			ctx, cancel := context.WithTimeout(s.alive, startupTimeout)
			defer cancel()
			b := node.B()
			commands := rueidis.Commands{b.Info().Section("memory").Build(), b.Arbitrary("ACL", "WHOAMI").Build(),
				b.Info().Section("server").Build()}
			for _, source := range []string{aboutSource + acquireSource, renewSource, aboutSource + completeSource,
				aboutSource + releaseSource, aboutSource + checkpointSource, watchSource} {
				commands = append(commands, b.ScriptLoad().Script(source).Build())
			}
			answers := node.DoMulti(ctx, commands...)
			info, _ := answers[0].ToString()
			user, _ := answers[1].ToString()
			version, _ := answers[2].ToString()
			s.natives.learn(version)
			for _, err := range []error{checkEviction(addr, info), checkPermissions(ctx, node, addr, user, s.replicated != nil)} {
				if err != nil && ctx.Err() == nil {
					s.warn(err)
				}
			}
		}()
	}
}

// checkPermissions returns an error if user, as which node is logged in, may not run a command that the store needs. It asks
// the server by ACL DRYRUN. Where it may not, it runs the commands on a key that does not exist, in a form that changes
// nothing.
func checkPermissions(ctx context.Context, node rueidis.Client, addr, user string, waits bool) error {
	key := "idem:" + rand.Text() // Redis checks the permission for the command before that for the key
	needed := [][]string{
		{"EVAL", "return 1", "0"}, {"EVALSHA", strings.Repeat("0", 40), "0"}, {"GET", key}, {"SET", key, "", "XX", "PX", "1"}, {"DEL", key},
		{"PEXPIRE", key, "1"}, {"PTTL", key}, {"GETRANGE", key, "0", "0"}, {"SETRANGE", key, "-1", ""}, {"PUBLISH", channel, ""},
	}
	if waits {
		needed = append(needed, []string{"WAIT", "0", "1"})
	}
	lacking, asked := forbiddenCommands(ctx, node, needed, "ACL", "DRYRUN", user)
	if !asked {
		lacking, _ = forbiddenCommands(ctx, node, needed)
	}
	if lacking == nil {
		return nil
	}
	return fmt.Errorf("redisstore: the user at %s may not run %s: calls that need it will fail (without publish, waiters poll); "+
		"see Permissions in the package documentation", addr, strings.Join(lacking, ", "))
}

// forbiddenCommands runs the commands, each after prefix, and returns those that the user may not run. understood is
// false if the server refused any of them for itself, which under ACL DRYRUN says nothing about the user's permissions.
func forbiddenCommands(ctx context.Context, node rueidis.Client, all [][]string, prefix ...string) (lacking []string, understood bool) {
	var commands rueidis.Commands
	for _, words := range all {
		commands = append(commands, node.B().Arbitrary(slices.Concat(prefix, words)...).Build())
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

// checkEviction returns an error if the server at addr, whose INFO memory is info, may drop records.
func checkEviction(addr, info string) error {
	policy := field(info, "maxmemory_policy")
	if policy == "" || policy == "noeviction" {
		return nil
	}
	return fmt.Errorf("redisstore: the maxmemory-policy of %s is %s: when its memory is full, it drops records, and their operations run "+
		"again; set it to noeviction", addr, policy)
}

// atLeast reports whether a version is major.minor or later.
func atLeast(version string, major, minor int) bool {
	var has [2]int
	n, _ := fmt.Sscanf(version, "%d.%d", &has[0], &has[1])
	return n == 2 && (has[0] > major || has[0] == major && has[1] >= minor)
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
