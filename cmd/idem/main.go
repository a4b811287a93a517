// Command idem shows the records of idempotent operations in a store. With it an operator can release, settle or forget an operation.
//
//	idem -store URL [-service S] [-table T] COMMAND [flags] [argument]
//
//	list [-state S] [-user U] [-route R] [-policy P] [-older D] [-limit N | -all] [-from C]
//	                                        list operations: abandoned ones first, then running ones (on Redis in no order)
//	count                                   count the operations in each state; a table stops at 1,000 and shows 1000+
//	show OPERATION [-body]                  show everything about one operation, with -body also its stored response
//	find -user U [-route R] -key K          show the operation of a user and a client's key, or of a webhook sender and an event's id
//	release OPERATION                       let an abandoned operation run again, with the next request
//	settle OPERATION -status N [-body FILE] -retain D
//	                                        give all duplicates this response; FILE's extension sets the Content-Type.
//	                                        For a task, leave out -status: FILE has its value
//	forget OPERATION [-running]             remove the record: the next request is a first one
//	purge                                   remove the expired records of a table
//	doctor                                  check the store, and say what to change
//	help, version                           print this text; print the command's version
//
// An OPERATION is the digest of its key, as in logs, or its id. A list has at most 100 operations unless -limit or -all is set. With
// -reveal a longer list ends with a cursor, and -from continues there. The cursor contains a stored key.
//
// Pass -user as the service knows the user. A user that is stored as a hash is found, too, unless the hash covers an issuer or a
// verified caller as well. Without -reveal, users are shown as digests.
//
// -store (or IDEM_STORE) is redis://, rediss://, unix://, postgres://, mysql:// or sqlite:FILE. -service (IDEM_SERVICE) is the service's
// core.Config.Service; without it the command looks at all services. -prefix (IDEM_PREFIX) is its core.Config.LegacyPrefix, and -table
// (IDEM_TABLE) the table's name. IDEM_SEAL has the keys of a service with a core.Config.Seal, in the form that core.ParseSeal reads.
// Without them the command shows nothing that is sealed, settles nothing, and stores no reason. There is no flag for these keys, because
// other users of a machine can see a process's arguments.
//
// A command that changes something only says what it would do, unless -yes is set. -reason and -actor (by default the system's user and
// host) become the record's remark. -json prints one object per line.
//
// The exit status is 0 on success, 1 on failure or without -yes, and 2 if the command line is wrong.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"mime"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// errUsage is an error in the command line.
type errUsage struct{ error }

func usage(format string, args ...any) error { return errUsage{fmt.Errorf(format, args...)} }

// errNotYes is returned for a change without -yes.
var errNotYes = errors.New("nothing was changed; add -yes to do it")

// run runs a command, and returns its exit status.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	var c command
	err := c.parse(args)
	if err == nil {
		err = c.run(ctx, out, errs)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, help)
		return 0
	}
	fmt.Fprintln(errs, "idem:", strings.TrimPrefix(err.Error(), "idem: "))
	if errors.As(err, new(errUsage)) {
		fmt.Fprintln(errs, "run idem -help for usage")
		return 2
	}
	return 1
}

// command is what was typed.
type command struct {
	name                    string
	store, table            string
	service, prefix         string
	operation               string // its digest or id
	state, user, route, key string
	policy, from, file      string
	older, retain           time.Duration
	limit, status           int
	json, reveal, body, all bool
	yes, running            bool
	actor, reason           string
	records                 store.Store
	ops                     *operations.Operations
}

// parse reads a command line. The flags of the store may also be behind the command.
func (c *command) parse(args []string) error {
	words, err := c.flags("", args, true)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return usage("no command is given")
	}
	if c.name = words[0]; c.name == "help" {
		return flag.ErrHelp
	}
	if words, err = c.flags(c.name, words[1:], false); err != nil {
		return err
	}
	return c.check(words)
}

// check checks what was typed. words are the arguments.
func (c *command) check(words []string) error {
	state, _ := store.ParseState(c.state)
	takesOne := slices.Contains([]string{"show", "release", "settle", "forget"}, c.name)
	switch {
	case takesOne && len(words) != 1:
		return usage("%s takes one operation: the digest of its key, as in logs, or its id", c.name)
	case !takesOne && len(words) > 0:
		return usage("%s takes no argument, but got %q", c.name, words[0])
	case c.name == "version":
		return nil
	case c.store == "":
		return usage("neither -store nor IDEM_STORE is set")
	case c.state != "" && !slices.Contains(operations.States(), state):
		return usage("-state must be running, abandoned, done or free, not %q", c.state)
	case c.limit < 0 || c.older < 0:
		return usage("-limit and -older must not be negative")
	case c.name == "find" && c.key == "":
		return usage("find needs -key, and -user unless the operation has no user")
	case c.name == "settle" && c.retain <= 0:
		return usage("settle needs -retain, the time for which duplicates get the response, such as 24h")
	case c.name == "settle" && c.status != 0 && (c.status < 200 || c.status > 999):
		return usage("-status must be from 200 to 999, not %d", c.status)
	case takesOne && !names.MatchString(words[0]):
		return usage("%q is neither the digest of a key (16 hexadecimal digits) nor an operation id (32)", words[0])
	case takesOne:
		c.operation = words[0]
	case c.all:
		c.limit = 0
	}
	return nil
}

