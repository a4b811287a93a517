package rpctest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idem-go/idem/adapterkit/rpckit"
	"github.com/idem-go/idem/core"
	idem "github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/idemtest"
)

// rig is a server and its client.
type rig struct {
	*testing.T
	*idemtest.Engine
	guard
	addr  string
	call  caller
	again func(retry ...codes.Code) caller
}

// each runs a case with each server and client.
func each(t *testing.T, c config, h handler, do func(r *rig)) {
	t.Helper()
	for _, kinds := range rigs {
		t.Run(kinds.name, func(t *testing.T) {
			r := &rig{T: t, Engine: idemtest.New(t, core.Config{})}
			r.addr, r.guard = kinds.server(t, r.Engine.Engine, c, h)
			r.call = kinds.client(t, r.addr)
			r.again = func(retry ...codes.Code) caller { return kinds.client(t, r.addr, retry...) }
			do(r)
		})
	}
}

// ask sends a call as ann.
func (r *rig) ask(method, key, text string) *answer {
	r.Helper()
	return r.call(r.Context(), method, &pb.ErrorInfo{Domain: text}, metadata.Pairs("x-user", "ann", "idempotency-key", key))
}

// echo answers with the text of the request, and how often it has run.
func echo() handler {
	var runs atomic.Int64
	return func(c *served) (*pb.ErrorInfo, *failure) {
		return &pb.ErrorInfo{Reason: strconv.FormatInt(runs.Add(1), 10), Domain: c.request.GetDomain()}, nil
	}
}

func waiting(limit time.Duration) config {
	return config{Config: rpckit.Config{Policy: core.TaskPolicy{Duplicate: core.Wait(limit)}}}
}

func TestManyAtOnce(t *testing.T) {
	run, calls := echo(), 200
	each(t, waiting(time.Minute), run, func(r *rig) {
		answers := make([]*answer, calls)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = r.ask(order, "k-1", "a book") })
		}
		all.Wait()
		replays := 0
		for _, a := range answers {
			require.NoError(r, a.err)
			require.True(r, proto.Equal(answers[0].response, a.response))
			if a.replayed() {
				replays++
			}
		}
		require.Equal(r, calls-1, replays)
		r.WantRuns("DO "+order, 1)
		r.WantReplays("DO "+order, calls-1)
	})
}

// A handler that goes on to change the message that it has returned changes no replay.
func TestReplay(t *testing.T) {
	shared, runs := new(pb.ErrorInfo), 0
	each(t, config{}, func(c *served) (*pb.ErrorInfo, *failure) {
		runs++
		shared.Reason, shared.Domain = strconv.Itoa(runs), c.request.GetDomain()
		shared.Metadata = map[string]string{"a": "1", "b": c.method}
		return shared, nil
	}, func(r *rig) {
		first := r.ask(order, "k-1", "a book")
		require.NoError(r, first.err)
		require.False(r, first.replayed())
		for _, other := range []*answer{
			r.ask(order, "k-2", "a book"),
			r.ask(order, `"k-1=U%3D"`, "a book"),
			r.ask(order, `"k-1=U="`, "a book"),
			r.ask(order, `"k-1=U%253D"`, "a book"),
			r.ask(pay, "k-1", "a book"),
			r.call(r.Context(), order, &pb.ErrorInfo{Domain: "a book"}, metadata.Pairs("x-user", "bob", "idempotency-key", "k-1")),
		} {
			require.NoError(r, other.err)
			require.False(r, other.replayed(), "another key, method or user is another operation")
			require.NotEqual(r, first.response.GetReason(), other.response.GetReason())
		}
		for _, key := range []string{"k-1", `"k-1"`} { // one key, in two spellings
			replay := r.ask(order, key, "a book")
			require.NoError(r, replay.err)
			require.True(r, replay.replayed())
			require.True(r, proto.Equal(first.response, replay.response))
		}
	})
}

