package core_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// setting is a value of a field of Policy.
type setting struct {
	name string
	set  func(*core.Policy)
}

func reconcile(context.Context, core.Uncertainty) (core.Verdict, error) { return core.Unknown(), nil }
func authorize(context.Context, *core.Request) error                    { return nil }
func constantKey(*core.Request) (string, error)                         { return "k", nil }

var someTokens = core.MustTokens(core.TokenConfig{})

// settings are the values of each field that make a difference to the other fields. A zero value
// is named only where it is a decision of its own.
var settings = map[string][]setting{
	"Name": {{"Name", func(p *core.Policy) { p.Name = "n" }}},
	"Key": {
		{"Params", func(p *core.Policy) { p.Key = core.Params() }},
		{"Header", func(p *core.Policy) { p.Key = core.Header(core.Required) }},
		{"Optional", func(p *core.Policy) { p.Key = core.Header(core.Optional).Named("X-Key") }},
		{"Fields", func(p *core.Policy) { p.Key = core.Fields("a") }},
		{"Func", func(p *core.Policy) { p.Key = core.Func(constantKey) }},
		{"Token", func(p *core.Policy) { p.Key, p.Name = core.Token(someTokens), "n" }},
	},
	"User": {
		{"UserFromCaller", func(p *core.Policy) { p.User = core.UserFromCaller() }},
		{"SharedByAllCallers", func(p *core.Policy) { p.User = core.SharedByAllCallers() }},
	},
	"Duplicate": {
		{"Replay", func(p *core.Policy) { p.Duplicate = core.Replay }},
		{"Wait", func(p *core.Policy) { p.Duplicate = core.Wait(time.Second) }},
		{"Reject", func(p *core.Policy) { p.Duplicate = core.Reject }},
	},
	"Message": {{"Message", func(p *core.Policy) { p.Message = "m" }}},
	// A lease bounds a crash, a retention a result: neither needs to be longer than the other.
	"Lease": {
		{"short Lease", func(p *core.Policy) { p.Lease = time.Second }},
		{"long Lease", func(p *core.Policy) { p.Lease = time.Hour }},
	},
	"Retention": {
		{"short Retention", func(p *core.Policy) { p.Retention = 2 * time.Second }},
		{"long Retention", func(p *core.Policy) { p.Retention = 48 * time.Hour }},
	},
	"RememberAbandoned": {{"RememberAbandoned", func(p *core.Policy) { p.RememberAbandoned = time.Second }}},
	"Linger": {
		{"Linger", func(p *core.Policy) { p.Linger = time.Second }},
		{"no Linger", func(p *core.Policy) { p.Linger = -1 }},
	},
	"RetainFromStart": {{"RetainFromStart", func(p *core.Policy) { p.RetainFromStart = true }}},
	"OnSuccess": {
		{"success: Keep", func(p *core.Policy) { p.OnSuccess = core.Keep }},
		{"success: Release", func(p *core.Policy) { p.OnSuccess = core.Release }},
	},
	"OnFailure": {
		{"failure: Keep", func(p *core.Policy) { p.OnFailure = core.Keep }},
		{"failure: Release", func(p *core.Policy) { p.OnFailure = core.Release }},
		{"failure: Abandon", func(p *core.Policy) { p.OnFailure = core.Abandon }},
	},
	// With OnSuccess equal to OnFailure it still makes the difference in events, and in what a
	// rejected duplicate is told.
	"Failed": {{"Failed", func(p *core.Policy) { p.Failed = core.FailedByCode("code") }}},
	"Abandoned": {
		{"TakeOver", func(p *core.Policy) { p.Abandoned = core.TakeOver }},
		{"Uncertain", func(p *core.Policy) { p.Abandoned = core.Uncertain }},
	},
	"Reconcile": {{"Reconcile", func(p *core.Policy) { p.Reconcile = reconcile }}},
	"FailOpen":  {{"FailOpen", func(p *core.Policy) { p.FailOpen = true }}},
	"Authorize": {{"Authorize", func(p *core.Policy) { p.Authorize = authorize }}},
	"Exclude": {
		{"Exclude a", func(p *core.Policy) { p.Exclude = core.Exclude("a") }},
		{"Exclude a.b", func(p *core.Policy) { p.Exclude = core.Exclude("a.b") }},
		{"ExcludeOnly a.b", func(p *core.Policy) { p.Exclude = core.ExcludeOnly("a.b") }},
		{"ExcludeOnly", func(p *core.Policy) { p.Exclude = core.ExcludeOnly() }},
	},
	"RequestHeaders": {
		{"Upload-Offset", func(p *core.Policy) { p.RequestHeaders = []string{"upload-offset"} }},
		{"X-Key", func(p *core.Policy) { p.RequestHeaders = []string{"x-key"} }},
	},
	"IgnoreFingerprint": {{"IgnoreFingerprint", func(p *core.Policy) { p.IgnoreFingerprint = true }}},
	"WithoutFiles":      {{"WithoutFiles", func(p *core.Policy) { p.WithoutFiles = true }}},
	"WithoutFileNames":  {{"WithoutFileNames", func(p *core.Policy) { p.WithoutFileNames = true }}},
	"EchoKey":           {{"EchoKey", func(p *core.Policy) { p.EchoKey = true }}},
	"Digest":            {{"SHA256", func(p *core.Policy) { p.Digest = core.SHA256 }}},
	"BodyLimit":         {{"BodyLimit", func(p *core.Policy) { p.BodyLimit = 10 }}},
	"ResponseLimit":     {{"ResponseLimit", func(p *core.Policy) { p.ResponseLimit = 10 }}},
	"StoredHeaders": {
		{"KeepHeaders", func(p *core.Policy) { p.StoredHeaders = core.KeepHeaders() }},
		{"DropHeaders", func(p *core.Policy) { p.StoredHeaders = core.DropHeaders("X-Secret") }},
	},
}