// names matches what operations.Lookup takes.
var names = regexp.MustCompile(`^\s*[0-9A-Fa-f]{16}([0-9A-Fa-f]{16})?\s*$`)

// flags reads the flags of a command, and returns the words between them; or only what is in front of the first one.
func (c *command) flags(name string, args []string, first bool) (words []string, err error) {
	f := flag.NewFlagSet("idem", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&c.store, "store", cmp.Or(c.store, os.Getenv("IDEM_STORE")), "")
	f.StringVar(&c.service, "service", cmp.Or(c.service, os.Getenv("IDEM_SERVICE")), "")
	f.StringVar(&c.prefix, "prefix", cmp.Or(c.prefix, os.Getenv("IDEM_PREFIX")), "")
	f.StringVar(&c.table, "table", cmp.Or(c.table, os.Getenv("IDEM_TABLE")), "")
	printed := func() {
		f.BoolVar(&c.json, "json", false, "")
		f.BoolVar(&c.reveal, "reveal", false, "")
	}
	changes := func() {
		f.BoolVar(&c.yes, "yes", false, "")
		f.StringVar(&c.actor, "actor", systemUser(), "")
		f.StringVar(&c.reason, "reason", "none given", "")
	}
	switch name {
	case "", "version":
	case "list":
		printed()
		f.StringVar(&c.state, "state", "", "")
		f.StringVar(&c.user, "user", "", "")
		f.StringVar(&c.route, "route", "", "")
		f.StringVar(&c.policy, "policy", "", "")
		f.StringVar(&c.from, "from", "", "")
		f.DurationVar(&c.older, "older", 0, "")
		f.IntVar(&c.limit, "limit", 100, "")
		f.BoolVar(&c.all, "all", false, "")
	case "count", "doctor":
		f.BoolVar(&c.json, "json", false, "")
	case "show":
		printed()
		f.BoolVar(&c.body, "body", false, "")
	case "find":
		printed()
		f.BoolVar(&c.body, "body", false, "")
		f.StringVar(&c.user, "user", "", "")
		f.StringVar(&c.route, "route", "", "")
		f.StringVar(&c.key, "key", "", "")
	case "release":
		changes()
	case "settle":
		changes()
		f.IntVar(&c.status, "status", 0, "")
		f.StringVar(&c.file, "body", "", "")
		f.DurationVar(&c.retain, "retain", 0, "")
	case "forget":
		changes()
		f.BoolVar(&c.running, "running", false, "")
	case "purge":
		f.BoolVar(&c.yes, "yes", false, "")
	default:
		return nil, usage("unknown command %q", name)
	}
	for {
		switch err := f.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return nil, err
		case err != nil:
			return nil, errUsage{err}
		}
		if args = f.Args(); len(args) == 0 || first {
			return append(words, args...), nil
		}
		words, args = append(words, args[0]), args[1:]
	}
}