// A map has no order on the wire: a retry with the same entries is the same request.
func TestFingerprint(t *testing.T) {
	entries := make(map[string]string)
	for i := range 20 {
		entries[strconv.Itoa(i)] = "x"
	}
	each(t, config{}, echo(), func(r *rig) {
		md := metadata.Pairs("x-user", "ann", "idempotency-key", "k-1")
		for i := range 10 {
			a := r.call(r.Context(), order, &pb.ErrorInfo{Metadata: entries}, md)
			require.NoError(r, a.err)
			require.Equal(r, i > 0, a.replayed())
		}
		if strings.Contains(r.Name(), "JSON") {
			return // it has no unknown fields
		}
		unknown := &pb.ErrorInfo{Metadata: entries}
		unknown.ProtoReflect().SetUnknown([]byte{0x98, 0x06, 0x01}) // field 99
		require.Equal(r, "KEY_REUSED", r.call(r.Context(), order, unknown, md).reason(t), "a field that the server does not know counts")
	})
}

// Which codes are kept, and which released; errors are replayed with all that they have.
func TestStatuses(t *testing.T) {
	details := []*anypb.Any{packed(t, &pb.LocalizedMessage{Locale: "de", Message: "Konto leer"}),
		{TypeUrl: "type.googleapis.com/shop.v1.Unknown", Value: []byte{0x0a, 0x00, 0x08, 0x80, 0x00}}} // not as Protobuf would write it
	status := func(c *served) (*pb.ErrorInfo, *failure) {
		if c.request.GetDomain() == "deadline" {
			return nil, &failure{err: fmt.Errorf("bank: %w", context.DeadlineExceeded)}
		}
		code, _ := strconv.Atoi(c.request.GetDomain())
		return nil, &failure{code: codes.Code(code), message: "no: 50 % off\n", details: details}
	}
	kept := map[codes.Code]bool{codes.InvalidArgument: true, codes.NotFound: true, codes.AlreadyExists: true, codes.PermissionDenied: true,
		codes.FailedPrecondition: true, codes.OutOfRange: true, codes.Unauthenticated: true}
	each(t, config{}, status, func(r *rig) {
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			var answers [2]*answer
			for i := range answers {
				a := r.ask(order, "k-"+code.String(), fmt.Sprint(uint32(code)))
				require.Equal(r, code, a.code)
				require.Equal(r, "no: 50 % off\n", a.message)
				require.Len(r, a.details, 2)
				for j := range details {
					require.True(r, proto.Equal(details[j], a.details[j]), "the details are byte for byte as they were")
				}
				answers[i] = a
			}
			require.False(r, answers[0].replayed())
			require.Equal(r, kept[code], answers[1].replayed(), code)
		}
	})
	overridden := config{failed: func(c codes.Code) bool { return c == codes.NotFound }}
	each(t, overridden, status, func(r *rig) {
		for code, replayed := range map[codes.Code]bool{codes.NotFound: false, codes.Unavailable: true} {
			r.ask(order, "k-"+code.String(), fmt.Sprint(uint32(code)))
			require.Equal(r, replayed, r.ask(order, "k-"+code.String(), fmt.Sprint(uint32(code))).replayed(), code)
		}
	})
	for _, policy := range []core.TaskPolicy{
		{Record: core.Record{OnFailure: core.Keep}},
		{Record: core.Record{OnFailure: core.Keep, OnSuccess: core.Release}, Duplicate: core.Wait(time.Minute)},
	} {
		each(t, config{Config: rpckit.Config{Policy: policy}}, status, func(r *rig) {
			for text, code := range map[string]codes.Code{"14": codes.Unavailable, "deadline": codes.DeadlineExceeded} {
				r.ask(order, text, text)
				a := r.ask(order, text, text)
				require.Equal(r, code, a.code)
				require.True(r, a.replayed(), "the policy keeps failures")
			}
		})
	}
}

