package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/race"
)

// planted is a fault in the engine or its store: old, which is in a file below core once, becomes new. It breaks an invariant, as a
// scenario shows.
type planted struct {
	invariant int
	scenario  string
	file      string
	old, new  string
}

var faults = []planted{
	// claim
	{1, "reconciled", "claim.go", "&& time.Since(c.asked) >= c.claim.Lease {", "&& false {"},
	{1, "waiters", "claim.go", "c.claim.Owner, c.asked = w.claim.Owner, w.asked", "c.asked = w.asked"},
	{7, "reconciled", "claim.go", "c.claim.Takeover, c.claim.Attempt = verdict.kind == verdictRunAgain, attempt",
		"c.claim.Takeover = true"},
	{7, "reconciled", "claim.go", "c.claim.Takeover = !c.guard.policy.Abandoned.uncertain", "c.claim.Takeover = true"},
	{7, "reconciled", "claim.go", "	claim.Takeover, claim.Attempt = true, attempt\n", "	claim.Takeover = true\n"},
	{5, "reconciled", "claim.go", "if err != nil || verdict.kind == verdictUnknown {", "if err != nil {"},
	{5, "late", "claim.go", "!c.id.has(grant.Fingerprint) && !c.ofExpiredUse(grant)", "false"},
	{8, "reconciled", "claim.go", "c.claim.Secret = g.policy.Lease,", "c.claim.Secret = 2*g.policy.Lease,"},
	{14, "polling", "claim.go", "	c.claim.Owner = store.NewOwner()\n",
		"	if c.claim.Owner.IsZero() {\n		c.claim.Owner = store.NewOwner()\n	}\n"},
	{8, "reconciled", "claim.go", "c.id.fingerprint, c.guard.policy.RememberAbandoned", "c.id.fingerprint, c.guard.policy.Lease"},
	{2, "leases", "run.go", "c.id.key, c.claim.Owner, grant.ID, grant.Attempt", "c.id.key, c.claim.Owner, grant.ID, 1"},
	{2, "put", "run.go", "case grant.Attempt > 1 && !grant.Free:", "case grant.Attempt > 1:"},
	{2, "leases", "run.go", "case grant.Attempt > 1 && !grant.Free:", "case grant.Attempt > 2 && !grant.Free:"},
	{1, "leases", "run.go", "c.id.key, c.claim.Owner, grant.ID, grant.Attempt", "c.id.key, store.NewOwner(), grant.ID, grant.Attempt"},
	{11, "late", "decide.go", "if g.policy.FailOpen && !c.id.expired", "if !c.id.expired"},
	{5, "late", "decide.go", "case c.keyReused(grant):", "case false:"},
	{16, "takeover", "decide.go", "	g.engine.releaseFailed(c.id.key, c.claim.Owner, err)\n", ""},
	{16, "reconciled", "claim.go", "		e.releaseFailed(c.id.key, claim.Owner, err)\n", ""},
	{8, "uncertain", "claim.go", "c.id.fingerprint, c.guard.policy.RememberAbandoned", "c.id.fingerprint, 24 * time.Hour"},
	{17, "drain", "lease.go", "	if l.drained != nil {\n		l.mu.Unlock()\n		return false",
		"	if false {\n		l.mu.Unlock()\n		return false"},

	// wait
	{1, "waiters", "wait.go", "case grant.State == store.Done,\n", "case grant.State == store.Done, grant.State == store.Acquired,\n"},
	{16, "leases", "wait.go", "context.WithTimeout(context.Background(), c.guard.policy.Duplicate.limit)",
		"context.WithTimeout(context.Background(), 9*c.guard.policy.Duplicate.limit)"},
	{16, "put", "wait.go", "		e.releaseFailed(k.key, w.claim.Owner, err)\n", ""},
	{16, "put", "wait.go", "	if !told {\n", "	if !told && false {\n"},

	// lease
	{13, "leases", "lease.go", "		c.expires = sent.Add(lease)\n", "		c.expires = now.Add(lease)\n"},
	{13, "leases", "lease.go", "		c.expires = sent.Add(lease)\n", "		c.expires = c.expires.Add(lease)\n"},
	{13, "leases", "lease.go", "	c.expires = c.started.Add(lease)\n", "	c.expires = now.Add(lease)\n"},
	{13, "leases", "lease.go", "limit := min(g.engine.storeTimeout, c.expires.Sub(sent))", "limit := g.engine.storeTimeout"},
	{13, "leases", "lease.go", "		c.due = sent.Add(lease / 3)\n", "		c.due = sent.Add(lease)\n"},
	{13, "leases", "lease.go", "	c.due = c.started.Add(lease / 3)\n", "	c.due = c.started.Add(2 * lease)\n"},
	{13, "leases", "lease.go", "		c.end(ErrLeaseLost)\n", ""},
	{8, "leases", "lease.go", "g.engine.store.Renew(ctx, c.key.raw, c.owner, lease)",
		"g.engine.store.Renew(ctx, c.key.raw, c.owner, 2*lease)"},
	{13, "leases", "lease.go", "	if listed && !lost {\n", "	if false {\n"},
	{13, "waiters", "lease.go", "context.WithTimeout(context.WithoutCancel(c.values), limit)", "context.WithTimeout(c.values, limit)"},
	{13, "waiters", "lease.go", "	if !listed || err == nil {\n", "	if err == nil {\n"},
	{17, "drain", "lease.go", "if l.running--; l.running == 0 && l.drained != nil {", "if l.running--; l.drained != nil {"},
	{17, "drain", "drain.go", "		c.end(ErrShutdown)\n", "		_ = c\n"},
	{17, "drain", "drain.go", "		c.end(ErrShutdown)\n", "		c.end(ErrShutdown)\n		break\n"},
	{17, "drain", "settle.go", "	expires := e.runs.endLease(c)\n", "	expires := e.runs.endLease(c)\n	e.runs.end(c)\n"},

	// settle
	{6, "late", "settle.go", "	instead := c.settle(o)\n	settled = true\n",
		"	err := deliver(x, echo, c.keptFor)\n	if c.settle(o); true {\n" +
			"		settled = true\n		return buf, err\n	}\n	var instead *Refusal\n"},
	{14, "leases", "settle.go", "s.record, s.failed = p.OnSuccess, false", "s.record, s.failed = p.OnFailure, false"},
	{14, "late", "settle.go", "	if decided != byDefault {\n", "	if false {\n"},
	{14, "steps", "settle.go", "panicked: true, result: unavailable})", "panicked: false, result: unavailable})"},
	{3, "late", "run.go", "	case over:\n		c.early = gaveUp\n", ""},
	{14, "steps", "settle.go", "u.fail = s.failed && g.engine.can.Fail != nil &&", "u.fail = false &&"},
	{14, "steps", "settle.go", "		u.goesOn = o.again || o.panicked\n", "		u.goesOn = o.again\n"},
	{4, "kept", "storecalls.go", "			if known > 0 {\n", "			if false {\n"},
	{4, "late", "unsettled.go", "	retention, known = p.Retention, p.RefuseExpired\n",
		"	retention, known = p.Lease, p.RefuseExpired\n"},
	{14, "late", "unsettled.go", "return e.store.Abandon(calling, c.key.raw, c.owner)",
		"return e.store.Release(calling, c.key.raw, c.owner)"},
	{18, "late", "unsettled.go", "		return u.first != nil && u.look(calling)\n", "		return false\n"},
	{18, "late", "unsettled.go", "	case r.Attempt != c.attempt:\n", "	case false:\n"},
	{18, "takeover", "unsettled.go", "	case err != nil:\n		return true\n", "	case err != nil:\n		return false\n"},
	{18, "takeover", "unsettled.go", "	case r.State == store.Abandoned && u.event.Kind != Completed, ", "	case "},
	{17, "late", "unsettled.go", "	defer c.guard.engine.runs.end(c)\n	ev.Late",
		"	if u.place.answered {\n		return\n	}\n	ev.Late"},

	// late settlement
	{15, "late", "late.go", "	if !again || !l.reserve(u) {\n", "	if true {\n"},
	{15, "late", "late.go", "		if again && !l.closed && time.Since", "		if false && !l.closed && time.Since"},
	{15, "late", "late.go", "			again = u.renew(calling)\n", ""},
	{15, "late", "late.go", "	if l.listed.Load() == 0 {\n", "	if true {\n"},
	{15, "late", "settle.go", "mayPass := !e.can.Local && expires.Sub(u.ended) <= e.storeTimeout;",
		"mayPass := false && expires.IsZero();"},
	{6, "late", "late.go", "	case !u.place.answered: // its own", "	case false: // its own"},
	{5, "waiters", "late.go", "Attempt: c.attempt, Fingerprint: c.fingerprint,", "Attempt: c.attempt,"},
	{18, "late", "late.go", "	u.place.answered = true\n", ""},
	{15, "late", "unsettled.go", "	return u.renewed >= maxRenewals && time.Since(u.ended) >= patience\n", "	return patience > 0\n"},
	{15, "late", "late.go", "	u.result = bytes.Clone(u.result)", "	_ = bytes.Clone(u.result)"},

	// operators
	{12, "operator", "operations/operations.go", "o.inspect.Change(ctx, a.Operation.Key, a.Operation.Record, c)",
		"func() error {\n		r, _ := o.inspect.Lookup(ctx, a.Operation.Key)\n" +
			"		return o.inspect.Change(ctx, r.Key, r, c)\n	}()"},

	// step, derive
	{9, "steps", "step.go", "	return s.result, true, nil\n", "	return \"\", false, nil\n"},
	{9, "steps", "step.go", "return e.persist(ctx, \"checkpoint\", func(ctx context.Context) error {",
		"return e.call(ctx, \"checkpoint\", func() error {"},
	{9, "steps", "step.go", "steps); err != nil {\n		return err\n", "steps); err != nil {\n"},
	{14, "steps", "step.go", " = steps, number, written, nil\n", " = steps, number, []byte{stepsVersion}, nil\n"},
	{9, "steps", "step.go", "		number, written = binary.BigEndian.Uint64(written), written", "		written = written"},
	{9, "reordered", "store/memstore/memstore.go", "if old[:min(8, len(old))] >= behind[1:min(9, len(behind))] {", "if old == \"?\" {"},
	{9, "steps", "step.go", "&progress{told: grant.Steps, ", "&progress{"},
	{13, "steps", "step.go", "if err == nil && !known && errors.Is(context.Cause(ctx), ErrLeaseLost) {", "if false {"},
	{14, "steps", "step.go", "	return p.derived.Load() || len(p.written) > 1\n", "	return false\n"},
	{10, "steps", "derive.go", "	b = append(b, call...)\n", ""},
	{10, "derived", "derive.go", "	case r.guard.chosen() && r.key != (Key{}):\n", "	case r.key != (Key{}):\n"},
	{10, "derived", "derive.go", "id[:]...)\n	}\n	return hex", "r.owner[:]...)\n	}\n	return hex"},
}

