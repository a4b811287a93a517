package core_test

import (
	"cmp"
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
	name  string
	value any
}

func (s setting) in(p *core.Policy, field string) {
	reflect.ValueOf(p).Elem().FieldByName(field).Set(reflect.ValueOf(s.value))
}

func reconcile(context.Context, core.Uncertainty) (core.Verdict, error) { return core.Unknown(), nil }
func authorize(context.Context, *core.Request) error                    { return nil }
func constantKey(*core.Request) (string, error)                         { return "k", nil }

var someTokens = core.MustTokens(core.TokenConfig{})

// settings are the values of each field that make a difference to the other fields. A zero value
// is named only where it is a decision of its own.
var settings = map[string][]setting{
	"Name": {{"Name", "other"}},
	"Key": {
		{"Params", core.Params()}, {"Header", core.Header(core.Required)}, {"Token", core.Token(someTokens)},
		{"EchoKey", core.Header(core.Optional, core.Named("X-Key"), core.EchoKey())},
		{"BodyKey", core.BodyKey("key")}, {"SignedEvent", core.SignedEvent().Key},
		{"IgnoreFingerprint", core.Func(constantKey, core.IgnoreFingerprint())},
	},
	"User":      {{"UserFromCaller", core.UserFromCaller()}, {"SharedByAllCallers", core.SharedByAllCallers()}},
	"Duplicate": {{"Wait", core.Wait(time.Second)}, {"Replay", core.Replay()}, {"Reject", core.Reject("")}, {"Message", core.Reject("m")}},
	"Compare":   {{"RawBody", core.RawBody}},
	// A lease bounds a crash, a retention a result: neither needs to be longer than the other.
	"Lease":             {{"short Lease", time.Second}, {"long Lease", time.Hour}},
	"Retention":         {{"short Retention", 2 * time.Second}, {"long Retention", 48 * time.Hour}},
	"RetainFromStart":   {{"RetainFromStart", true}},
	"RefuseExpired":     {{"RefuseExpired", time.Hour}},
	"OnSuccess":         {{"success: Keep", core.Keep}, {"success: Release", core.Release}},
	"OnFailure":         {{"failure: Keep", core.Keep}, {"failure: Release", core.Release}, {"failure: Abandon", core.Abandon}},
	"Abandoned":         {{"TakeOver", core.TakeOver()}, {"Uncertain", core.Uncertain(nil)}, {"Reconcile", core.Uncertain(reconcile)}},
	"RememberAbandoned": {{"RememberAbandoned", time.Second}},
	// With OnSuccess equal to OnFailure it still makes the difference in events, and in what a
	// rejected duplicate is told.
	"Failed":        {{"Failed", core.FailedByCode("code")}},
	"Authorize":     {{"Authorize", authorize}},
	"Refuse":        {{"Refuse", func(context.Context, *core.Refusal) *core.Response { return nil }}},
	"Replayed":      {{"Replayed", func(context.Context, *core.Request, *core.Response) *core.Response { return nil }}},
	"FailOpen":      {{"FailOpen", true}},
	"Linger":        {{"Linger", time.Second}, {"no Linger", time.Duration(-1)}},
	"Digest":        {{"SHA256", core.SHA256}},
	"BodyLimit":     {{"BodyLimit", int64(10)}},
	"ResponseLimit": {{"ResponseLimit", 10}},
	"StoredHeaders": {{"KeepHeaders", core.KeepHeaders()}, {"DropHeaders", core.DropHeaders("X-Secret")}},
}

// contradictions are the pairs of settings that never go together, whatever the other fields say,
// and the field at fault.
var contradictions = map[string]string{
	"EchoKey + success: Release":         "Key",
	"IgnoreFingerprint + RawBody":        "Compare",
	"IgnoreFingerprint + SHA256":         "Digest",
	"Message + Authorize":                "Authorize",
	"Message + DropHeaders":              "StoredHeaders",
	"Message + KeepHeaders":              "StoredHeaders",
	"Message + Replayed":                 "Replayed",
	"Message + ResponseLimit":            "ResponseLimit",
	"Message + success: Release":         "Duplicate",
	"Reconcile + FailOpen":               "FailOpen",
	"Reject + Authorize":                 "Authorize",
	"Reject + DropHeaders":               "StoredHeaders",
	"Reject + KeepHeaders":               "StoredHeaders",
	"Reject + Replayed":                  "Replayed",
	"Reject + ResponseLimit":             "ResponseLimit",
	"Replay + success: Release":          "OnSuccess",
	"Params + RawBody":                   "Compare",
	"Params + RefuseExpired":             "RefuseExpired",
	"SignedEvent + Message":              "Duplicate",
	"SignedEvent + RawBody":              "Compare",
	"SignedEvent + SHA256":               "Digest",
	"RetainFromStart + success: Release": "RetainFromStart",
	"Token + RawBody":                    "Compare",
	"Token + RefuseExpired":              "RefuseExpired",
	"Token + RememberAbandoned":          "RememberAbandoned",
	"Token + short Retention":            "Retention",
	"Token + success: Release":           "OnSuccess",
	"Uncertain + FailOpen":               "FailOpen",
	"long Retention + success: Release":  "Retention",
	"short Retention + success: Release": "Retention",
	"success: Release + RefuseExpired":   "RefuseExpired",
	"success: Release + Authorize":       "Authorize",
	"success: Release + DropHeaders":     "StoredHeaders",
	"success: Release + KeepHeaders":     "StoredHeaders",
	"success: Release + Replayed":        "Replayed",
	"success: Release + ResponseLimit":   "ResponseLimit",
}