// A message that is no UTF-8 is replayed as gRPC sends it: with a replacement for each byte that is none.
func TestMessageThatIsNoText(t *testing.T) {
	each(t, config{}, func(*served) (*pb.ErrorInfo, *failure) {
		return nil, &failure{code: codes.NotFound, message: "caf\xe9 \xff\xfe"}
	}, func(r *rig) {
		for i := range 2 {
			a := r.ask(order, "k-1", "")
			require.Equal(r, codes.NotFound, a.code, a.message)
			require.Equal(r, i > 0, a.replayed())
			require.Equal(r, "caf\ufffd \ufffd\ufffd", string([]rune(a.message)))
		}
	})
}

// What a handler returns is a failure, whatever the code says.
func TestFailures(t *testing.T) {
	secret := errors.New("the password of the store is hunter2")
	limited := core.NewRefusal(idem.RateLimited, secret)
	detailed := func(m proto.Message) failure {
		return failure{code: codes.FailedPrecondition, details: []*anypb.Any{packed(t, m)}}
	}
	for name, c := range map[string]struct {
		failure
		code             codes.Code
		reason, pushback string
	}{
		"a status with RetryInfo": {detailed(&pb.RetryInfo{RetryDelay: durationpb.New(1)}), codes.FailedPrecondition, "", ""},
		"another service's refusal": {detailed(&pb.ErrorInfo{Domain: rpckit.Domain, Reason: "KEY_REUSED"}),
			codes.FailedPrecondition, "KEY_REUSED", ""},
		"a refusal of core":              {failure{err: fmt.Errorf("limit: %w", limited)}, codes.ResourceExhausted, "RATE_LIMITED", "1000"},
		"a refusal that became a status": {failure{code: codes.Aborted, message: "again", behind: limited}, codes.Aborted, "", ""},
		"no transaction":                 {failure{err: core.NewRefusal(idem.NoRun, secret)}, codes.Internal, "NO_RUN", "-1"},
		"any error":                      {failure{err: errors.New("no such file")}, codes.Unknown, "", ""},
		"the end of another context":     {failure{err: fmt.Errorf("bank: %w", context.DeadlineExceeded)}, codes.DeadlineExceeded, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, disposition := range []core.Disposition{core.Release, core.Keep} {
				if disposition == core.Keep && c.reason == "" {
					continue // only a refusal is not kept then
				}
				runs := 0
				policy := core.TaskPolicy{Record: core.Record{OnFailure: disposition}}
				each(t, config{Config: rpckit.Config{Policy: policy}}, func(*served) (*pb.ErrorInfo, *failure) {
					runs++
					return nil, &c.failure
				}, func(r *rig) {
					runs = 0
					for i := range 2 {
						a := r.ask(order, "k-1", "")
						require.Equal(r, c.code, a.code, a.message)
						require.NotContains(r, a.message, "hunter2")
						require.Equal(r, c.reason, a.reason(r.T))
						require.Equal(r, c.pushback, strings.Join(a.header[rpckit.Pushback], ","))
						require.Equal(r, i+1, runs)
					}
				})
			}
		})
	}
}

func TestPanic(t *testing.T) {
	panics := true
	each(t, config{}, func(*served) (*pb.ErrorInfo, *failure) {
		if panics = !panics; !panics {
			panic("the handler's")
		}
		return new(pb.ErrorInfo), nil
	}, func(r *rig) {
		require.Equal(r, codes.Internal, r.ask(order, "k-1", "").code)
		require.NoError(r, r.ask(order, "k-1", "").err)
		require.True(r, r.ask(order, "k-1", "").replayed())
	})
}