// decided says of every pair of fields whether all their values can go together (.) or some never do
// (x), which [contradictions] names. A field's row has a place for each field above it, so that a
// new field is not done before it has been held against all others.
const decided = `
Name
Key               .
User              ..
Duplicate         ...
Message           ...x
Lease             .....
Retention         .x....
RememberAbandoned .x.....
Linger            ........
RetainFromStart   .........
OnSuccess         .x.xx.x..x
OnFailure         ...........
Failed            ............
Abandoned         .............
Reconcile         .............x
FailOpen          .............xx
Authorize         ...xx.....x.....
Exclude           .x...............
RequestHeaders    .x................
IgnoreFingerprint .x...............xx
WithoutFiles      ...................x
WithoutFileNames  ...................xx
EchoKey           .x........x......x....
Digest            ...................x...
BodyLimit         ........................
ResponseLimit     ...xx.....x..............
StoredHeaders     ...xx.....x...............
`

// contradictions are the pairs of settings that never go together, whatever the other fields say,
// and the field at fault. It depends on the other fields if that is empty.
var contradictions = map[string]string{
	"IgnoreFingerprint + SHA256":           "",
	"IgnoreFingerprint + WithoutFileNames": "",
	"IgnoreFingerprint + WithoutFiles":     "",
	"Exclude a + IgnoreFingerprint":        "",
	"Exclude a.b + IgnoreFingerprint":      "",
	"ExcludeOnly + IgnoreFingerprint":      "",
	"ExcludeOnly + EchoKey":                "",
	"ExcludeOnly a.b + IgnoreFingerprint":  "",
	"ExcludeOnly a.b + EchoKey":            "",
	"Fields + IgnoreFingerprint":           "IgnoreFingerprint",
	"Fields + EchoKey":                     "EchoKey",
	"Fields + Exclude a":                   "Exclude",
	"Fields + ExcludeOnly":                 "Exclude",
	"Fields + ExcludeOnly a.b":             "Exclude",
	"RetainFromStart + success: Release":   "RetainFromStart",
	"Func + EchoKey":                       "EchoKey",
	"Func + ExcludeOnly":                   "Exclude",
	"Func + ExcludeOnly a.b":               "Exclude",
	"Header + ExcludeOnly":                 "Exclude",
	"Header + ExcludeOnly a.b":             "Exclude",
	"Message + Authorize":                  "",
	"Message + DropHeaders":                "",
	"Message + KeepHeaders":                "",
	"Message + ResponseLimit":              "",
	"Message + success: Release":           "Message",
	"Optional + ExcludeOnly":               "Exclude",
	"Optional + ExcludeOnly a.b":           "Exclude",
	"Optional + X-Key":                     "RequestHeaders",
	"Params + IgnoreFingerprint":           "IgnoreFingerprint",
	"Params + EchoKey":                     "EchoKey",
	"Reconcile + FailOpen":                 "",
	"Reject + Authorize":                   "Authorize",
	"Reject + DropHeaders":                 "StoredHeaders",
	"Reject + KeepHeaders":                 "StoredHeaders",
	"Reject + ResponseLimit":               "ResponseLimit",
	"Replay + Message":                     "Message",
	"Replay + success: Release":            "OnSuccess",
	"TakeOver + Reconcile":                 "Reconcile",
	"Token + IgnoreFingerprint":            "IgnoreFingerprint",
	"Token + EchoKey":                      "EchoKey",
	"Token + ExcludeOnly":                  "Exclude",
	"Token + ExcludeOnly a.b":              "Exclude",
	"Token + RememberAbandoned":            "RememberAbandoned",
	"Token + short Retention":              "Retention",
	"Token + success: Release":             "OnSuccess",
	"Uncertain + FailOpen":                 "FailOpen",
	"Upload-Offset + IgnoreFingerprint":    "",
	"Wait + Message":                       "Message",
	"WithoutFiles + WithoutFileNames":      "WithoutFileNames",
	"X-Key + IgnoreFingerprint":            "",
	"long Retention + success: Release":    "Retention",
	"short Retention + success: Release":   "Retention",
	"success: Release + Authorize":         "Authorize",
	"success: Release + DropHeaders":       "StoredHeaders",
	"success: Release + EchoKey":           "EchoKey",
	"success: Release + KeepHeaders":       "StoredHeaders",
	"success: Release + ResponseLimit":     "ResponseLimit",
}

