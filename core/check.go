package core

import (
	"crypto/fips140"
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idem/core/internal/canon"
)

// The faults of a policy. A setting that has no effect, or contradicts another one, is a fault: its author
// meant something else. settings_test.go decides every pair.

// checkPolicy reports the faults of a policy for requests or tasks.
func checkPolicy(f *faults, p *Policy) {
	f.addIf(p.Duplicate < Reject || p.Duplicate > Replay && p.Duplicate < waits, "Duplicate",
		"must be Replay, Reject, or what Wait returns for a limit of more than zero")
	f.addIf(p.Lease < 0 || p.Lease > 0 && p.Lease < minLease, "Lease", "is %v; at least %v is needed", p.Lease, minLease)
	f.addIf(p.Retention < 0, "Retention", "is negative: %v", p.Retention)
	f.addIf(p.RememberAbandoned < 0, "RememberAbandoned", "is negative: %v", p.RememberAbandoned)
	f.addIf(p.OnSuccess > Abandon, "OnSuccess", "is unknown: %d", p.OnSuccess)
	f.addIf(p.OnSuccess == Abandon, "OnSuccess", "cannot be Abandon: what has succeeded has taken effect")
	f.addIf(p.OnFailure > Abandon, "OnFailure", "is unknown: %d", p.OnFailure)
	f.addIf(p.Abandoned > Uncertain, "Abandoned", "is unknown: %d", p.Abandoned)
	f.addIf(p.ResponseLimit < 0, "ResponseLimit", "is negative: %d", p.ResponseLimit)

	f.addIf(p.Reconcile != nil && p.Abandoned != Uncertain, "Reconcile", "is only called if Abandoned is Uncertain; set that, or leave Reconcile out")
	f.addIf(p.FailOpen && p.Abandoned == Uncertain, "FailOpen",
		"contradicts Abandoned: Uncertain: while the store is down, it would run what nobody may run again; leave one of the two out")
	f.addIf(p.OnSuccess == Release && p.Duplicate == Replay, "OnSuccess", "is Release, so that there is nothing to replay: Reject or Wait goes with it")
	f.addIf(p.Message != "" && p.Duplicate != Reject, "Message", "is only shown under Reject; set Duplicate to that, or leave Message out")

	if p.keepsNothing() {
		const why = "has no effect: OnSuccess and OnFailure keep nothing; leave it out, or keep successes (a handler can release a run with Run.Release)"
		f.addIf(p.Retention > 0 && !p.window, "Retention", why)
		f.addIf(p.RetainFromStart && !p.window, "RetainFromStart", why)
		f.addIf(p.Message != "" && p.Duplicate == Reject, "Message", why)
		f.addIf(p.EchoKey, "EchoKey", why)
	}
	if p.keepsNothing() || p.Duplicate == Reject {
		const why = "has no effect: no response is stored under Reject, or if nothing is kept; leave it out"
		f.addIf(p.Authorize != nil, "Authorize", why)
		f.addIf(p.StoredHeaders.isSet(), "StoredHeaders", why)
		// It still limits what Failed sees of the body.
		f.addIf(p.ResponseLimit > 0 && p.Failed == nil, "ResponseLimit", why)
	}
}

// keepsNothing reports whether the policy keeps no result, unless a handler decides otherwise.
func (p *Policy) keepsNothing() bool {
	// What Reconcile has found out is kept.
	return p.OnSuccess == Release && p.OnFailure != Keep && p.Reconcile == nil
}

// checkTask reports the faults of a policy for tasks.
func checkTask(f *faults, p *Policy) {
	f.addIf(p.Name == "", "Name", "is empty; it is part of the keys of a task")
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"Key", p.Key.kind != keyParams || p.Key.named}, {"User", !p.User.isZero()}, {"Failed", p.Failed != nil},
		{"Authorize", p.Authorize != nil}, {"Linger", p.Linger != 0}, {"EchoKey", p.EchoKey},
		{"Exclude", p.Exclude.isSet()}, {"RequestHeaders", p.RequestHeaders != nil},
		{"WithoutFiles", p.WithoutFiles}, {"WithoutFileNames", p.WithoutFileNames}, {"Digest", p.Digest != MD5},
		{"BodyLimit", p.BodyLimit != 0}, {"StoredHeaders", p.StoredHeaders.isSet()},
	} {
		f.addIf(field.set, field.name, "has no meaning for a task; leave it out (Call says key, user and fingerprint)")
	}
}