// refusals are all that a guard refuses by itself.
var refusals = []struct {
	name     string
	config   rpckit.Config
	before   func(r *rig)
	md       []string // beside those of an ordinary call
	code     codes.Code
	refusal  idem.Code
	pushback string
}{
	{name: "no key", md: []string{"x-user", "ann"}, code: codes.InvalidArgument, refusal: idem.KeyMissing, pushback: "-1"},
	{name: "a binary key", md: []string{"x-user", "ann", "idempotency-key-bin", "\xff\x00"},
		code: codes.InvalidArgument, refusal: idem.KeyMissing, pushback: "-1"},
	{name: "an empty key", md: []string{"x-user", "ann", "idempotency-key", ""},
		code: codes.InvalidArgument, refusal: idem.KeyInvalid, pushback: "-1"},
	{name: "two keys", md: []string{"x-user", "ann", "idempotency-key", "k-1", "idempotency-key", "k-1"},
		code: codes.InvalidArgument, refusal: idem.KeyInvalid, pushback: "-1"},
	{name: "a list", md: []string{"x-user", "ann", "idempotency-key", "k-1, k-2"},
		code: codes.InvalidArgument, refusal: idem.KeyInvalid, pushback: "-1"},
	{name: "a key of 256 bytes", md: []string{"x-user", "ann", "idempotency-key", strings.Repeat("k", 256)},
		code: codes.InvalidArgument, refusal: idem.KeyInvalid, pushback: "-1"},
	{name: "no user", md: []string{"idempotency-key", "k-1"}, code: codes.Unauthenticated, refusal: idem.UserMissing, pushback: "-1"},
	{name: "an unknown user", config: rpckit.Config{User: func(context.Context) (string, error) { return "ann", errors.New("hunter2") }},
		code: codes.Unauthenticated, refusal: idem.UserMissing, pushback: "-1"},
	{name: "other parameters", before: func(r *rig) { r.ask(order, "k-1", "a pen") },
		code: codes.FailedPrecondition, refusal: idem.KeyReused, pushback: "-1"},
	{name: "running", before: func(r *rig) { r.NextIsRunning(time.Minute) },
		code: codes.Unavailable, refusal: idem.InProgress, pushback: "1000"},
	{name: "running, and may have died", before: func(r *rig) { r.NextIsRunning(10 * time.Second) },
		code: codes.Unavailable, refusal: idem.InProgress, pushback: `\d{4}`},
	{name: "uncertain", config: rpckit.Config{Policy: core.TaskPolicy{Record: core.Record{Abandoned: core.Uncertain(nil)}}},
		before: func(r *rig) { r.NextIsAbandoned(1) }, code: codes.FailedPrecondition, refusal: idem.Uncertain, pushback: "-1"},
	{name: "done, and rejected", config: rpckit.Config{Policy: core.TaskPolicy{Duplicate: core.Reject("")}},
		before: func(r *rig) { r.ask(order, "k-1", "a book") }, code: codes.AlreadyExists, refusal: idem.Duplicate, pushback: "-1"},
	{name: "too large to be stored", config: rpckit.Config{Policy: core.TaskPolicy{ResultLimit: 10}}, code: codes.FailedPrecondition,
		before: func(r *rig) { require.NoError(r, r.ask(order, "k-1", "a book").err) }, refusal: idem.ResultUnavailable, pushback: "-1"},
	{name: "not authorised", config: rpckit.Config{Authorize: func(_ context.Context, method string, request any) error {
		if method != order || request.(*pb.ErrorInfo).GetDomain() != "a book" {
			return nil
		}
		return errors.New("hunter2")
	}}, before: func(r *rig) { require.NoError(r, r.ask(order, "k-1", "a book").err) },
		code: codes.PermissionDenied, refusal: idem.NotAuthorized, pushback: "-1"},
	{name: "the store is down", before: func(r *rig) { r.Fail(idemtest.Acquire) }, code: codes.Unavailable, refusal: idem.StoreUnavailable},
	{name: "shutting down", before: func(r *rig) { require.NoError(r, r.Drain(r.Context())) },
		code: codes.Unavailable, refusal: idem.ShuttingDown},
}

func TestRefusals(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			each(t, config{Config: c.config}, echo(), func(r *rig) {
				if c.before != nil {
					c.before(r)
				}
				runs := r.Count(core.Started, "DO "+order)
				md := metadata.Pairs("x-user", "ann", "idempotency-key", "k-1")
				if c.md != nil {
					md = metadata.Pairs(c.md...)
				}
				a := r.call(r.Context(), order, &pb.ErrorInfo{Domain: "a book"}, md)
				require.Equal(r, c.code, a.code, a.message)
				require.Equal(r, strings.ToUpper(string(c.refusal)), a.reason(r.T))
				require.Equal(r, c.refusal.Detail(), a.message)
				require.Regexp(r, "^"+c.pushback+"$", strings.Join(a.header[rpckit.Pushback], ","))
				require.False(r, a.replayed())
				r.WantRuns("DO "+order, runs)
			})
		})
	}
}

