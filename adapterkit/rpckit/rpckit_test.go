package rpckit_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit/rpckit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

func anybody(context.Context) (string, error) { return "ann", nil }

func TestFaults(t *testing.T) {
	for fault, c := range map[string]rpckit.Config{
		"User: is not set":                   {},
		"User: is set together":              {User: anybody, SharedByAllCallers: true},
		`Policy: has the Name "orders"`:      {User: anybody, Policy: core.TaskPolicy{Name: "orders"}},
		"Policy: has a Presence":             {User: anybody, Policy: core.TaskPolicy{Presence: core.Optional}},
		"Policy: has a Linger":               {User: anybody, Policy: core.TaskPolicy{Linger: time.Second}},
		"Lease: is -1ns":                     {User: anybody, Policy: core.TaskPolicy{Record: core.Record{Lease: -1}}},
		"Presence: is unknown":               {User: anybody, Presence: core.Optional + 1},
		`Methods: contains "Create"`:         {User: anybody, Methods: []string{"Create"}},
		"Methods: names /a.B/C twice":        {User: anybody, Methods: []string{"/a.B/C", "/a.B/C"}},
		"StoredMetadata: names x-a twice":    {User: anybody, StoredMetadata: []string{"X-A", "x-a"}},
		`StoredMetadata: contains "x a"`:     {User: anybody, StoredMetadata: []string{"x a"}},
		"StoredMetadata: grpc-status":        {User: anybody, StoredMetadata: []string{"grpc-status"}},
		"StoredMetadata: connect-timeout-ms": {User: anybody, StoredMetadata: []string{"connect-timeout-ms"}},
		"StoredMetadata: content-encoding":   {User: anybody, StoredMetadata: []string{"Content-Encoding"}},
		"StoredMetadata: trailer-x-a":        {User: anybody, StoredMetadata: []string{"trailer-x-a"}},
		"StoredMetadata: date":               {User: anybody, StoredMetadata: []string{"date"}},
		"StoredMetadata: has no effect": {User: anybody, StoredMetadata: []string{"x-a"},
			Policy: core.TaskPolicy{Duplicate: core.Reject("")}},
		"Authorize: has no effect": {User: anybody, Authorize: func(context.Context, string, any) error { return nil },
			Policy: core.TaskPolicy{Duplicate: core.Reject("")}},
		"StoredMetadata: idempotent-replaye": {User: anybody, StoredMetadata: []string{"Idempotent-Replayed"}},
	} {
		c.Package = "shoprpc"
		_, err := rpckit.New(core.MustNew(core.Config{}), c)
		of := "idem: shoprpc.Config."
		if strings.HasPrefix(fault, "Lease") {
			of = "idem: TaskPolicy."
		}
		require.ErrorContains(t, err, of+fault)
		require.ErrorAs(t, err, new(*core.ConfigError))
		require.Len(t, strings.Split(err.Error(), "\n"), 1, "no other fault: %v", err)
	}
}

func TestProtects(t *testing.T) {
	g, err := rpckit.New(core.MustNew(core.Config{}), rpckit.Config{User: anybody})
	require.NoError(t, err)
	for name, protected := range map[string]bool{"/shop.Orders/Create": true, "/grpcio.A/B": true,
		"/grpc.health.v1.Health/Check": false, "/grpc.channelz.v1.Channelz/GetServer": false} {
		require.Equal(t, protected, g.Protects(rpckit.Method{Name: name}), name)
	}
}

// Every code of a refusal has a status, and it is not OK.
func TestStatus(t *testing.T) {
	for code, want := range map[codes.Code]uint32{codes.KeyMissing: 3, codes.TokenInvalid: 7, codes.TokenExpired: 9, codes.BodyTooLarge: 8,
		codes.Unfinished: 14, codes.StoreNotShared: 13, "of a later version": 13} {
		got, reason, _ := rpckit.Status(core.NewRefusal(code, nil))
		require.Equal(t, want, got, code)
		require.Equal(t, code, rpckit.Code(rpckit.Domain, reason))
		require.Empty(t, rpckit.Code("example.com", reason))
	}
}

// The cases of internal/rpctest have the codes that there are.
func TestFailed(t *testing.T) {
	require.False(t, rpckit.Failed(0))
	require.True(t, rpckit.Failed(17))
}

func FuzzDecode(f *testing.F) {
	whole := (&rpckit.Answer{Type: "a.B", Body: []byte("body"),
		Header: map[string][]string{"x-a": {"1", ""}}, Trailer: map[string][]string{"x-b": {"2"}}}).Encode()
	for name, b := range map[string][]byte{"a later version": append([]byte{2}, whole[1:]...),
		"more than an answer": append(whole[:len(whole):len(whole)], 0)} {
		if _, ok := rpckit.Decode(b); ok {
			f.Errorf("%s is taken for an answer", name)
		}
	}
	f.Add(whole)
	f.Add((&rpckit.Answer{Status: []byte("status")}).Encode())
	f.Add([]byte{2})
	f.Add([]byte{1, 0, 0, 0, 1, 1, 'a', 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := rpckit.Decode(b)
		if !ok {
			return
		}
		again, ok := rpckit.Decode(a.Encode())
		require.True(t, ok)
		require.Equal(t, a, again)
		for n := range b { // no part of it is an answer
			_, ok := rpckit.Decode(b[:n])
			require.False(t, ok)
		}
	})
}

