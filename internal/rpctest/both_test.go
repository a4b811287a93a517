package rpctest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem/adapterkit/rpckit"
	"github.com/idem-go/idem/connectidem"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/grpcidem"
	"github.com/idem-go/idem/idemtest"
)

// A service may move from one server to the other: what one has stored the other replays.
func TestOneStoreForBoth(t *testing.T) {
	c := config{Config: rpckit.Config{StoredMetadata: []string{"x-order", "x-receipt-bin"}}}
	details := packed(t, &pb.LocalizedMessage{Locale: "de", Message: "Konto leer"})
	engine := idemtest.New(t, core.Config{})
	handle := func(c *served) (*pb.ErrorInfo, *failure) {
		c.header.Append("x-order", "17")
		c.trailer.Append("x-receipt-bin", "\x00\xff")
		if c.request.GetDomain() == "fails" {
			failed := &failure{code: codes.FailedPrecondition, message: "no"}
			failed.details = append(failed.details, details)
			return nil, failed
		}
		return &pb.ErrorInfo{Reason: "done", Metadata: map[string]string{"a": "b"}}, nil
	}
	var calls []caller
	for _, r := range rigs {
		addr, _ := r.server(t, engine.Engine, c, handle)
		calls = append(calls, r.client(t, addr))
	}
	for by, first := range calls {
		for _, text := range []string{"succeeds", "fails"} {
			md := metadata.Pairs("x-user", "ann", "idempotency-key", text+" by "+rigs[by].name)
			md.Set("idempotency-key", `"`+md.Get("idempotency-key")[0]+`"`)
			want := first(t.Context(), order, &pb.ErrorInfo{Domain: text}, md)
			require.False(t, want.replayed())
			for of, call := range calls {
				got := call(t.Context(), order, &pb.ErrorInfo{Domain: text}, md)
				require.True(t, got.replayed(), "%s of %s", rigs[of].name, rigs[by].name)
				require.True(t, want.err != nil || proto.Equal(want.response, got.response))
				require.Equal(t, want.code, got.code)
				require.Equal(t, want.message, got.message)
				require.Equal(t, len(want.details), len(got.details))
				for i := range want.details {
					require.True(t, proto.Equal(want.details[i], got.details[i]))
				}
				require.Equal(t, []string{"17"}, got.header["x-order"])
				require.Equal(t, []string{"\x00\xff"}, got.header["x-receipt-bin"])
			}
		}
	}
}

// A configuration with faults makes no guard. They name the package that somebody has configured.
func TestFaultsOfAConfiguration(t *testing.T) {
	engine := core.MustNew(core.Config{})
	_, err := grpcidem.New(engine, grpcidem.Config{})
	require.ErrorContains(t, err, "idem: grpcidem.Config.User: is not set")
	require.PanicsWithError(t, err.Error(), func() { grpcidem.MustNew(engine, grpcidem.Config{}) })
	_, err = connectidem.New(engine, connectidem.Config{})
	require.ErrorContains(t, err, "idem: connectidem.Config.User: is not set")
	require.PanicsWithError(t, err.Error(), func() { connectidem.MustNew(engine, connectidem.Config{}) })
}

// What has been found out about an abandoned run, by the service or by an operator, is what duplicates get.
func TestEncode(t *testing.T) {
	failed := &failure{code: codes.NotFound, message: "no such book"}
	for name, encode := range map[string]func(proto.Message, *failure) ([]byte, error){
		"grpcidem":    func(m proto.Message, f *failure) ([]byte, error) { return grpcidem.Encode(m, f.grpc()) },
		"connectidem": func(m proto.Message, f *failure) ([]byte, error) { return connectidem.Encode(m, f.connect()) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range []*failure{nil, failed} {
				answer, err := encode(&pb.ErrorInfo{Reason: "found"}, f)
				require.NoError(t, err)
				verdict := core.Unknown()
				c := config{Config: rpckit.Config{Policy: core.TaskPolicy{Record: core.Record{Abandoned: core.Uncertain(
					func(context.Context, core.Uncertainty) (core.Verdict, error) { return verdict, nil })}}}}
				each(t, c, echo(), func(r *rig) {
					verdict = core.Finished(answer)
					r.NextIsAbandoned(1)
					replayed := func(key string) {
						a := r.ask(order, key, "")
						require.True(r, a.replayed())
						require.Equal(r, f == nil, a.response.GetReason() == "found")
						if f != nil {
							require.Equal(r, f.code, a.code)
							require.Equal(r, f.message, a.message)
						}
					}
					replayed("k-1")

					verdict = core.Unknown()
					ops, err := operations.Of(r.Engine.Engine, operations.Options{})
					require.NoError(r, err)
					for key, value := range map[string][]byte{"k-2": answer, "k-3": []byte("no answer")} {
						r.NextIsAbandoned(1)
						require.Equal(r, "UNCERTAIN", r.ask(order, key, "").reason(r.T))
						op, err := ops.LookupKey(r.Context(), "ann", "DO "+order, key)
						require.NoError(r, err)
						require.NoError(r, ops.SettleTask(r.Context(), op, value, time.Hour, operations.By{Actor: "op", Reason: "found"}))
					}
					replayed("k-2")
					require.Equal(r, "RESULT_UNAVAILABLE", r.ask(order, "k-3", "").reason(r.T))
					r.WantRuns("DO "+order, 0)
				})
			}
			_, err := encode(nil, nil)
			require.Error(t, err, "nothing that can be stored")
		})
	}
}
