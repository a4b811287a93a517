package rpckit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// Config is what the Configs of both packages have in common. They say what it means.
type Config struct {
	// Package is the name of the package whose Config it is. Faults begin with it.
	Package            string
	Policy             core.TaskPolicy
	Methods            []string
	Presence           core.Presence
	User               func(ctx context.Context) (string, error)
	SharedByAllCallers bool
	Authorize          func(ctx context.Context, method string, request any) error
	StoredMetadata     []string
	Linger             time.Duration
}

// Guard runs calls once. It is safe for concurrent use.
type Guard struct {
	engine *core.Engine
	config Config
	tasks  sync.Map // a *core.Task for each method
}

var (
	isMethod   = regexp.MustCompile(`^/[\w.]+/\w+$`)
	isMetadata = regexp.MustCompile(`^[0-9a-z_.-]+$`)
)

// New checks c. The error joins all faults, each a *[core.ConfigError].
func New(engine *core.Engine, c Config) (*Guard, error) {
	var errs []error
	addIf := func(bad bool, field, format string, args ...any) {
		if bad {
			errs = append(errs, &core.ConfigError{Field: c.Package + ".Config." + field, Problem: fmt.Sprintf(format, args...)})
		}
	}
	addIf(c.Policy.Name != "", "Policy", "has the Name %q; the name of a task is the method's", c.Policy.Name)
	addIf(c.Policy.Presence != core.Required, "Policy", "has a Presence; set that of the Config")
	addIf(c.Policy.Linger != 0, "Policy", "has a Linger; set that of the Config")
	addIf(c.User == nil && !c.SharedByAllCallers, "User",
		"is not set: without it one caller could be given another's response (SharedByAllCallers if that is meant)")
	addIf(c.User != nil && c.SharedByAllCallers, "User", "is set together with SharedByAllCallers; set only one of them")
	addIf(c.Presence > core.Optional, "Presence", "is unknown: %d", c.Presence)
	for i, m := range c.Methods {
		addIf(!isMethod.MatchString(m), "Methods", "contains %q, which is not the full name of a method, such as /shop.v1.Orders/Create", m)
		addIf(slices.Contains(c.Methods[:i], m), "Methods", "names %s twice", m)
	}
	c.StoredMetadata = slices.Clone(c.StoredMetadata)
	for i, name := range c.StoredMetadata {
		name = strings.ToLower(name)
		c.StoredMetadata[i] = name
		addIf(!isMetadata.MatchString(name), "StoredMetadata", "contains %q, which is not a metadata name", name)
		addIf(ofOneMessage(name), "StoredMetadata", "%s belongs to one message and cannot be kept", name)
		addIf(slices.Contains(c.StoredMetadata[:i], name), "StoredMetadata", "names %s twice", name)
	}
	if c.Policy.Duplicate.IsReject() {
		const why = "has no effect: no answer is stored under Reject; leave it out"
		addIf(len(c.StoredMetadata) > 0, "StoredMetadata", why)
		addIf(c.Authorize != nil, "Authorize", why)
	}
	c.Policy.Presence = min(c.Presence, core.Optional)
	c.Policy.Linger = max(cmp.Or(c.Linger, time.Minute), 0)
	c.Policy.Name = "the name of a method"
	_, err := engine.Task(c.Policy)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return &Guard{engine: engine, config: c}, nil
}

// ofOneMessage reports whether metadata belongs to the message that it came with: the protocols' own, and ours.
func ofOneMessage(name string) bool {
	for _, prefix := range []string{"grpc-", "connect-", "content-", "trailer-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"connection", "date", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", Replayed}, name)
}

// Stored returns what is stored of metadata whose names are in lower case.
func (g *Guard) Stored(md map[string][]string) map[string][]string {
	stored := make(map[string][]string)
	for _, name := range g.config.StoredMetadata {
		if values := md[name]; len(values) > 0 {
			stored[name] = slices.Clone(values)
		}
	}
	return stored
}

// StoresMetadata reports whether any metadata is stored.
func (g *Guard) StoresMetadata() bool { return len(g.config.StoredMetadata) > 0 }

// Method describes a method that a service has.
type Method struct {
	Name   string // the full name
	Stream bool
	// Safe says that the method is declared to have no side effects.
	Safe bool
	// Keyless says that its request has no field for the key, where the key is in one.
	Keyless bool
}

// Protects reports whether the calls of a method are protected.
func (g *Guard) Protects(m Method) bool {
	switch {
	case m.Stream, m.Safe:
		return false
	case len(g.config.Methods) > 0:
		return slices.Contains(g.config.Methods, m.Name)
	}
	return !strings.HasPrefix(m.Name, "/grpc.health.") && !strings.HasPrefix(m.Name, "/grpc.channelz.")
}

