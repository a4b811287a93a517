package adaptertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// finishCases: what has been begun is finished; what has been given up is no result.
var finishCases = slices.Concat(givenUpCases, shutdownCases, []testCase{
	{
		name: "a status, when the context has ended",
		why:  "adapter.Empty: a status without a body is an answer",
		app:  App{Deadline: shortly},
		handler: func(_ *probe, c Call, _ int) error {
			<-c.Context().Done()
			return c.NoContent(204)
		},
		steps: []step{
			ask{anOrder, want{status: 204}, ""},
			ask{anOrder, want{status: 204, kind: replay}, ""},
		},
	},
	{
		name: "a stream, when the context has ended",
		why:  "what has been streamed is an answer, even if it came too late: the run is abandoned, not refused",
		app:  App{Deadline: shortly},
		handler: func(h *probe, c Call, n int) error {
			if n == 1 {
				<-c.Context().Done()
			}
			return c.Stream(200, "text/plain", func(w io.Writer, flush func()) error {
				defer flush()
				_, err := io.WriteString(w, "late")
				return err
			})
		},
		noBare: true,
		loose:  true,
		steps: []step{
			ask{anOrder, want{status: 200, body: "late"}, ""},
			awaitRuns{},
			observed(core.RunAbandoned),
			ask{unlimited, want{status: 200, body: "late"}, ""}, // the stream may end later than its handler
			awaitRuns{},
			ask{unlimited, refused(codes.ResultUnavailable), ""},
		},
	},
	{
		name:     "a large answer, and nobody there",
		why:      "adapter.Cut: what has been done must not be done again because a large answer could not be delivered",
		incoming: true,
		handler: func(h *probe, c Call, n int) error {
			h.hold()
			piece := strings.Repeat("x", 1<<20)
			_ = c.Write(200, "text/plain", false, piece, piece, piece) // to nobody
			return nil
		},
		noBare: true,
		steps: []step{
			begin{"first", anOrder},
			leave{"first"},
			resume(1),
			awaitRuns{},
			ask{anOrder, refused(codes.ResultUnavailable), ""},
			executions(1),
			observed(core.Completed),
		},
	},
	{
		name:    "a stream whose client leaves",
		why:     "a streamed response ties the run to the client, and a stream that was cut short is abandoned, not done",
		handler: streamForever,
		noBare:  true,
		steps: []step{
			send{"first", anOrder},
			listen{"first", "begun;"},
			leave{"first"},
			awaitRuns{},
			observed(core.RunAbandoned),
			ask{anOrder, want{status: 200}, ""},
			ask{anOrder, want{status: 200, kind: replay}, ""},
			executions(2),
		},
	},
	{
		name: "a run lasts as long as its stream",
		why: "the context and the claim of a run whose response is streamed stand until the stream has " +
			"ended, wherever the framework writes it",
		handler: func(h *probe, c Call, n int) error {
			ctx := c.Context()
			return c.Stream(200, "text/event-stream", func(w io.Writer, flush func()) error {
				_, _ = io.WriteString(w, "begun;")
				flush()
				h.hold()
				if err := ctx.Err(); err != nil {
					h.s.Errorf("the run has ended before its stream: %v", err)
				}
				_, err := io.WriteString(w, "done")
				return err
			})
		},
		noBare: true,
		steps: []step{
			send{"first", anOrder},
			listen{"first", "begun;"},
			entered(1),
			ask{anOrder, refused(codes.InProgress), ""},
			resume(1),
			listen{"first", "done"},
			awaitRuns{},
			ask{anOrder, refused(codes.ResultUnavailable), ""},
			executions(1),
			observed(core.Completed),
		},
	},
	{
		name: "a panic after the answer",
		why: "client and record tell the same story: the answer that was held back is dropped, and what described it does " +
			"not describe that of whoever recovers",
		app:     App{Outer: []adapter.Field{field("X-Frame-Options", "DENY")}},
		ownText: true,
		noBare:  true,
		handler: panicsAfterAnswer,
		steps:   afterPanic,
	},
	{
		name:    "a panic after the answer, under an error middleware",
		why:     "the same where a claim waits for the middleware that renders errors",
		needs:   Features{OuterErrors: true},
		app:     App{Errors: true, Outer: []adapter.Field{field("X-Frame-Options", "DENY")}},
		ownText: true,
		noBare:  true,
		handler: panicsAfterAnswer,
		steps:   afterPanic,
	},
	{
		name:  "a panic in the middle of a stream",
		why:   "what has left already can't be dropped: the run is abandoned",
		needs: Features{Flush: true},
		loose: true,
		handler: func(h *probe, c Call, n int) error {
			if n > 1 {
				return reportRun(h, c, n)
			}
			_ = c.Write(200, "text/plain", true, "begun;")
			panic(http.ErrAbortHandler)
		},
		noBare: true,
		steps: []step{
			send{"first", anOrder},
			listen{"first", "begun;"},
			awaitRuns{},
			observed(core.RunAbandoned),
			ask{anOrder, want{status: 200}, ""},
			then(func(s *env) {
				if got := string(s.firsts[0].body); !strings.HasPrefix(got, "attempt 2, takeover true") {
					s.Errorf("the second run is %q", got)
				}
			}),
		},
	},
	{
		name: "a proxy whose client leaves before an answer of unknown length",
		why: "a reverse proxy flushes an answer whose length it does not know: that ties the run to no client that has left before, " +
			"for what the service behind has done must not be done again",
		incoming: true,
		noBare:   true,
		handler:  func(h *probe, c Call, _ int) error { return c.Proxy(h.backend) },
		backend: func(h *probe, w http.ResponseWriter, r *http.Request) {
			h.hold()
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "paid")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, " by card")
		},
		loose: true,
		steps: []step{
			begin{"first", anOrder},
			leave{"first"},
			resume(1),
			awaitRuns{},
			ask{anOrder,
				want{status: 201, kind: answered, body: "paid by card", fields: []adapter.Field{field(core.ReplayedHeader, "true")}}, ""},
			executions(1),
			observed(core.Completed),
		},
	},
	{
		name:     "a stream that nobody has seen",
		why:      "adapter.MayStream: it is held back, but what was cut short, here by the end of the context, is no answer",
		needs:    Features{ContextEnds: true},
		policy:   core.Policy{Linger: shortly},
		incoming: true,
		handler: func(h *probe, c Call, n int) error {
			if n == 1 {
				h.hold()
			}
			return streamForever(h, c, n)
		},
		noBare: true,
		steps: []step{
			begin{"first", anOrder},
			leave{"first"},
			resume(1),
			awaitRuns{},
			observed(core.RunAbandoned),
			ask{anOrder, want{status: 200}, ""},
			ask{anOrder, want{status: 200, kind: replay}, ""},
			executions(2),
		},
	},
})