func TestEveryPairOfSettingsIsDecided(t *testing.T) {
	fields, found := policyFields(), contradictory(t)
	assert.Equal(t, contradictions, found)

	rows := strings.Fields(decided)
	require.Len(t, rows, 2*len(fields)-1, "a row for each field, a decision for each pair")
	assert.Equal(t, fields[0], rows[0])
	for i, a := range fields[1:] {
		require.Equal(t, a, rows[2*i+1])
		require.Len(t, rows[2*i+2], i+1, "%s: a decision for each field above", a)
		for j, b := range fields[:i+1] {
			contradict := false
			for _, sa := range settings[a] {
				for _, sb := range settings[b] {
					_, is := contradictions[sb.name+" + "+sa.name]
					contradict = contradict || is
				}
			}
			assert.Equal(t, contradict, rows[2*i+2][j] == 'x', "%s and %s", b, a)
		}
	}
	e := core.MustNew(core.Config{User: byUser})
	for _, field := range fields {
		require.NotEmpty(t, settings[field], "%s: no settings", field)
		for _, s := range settings[field] {
			_, never := compatible(t, e, s, s, contexts(field))
			assert.False(t, never, "%s is of no use at all", s.name)
		}
	}
}

// What needs three to contradict each other, or to agree.
func TestSettingsInThrees(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	lock := core.Policy{Duplicate: core.Wait(time.Second), OnSuccess: core.Release}
	with := func(p core.Policy, set ...func(*core.Policy)) core.Policy {
		for _, f := range set {
			f(&p)
		}
		return p
	}
	retention := func(p *core.Policy) { p.Retention = time.Hour }
	limit := func(p *core.Policy) { p.ResponseLimit = 10 }
	keyed := func(p *core.Policy) { p.Key = core.Header(core.Required) }
	failuresKept := func(p *core.Policy) { p.OnFailure = core.Keep }
	for name, tc := range map[string]struct {
		policy core.Policy
		faults []string
	}{
		"nothing is kept": {with(lock, retention), []string{"Policy.Retention"}},
		"nor after a failure that may have taken effect": {with(lock, retention, func(p *core.Policy) { p.OnFailure = core.Abandon }), []string{"Policy.Retention"}},
		"failures are kept":                 {with(lock, retention, limit, failuresKept), nil},
		"and shown to whom that is granted": {with(lock, failuresKept, func(p *core.Policy) { p.Authorize = authorize }), nil},
		"what Reconcile finds is kept":      {with(lock, retention, func(p *core.Policy) { p.Abandoned, p.Reconcile = core.Uncertain, reconcile }), nil},
		"Failed sees the body":              {with(core.Policy{Duplicate: core.Reject, Failed: core.FailedByCode("code")}, limit), nil},
		"the key is no parameter":           {with(core.Policy{RequestHeaders: []string{"idempotency-key"}}, keyed), []string{"Policy.RequestHeaders"}},
		"another header is":                 {with(core.Policy{RequestHeaders: []string{"Idempotency-Key"}, Key: core.Header(core.Required).Named("X-Key")}), nil},
	} {
		_, err := e.Guard(tc.policy)
		if tc.faults == nil {
			assert.NoError(t, err, name)
		} else {
			assert.Equal(t, tc.faults, faultyFields(t, err), name)
		}
	}
}