// TestPlantedFaults plants each fault, and wants the simulator to break the invariant that the fault is about. It takes long;
// without IDEM_LONG it plants a few.
func TestPlantedFaults(t *testing.T) {
	if race.Enabled || testing.Short() {
		t.Skip("it builds engines, without the race detector; CI has it once more without -short")
	}
	for i, f := range faults {
		if os.Getenv("IDEM_LONG") == "" && i%30 != 0 {
			continue
		}
		t.Run(fmt.Sprintf("%d %s %s", i, f.scenario, f.file), func(t *testing.T) {
			output := f.plant(t)
			assert.Contains(t, output, fmt.Sprintf("invariant %d: ", f.invariant), "%q in place of %q", f.new, f.old)
		})
	}
}

// plant returns what the simulator says of an engine with the fault.
func (f *planted) plant(t *testing.T) string {
	path, err := filepath.Abs("../../" + f.file)
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), f.old), "%q is in %s once", f.old, f.file)

	dir := t.TempDir()
	file, overlay := filepath.Join(dir, filepath.Base(f.file)), filepath.Join(dir, "overlay.json")
	program := filepath.Join(dir, "simulator.test")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), f.old, f.new, 1)), 0o600))
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: file}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, list, 0o600))
	built, err := exec.Command("go", "test", "-vet=off", "-ldflags=-s -w", "-c", "-overlay", overlay, "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", built)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	test := exec.CommandContext(ctx, program, "-test.run=^TestSimulation$/^"+f.scenario+"$", "-test.failfast", "-schedules=100000")
	output, _ := test.CombinedOutput() // it fails
	return string(output)
}
