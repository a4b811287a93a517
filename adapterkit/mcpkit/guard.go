package mcpkit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// Rule says how the calls of a tool are guarded. The zero Rule is ByHints.
type Rule uint8

const (
	// ByHints uses the tool's annotations: a tool with readOnlyHint passes, any other one has the rule Config.Default.
	ByHints Rule = iota
	// Pass guards no call.
	Pass
	// Optional guards calls that have a key. Others run each time.
	Optional
	// Required guards all calls, and refuses those without a key.
	Required
	// Arguments guards all calls. For a call without a key, the key is made of its arguments: equal calls within Config.Window are one
	// call.
	Arguments
)

const (
	// DefaultWait is how long a duplicate waits for the call that runs, unless the policy says so.
	DefaultWait = 30 * time.Second
	// defaultWindow is how long a result is kept if its key is made of the arguments.
	defaultWindow = time.Minute
	// KeyHeader is the header field of an HTTP request that may have the key.
	KeyHeader = "Idempotency-Key"
)

// Config is what the Configs of both packages have in common. They say what it means.
type Config struct {
	// Package is the name of the package whose Config it is. Faults begin with it.
	Package            string
	Name               string
	Policy             core.TaskPolicy
	Tools              map[string]Rule
	Default            Rule
	PassIdempotent     bool
	Argument           string
	Window             time.Duration
	User               bool // it is a function
	SharedByAllCallers bool
	Authorize          bool // it is a function
	Linger             time.Duration
}

// Guard runs calls once. It is safe for concurrent use.
type Guard struct {
	engine *core.Engine
	config Config
	tasks  sync.Map // a *core.Task for each taskOf
}

// taskOf says of which calls a task is.
type taskOf struct {
	tool        string
	presence    core.Presence
	byArguments bool
}

var isName = regexp.MustCompile(`^[\w.-]+$`)