// compileHTTP checks and compiles the part of the policy that has to do with requests.
func (g *Guard) compileHTTP(f *faults) {
	p := &g.policy
	if g.user.isZero() {
		g.user, g.callers = g.engine.user, true
	}
	f.addIf(g.user.fault != "", "User", "%s", g.user.fault)
	f.addIf(g.user.isZero(), "User",
		"is not set, nor is Config.User: without it one caller could be given another's response (UserFromCaller if all requests are signed, SharedByAllCallers if that is meant)")
	f.addIf(p.BodyLimit < 0, "BodyLimit", "is negative: %d", p.BodyLimit)
	f.addIf(p.Digest > SHA256, "Digest", "is unknown: %d", p.Digest)
	if fault := p.StoredHeaders.fault(); fault != "" {
		f.add("StoredHeaders", "%s", fault)
	}
	g.compileParameters(f)
	g.compileKey(f)
}

// compileParameters checks and compiles the settings that say which parameters count.
func (g *Guard) compileParameters(f *faults) {
	p := &g.policy
	chosen := p.Key.kind == keyHeader || p.Key.kind == keyFunc || p.Key.kind == keyToken
	f.addIf(p.IgnoreFingerprint && !chosen, "IgnoreFingerprint", "needs a key that somebody has chosen (Header, Func): here the parameters are the key")
	f.addIf(p.IgnoreFingerprint && p.Key.kind == keyToken, "IgnoreFingerprint",
		"is not for Token: the key names no route, so that one route would replay another's answer; use Exclude for what may differ")
	if p.IgnoreFingerprint && chosen {
		const why = "has no effect with IgnoreFingerprint: the parameters are not compared; leave one of the two out"
		f.addIf(p.Digest != MD5, "Digest", why)
		f.addIf(p.Exclude.isSet(), "Exclude", why)
		f.addIf(len(p.RequestHeaders) > 0, "RequestHeaders", why)
		f.addIf(p.WithoutFiles, "WithoutFiles", why)
		f.addIf(p.WithoutFileNames, "WithoutFileNames", why)
	} else {
		f.addIf(p.Digest == MD5 && fips140.Enabled(), "Digest", "must be SHA256 under FIPS 140")
	}
	f.addIf(p.WithoutFiles && p.WithoutFileNames, "WithoutFileNames", "has no effect with WithoutFiles, which leaves the names out as well; leave one of the two out")
	f.addIf(p.Exclude.only && p.Key.kind != keyParams, "Exclude", "is ExcludeOnly, which is for Params: under this key the default names count in any case; use Exclude")

	p.RequestHeaders = slices.Clone(p.RequestHeaders)
	for i, name := range p.RequestHeaders {
		f.addIf(!isToken(name), "RequestHeaders", "%q is no header field name", name)
		name = http.CanonicalHeaderKey(name)
		f.addIf(slices.Contains(conditions[:], name), "RequestHeaders", "%s counts in any case; leave it out", name)
		f.addIf(p.Key.kind == keyHeader && name == p.Key.name || p.Key.kind == keyToken && name == TokenHeader,
			"RequestHeaders", "%s is the key; leave it out", name)
		f.addIf(contains(neverStored, name), "RequestHeaders", "%s belongs to one message, and is not seen alike through every adapter; leave it out", name)
		f.addIf(slices.Contains(p.RequestHeaders[:i], name), "RequestHeaders", "%s is named twice", name)
		p.RequestHeaders[i] = name
	}
	g.params = canon.Rules{Algorithm: p.Digest, WithoutFiles: p.WithoutFiles, WithoutFileNames: p.WithoutFileNames}
	excluded := p.Exclude.paths
	if p.Key.kind == keyToken {
		excluded = append(slices.Clone(excluded), TokenField)
	}
	g.params.Exclude = compilePaths(f, "Exclude", excluded)
	if g.params.Exclude != nil && p.Key.kind == keyParams && !p.Exclude.only {
		for _, path := range p.Exclude.paths {
			f.addIf(canon.IsDefault(path), "Exclude", "%q is left out in any case; leave it out", path)
		}
	}
}