// run does what was typed.
func (c *command) run(ctx context.Context, out, errs io.Writer) error {
	if c.name == "version" {
		version := "(devel)"
		if build, ok := debug.ReadBuildInfo(); ok {
			version = cmp.Or(build.Main.Version, version)
		}
		_, err := fmt.Fprintf(out, "idem %s (%s %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
	var mu sync.Mutex
	var warnings []error
	records, closeStore, err := open(ctx, c.store, c.table, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		warnings = append(warnings, err)
	})
	if err != nil {
		return err
	}
	defer closeStore()
	config := core.Config{Store: records, Service: c.service, StoreTimeout: time.Minute}
	if c.service == "" || c.prefix != "" {
		config.LegacyPrefix = cmp.Or(c.prefix, "idem:")
	}
	if text := os.Getenv("IDEM_SEAL"); text != "" {
		if config.Seal, err = core.ParseSeal(text); err != nil {
			return errUsage{fmt.Errorf("IDEM_SEAL: %w", err)}
		}
	}
	engine, err := core.New(config)
	if err != nil {
		return errUsage{err}
	}
	if c.ops, err = operations.Of(engine, operations.Options{}); err != nil {
		return err
	}
	c.records = records
	p := printer{out: out, errs: errs, json: c.json, reveal: c.reveal, ops: c.ops}
	switch c.name {
	case "list":
		return c.list(ctx, &p)
	case "count":
		return c.count(ctx, &p)
	case "purge":
		return c.purge(ctx, out)
	case "doctor":
		return c.doctor(ctx, &p, func() []error {
			mu.Lock()
			defer mu.Unlock()
			return warnings
		})
	case "find":
		op, err := c.ops.LookupKey(ctx, c.user, c.route, c.key)
		if err != nil {
			return c.missing(ctx, &p, err)
		}
		return p.show(op, c.body)
	}
	op, err := c.ops.Lookup(ctx, c.operation)
	if err != nil {
		return c.missing(ctx, &p, err)
	}
	if c.name == "show" {
		return p.show(op, c.body)
	}
	return c.change(ctx, out, op)
}

func (c *command) list(ctx context.Context, p *printer) error {
	q := operations.Query{User: c.user, Route: c.route, Policy: c.policy, OlderThan: c.older, From: c.from}
	if state, ok := store.ParseState(c.state); ok {
		q.States = []store.State{state}
	}
	q.Limit = c.limit
	n, next := 0, ""
	for op, err := range c.ops.List(ctx, q) {
		if errors.Is(err, store.ErrCursor) {
			return errUsage{fmt.Errorf("-from: %w", err)}
		}
		if err != nil {
			return err
		}
		n, next = n+1, op.Next
		if err := p.line(op); err != nil {
			return err
		}
	}
	switch {
	case n == 0:
		return c.missing(ctx, p, nil)
	case n == c.limit && next != "":
		p.more(n, next)
	}
	return nil
}

func (c *command) count(ctx context.Context, p *printer) error {
	counts, err := c.ops.Count(ctx)
	if err != nil {
		return err
	}
	n := 0
	for _, count := range counts {
		n += count.N
		if err := p.count(count); err != nil {
			return err
		}
	}
	if n == 0 {
		return c.missing(ctx, p, nil)
	}
	return nil
}

// missing says so if the store has no records under the name of the service, which may be misspelt. It returns err.
func (c *command) missing(ctx context.Context, p *printer, err error) error {
	if err != nil && !errors.Is(err, operations.ErrNotFound) {
		return err
	}
	for _, broken := range c.ops.List(ctx, operations.Query{Limit: 1}) {
		return cmp.Or(err, broken)
	}
	whose := "any service"
	switch {
	case c.prefix != "":
		whose = fmt.Sprintf("a service with the prefix %q", c.prefix)
	case c.service != "":
		whose = fmt.Sprintf("the service %q", c.service)
	}
	fmt.Fprintf(p.errs, "the store has no record of %s\n", whose)
	return err
}

func (c *command) purge(ctx context.Context, out io.Writer) error {
	table, ok := c.records.(interface {
		Purge(context.Context) (int64, error)
	})
	if !ok {
		return usage("purge works on tables only; Redis removes expired records by itself")
	}
	if !c.yes {
		fmt.Fprintln(out, "would remove all expired records in the table, from every source")
		return errNotYes
	}
	n, err := table.Purge(ctx)
	fmt.Fprintf(out, "removed %d expired records\n", n)
	return err
}

// change releases, settles or forgets an operation.
func (c *command) change(ctx context.Context, out io.Writer, op operations.Operation) error {
	var content []byte
	if c.file != "" {
		var err error
		if content, err = os.ReadFile(c.file); err != nil {
			return err
		}
	}
	what := c.name
	if c.name == "settle" && c.status != 0 {
		what = fmt.Sprintf("settle with %d and %d bytes, for %v,", c.status, len(content), c.retain)
	}
	route := operations.Printable(op.Route)
	fmt.Fprintf(out, "%s %s (%s, %v, attempt %d, operation %v)\n", what, op.Digest, route, op.State, op.Attempt, op.ID)
	if !c.yes {
		return errNotYes
	}
	by := operations.By{Actor: c.actor, Reason: c.reason}
	switch c.name {
	case "release":
		return c.ops.Release(ctx, op, by)
	case "forget":
		return c.ops.Forget(ctx, op, c.running, by)
	}
	if c.status == 0 {
		return c.ops.SettleTask(ctx, op, content, c.retain, by)
	}
	answer := &core.Response{Status: c.status, Body: content}
	if kind := mime.TypeByExtension(filepath.Ext(c.file)); kind != "" && len(content) > 0 {
		answer.Header = []core.Field{{Name: "Content-Type", Value: kind}}
	}
	return c.ops.Settle(ctx, op, answer, c.retain, by)
}

// systemUser is who is logged in, and where.
func systemUser() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + cmp.Or(host, "unknown")
}