// unlimited is an order without the application's deadline.
var unlimited = request{body: order, fields: []adapter.Field{field(UnlimitedHeader, "1")}}

const shortly = 20 * time.Millisecond

// ping is what an endless stream says again and again, and nobody listens to: how much of it comes in
// one chunk with the text before it depends on the moment.
const ping = ":\n"

// streamForever streams until nobody is there, the first time.
func streamForever(h *probe, c Call, n int) error {
	if n > 1 {
		return reportRun(h, c, n)
	}
	ctx := c.Context()
	return c.Stream(200, "text/event-stream", func(w io.Writer, flush func()) error {
		_, _ = io.WriteString(w, "begun;")
		flush()
		for ctx.Err() == nil {
			select {
			case <-h.done:
				return nil
			case <-time.After(time.Millisecond):
			}
			if _, err := io.WriteString(w, ping); err != nil {
				return err
			}
			flush()
		}
		return nil
	})
}

// afterPanic: the header is what it was in front of the guard.
var afterPanic = []step{
	ask{anOrder, want{status: 500, absent: []string{"Location", "Content-Encoding", "Etag"},
		fields: []adapter.Field{field("X-Frame-Options", "DENY")}}, ""},
	ask{anOrder, created, ""},
	ask{anOrder, replayed, ""},
	observed(core.Released),
}

func panicsAfterAnswer(h *probe, c Call, n int) error {
	if n > 1 {
		return receipt(h, c, n)
	}
	c.SetHeader("Etag", `"1"`)
	c.SetHeader("X-Frame-Options", "SAMEORIGIN")
	_ = receipt(h, c, n)
	panic("adaptertest: the handler panics after its answer")
}