// compileKey checks and compiles the key source.
func (g *Guard) compileKey(f *faults) {
	p := &g.policy
	g.identity = g.params
	f.addIf(p.EchoKey && p.Key.kind != keyHeader, "EchoKey", "needs a key from a header field")
	f.addIf(p.Key.named && p.Key.kind != keyHeader, "Key", "Named is for Header")
	switch p.Key.kind {
	case keyParams:
		g.identity.DefaultNames = !p.Exclude.only
	case keyHeader:
		f.addIf(!isToken(p.Key.name) || p.Key.name == "Host" || contains(neverStored, p.Key.name), "Key",
			"%q is no header field that can hold a key", p.Key.name)
		f.addIf(p.Key.presence > Optional, "Key", "presence is unknown: %d", p.Key.presence)
	case keyFields:
		f.addIf(len(p.Key.paths) == 0, "Key", "Fields names no field")
		g.identity.Select = compilePaths(f, "Key", p.Key.paths)
		if g.identity.Select != nil && g.params.Exclude != nil {
			checkExcludedFields(f, p.Exclude.paths, p.Key.paths)
		}
	case keyFunc:
		f.addIf(p.Key.fn == nil, "Key", "Func was given no function")
	case keyToken:
		g.compileToken(f)
	}
}

// compileToken checks a policy whose key is a token.
func (g *Guard) compileToken(f *faults) {
	p, t := &g.policy, g.policy.Key.tokens
	f.addIf(p.Name == "", "Name", "is empty; it is the purpose to which a token is bound")
	f.addIf(p.OnSuccess == Release, "OnSuccess", "is Release, with which a token could be used again and again (a handler can release its own run with Run.Release)")
	if t == nil {
		f.add("Key", "Token was given no Tokens")
		return
	}
	const why = "is %v: a token could be used again when its record is forgotten; at least %v, the token's lifetime and 5 minutes, are needed"
	f.addIf(p.Retention > 0 && p.Retention < t.outlasting(), "Retention", why, p.Retention, t.outlasting())
	f.addIf(p.RememberAbandoned > 0 && p.RememberAbandoned < t.outlasting(), "RememberAbandoned", why, p.RememberAbandoned, t.outlasting())
	f.addIf(t.random && !g.engine.inProcess, "Key",
		"is a Token with a random secret, and the store is not one of the process: the others could not check what it issues; set TokenConfig.Secrets")
}

// checkExcludedFields reports fields that Exclude covers, and excluded paths that are within no field.
func checkExcludedFields(f *faults, excluded, fields []string) {
	for _, field := range fields {
		for _, path := range excluded {
			f.addIf(canon.Covers(path, field), "Exclude", "%q leaves nothing of the field %q; take one of the two away", path, field)
		}
	}
	for _, path := range excluded {
		touches := func(field string) bool { return canon.Touch(path, field) }
		f.addIf(!slices.ContainsFunc(fields, touches), "Exclude", "%q has no effect: it is in none of the fields; leave it out", path)
	}
}

// compilePaths compiles paths, and reports malformed ones and those that another one covers.
func compilePaths(f *faults, field string, paths []string) *canon.Paths {
	if len(paths) == 0 {
		return nil
	}
	compiled, err := canon.CompilePaths(paths)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			f.add(field, "%v", err)
		}
	} else if err != nil {
		f.add(field, "%v", err)
	} else {
		for i, path := range paths {
			for j, other := range paths {
				if i != j && canon.Covers(other, path) && (j < i || !canon.Covers(path, other)) {
					f.add(field, "%q has no effect beside %q; leave it out", path, other)
					break
				}
			}
		}
	}
	return compiled
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := lowerASCII(s[i])
		alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