// New checks c. The error joins all faults, each a *[core.ConfigError].
func New(engine *core.Engine, c Config) (*Guard, error) {
	var errs []error
	addIf := func(bad bool, field, format string, args ...any) {
		if bad {
			errs = append(errs, &core.ConfigError{Field: c.Package + ".Config." + field, Problem: fmt.Sprintf(format, args...)})
		}
	}
	addIf(!isName.MatchString(c.Name), "Name",
		"is %q; it is part of the stored keys, and must consist of letters, digits, -, _ and dots", c.Name)
	addIf(c.Policy.Name != "", "Policy", "has the Name %q; the name of a task is the server's and the tool's", c.Policy.Name)
	addIf(c.Policy.Presence != core.Required, "Policy", "has a Presence; set Tools and Default")
	addIf(c.Policy.Linger != 0, "Policy", "has a Linger; set that of the Config")
	addIf(c.User && c.SharedByAllCallers, "User", "is set together with SharedByAllCallers; set only one of them")
	addIf(c.Default > Arguments, "Default", "is unknown: %d", c.Default)
	for name, rule := range c.Tools {
		addIf(rule > Arguments, "Tools", "has an unknown rule for %s: %d", name, rule)
	}
	addIf(c.Window < 0, "Window", "is negative: %v", c.Window)
	if c.Policy.Duplicate.IsReject() {
		addIf(c.Authorize, "Authorize", "has no effect: no result is stored under Reject; leave it out")
	} else if c.Policy.Duplicate == (core.Duplicate{}) {
		c.Policy.Duplicate = core.Wait(DefaultWait)
	}
	c.Policy.Linger = max(cmp.Or(c.Linger, time.Minute), 0)
	c.Policy.Name = "the name of a tool"
	_, err := engine.Task(c.Policy)
	if err == nil { // a policy that keeps nothing has no window
		made := c.Policy
		made.Retention = cmp.Or(c.Window, defaultWindow)
		if _, fault := engine.Task(made); fault == nil {
			c.Window = made.Retention
		} else {
			addIf(c.Window > 0, "Window", "has no effect: the policy keeps no results")
		}
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return &Guard{engine: engine, config: c}, nil
}

// Call is a call of a guarded tool.
type Call struct {
	// Tool is the tool's name, and Rule its rule, as [Guard.Rule] returns it.
	Tool string
	Rule Rule
	// Meta is the value of [KeyMeta] in the call's _meta; nil: there is none.
	Meta any
	// Header are the lines of [KeyHeader].
	Header []string
	// Key returns the key that a function of the service has found. It may be nil.
	Key func() string
	// Arguments are the tool's arguments: a JSON object, or nothing.
	Arguments []byte
	// User returns the caller, "" if nobody tells callers apart.
	User func() (string, error)
	// Authorize is called before a replay. It may be nil.
	Authorize func() error
}

// Outcome is what the handler of a call has come to.
type Outcome struct {
	// Err is the error of the call, or the one that the tool's result was made of, if that is known.
	Err error
	// Ending says what has come of the call.
	Ending Ending
	// Result returns the result as it is stored, in JSON. With an error it is not stored.
	Result func() ([]byte, error)
}

// Ending is how a call has ended.
type Ending uint8

const (
	// Answered is a result.
	Answered Ending = iota
	// Failed is a result that counts as a failure.
	Failed
	// Broken is an error of the protocol. It is never stored.
	Broken
	// Invalid is a result that says that the arguments don't fit the schema: the tool has not begun. It is never stored.
	Invalid
	// Asks is a result that asks for input. The call that brings it goes on with the same operation.
	Asks
)

var (
	errFailed     = errors.New("idem: the tool has failed")
	errUnanswered = errors.New("idem: the tool has asked for input, or refused its arguments")
)

// Do runs the handler of a call once. It returns the stored result that is to be replayed, or a refusal, or neither: then the caller has
// what its handler has answered. A refusal that the handler has returned ([core.Refusal]) is among these.
func (g *Guard) Do(ctx context.Context, call *Call, handler func(context.Context) Outcome) ([]byte, *core.Refusal) {
	arguments := call.Arguments
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = []byte("{}")
	}
	key, refusal := g.key(call, arguments)
	if refusal != nil {
		return nil, refusal
	}
	c := core.Call{Key: key}
	of := taskOf{tool: call.Tool, presence: core.Optional}
	if call.Rule == Required {
		of.presence = core.Required
	}
	task := g.task(of)
	if key != "" || call.Rule == Arguments {
		text := adapter.AppendJSON(nil, arguments, g.leftOut()...)
		if key == "" {
			of.byArguments = true
			task = g.task(of)
			c.Key = "arguments\n" + task.Digest(text) // no other key has a line feed
		} else {
			sum := sha256.Sum256(text)
			c.Fingerprint = hex.EncodeToString(sum[:])
		}
		user, err := call.User()
		if err != nil {
			return nil, core.NewRefusal(codes.UserMissing, err)
		}
		c.User = user
	}
	return g.do(ctx, call, task, c, handler)
}

func (g *Guard) do(ctx context.Context, call *Call, task *core.Task, c core.Call, handler func(context.Context) Outcome,
) (stored []byte, refusal *core.Refusal) {
	ran := false
	result, err := core.Do(ctx, task, c, func(ctx context.Context) (value []byte, err error) {
		ran = true
		o := handler(ctx)
		if c.Key == "" { // there may be a run all the same: that of another operation
			refusal = reported(o.Err)
			return nil, o.Err
		}
		value, refusal, err = g.settle(ctx, &o)
		return value, err
	})
	switch {
	case ran:
		return nil, refusal
	case err != nil:
		if refusal = reported(err); refusal == nil { // that of ctx
			refusal = core.NewRefusal(codes.Unfinished, err)
		}
		return nil, refusal
	case len(result.Value) == 0:
		return nil, core.NewRefusal(codes.ResultUnavailable, nil)
	}
	if call.Authorize != nil {
		if err := call.Authorize(); err != nil {
			return nil, core.NewRefusal(codes.NotAuthorized, err)
		}
	}
	return result.Value, nil
}