func TestMetadata(t *testing.T) {
	stored := config{Config: rpckit.Config{StoredMetadata: []string{"X-Order", "x-receipt-bin"}}}
	handle := func(c *served) (*pb.ErrorInfo, *failure) {
		for _, md := range []metadata.MD{c.header, c.trailer} {
			md.Append("x-order", "17", "18")
			md.Append("x-receipt-bin", "\x00\xff\xfe")
			md.Append("x-request-id", "r-1")
			md.Append("set-cookie", "session=ann")
		}
		if c.request.GetDomain() == "fails" {
			return nil, &failure{code: codes.FailedPrecondition}
		}
		return new(pb.ErrorInfo), nil
	}
	each(t, stored, handle, func(r *rig) {
		for _, text := range []string{"succeeds", "fails"} {
			first, replay := r.ask(order, text, text), r.ask(order, text, text)
			require.True(r, replay.replayed())
			for _, name := range []string{"x-order", "x-receipt-bin"} {
				require.Equal(r, first.header[name], replay.header[name], name)
				require.NotEmpty(r, replay.header[name])
			}
			require.Equal(r, []string{"17", "18", "17", "18"}, replay.header["x-order"])
			for _, name := range []string{"x-request-id", "set-cookie"} {
				require.NotEmpty(r, first.header[name], name)
				require.Empty(r, replay.header[name], name)
			}
		}
	})
}

// A call's deadline ends its run. A handler that gives up has failed, and a duplicate that waits runs; one that answers all the same
// has answered.
func TestDeadline(t *testing.T) {
	var begun atomic.Bool
	each(t, waiting(time.Minute), func(c *served) (*pb.ErrorInfo, *failure) {
		if _, limited := c.Deadline(); limited {
			begun.Store(true)
			<-c.Done()
			if c.request.GetDomain() == "gives-up" {
				return nil, &failure{err: context.Cause(c)}
			}
		}
		return new(pb.ErrorInfo), nil
	}, func(r *rig) {
		for _, text := range []string{"gives-up", "answers"} {
			begun.Store(false)
			for limit := 20 * time.Millisecond; !begun.Load(); limit *= 2 { // on a slow machine it may pass on the way
				ctx, cancel := context.WithTimeout(r.Context(), limit)
				a := r.call(ctx, order, &pb.ErrorInfo{Domain: text}, metadata.Pairs("x-user", "ann", "idempotency-key", text))
				require.True(r, a.code == codes.DeadlineExceeded || a.err == nil && text == "answers", a.err)
				cancel()
			}
			a := r.ask(order, text, text)
			require.NoError(r, a.err)
			require.Equal(r, text == "answers", a.replayed())
		}
	})
}

// A client that leaves does not end what it has begun, unless Linger says so.
func TestClientLeaves(t *testing.T) {
	begun := make(chan struct{}, 1)
	leave := func(r *rig) {
		ctx, cancel := context.WithCancel(r.Context())
		go func() {
			<-begun
			cancel()
		}()
		a := r.call(ctx, order, new(pb.ErrorInfo), metadata.Pairs("x-user", "ann", "idempotency-key", "k-1"))
		require.Equal(r, codes.Canceled, a.code)
	}
	each(t, waiting(time.Minute), func(c *served) (*pb.ErrorInfo, *failure) {
		begun <- struct{}{}
		<-c.outer().Done()
		assert.NoError(t, c.Err(), "the run goes on")
		return new(pb.ErrorInfo), nil
	}, func(r *rig) {
		leave(r)
		require.True(r, r.ask(order, "k-1", "").replayed())
	})
	ends := waiting(time.Minute)
	ends.Linger = -1
	var runs atomic.Int64
	each(t, ends, func(c *served) (*pb.ErrorInfo, *failure) {
		if runs.Add(1)%2 == 1 {
			begun <- struct{}{}
			<-c.Done()
			return nil, &failure{err: c.Err()}
		}
		return new(pb.ErrorInfo), nil
	}, func(r *rig) {
		leave(r)
		a := r.ask(order, "k-1", "")
		require.NoError(r, a.err)
		require.False(r, a.replayed(), "the run was given up")
	})
}

