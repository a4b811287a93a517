package load_test

import (
	"context"
	"crypto/rand"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/benchmarks/load"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/internal/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// buildService builds the service, and returns the program.
func buildService(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "service")
	out, err := exec.Command("go", "build", "-o", program, "./service").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// start starts the service. It must end well.
func start(t *testing.T, program string, args ...string) *load.Service {
	t.Helper()
	s, err := load.Start(context.WithoutCancel(t.Context()), program, args...) // it outlives the test until it is stopped
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Stop()) })
	return s
}

func TestRun(t *testing.T) {
	program := buildService(t)
	small := func(services ...*load.Service) load.Plan {
		return load.Plan{
			Services: services, Connections: 8, Warmup: 20 * time.Millisecond, Duration: 150 * time.Millisecond,
			Duplicates: 0.5, Key: rand.Text()[:8] + "-", Seed: 1,
		}
	}
	for _, framework := range []string{"gin", "echo", "fiber", "nethttp"} {
		t.Run(framework, func(t *testing.T) {
			for _, guard := range []string{"client", "params"} {
				s := start(t, program, "-framework", framework, "-guard", guard)
				r, err := load.Run(t.Context(), small(s))
				require.NoError(t, err)
				assert.NotZero(t, r.Replayed)
				assert.Equal(t, r.Operations, r.First)
				assert.NotZero(t, r.Throughput())
				assert.NoError(t, s.Stop())
			}
			bare := small(start(t, program, "-framework", framework, "-guard", "none"))
			bare.Bare = true
			r, err := load.Run(t.Context(), bare)
			require.NoError(t, err)
			assert.Greater(t, r.First, r.Operations)
			assert.Zero(t, r.Replayed)
		})
	}

	t.Run("two processes on one Redis, open loop", func(t *testing.T) {
		url, prefix := backend.Redis(t), "load:"+rand.Text()[:8]+":"
		args := []string{"-store", url, "-prefix", prefix, "-retain", "5s"}
		p := small(
			start(t, program, append(args, "-framework", "gin")...),
			start(t, program, append(args, "-framework", "fiber")...))
		p.Rate, p.Warmup = 1000, 0
		r, err := load.Run(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, 150, r.Requests)
		assert.Equal(t, 150, r.First+r.Replayed+r.Conflicts)
	})

	t.Run("what is carried out twice is found", func(t *testing.T) {
		for _, services := range [][]*load.Service{
			{start(t, program, "-guard", "none")},
			{start(t, program), start(t, program)}, // two stores that know nothing of each other
		} {
			_, err := load.Run(t.Context(), small(services...))
			var outcome *load.OutcomeError
			require.ErrorAs(t, err, &outcome)
			assert.ErrorContains(t, err, "not marked as replayed")
		}
	})

	t.Run("a run that is ended is an error", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := small(start(t, program))
		p.Duration = time.Minute
		time.AfterFunc(30*time.Millisecond, cancel)
		_, err := load.Run(ctx, p)
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("a service that ends is an error", func(t *testing.T) {
		s, err := load.Start(t.Context(), program)
		require.NoError(t, err)
		p := small(s)
		p.Duration = time.Minute
		stopped := make(chan error)
		time.AfterFunc(30*time.Millisecond, func() { stopped <- s.Stop() })
		_, err = load.Run(t.Context(), p)
		require.Error(t, err)
		require.NoError(t, <-stopped)
	})
}

func TestPlansThatMakeNoSenseAreRefused(t *testing.T) {
	s, err := load.At("http://127.0.0.1:1")
	require.NoError(t, err)
	_, err = load.Run(t.Context(), load.Plan{})
	assert.ErrorContains(t, err, "no services")
	assert.ErrorContains(t, err, "duration", "all faults are reported at once")
	for want, change := range map[string]func(*load.Plan){
		"connections":  func(p *load.Plan) { p.Connections = -1 },
		"warm-up":      func(p *load.Plan) { p.Warmup = -1 },
		"a second":     func(p *load.Plan) { p.Rate = math.NaN() },
		"are none":     func(p *load.Plan) { p.Rate = 0.1 },
		"duplicates":   func(p *load.Plan) { p.Duplicates = 1 },
		"begins with":  func(p *load.Plan) { p.Key = "a\r\nb" },
		"1:1: connect": func(*load.Plan) {}, // nobody listens there
	} {
		p := load.Plan{Services: []*load.Service{s}, Duration: time.Second}
		change(&p)
		_, err := load.Run(t.Context(), p)
		assert.ErrorContains(t, err, want)
	}
	for _, url := range []string{"", "127.0.0.1:1", "https://a:1", "http://", "http://a:1/x", "http://u@a:1"} {
		_, err := load.At(url)
		assert.Error(t, err, url)
	}
	assert.NoError(t, s.Stop(), "somebody else's service goes on")
}

func TestProgramsThatDoNotServeAreAnError(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	for want, script := range map[string]string{
		"it broke":        "echo it broke >&2; exit 3",
		"exit status 3":   "exit 3",
		"it says hello":   "echo hello; exec cat",
		"not of the form": "echo listening on moon; exec cat",
	} {
		program := filepath.Join(t.TempDir(), "program")
		require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
		_, err := load.Start(t.Context(), program)
		assert.ErrorContains(t, err, want)
	}
	_, err := load.Start(t.Context(), filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}