// do makes a call whose handler succeeds, or fails.
func do(ctx context.Context, g *rpckit.Guard, key string, failed bool, handler func(context.Context),
	answer func() *rpckit.Answer) *core.Refusal {
	_, refusal := g.Do(ctx, &rpckit.Call{Method: "/a.B/C", Keys: []string{key}}, func(ctx context.Context) rpckit.Outcome {
		handler(ctx)
		o := rpckit.Outcome{Failed: failed, Answer: answer}
		if failed {
			o.Code, o.Err = 9, errors.New("no")
		}
		return o
	})
	return refusal
}

// A client that leaves ends what it has begun when Linger has passed; anything else that ends the call does so at once, and so does leaving
// before there is a run.
func TestEndOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := rpckit.New(core.MustNew(core.Config{}), rpckit.Config{User: anybody, Linger: time.Second,
			Policy: core.TaskPolicy{Duplicate: core.Wait(time.Minute)}})
		require.NoError(t, err)
		answer := func() *rpckit.Answer { return new(rpckit.Answer) }
		for cause, lingers := range map[error]time.Duration{context.Canceled: time.Second, errors.New("the server stops"): 0} {
			ctx, end := context.WithCancelCause(t.Context())
			do(ctx, g, cause.Error()[:3], false, func(own context.Context) {
				began := time.Now()
				end(cause)
				<-own.Done()
				require.Equal(t, lingers, time.Since(began), cause)
				require.Equal(t, cause, context.Cause(own))
			}, answer)
		}
		do(t.Context(), g, "k-1", false, func(context.Context) {
			ctx, leave := context.WithCancel(t.Context())
			waited := make(chan *core.Refusal)
			go func() {
				waited <- do(ctx, g, "k-1", false, func(context.Context) { t.Error("it runs already") }, answer)
			}()
			synctest.Wait()
			began := time.Now()
			leave()
			require.NotNil(t, <-waited)
			require.Zero(t, time.Since(began))
			gone := do(ctx, g, "k-2", false, func(context.Context) { t.Error("its client has left") }, answer)
			require.NotNil(t, gone, "it gets an answer, though nobody reads it")
		}, answer)
	})
}

// Under Reject, answers are not stored. A failure that the policy keeps is a failure all the same.
func TestReject(t *testing.T) {
	for _, failed := range []bool{false, true} {
		var told []bool
		engine := core.MustNew(core.Config{Observe: func(_ context.Context, e core.Event) {
			if e.Kind == core.Completed {
				told = append(told, e.Failed)
			}
		}})
		policy := core.TaskPolicy{Record: core.Record{OnFailure: core.Keep}, Duplicate: core.Reject("")}
		g, err := rpckit.New(engine, rpckit.Config{User: anybody, Policy: policy})
		require.NoError(t, err)
		do(t.Context(), g, "k-1", failed, func(context.Context) {}, func() *rpckit.Answer { t.Error("it is never replayed"); return nil })
		require.Equal(t, []bool{failed}, told)
	}
}

func TestRetry(t *testing.T) {
	const unavailable = 14
	for name, c := range map[string]struct {
		codes    []uint32
		pushback []string
		limit    time.Duration
		tries    int
		least    time.Duration
		most     time.Duration
	}{
		"no codes":                    {nil, nil, 0, 1, 0, 0},
		"another code":                {[]uint32{8}, nil, 0, 1, 0, 0},
		"backoff":                     {[]uint32{8, unavailable}, nil, 0, 5, 750 * time.Millisecond, 2250 * time.Millisecond},
		"as the server says":          {[]uint32{unavailable}, []string{"1500"}, 0, 5, 6 * time.Second, 6 * time.Second},
		"at once":                     {[]uint32{unavailable}, []string{"0"}, 0, 5, 0, 0},
		"the server says no":          {[]uint32{unavailable}, []string{"-1"}, 0, 1, 0, 0},
		"the server says two things":  {[]uint32{unavailable}, []string{"1", "1"}, 0, 1, 0, 0},
		"the server says nonsense":    {[]uint32{unavailable}, []string{"soon"}, 0, 1, 0, 0},
		"the server says next year":   {[]uint32{unavailable}, []string{"99999999999999999999"}, 0, 1, 0, 0},
		"more than a minute":          {[]uint32{unavailable}, []string{"60001"}, 0, 1, 0, 0},
		"the deadline comes before":   {[]uint32{unavailable}, []string{"1500"}, 1500 * time.Millisecond, 1, 0, 0},
		"the deadline comes after it": {[]uint32{unavailable}, []string{"1500"}, 4 * time.Second, 3, 3 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := t.Context(), func() {}
				if c.limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.limit)
				}
				defer cancel()
				began, tries := time.Now(), 0
				rpckit.Retry(ctx, c.codes, func() (uint32, []string) { tries++; return unavailable, c.pushback })
				require.Equal(t, c.tries, tries)
				require.GreaterOrEqual(t, time.Since(began), c.least)
				require.LessOrEqual(t, time.Since(began), c.most)
			})
		})
	}
	t.Run("the caller gives up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Millisecond, func() { cancel(errors.New("enough")) })
			began := time.Now()
			rpckit.Retry(ctx, []uint32{unavailable}, func() (uint32, []string) { return unavailable, []string{"1000"} })
			require.Equal(t, 10*time.Millisecond, time.Since(began))
		})
	})
	require.NotEqual(t, rpckit.NewKey(), rpckit.NewKey())
	require.GreaterOrEqual(t, float64(len(rpckit.NewKey()))*math.Log2(32), 128.0)
}
