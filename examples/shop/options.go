package shop

import (
	"flag"
	"fmt"
	"time"
)

// Options are what the command line says.
type Options struct {
	// Addr is where to listen. Port 0 takes any free port.
	Addr string
	// Store names where records are kept; see [OpenStore].
	Store string
	// Lease is how long a claim is valid without renewal.
	Lease time.Duration
	// Retain is how long results are replayed, where a route does not say so itself. Zero: as
	// long as its policy does by default.
	Retain time.Duration
	// Secret is the secret of the key [KeyID], with which webhooks are signed. The one of tokens is made of it.
	Secret string
	// Admin is the user and the password of the operator's page, as user:password. Empty: there is no page.
	Admin string
	// Metrics is where to listen for Prometheus, which asks for /metrics. Empty: nowhere.
	Metrics string
	// TokenLifetime is for how long a token may be used for the first time. Zero:
	// 5 minutes. It has no flag.
	TokenLifetime time.Duration
}

const (
	// KeyID is the id of the one key with which webhooks are signed.
	KeyID = "demo"
	// DefaultSecret is everybody's: good for trying things out, and for nothing else.
	DefaultSecret = "0123456789abcdef0123456789abcdef"
)

// ParseOptions parses the command line, args without the program's name. The flag set
// decides what happens on an error: flag.CommandLine ends the program with code 2.
func ParseOptions(flags *flag.FlagSet, args []string) (Options, error) {
	var o Options
	flags.StringVar(&o.Addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	flags.StringVar(&o.Admin, "admin", "", "`user:password` of the operators' page, /admin/idempotency/ (default: no page)")
	flags.DurationVar(&o.Lease, "lease", 30*time.Second, "how long a claim is valid without renewal")
	flags.StringVar(&o.Metrics, "metrics", "", "`address` that serves /metrics for Prometheus (default: none)")
	flags.DurationVar(&o.Retain, "retain", 0, "how long results are replayed (default: a minute, or a day under a client's key or a token)")
	flags.StringVar(&o.Secret, "secret", DefaultSecret,
		"the `secret` with which webhooks are signed and tokens are made, at least 32 bytes")
	flags.StringVar(&o.Store, "store", "memory", "where records are kept: memory, `sqlite:FILE`, redis://…, postgres://… or mysql://…")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fail(flags, "unexpected argument %q", flags.Arg(0))
	case !isStore(o.Store):
		// Not what was given: it may hold a password.
		return o, fail(flags, "-store is memory, sqlite:FILE, redis://…, postgres://… or mysql://…")
	case o.Admin != "" && !isLogin(o.Admin):
		return o, fail(flags, "-admin is user:password, and neither is empty")
	case o.Lease <= 0:
		return o, fail(flags, "-lease must be more than zero, not %v", o.Lease)
	case o.Retain <= 0 && given(flags, "retain"):
		return o, fail(flags, "-retain must be more than zero, not %v", o.Retain)
	}
	return o, nil
}

func given(flags *flag.FlagSet, name string) (yes bool) {
	flags.Visit(func(f *flag.Flag) { yes = yes || f.Name == name })
	return yes
}

// fail reports an error in the way in which flags reports its own.
func fail(flags *flag.FlagSet, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	fmt.Fprintln(flags.Output(), err)
	flags.Usage()
	return err
}