// Passing returns the names of the methods that pass, sorted. The error joins a *[core.ConfigError] for each method that is to be
// protected and can't be.
func (g *Guard) Passing(methods []Method) (passing []string, err error) {
	var errs []error
	fault := func(name, problem string) {
		errs = append(errs, &core.ConfigError{Field: g.config.Package + ".Config.Methods", Problem: name + " " + problem})
	}
	missing := slices.Clone(g.config.Methods)
	for _, m := range methods {
		i := slices.Index(missing, m.Name)
		if i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		}
		if g.Protects(m) && (!m.Keyless || g.config.Presence == core.Required) {
			if m.Keyless {
				fault(m.Name, "has no field for the key, so all its calls would be refused")
			}
			continue
		}
		passing = append(passing, m.Name)
		switch {
		case i < 0:
		case m.Stream:
			fault(m.Name, "is a stream, and streams pass")
		case m.Safe:
			fault(m.Name, "is declared to have no side effects, so it passes")
		}
	}
	for _, name := range missing {
		fault(name, "is not a method of the services")
	}
	slices.Sort(passing)
	return passing, errors.Join(errs...)
}

// Call is a call of a protected method.
type Call struct {
	// Method is its full name.
	Method string
	// Keys are the keys that were sent: the values of metadata, or a field that is not empty. More than one is a fault.
	Keys []string
	// InField says that the key is a field's: any text.
	InField bool
	// Request is for Config.Authorize.
	Request any
	// Fingerprint is the request's digest.
	Fingerprint string
}

// Outcome is what the handler of a call has come to.
type Outcome struct {
	// Code is the status code, and Err the error; zero and nil if it has succeeded.
	Code uint32
	Err  error
	// Failed says that the status is a failure, and Refused, that it is another service's refusal, which is one, too.
	Failed, Refused bool
	// Answer returns what is stored. It may return nil: then duplicates get result_unavailable.
	Answer func() *Answer
}

// Do runs the handler of a call once. It returns an answer that is to be replayed, or a refusal, or neither: then the caller has
// what its handler has answered. A refusal that the handler has returned ([core.Refusal]) is among these.
func (g *Guard) Do(ctx context.Context, call *Call, handler func(context.Context) Outcome) (*Answer, *core.Refusal) {
	key, refusal := g.key(call)
	if refusal != nil {
		return nil, refusal
	}
	var user string
	if key != "" && g.config.User != nil { // a call without a key passes or is refused, whoever calls
		var err error
		if user, err = g.config.User(ctx); err != nil || user == "" {
			return nil, core.NewRefusal(codes.UserMissing, err)
		}
	}
	ran := false
	result, err := core.Do(ctx, g.task(call.Method), core.Call{Key: key, User: user, Fingerprint: call.Fingerprint},
		func(ctx context.Context) (value []byte, err error) {
			ran = true
			o := handler(ctx)
			if key == "" { // there may be a run all the same: that of another operation
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
			refusal.Detail = "The call ended before the operation was started."
		}
		return nil, refusal
	}
	answer, ok := Decode(result.Value)
	if !ok {
		return nil, core.NewRefusal(codes.ResultUnavailable, nil)
	}
	if authorize := g.config.Authorize; authorize != nil {
		if err := authorize(ctx, call.Method, call.Request); err != nil {
			return nil, core.NewRefusal(codes.NotAuthorized, err)
		}
	}
	return answer, nil
}

// key returns the key of a call; empty: none was sent.
func (g *Guard) key(call *Call) (string, *core.Refusal) {
	switch {
	case len(call.Keys) == 0:
		return "", nil
	case !call.InField && len(call.Keys) > 1, call.InField && len(call.Keys[0]) > 255:
		return "", core.NewRefusal(codes.KeyInvalid, nil)
	case call.InField:
		return call.Keys[0], nil
	}
	key, err := adapter.ParseKey(call.Keys[0])
	if err != nil {
		return "", core.NewRefusal(codes.KeyInvalid, err)
	}
	return key, nil
}

func (g *Guard) task(method string) *core.Task {
	if task, ok := g.tasks.Load(method); ok {
		return task.(*core.Task)
	}
	policy := g.config.Policy
	policy.Name = method
	task, _ := g.tasks.LoadOrStore(method, g.engine.MustTask(policy)) // New has checked the policy
	return task.(*core.Task)
}

// settle decides which part of an outcome to store. With an error the run has failed. A refusal is what the client gets instead.
func (g *Guard) settle(ctx context.Context, o *Outcome) ([]byte, *core.Refusal, error) {
	instead, p := reported(o.Err), &g.config.Policy
	if instead == nil && o.Code == canceled { // the handler has given up
		switch context.Cause(ctx) {
		case core.ErrShutdown:
			instead = core.NewRefusal(codes.ShuttingDown, o.Err)
		case core.ErrLeaseLost:
			instead = core.NewRefusal(codes.Unfinished, o.Err)
		}
	}
	rejects := p.Duplicate.IsReject()
	switch {
	case instead != nil, o.Refused:
		if p.OnFailure == core.Keep { // a refusal is never kept
			core.RunFrom(ctx).Release()
		}
		return nil, instead, o.Err
	case o.Failed && (rejects || p.OnFailure != core.Keep):
		return nil, nil, o.Err
	case o.Failed && p.OnSuccess == core.Release:
		core.RunFrom(ctx).Keep()
	case rejects:
		return nil, nil, nil
	}
	return o.Answer().Encode(), nil, nil
}

// reported returns the refusal that err holds, or nil.
func reported(err error) *core.Refusal {
	r, _ := errors.AsType[*core.Refusal](err)
	return r
}
