package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// startupTimeout bounds prepareServers.
var startupTimeout = 5 * time.Second // a variable for tests

// prepareServers loads the scripts in the background, so that no request has to, and warns of
// servers that may drop records or whose user may not run a command. A server that does not
// answer is not reported; it gets the scripts when they are called.
func (s *Store) prepareServers() {
	s.natives.claim.taken()
	for _, t := range s.natives.all()[1:] {
		t.refused() // until a server's version says more
	}
	if s.begin() != nil {
		return
	}
	go func() {
		defer s.wg.Done()
		ctx, cancel := context.WithTimeout(s.alive, startupTimeout)
		defer cancel()
		nodes, _ := s.client.Nodes(ctx)
		var each sync.WaitGroup
		for addr, node := range nodes {
			each.Go(func() { s.prepare(ctx, addr, node) })
		}
		each.Wait()
	}()
}

func (s *Store) prepare(ctx context.Context, addr string, node Client) {
	commands := []Command{
		{Args: []string{"INFO", "memory"}}, {Args: []string{"ACL", "WHOAMI"}}, {Args: []string{"INFO", "server"}}}
	for _, script := range []*script{acquireScript, renewScript, completeScript, releaseScript, checkpointScript, watchScript} {
		commands = append(commands, Command{Args: []string{"SCRIPT", "LOAD", script.source}})
	}
	node.Do(ctx, commands)
	s.natives.learn(commands[2].Text)
	for _, err := range []error{checkEviction(addr, commands[0].Text),
		checkPermissions(ctx, node, addr, commands[1].Text, s.replicated != nil)} {
		if err != nil && ctx.Err() == nil {
			s.warn(err)
		}
	}
}

// checkPermissions returns an error if user, as which node is logged in, may not run a command that the store needs. It asks
// the server by ACL DRYRUN. Where it may not, it runs the commands on a key that does not exist, in a form that changes
// nothing.
func checkPermissions(ctx context.Context, node Client, addr, user string, waits bool) error {
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
	return fmt.Errorf("redisstore: the user at %s may not run %s: calls that need it will fail (without publish, waiters only poll); "+
		"see Permissions in the package documentation", addr, strings.Join(lacking, ", "))
}

// forbiddenCommands runs the commands, each after prefix, and returns those that the user may not run. understood is
// false if the server refused any of them for itself, which under ACL DRYRUN says nothing about the user's permissions.
func forbiddenCommands(ctx context.Context, node Client, all [][]string, prefix ...string) (lacking []string, understood bool) {
	var commands []Command
	for _, words := range all {
		commands = append(commands, Command{Args: slices.Concat(prefix, words)})
	}
	node.Do(ctx, commands)
	understood = true
	for i := range commands {
		text := commands[i].Text
		if isServerError(commands[i].Err) {
			text, understood = commands[i].Err.Error(), false
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
