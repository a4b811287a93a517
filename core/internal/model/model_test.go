package model

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/race"
)

// long says that there is time for five processes. The race detector sees nothing of Spin.
func long() bool { return os.Getenv("IDEM_LONG") != "" && !race.Enabled }

// spin returns the output of Spin, or of what it has made, in dir.
func spin(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, args, out)
	return string(out)
}

// needSpin skips the test where Spin, or the C compiler that it takes, is not installed. Where it takes long, it has to be.
func needSpin(t *testing.T) (model string) {
	for _, program := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			if long() && os.Getenv("IDEM_REQUIRE_BACKENDS") == "1" {
				t.Fatal(err)
			}
			t.Skipf("the model is not checked: %v; Debian has it as package %[2]s", err, program)
		}
	}
	model, err := filepath.Abs("claim.pml")
	require.NoError(t, err)
	return model
}

// search has Spin search the model, and returns what it says.
func search(t *testing.T, processes, claims int, fault string) string {
	model, dir := needSpin(t), t.TempDir()
	spin(t, dir, "spin", "-a", fmt.Sprint("-DN=", processes), fmt.Sprint("-DCLAIMS=", claims), "-DFAULT="+fault, model)
	optimise := "-O0" // to compile takes longer than to search
	if processes > 2 {
		optimise = "-O2"
	}
	spin(t, dir, "gcc", optimise, "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=6000", "-o", "pan", "pan.c")
	return spin(t, dir, "./pan", "-m1000000", "-w24", "-n")
}

// TestModel: the promises hold in all states of the model.
func TestModel(t *testing.T) {
	processes, claims := 2, 3
	if long() {
		processes, claims = 5, 4
	}
	said := search(t, processes, claims, "0")
	t.Log(said)
	require.Contains(t, said, "errors: 0")
	require.NotContains(t, said, "Search not completed")
	require.NotContains(t, said, "max search depth too small")
}

// TestModelFaults: each promise is broken by the fault that is planted for it. The others are not looked at then.
func TestModelFaults(t *testing.T) {
	text, err := os.ReadFile("claim.pml")
	require.NoError(t, err)
	broken := map[string]bool{}
	for _, promise := range regexp.MustCompile(`promise\((\d+), `).FindAllStringSubmatch(string(text), -1) {
		if number := promise[1]; !broken[number] {
			broken[number] = true
			t.Run(number, func(t *testing.T) { require.Contains(t, search(t, 2, 3, number), "assertion violated") })
		}
	}
	require.Len(t, broken, 8)
}

const (
	lease = time.Hour
	begun = int64(1e18)
)

// walk is a random walk through the model, as a trace.
func walk(t *testing.T, model string, seed int, faults string) (lines []map[string]any) {
	said := spin(t, t.TempDir(), "spin", "-T", fmt.Sprint("-n", seed), "-u300", "-DN=3", "-DCLAIMS=100", "-DFAULT="+faults, model)
	now, uncertain := begun, false
	for n, text := range strings.Split(said, "\n") {
		var method, answer string
		var claim, attempt, result, heard int
		switch _, err := fmt.Sscan(text, &method, &claim, &answer, &attempt, &result, &heard); {
		case strings.TrimSpace(text) == "uncertain 1":
			uncertain = true
			continue
		case strings.TrimSpace(text) == "passed":
			now += int64(lease + time.Minute)
			continue
		case err != nil:
			continue
		}
		owner := fmt.Sprintf("%032x", claim)
		if method == "Acquire" && answer != "acquired" {
			owner = fmt.Sprintf("%032x", 1000+n)
		}
		asked := map[string]any{"call": fmt.Sprint(n), "at": now, "key": "k", "method": method, "owner": owner, "lease": lease}
		switch method {
		case "Acquire":
			asked["id"], asked["retention"], asked["takeover"] = strings.Repeat("1", 32), 1000*24*lease, !uncertain
		case "Complete":
			asked["bytes"], asked["retention"] = []byte{byte(claim)}, 1000*24*lease
		}
		if heard == 0 && answer != "acquired" && answer != "ok" {
			continue // it has changed nothing
		}
		if lines = append(lines, asked); heard == 0 {
			continue
		}
		told := map[string]any{"call": fmt.Sprint(n), "at": now, "answer": answer}
		switch {
		case answer == "lost":
			told["answer"] = "refused"
		case method == "Acquire":
			told["id"], told["attempt"] = strings.Repeat("1", 32), attempt
			if answer == "done" {
				told["bytes"] = []byte{byte(result)}
			}
		}
		lines = append(lines, told)
	}
	return lines
}

func check(t *testing.T, lines []map[string]any) error {
	var trace bytes.Buffer
	for _, line := range lines {
		require.NoError(t, json.NewEncoder(&trace).Encode(line))
	}
	return storetest.CheckTrace(&trace)
}

var otherAnswer = map[any]any{"ok": "refused", "refused": "ok", "acquired": "running", "running": "abandoned", "abandoned": "running",
	"done": "abandoned"}

// TestWalks: what happens in the model may happen in a trace. Where no call fails, it may not with any other answer.
func TestWalks(t *testing.T) {
	model := needSpin(t)
	met, refused := map[any]int{}, 0
	for seed := range 50 {
		if lines := walk(t, model, seed, "0"); len(lines) > 0 { // some calls do not fail
			require.NoError(t, check(t, lines), "-n%d", seed)
		}
		lines := walk(t, model, seed, "-1")
		require.NoError(t, check(t, lines), "-n%d", seed)
		for i := 1; i < len(lines); i += 2 {
			told := lines[i]
			met[told["answer"]]++
			for name, other := range map[string]any{"answer": otherAnswer[told["answer"]], "attempt": 999, "bytes": []byte("x")} {
				was, ok := told[name]
				if !ok {
					continue
				}
				told[name] = other
				require.Error(t, check(t, lines[:i+1]), "-n%d: %v in place of %v in line %d, %v", seed, other, was, i, lines[i-1])
				told[name] = was
				refused++
			}
		}
	}
	t.Logf("%v, %d changed answers refused", met, refused)
	for _, answer := range []string{"ok", "refused", "acquired", "running", "abandoned", "done"} {
		assert.NotZero(t, met[answer], answer)
	}
}

// TestTraceOfAFastClock: a store whose lease passes too early is noticed.
func TestTraceOfAFastClock(t *testing.T) {
	for _, ahead := range []time.Duration{0, 2 * lease} {
		var trace bytes.Buffer
		var now time.Duration
		records, err := memstore.New(memstore.Config{Now: func() time.Time { return time.Now().Add(now) }})
		require.NoError(t, err)
		traced := storetest.Traced(records, &trace)
		claim := func() store.Claim {
			return store.Claim{Owner: store.NewOwner(), Lease: lease, Retention: 24 * lease, Takeover: true}
		}
		for range 2 {
			_, err = traced.Acquire(context.Background(), "k", claim())
			require.NoError(t, err)
			now = ahead
		}
		err = storetest.CheckTrace(&trace)
		require.Equal(t, ahead == 0, err == nil, "%v", err)
	}
}