// A run that a shutdown ends is refused, so that the client tries another instance.
func TestShutdown(t *testing.T) {
	begun := make(chan struct{}, 1)
	for reason, own := range map[string]*failure{"SHUTTING_DOWN": nil, "": {code: codes.Aborted}} { // what the handler answers
		each(t, config{}, func(c *served) (*pb.ErrorInfo, *failure) {
			begun <- struct{}{}
			<-c.Done()
			if own != nil {
				return nil, own
			}
			return nil, &failure{err: c.Err()}
		}, func(r *rig) {
			go func() {
				<-begun
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				_ = r.Drain(ended)
			}()
			a := r.ask(order, "k-1", "")
			require.Equal(r, own == nil, a.code == codes.Unavailable, a.code)
			require.Equal(r, reason, a.reason(r.T))
		})
	}
}

func TestPassing(t *testing.T) {
	each(t, config{}, echo(), func(r *rig) {
		passing, err := r.passing()
		require.NoError(r, err)
		require.Equal(r, []string{read, watch}, passing)
		for range 2 {
			for _, method := range passing {
				a := r.call(r.Context(), method, new(pb.ErrorInfo), nil)
				require.NoError(r, a.err, method)
				require.False(r, a.replayed())
			}
		}
		require.Empty(r, r.Events())
	})
	named := config{Config: rpckit.Config{Methods: []string{pay, watch, read, "/idem.test.Shop/Odrer"}}}
	each(t, named, echo(), func(r *rig) {
		passing, err := r.passing()
		require.Equal(r, []string{order, read, watch}, passing)
		require.ErrorContains(r, err, "idem.Config.Methods: "+watch+" is a stream")
		require.ErrorContains(r, err, read+" is declared to have no side effects")
		require.ErrorContains(r, err, "/idem.test.Shop/Odrer is not a method")
		require.Equal(r, "KEY_MISSING", r.call(r.Context(), pay, new(pb.ErrorInfo), metadata.Pairs("x-user", "ann")).reason(r.T))
		require.NoError(r, r.call(r.Context(), order, new(pb.ErrorInfo), nil).err)
	})
}

func TestOptionalKey(t *testing.T) {
	run := echo()
	each(t, config{Config: rpckit.Config{Presence: core.Optional}}, func(c *served) (*pb.ErrorInfo, *failure) {
		_, err := core.RequireRun(c)
		assert.Equal(t, core.RunFrom(c).Unprotected(), errors.Is(err, idem.KeyMissing))
		n, err := core.Step(c, "step", func(context.Context) (int, error) { return 7, nil })
		assert.Equal(t, 7, n)
		assert.NoError(t, err)
		return run(c)
	}, func(r *rig) {
		for range 2 {
			a := r.call(r.Context(), order, new(pb.ErrorInfo), nil)
			require.NoError(r, a.err)
			require.False(r, a.replayed())
		}
		r.ask(order, "k-1", "")
		require.True(r, r.ask(order, "k-1", "").replayed())
	})
}