// Every field has settings, and all pairs of settings but these go together.
func TestEveryPairOfSettingsIsDecided(t *testing.T) {
	found := map[string]string{}
	embedded := func(f reflect.StructField) bool { return f.Anonymous }
	fields := slices.DeleteFunc(reflect.VisibleFields(reflect.TypeFor[core.Policy]()), embedded)
	for i, a := range fields {
		require.NotEmpty(t, settings[a.Name], "%s: no settings", a.Name)
		for _, b := range fields[:i] {
			for _, sa := range settings[a.Name] {
				for _, sb := range settings[b.Name] {
					if at := faultOfPair(t, a.Name, sa, b.Name, sb); at != "" {
						found[sb.name+" + "+sa.name] = strings.TrimPrefix(at, "Policy.")
					}
				}
			}
		}
	}
	assert.Equal(t, contradictions, found)
}

// faultOfPair returns the field that is at fault if two settings never go together, whatever Key and Duplicate say.
func faultOfPair(t *testing.T, a string, sa setting, b string, sb setting) (at string) {
	e := core.MustNew(core.Config{User: byUser})
	for _, duplicate := range settings["Duplicate"] {
		for _, key := range settings["Key"] {
			p := core.Policy{Name: "n"}
			duplicate.in(&p, "Duplicate")
			key.in(&p, "Key")
			sa.in(&p, a)
			sb.in(&p, b)
			_, err := e.Guard(p)
			if err == nil {
				return ""
			}
			at = cmp.Or(at, strings.Join(faultyFields(t, err), " "))
		}
	}
	return at
}