func TestFaultsWithinAField(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	for _, p := range []core.Policy{
		{Duplicate: 5000},
		{Duplicate: core.Wait(0)},
		{Duplicate: core.Wait(1 << 62)},
		{Key: core.Params().Named("X-Key")},
		{Key: core.Header(core.Required).Named("Host")},
		{RequestHeaders: []string{"if-match"}},
		{RequestHeaders: []string{"X-A", "x-a"}},
		{RequestHeaders: []string{"a b"}},
		{Key: core.Header(core.Required).Named("content-length")},
		{StoredHeaders: core.DropHeaders("set-cookie")},
		{StoredHeaders: core.DropHeaders("Connection")},
		{StoredHeaders: core.KeepHeaders("Connection")},
		{StoredHeaders: core.KeepHeaders("X-A", "x-a")},
		{User: core.FirstUser(core.SharedByAllCallers(), byUser)},
		{Exclude: core.Exclude("Time_Stamp")},
		{Exclude: core.Exclude("a", "a")},
		{Exclude: core.Exclude("a.b", "*.b")},
		{Key: core.Fields("a.b", "a")},
		{RequestHeaders: []string{"te"}},
		{Key: core.Header(core.Optional + 1)},
		{Lease: 10*time.Millisecond - 1},
		{OnSuccess: core.Abandon},
		{RememberAbandoned: -1},
	} {
		_, err := e.Guard(p)
		assert.Len(t, faultyFields(t, err), 1, "%+v", p)
	}
	for _, p := range []core.Policy{
		{Lease: 10 * time.Millisecond},
		{User: core.FirstUser(byUser, core.SharedByAllCallers())},
		{StoredHeaders: core.KeepHeaders("Set-Cookie")},
		{Exclude: core.Exclude("a.timestamp", "**.nonce", "a.b", "b")},
		{Exclude: core.ExcludeOnly("timestamp")},
		{Exclude: core.Exclude("timestamp"), Key: core.Header(core.Required)},
	} {
		_, err := e.Guard(p)
		assert.NoError(t, err, "%+v", p)
	}
	names := []string{"upload-offset"}
	e.MustGuard(core.Policy{RequestHeaders: names})
	assert.Equal(t, "upload-offset", names[0], "the caller's slice is not written to")
}

func TestFieldsAndExcludedPaths(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	for _, tc := range []struct {
		fields, excluded []string
		faults           int
	}{
		{[]string{"a"}, []string{"a"}, 1},
		{[]string{"a.b"}, []string{"a"}, 1},
		{[]string{"a.b"}, []string{"*"}, 1},
		{[]string{"a.*"}, []string{"a.*"}, 1},
		{[]string{"a.b.c"}, []string{"**.b"}, 1},
		{[]string{"**.b"}, []string{"**.b"}, 1},
		{[]string{"a", "b"}, []string{"b"}, 1},           // b is of no use
		{[]string{"a"}, []string{"b"}, 1},                // nor is this
		{[]string{`a\.b`}, []string{"a.b"}, 1},           // another name
		{[]string{"a", "b"}, []string{"a", "b", "c"}, 3}, // all at once
		{[]string{"a"}, []string{"a.b"}, 0},
		{[]string{"a.*"}, []string{"a.b"}, 0},
		{[]string{"a"}, []string{"**.b"}, 0},
		{[]string{"**.a"}, []string{"b"}, 0},
		{[]string{"**.a"}, []string{"b.c"}, 0}, // b.c.a
		{[]string{"**.a"}, []string{"*.*"}, 0}, // a
		{[]string{"items.*.sku"}, []string{"items.0"}, 0},
		{[]string{"items.*.sku"}, []string{"items.0.note"}, 1},
	} {
		_, err := e.Guard(core.Policy{Key: core.Fields(tc.fields...), Exclude: core.Exclude(tc.excluded...)})
		if tc.faults == 0 {
			assert.NoError(t, err, tc)
		} else {
			assert.Len(t, faultyFields(t, err), tc.faults, tc)
		}
	}
}