func TestKeyField(t *testing.T) {
	each(t, config{field: "reason"}, echo(), func(r *rig) {
		md := metadata.Pairs("x-user", "ann", "idempotency-key", "k-1")
		ask := func(key, text string) *answer {
			return r.call(r.Context(), order, &pb.ErrorInfo{Reason: key, Domain: text}, md)
		}
		require.False(r, ask("ä b,c", "a book").replayed())
		require.True(r, ask("ä b,c", "a book").replayed())
		require.False(r, ask("ä b", "a book").replayed())
		require.Equal(r, "KEY_REUSED", ask("ä b,c", "a pen").reason(r.T))
		require.Equal(r, "KEY_MISSING", ask("", "a book").reason(r.T))
		require.NoError(r, ask(strings.Repeat("k", 255), "a book").err)
		require.Equal(r, "KEY_INVALID", ask(strings.Repeat("k", 256), "a book").reason(r.T))
	})
	for presence, passing := range map[core.Presence][]string{core.Required: {read, watch}, core.Optional: {order, pay, read, watch}} {
		for _, field := range []string{"request_id", "metadata"} { // none, and one that is no string
			each(t, config{field: field, Config: rpckit.Config{Presence: presence}}, echo(), func(r *rig) {
				got, err := r.passing()
				require.Equal(r, passing, got)
				require.Equal(r, presence == core.Required, err != nil)
				require.Equal(r, presence == core.Required, r.ask(order, "k-1", "").reason(r.T) == "KEY_MISSING")
			})
		}
	}
}

func TestSharedByAllCallers(t *testing.T) {
	each(t, config{Config: rpckit.Config{SharedByAllCallers: true}}, echo(), func(r *rig) {
		r.call(r.Context(), order, new(pb.ErrorInfo), metadata.Pairs("idempotency-key", "k-1"))
		require.True(r, r.ask(order, "k-1", "").replayed())
	})
}

func TestFailOpen(t *testing.T) {
	each(t, config{Config: rpckit.Config{Policy: core.TaskPolicy{FailOpen: true}}}, echo(), func(r *rig) {
		r.Fail(idemtest.Acquire)
		a := r.ask(order, "k-1", "a book")
		require.NoError(r, a.err)
		require.Equal(r, "a book", a.response.GetDomain())
	})
}

// A client's interceptor makes one key for one call, and keeps it over all tries.
func TestClient(t *testing.T) {
	var mu sync.Mutex
	var keys []string
	var fail func(try int)
	c := config{}
	c.User = func(context.Context) (string, error) { return "ann", nil }
	c.before = func(ctx context.Context) {
		mu.Lock()
		defer mu.Unlock()
		fail(len(keys))
		keys = append(keys, strings.Join(sentBy(ctx, "idempotency-key"), ","))
	}
	each(t, c, echo(), func(r *rig) {
		tries := func(failing int, call caller, md metadata.MD) (code codes.Code, sent []string) {
			mu.Lock()
			keys, fail = nil, func(try int) {
				if r.Fail(); try < failing {
					r.Fail(idemtest.Acquire)
				}
			}
			mu.Unlock()
			code = call(r.Context(), order, new(pb.ErrorInfo), md).code
			mu.Lock()
			defer mu.Unlock()
			return code, keys
		}
		own := metadata.Pairs("idempotency-key", "k-1")
		seen := make(map[string]bool)
		for _, c := range []struct {
			retry   codes.Code // OK: none
			failing int
			md      metadata.MD
			code    codes.Code
			tries   int
		}{
			{codes.OK, 0, nil, codes.OK, 1},
			{codes.OK, 0, nil, codes.OK, 1},
			{codes.OK, 1, nil, codes.Unavailable, 1},
			{codes.DeadlineExceeded, 1, nil, codes.Unavailable, 1},
			{codes.Unavailable, 1, nil, codes.OK, 2},
			{codes.Unavailable, 1, own, codes.OK, 2},
		} {
			code, sent := tries(c.failing, r.again(c.retry), c.md)
			require.Equal(r, c.code, code)
			require.Len(r, sent, c.tries)
			for _, key := range sent {
				require.Equal(r, sent[0], key)
			}
			require.Equal(r, c.md != nil, sent[0] == "k-1", "the caller's key stays")
			require.NotEmpty(r, sent[0])
			require.False(r, seen[sent[0]], "another call has another key")
			seen[sent[0]] = true
		}
		r.WantRuns("DO "+order, 4)

		mu.Lock()
		fail = func(int) {}
		mu.Unlock()
		require.NoError(r, r.again(codes.OK)(r.Context(), read, new(pb.ErrorInfo), nil).err)
		require.Empty(r, keys[len(keys)-1], "what has no side effects gets no key")
	})
}