// What needs three to contradict each other, or to agree.
func TestSettingsInThrees(t *testing.T) {
	e := core.MustNew(core.Config{User: byUser})
	lock := func(r core.Record) core.Policy {
		r.OnSuccess = core.Release
		return core.Policy{Duplicate: core.Wait(time.Second), Record: r}
	}
	for name, tc := range map[string]struct {
		policy core.Policy
		faults []string
	}{
		"nor an abandoned failure": {lock(core.Record{Retention: time.Hour, OnFailure: core.Abandon}), []string{"Policy.Retention"}},
		"failures are kept":        {lock(core.Record{Retention: time.Hour, OnFailure: core.Keep}), nil},
		"what was found is kept":   {lock(core.Record{Retention: time.Hour, Abandoned: core.Uncertain(reconcile)}), nil},
		"Failed sees the body":     {core.Policy{Duplicate: core.Reject(""), Failed: core.FailedByCode("code"), ResponseLimit: 10}, nil},
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
		{Duplicate: core.Wait(0)},
		{Key: core.BodyKey("key", core.Optional+1)},
		{Key: core.Header(core.Required, core.CheckKey(nil))},
		{Key: core.BodyKey("key", core.ScopeKey(nil))},
		{Key: core.Header(core.Required, core.Named("Host"))},
		{Key: core.Header(core.Required, core.Named("content-length"))},
		{Key: core.Header(core.Optional + 1)},
		{Key: core.Header(nil)},
		{Key: core.Header(core.Required, core.Named("a b"))},
		{Key: core.Params(core.Fields())},
		{Key: core.Func(nil)},
		{Key: core.BodyKey("")},
		{Key: core.BodyKey("key", core.Exclude("key"))},
		{Key: core.SignedEvent().Key},
		{Name: "n", Key: core.SignedEvent(core.CompareContent(core.Exclude("a"))).Key, Compare: core.RawBody},
		{Key: core.Header(core.Required), Compare: core.RawBody + 1},
		{Key: core.Header(core.Required, core.Exclude("a")), Compare: core.RawBody},
		{Key: core.Header(core.Required, core.WithoutFiles()), Compare: core.RawBody},
		{Key: core.Header(core.Required, core.WithoutFileNames()), Compare: core.RawBody},
		{User: core.UserFunc(nil)},
		{User: core.FirstUser()},
		{User: core.FirstUser(byUser, core.UserSource{})},
		{StoredHeaders: core.DropHeaders("")},
		{Key: core.Header(core.Required, core.RequestHeaders("idempotency-key"))},
		{Key: core.Header(core.Required, core.IgnoreFingerprint(), core.Exclude("a"))},
		{Key: core.Header(core.Required, core.IgnoreFingerprint(), core.RequestHeaders("X-A"))},
		{Key: core.Header(core.Required, core.IgnoreFingerprint(), core.WithoutFiles())},
		{Key: core.Header(core.Required, core.IgnoreFingerprint(), core.WithoutFileNames())},
		{Key: core.Params(core.WithoutFiles(), core.WithoutFileNames())},
		{Key: core.Params(core.RequestHeaders("if-match"))},
		{Key: core.Params(core.RequestHeaders("X-A", "x-a"))},
		{Key: core.Params(core.RequestHeaders("a b"))},
		{Key: core.Params(core.RequestHeaders("te"))},
		{Key: core.Params(core.Exclude("Time_Stamp"))},
		{Key: core.Params(core.Exclude("a"), core.Exclude("a"))},
		{Key: core.Params(core.Exclude("a.b", "*.b"))},
		{Key: core.Params(core.Fields("a.b", "a"))},
		{Key: core.Params(core.Fields("a"), core.ExcludeOnly("a.b"))},
		{StoredHeaders: core.DropHeaders("set-cookie")},
		{StoredHeaders: core.DropHeaders("Connection")},
		{StoredHeaders: core.KeepHeaders("Connection")},
		{StoredHeaders: core.KeepHeaders("X-A", "x-a")},
		{User: core.FirstUser(core.SharedByAllCallers(), byUser)},
		{Record: core.Record{Lease: 10*time.Millisecond - 1}},
		{Record: core.Record{OnSuccess: core.Abandon}},
		{Record: core.Record{RememberAbandoned: -1}},
	} {
		_, err := e.Guard(p)
		assert.Len(t, faultyFields(t, err), 1, "%+v", p)
	}
	for _, p := range []core.Policy{
		{Record: core.Record{Lease: 10 * time.Millisecond}},
		{User: core.FirstUser(byUser, core.SharedByAllCallers())},
		{StoredHeaders: core.KeepHeaders("Set-Cookie")},
		{Key: core.Params(core.Exclude("a.timestamp", "**.nonce", "a.b", "b"))},
		{Key: core.Params(core.ExcludeOnly("timestamp"))},
		{Name: "n", Key: core.SignedEvent(core.CompareContent(core.RequestHeaders("X-A"))).Key, Compare: core.RawBody, Digest: core.SHA256},
		{Key: core.Header(core.Required, core.Exclude("timestamp"))},
		{Key: core.Header(core.Required, core.Named("X-Key"), core.RequestHeaders("Idempotency-Key"))},
	} {
		_, err := e.Guard(p)
		assert.NoError(t, err, "%+v", p)
	}
	names := []string{"upload-offset"}
	e.MustGuard(core.Policy{Key: core.Params(core.RequestHeaders(names...))})
	assert.Equal(t, "upload-offset", names[0], "the caller's slice is not written to")
}

func TestSettingsOfTasks(t *testing.T) {
	e := core.MustNew(core.Config{})
	for _, tc := range []struct {
		policy core.TaskPolicy
		faults []string
	}{
		{core.TaskPolicy{}, []string{"TaskPolicy.Name"}},
		{core.TaskPolicy{Name: "n", Duplicate: core.Reject(""), ResultLimit: 10}, []string{"TaskPolicy.ResultLimit"}},
		{core.TaskPolicy{Name: "n", ResultLimit: -1}, []string{"TaskPolicy.ResultLimit"}},
		{core.TaskPolicy{Name: "n", Presence: core.Optional + 1, Linger: -1}, []string{"TaskPolicy.Presence", "TaskPolicy.Linger"}},
		{core.TaskPolicy{Record: core.Record{Lease: -1}}, []string{"TaskPolicy.Name", "TaskPolicy.Lease"}},
	} {
		_, err := e.Task(tc.policy)
		assert.Equal(t, tc.faults, faultyFields(t, err))
		assert.Panics(t, func() { e.MustTask(tc.policy) })
	}
	r := e.MustTask(core.TaskPolicy{Name: "n", Record: core.Record{Retention: time.Hour}}).Record()
	assert.Equal(t, time.Hour, r.Retention)
	assert.Equal(t, core.Release, r.OnFailure, "the defaults are filled in")
	assert.Equal(t, 24*time.Hour, r.RememberAbandoned)
	assert.Equal(t, core.DefaultKeyRetention, e.MustTask(core.TaskPolicy{Name: "n"}).Record().Retention, "that of a chosen key")
}

func TestDuplicatesPrintAsTheirCalls(t *testing.T) {
	for want, d := range map[string]core.Duplicate{
		"Replay()": {}, "Wait(5s)": core.Wait(5 * time.Second), `Reject("no")`: core.Reject("no"),
	} {
		assert.Equal(t, want, d.String())
		assert.Equal(t, want[0] == 'R' && want[2] == 'j', d.IsReject())
	}
}