// A task has no request and no response.
func TestSettingsOfTasks(t *testing.T) {
	e := core.MustNew(core.Config{})
	meaningless := []string{"Key", "User", "Linger", "Failed", "Authorize", "Exclude", "RequestHeaders", "WithoutFiles",
		"WithoutFileNames", "EchoKey", "Digest", "BodyLimit", "StoredHeaders"}
	meaningful := []string{"Name", "Duplicate", "Message", "Lease", "Retention", "RememberAbandoned", "RetainFromStart",
		"OnSuccess", "OnFailure", "Abandoned", "Reconcile", "FailOpen", "IgnoreFingerprint", "ResponseLimit"}
	assert.ElementsMatch(t, policyFields(), append(slices.Clone(meaningless), meaningful...))
	for _, field := range slices.Concat(meaningless, meaningful) {
		for _, s := range settings[field] {
			if s.name == "Params" {
				continue // the zero value
			}
			faults, compiles := map[string]bool{}, false
			for _, p := range contexts(field, "Key") {
				p.Name = "n"
				s.set(&p)
				_, err := e.Task(p)
				if err == nil {
					compiles = true
					continue
				}
				for _, f := range faultyFields(t, err) {
					faults["Policy."+field] = faults["Policy."+field] || f == "Policy."+field
				}
			}
			assert.Equal(t, slices.Contains(meaningful, field), compiles, s.name)
			if !compiles {
				assert.True(t, faults["Policy."+field], s.name)
			}
		}
	}
	_, err := e.Task(core.Policy{})
	assert.Equal(t, []string{"Policy.Name"}, faultyFields(t, err))
	_, err = e.Task(core.Policy{Name: "n", Key: core.Params().Named("X-Key")})
	assert.Equal(t, []string{"Policy.Key"}, faultyFields(t, err))
	_, err = e.Task(core.Policy{Name: "n", Duplicate: core.Reject, ResponseLimit: 10})
	assert.Equal(t, []string{"Policy.ResponseLimit"}, faultyFields(t, err))
	_, err = e.Task(core.Policy{Linger: 1, BodyLimit: 1, Lease: -1})
	assert.ElementsMatch(t, []string{"Policy.Name", "Policy.Linger", "Policy.BodyLimit", "Policy.Lease"}, faultyFields(t, err))
	assert.Panics(t, func() { e.MustTask(core.Policy{}) })
	p := e.MustTask(core.Policy{Name: "n", Retention: time.Hour}).Policy()
	assert.Equal(t, time.Hour, p.Retention)
	assert.Equal(t, core.Release, p.OnFailure, "the defaults are filled in")
}

// The fields of Config say nothing about each other, but for the two that make a prefix. A StoreTimeout has its use on a store of the
// process, too: Drain gives so long to the last runs.
func TestSettingsOfTheEngine(t *testing.T) {
	values := map[string]func(*core.Config){
		"Store":        func(c *core.Config) { c.Store = newStore(t) },
		"User":         func(c *core.Config) { c.User = byUser },
		"Service":      func(c *core.Config) { c.Service = "Shop-1" + strings.Repeat("s", 58) },
		"LegacyPrefix": func(c *core.Config) { c.LegacyPrefix = strings.Repeat("p", 128) },
		"StoreTimeout": func(c *core.Config) { c.StoreTimeout = time.Second },
		"Observe":      func(c *core.Config) { c.Observe = func(context.Context, core.Event) {} },
		"Refuse":       func(c *core.Config) { c.Refuse = func(context.Context, *core.Refusal) *core.Response { return nil } },
	}
	fields := reflect.VisibleFields(reflect.TypeFor[core.Config]())
	require.Len(t, values, len(fields))
	for _, a := range fields {
		for _, b := range fields {
			var c core.Config
			require.Contains(t, values, a.Name)
			values[a.Name](&c)
			values[b.Name](&c)
			_, err := core.New(c)
			if c.Service != "" && c.LegacyPrefix != "" {
				assert.Equal(t, []string{"Config.LegacyPrefix"}, faultyFields(t, err))
			} else {
				assert.NoError(t, err, "%s and %s", a.Name, b.Name)
			}
		}
	}
	var unmade *spy
	for _, prefix := range []string{"a b", "a\tb", "\n", "\x7f"} {
		_, err := core.New(core.Config{LegacyPrefix: prefix})
		assert.Equal(t, []string{"Config.LegacyPrefix"}, faultyFields(t, err), "%q", prefix)
	}
	for _, service := range []string{"a:", "a=", "a b", "a_b", "ä", "a\n", "*", strings.Repeat("s", 65)} {
		_, err := core.New(core.Config{Service: service})
		assert.Equal(t, []string{"Config.Service"}, faultyFields(t, err), "%q", service)
	}
	_, err := core.New(core.Config{Store: shared{newStore(t)}})
	assert.EqualError(t, err, "idem: Config.Service: is empty, and the store is not the process's own: two services on one store would answer "+
		"for each other (LegacyPrefix keeps the records of 0.1.0)")
	_, err = core.New(core.Config{Store: unmade, LegacyPrefix: strings.Repeat("p", 129), StoreTimeout: -1, User: core.UserFromHeader("")})
	assert.ElementsMatch(t, []string{"Config.Store", "Config.LegacyPrefix", "Config.StoreTimeout", "Config.User"}, faultyFields(t, err))
}