// key returns the key of a call: the first that is there, or "".
func (g *Guard) key(call *Call, arguments []byte) (string, *core.Refusal) {
	key, err := "", error(nil)
	switch {
	case call.Meta != nil:
		var ok bool
		if key, ok = call.Meta.(string); !ok || key == "" {
			err = errKey
		}
	case len(call.Header) > 1:
		err = errKey
	case len(call.Header) == 1:
		key, err = adapter.ParseKey(call.Header[0])
	default:
		if key, err = g.argument(arguments); key == "" && err == nil && call.Key != nil {
			key = call.Key()
		}
	}
	if err != nil || !isKey(key) {
		return "", core.NewRefusal(codes.KeyInvalid, err)
	}
	return key, nil
}

var errKey = errors.New("idem: the key is not a text, or there are several keys")

// argument returns the key that is in the arguments, or "".
func (g *Guard) argument(arguments []byte) (key string, err error) {
	if g.config.Argument == "" {
		return "", nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(arguments, &members) != nil {
		return "", nil // the tool says so
	}
	if value, ok := members[g.config.Argument]; ok {
		err = json.Unmarshal(value, &key)
	}
	return key, err
}

// isKey reports whether key may be one. Control characters are ours.
func isKey(key string) bool {
	if len(key) > 255 || !utf8.ValidString(key) {
		return false
	}
	for _, c := range []byte(key) {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

func (g *Guard) leftOut() []string {
	if g.config.Argument == "" {
		return nil
	}
	return []string{g.config.Argument}
}

func (g *Guard) task(of taskOf) *core.Task {
	if task, ok := g.tasks.Load(of); ok {
		return task.(*core.Task)
	}
	policy := g.config.Policy
	policy.Name, policy.Presence = g.config.Name+"/"+of.tool, of.presence
	if of.byArguments {
		policy.Retention = g.config.Window
	}
	task, _ := g.tasks.LoadOrStore(of, g.engine.MustTask(policy)) // New has checked the policy
	return task.(*core.Task)
}

// settle decides which part of an outcome to store. With an error the run has failed. A refusal is what the client gets instead.
func (g *Guard) settle(ctx context.Context, o *Outcome) ([]byte, *core.Refusal, error) {
	instead, p, over := reported(o.Err), &g.config.Policy, context.Cause(ctx)
	// A tool that has given up has no answer, whatever counts as one.
	gaveUp := over != nil && (errors.Is(o.Err, context.Canceled) || errors.Is(o.Err, context.DeadlineExceeded) || errors.Is(o.Err, over))
	if instead == nil && gaveUp {
		switch over {
		case core.ErrShutdown:
			instead = core.NewRefusal(codes.ShuttingDown, o.Err)
		case core.ErrLeaseLost:
			instead = core.NewRefusal(codes.Unfinished, o.Err)
		}
	}
	rejects := p.Duplicate.IsReject()
	switch {
	case o.Ending == Asks, o.Ending == Invalid: // the next call runs, whatever becomes of failures
		if p.OnFailure == core.Keep || p.OnFailure == core.Abandon {
			core.RunFrom(ctx).Release()
		}
		return nil, nil, errUnanswered
	case instead != nil, o.Ending == Broken, gaveUp, o.Ending == Failed && over != nil: // a failure after the end may be due to that
		if p.OnFailure == core.Keep {
			core.RunFrom(ctx).Release()
		}
		return nil, instead, cmp.Or(o.Err, errFailed)
	case o.Ending == Failed && (rejects || p.OnFailure != core.Keep):
		return nil, nil, cmp.Or(o.Err, errFailed)
	case o.Ending == Failed && p.OnSuccess == core.Release:
		core.RunFrom(ctx).Keep()
	case rejects:
		return nil, nil, nil
	}
	value, err := o.Result()
	if err != nil {
		return nil, nil, nil // duplicates get result_unavailable
	}
	return value, nil, nil
}

// reported returns the refusal that err holds, or nil.
func reported(err error) *core.Refusal {
	r, _ := errors.AsType[*core.Refusal](err)
	return r
}