// givesUp returns a handler that gives up in this way when its context has ended, the first time.
func givesUp(give func(c Call) error) func(*probe, Call, int) error {
	return func(h *probe, c Call, n int) error {
		if n > 1 {
			return receipt(h, c, n)
		}
		h.entered <- struct{}{}
		select {
		case <-c.Context().Done():
		case <-h.done:
		}
		return give(c)
	}
}

// givenUpCases: each way to give up, when the client has left and when a deadline has passed.
var givenUpCases = func() (all []testCase) {
	for _, way := range []struct {
		name string
		deaf bool
		give func(Call) error
	}{
		{"by nothing", false, func(Call) error { return nil }},
		{"by 499", false, func(c Call) error { return c.NoContent(499) }},
		{"by an error that is ignored", true, func(c Call) error {
			return c.Report(fmt.Errorf("ask the bank: %w", c.Context().Err()))
		}},
	} {
		for _, rendered := range []bool{false, true} {
			where, needs := "", Features{}
			if rendered {
				where, needs = ", under an error middleware", Features{OuterErrors: true}
			}
			clientKey := core.Policy{Key: core.Header(core.Required), Linger: -1}
			anOrder := request{keys: []string{"k-1"}, body: order}
			left := testCase{
				name:     "given up " + way.name + ", the client gone" + where,
				why:      "client left, handler gave up: failed, released; the next try runs, never an empty replay",
				needs:    needs,
				policy:   clientKey,
				app:      App{Errors: rendered, IgnoreContextErrors: way.deaf},
				incoming: true,
				handler:  givesUp(way.give),
				noBare:   true,
				steps: []step{
					begin{"first", anOrder},
					leave{"first"},
					awaitRuns{},
					observed(core.Released),
					ask{anOrder, created, ""},
					ask{anOrder, replayed, ""},
				},
			}
			left.needs.ContextEnds = true
			late := left
			late.name = "given up " + way.name + ", at a deadline" + where
			late.why = "a deadline ends the run's context at once; who then gives up has failed"
			late.needs, late.incoming = needs, false
			late.policy.Linger = 0
			late.app.Deadline = shortly
			late.loose = true // Gin leaves an error without an answer to whoever is in front
			late.steps = []step{
				sendUnchecked{anOrder},
				then(func(s *env) {
					s.Helper()
					switch got := s.firsts[0]; {
					case way.deaf && s.h.Name == "gin":
					case way.name == "by 499":
						if got.status != 499 {
							s.Errorf("status %d", got.status)
						}
					default:
						s.checkRefusal(got, codes.Unfinished)
					}
				}),
				observed(core.Released),
				ask{anOrder, created, ""},
				ask{anOrder, replayed, ""},
			}
			all = append(all, left, late)
		}
	}
	return all
}()

// shutdownCases: what handlers answer when a shutdown has ended their contexts is not the operation's answer.
var shutdownCases = func() (all []testCase) {
	for name, give := range map[string]func(Call) error{
		"by an error": func(c Call) error { return c.Report(fmt.Errorf("ask the bank: %w", c.Context().Err())) },
		"by a 500":    func(c Call) error { return c.NoContent(500) },
	} {
		for _, rendered := range []bool{false, true} {
			where, needs := "", Features{}
			if rendered {
				where, needs = ", under an error middleware", Features{OuterErrors: true}
			}
			all = append(all, testCase{
				name:    "a shutdown that is answered " + name + where,
				why:     "a client takes a 500 for the operation's answer: it gets 503 shutting_down, and tries again elsewhere",
				needs:   needs,
				policy:  core.Policy{Key: core.Header(core.Required)},
				app:     App{Errors: rendered},
				handler: givesUp(give),
				noBare:  true,
				steps: []step{
					begin{"first", request{keys: []string{"k-1"}, body: order}},
					then(func(s *env) {
						over, cancel := context.WithCancel(s.Context())
						cancel()
						_ = s.engine.Drain(over)
					}),
					await{"first", refused(codes.ShuttingDown)},
					observed(core.Released),
				},
			})
		}
	}
	return all
}()