func TestPresetsCompile(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	released := core.DoubleClick()
	released.OnSuccess, released.OnFailure = core.Release, core.Release
	shorter := core.DoubleClick()
	shorter.Retention = 2 * time.Second
	after := core.DoubleClick()
	after.OnFailure = core.Release
	for name, p := range map[string]core.Policy{
		"double click": core.DoubleClick(), "released when finished": released, "shorter than its lease": shorter,
		"again after a failure": after, "no repeat submit": core.NoRepeatSubmit(0, ""), "with a message": core.NoRepeatSubmit(time.Minute, "m"),
		"resubmit window": core.ResubmitWindow(), "exclusive": core.Exclusive(), "client key": core.ClientKey(),
		"one-shot token": core.OneShotToken(someTokens),
	} {
		for _, lease := range []time.Duration{0, time.Second, time.Hour} {
			p.Name, p.Lease = name, lease
			assert.NotPanics(t, func() { e.MustGuard(p) }, "%s, lease %v", name, lease)
			if name != "client key" && name != "one-shot token" {
				assert.NotPanics(t, func() { e.MustGuard(withKey(p)) }, name)
			}
		}
	}
}

func withKey(p core.Policy) core.Policy {
	p.Key = core.Header(core.Optional)
	return p
}

// contexts are what the fields that are not looked at may say.
func contexts(of ...string) (all []core.Policy) {
	all = []core.Policy{{}}
	for _, field := range []string{"Key", "Duplicate", "Abandoned"} {
		if slices.Contains(of, field) {
			continue
		}
		var more []core.Policy
		for _, p := range all {
			for _, s := range settings[field] {
				own := p
				s.set(&own)
				more = append(more, own)
			}
		}
		all = more
	}
	return all
}

func policyFields() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[core.Policy]()) {
		if f.IsExported() {
			names = append(names, f.Name)
		}
	}
	return names
}

// contradictory finds the settings that never go together, whatever the other fields say, and
// where the fault is reported.
func contradictory(t *testing.T) map[string]string {
	e := core.MustNew(core.Config{User: byUser})
	found := map[string]string{}
	fields := policyFields()
	for i, a := range fields {
		for _, b := range fields[:i] {
			for _, sa := range settings[a] {
				for _, sb := range settings[b] {
					if at, never := compatible(t, e, sa, sb, contexts(a, b)); never {
						found[sb.name+" + "+sa.name] = at
					}
				}
			}
		}
	}
	return found
}

func compatible(t *testing.T, e *core.Engine, a, b setting, contexts []core.Policy) (at string, never bool) {
	always := map[string]int{}
	for _, p := range contexts {
		a.set(&p)
		b.set(&p)
		_, err := e.Guard(p)
		if err == nil {
			return "", false
		}
		of := faultyFields(t, err)
		slices.Sort(of)
		for _, f := range slices.Compact(of) {
			always[strings.TrimPrefix(f, "Policy.")]++
		}
	}
	var names []string
	for f, n := range always {
		if n == len(contexts) {
			names = append(names, f)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " "), true
}
