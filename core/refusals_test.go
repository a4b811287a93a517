package core_test

import (
	"cmp"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// An exported variable is one that everybody can change. There are none but errors, which are
// plain ones: nothing in them can be written to.
func TestExportedVariablesAreErrors(t *testing.T) {
	for dir, least := range map[string]int{".": 3, "adapter": 3, "store": 2} {
		files, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		seen := 0
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			for _, decl := range file.Decls {
				vars, ok := decl.(*ast.GenDecl)
				if !ok || vars.Tok != token.VAR {
					continue
				}
				for _, spec := range vars.Specs {
					v := spec.(*ast.ValueSpec)
					if !slices.ContainsFunc(v.Names, (*ast.Ident).IsExported) {
						continue
					}
					seen++
					require.Len(t, v.Names, 1)
					require.Len(t, v.Values, 1, v.Names[0])
					call, ok := v.Values[0].(*ast.CallExpr)
					require.True(t, ok, "%s is not made by errors.New", v.Names[0])
					assert.Equal(t, "errors.New", types.ExprString(call.Fun), v.Names[0])
				}
			}
		}
		assert.GreaterOrEqual(t, seen, least, dir)
	}
}

// Every code is told apart from every other one, by itself, by a refusal, and through what wraps one.
func TestCodesAreErrors(t *testing.T) {
	codes := []codes.Code{codes.InProgress, codes.Duplicate, codes.ResultUnavailable, codes.Uncertain,
		codes.KeyReused, codes.KeyExpired, codes.KeyMissing, codes.KeyInvalid, codes.TokenMissing, codes.TokenInvalid,
		codes.TokenExpired, codes.UserMissing, codes.BodyUnreadable,
		codes.BodyTooLarge, codes.BodyConsumed, codes.NotAuthorized, codes.RateLimited, codes.StoreUnavailable,
		codes.ShuttingDown, codes.Unfinished, codes.StoreNotShared, codes.GuardConflict, codes.NoRun}
	for _, a := range codes {
		r := &core.Refusal{Code: a, Detail: "Detail."}
		wrapped := errors.Join(errDown, r)
		assert.Equal(t, string(a), a.Error())
		assert.Equal(t, "idem: "+string(a)+": Detail.", r.Error())
		assert.NotEmpty(t, r.Code.Title(), a)
		assert.Equal(t, "https://github.com/idem-go/idem/blob/main/docs/problems.md#"+string(a), r.Code.Type())
		for _, b := range codes {
			assert.Equal(t, a == b, errors.Is(r, b))
			assert.Equal(t, a == b, errors.Is(wrapped, b))
		}
	}
}

// Refuse has a request to look at, also when a handler has none to show.
func TestRefuseWithoutARequest(t *testing.T) {
	asked := 0
	e := core.MustNew(core.Config{Refuse: func(_ context.Context, r *core.Refusal) *core.Response {
		asked++
		_, lines := r.Request.Headers.Header("Accept", 0)
		return &core.Response{Status: 200 + lines}
	}})
	_, err := core.Do(t.Context(), e.MustTask(core.TaskPolicy{Name: "t"}), core.Call{Key: "k"}, func(ctx context.Context) (int, error) {
		return core.RefusalResponse(ctx, core.NewRefusal(codes.KeyReused, nil), nil).Status, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, asked)
}

// A handler has given up: the refusal in place of its answer has its request, also if the answer was
// awaited from further out.
func TestRefuseForUnfinishedRuns(t *testing.T) {
	for _, deferred := range []bool{false, true} {
		for want, drained := range map[codes.Code]bool{codes.Unfinished: false, codes.ShuttingDown: true} {
			synctest.Test(t, func(t *testing.T) {
				var seen []codes.Code
				e := core.MustNew(core.Config{User: byUser, Refuse: func(ctx context.Context, r *core.Refusal) *core.Response {
					seen = append(seen, r.Code)
					id, _ := core.CallerFrom(ctx)
					assert.Equal(t, []string{"key-1", "POST", "/orders", "key-1"},
						[]string{id, r.Request.Method, r.Request.Route, r.Request.Caller})
					user, lines := r.Request.Headers.Header("X-User", 0)
					assert.Equal(t, "alice", user)
					assert.Equal(t, 1, lines)
					assert.IsType(t, (*call)(nil), r.Request.Native)
					return nil
				}})
				ctx, leave := context.WithCancel(core.WithCaller(t.Context(), "key-1"))
				empty := emptyAnswer()
				c := post("{}", nil).doing(func(run context.Context) adapter.Capture {
					if drained {
						go func() { _ = e.Drain(over()) }()
					} else {
						leave()
					}
					<-run.Done()
					if deferred {
						return deferring(run)
					}
					return empty
				})
				require.NoError(t, e.MustGuard(core.Policy{Linger: -1}).Serve(ctx, c))
				if deferred {
					c.finish(t, empty)
				}
				leave()
				assert.Equal(t, []codes.Code{want}, seen)
				assert.Equal(t, 503, c.response.Status)
				assert.Equal(t, string(want), c.response.Get(core.RefusedHeader))
				assert.Zero(t, c.delivered)
			})
		}
	}
}

func TestNewRefusal(t *testing.T) {
	r := core.NewRefusal(codes.Uncertain, errDown)
	assert.Equal(t, 409, r.Status)
	assert.ErrorIs(t, r, codes.Uncertain)
	assert.ErrorIs(t, r, errDown)
	assert.Equal(t, 500, core.NewRefusal("one_of_mine", nil).Status)
}

// A refusal that a handler makes a response of is rendered as its own engine renders all.
func TestRefusalResponse(t *testing.T) {
	assert.Nil(t, core.RefusalResponse(t.Context(), errDown, nil))
	assert.Nil(t, core.RefusalResponse(t.Context(), nil, nil))
	r := core.NewRefusal(codes.InProgress, nil)
	r.RetryAfter = 1500 * time.Millisecond
	got := core.RefusalResponse(t.Context(), errors.Join(errDown, r), nil)
	assert.Equal(t, 409, got.Status)
	assert.Equal(t, "2", got.Get("Retry-After"), "rounded up")
	got = core.RefusalResponse(t.Context(), core.NewRefusal(codes.RateLimited, nil), nil)
	assert.Equal(t, "1", got.Get("Retry-After"), "whoever makes it")

	g := core.MustNew(core.Config{User: byUser, Refuse: func(_ context.Context, r *core.Refusal) *core.Response {
		assert.Equal(t, "/orders", r.Request.Route)
		return &core.Response{Status: 200, Header: []core.Field{
			{Name: "retry-after", Value: "60"}, {Name: "cache-control", Value: "private"}}}
	}}).MustGuard(core.Policy{})
	c := post("{}", nil).doing(func(ctx context.Context) adapter.Capture {
		return adapter.Capture{Response: core.RefusalResponse(ctx, r, &core.Request{Route: "/orders"})}
	})
	serve(t, g, c)
	assert.Equal(t, 200, c.response.Status)
	assert.ElementsMatch(t, []core.Field{{Name: "Retry-After", Value: "60"}, {Name: "Cache-Control", Value: "no-store"},
		{Name: core.RefusedHeader, Value: "in_progress"}}, c.response.Header)
}

// A refusal that a handler reports is answered unless somebody has rendered it, or something has
// been sent; it is not kept in any case.
func TestReportedRefusals(t *testing.T) {
	reported := core.NewRefusal(codes.InProgress, nil)
	for name, tc := range map[string]struct {
		captured adapter.Capture
		status   int // of the response; 409: the refusal's
	}{
		"nobody renders it":               {adapter.Capture{Ending: adapter.Unrendered}, 409},
		"nobody, and something was sent":  {adapter.Capture{Ending: adapter.Unrendered, Incomplete: true}, 200},
		"as an unknown error":             {answer(500, ""), 409},
		"so, and something was sent":      {adapter.Capture{Response: &core.Response{Status: 500}, Incomplete: true}, 500},
		"nobody writes anything":          {emptyAnswer(), 409},
		"somebody has a form for it":      {answer(200, `{"code":"busy"}`), 200},
		"somebody has a form of a client": {answer(423, ""), 423},
	} {
		for _, deferred := range []bool{false, true} {
			var observed events
			p := core.ClientKey()
			p.OnFailure = core.Keep
			final := tc.captured
			c := post("{}", nil).withKey("k")
			c.handler = func(context.Context) adapter.Capture {
				c.held = cmp.Or(final.Response, &core.Response{Status: 200})
				captured := final
				if deferred { // a middleware further out renders it, and says nothing of it
					captured = adapter.Capture{Ending: adapter.Deferred}
				}
				captured.Err = reported
				return captured
			}
			serve(t, core.MustNew(core.Config{User: byUser, Observe: observed.add}).MustGuard(p), c)
			if deferred {
				assert.NoError(t, c.pending.Finish(&final), name)
			}
			last := observed.last()
			assert.Equal(t, tc.status, c.response.Status, "%s, deferred %v", name, deferred)
			if tc.status == 409 {
				assert.Equal(t, "in_progress", c.response.Get(core.RefusedHeader), name)
				assert.Zero(t, c.delivered, name)
				assert.NotErrorIs(t, last.Err, adapter.ErrUnrendered, "the guard has answered it")
			}
			assert.Equal(t, core.Released, last.Kind, "%s, deferred %v", name, deferred)
			assert.True(t, last.Failed, name)
			assert.ErrorIs(t, last.Err, codes.InProgress, name)
			if final.Response != nil {
				assert.Equal(t, tc.status, last.Status, name)
			}
		}
	}
}

// A policy's own format comes before that of the service, and before the default.
func TestRefuseOfAPolicy(t *testing.T) {
	format := func(name string, not codes.Code) func(context.Context, *core.Refusal) *core.Response {
		return func(_ context.Context, r *core.Refusal) *core.Response {
			code := r.Code
			*r = core.Refusal{} // its own copy
			if code == not {
				return nil
			}
			return &core.Response{Status: 299, Body: []byte(name + " " + string(code))}
		}
	}
	for _, tc := range []struct {
		general, own           func(context.Context, *core.Refusal) *core.Response
		missing, invalid, inDo string
	}{
		{nil, nil, "", "", ""},
		{format("service", codes.KeyInvalid), nil, "service key_missing", "", "service in_progress"},
		{nil, format("policy", codes.KeyMissing), "", "policy key_invalid", "policy in_progress"},
		{format("service", codes.KeyInvalid), format("policy", codes.KeyMissing),
			"service key_missing", "policy key_invalid", "policy in_progress"},
		{format("service", codes.KeyInvalid), format("policy", codes.KeyInvalid), "policy key_missing", "", "policy in_progress"},
	} {
		policy := core.ClientKey()
		policy.Refuse = tc.own
		g := core.MustNew(core.Config{User: byUser, Refuse: tc.general}).MustGuard(policy)
		for want, c := range map[*string]*call{
			&tc.missing: post("{}", nil), &tc.invalid: post("{}", nil).withKey("a", "b"),
			&tc.inDo: post("{}", nil).withKey("k").doing(func(ctx context.Context) adapter.Capture {
				return adapter.Capture{Response: core.RefusalResponse(ctx, core.NewRefusal(codes.InProgress, nil), nil)}
			}),
		} {
			resp := serve(t, g, c).response
			assert.NotEmpty(t, resp.Get(core.RefusedHeader))
			if *want == "" {
				assert.Equal(t, "application/problem+json", resp.Get("Content-Type"))
			} else {
				assert.Equal(t, []any{299, *want}, []any{resp.Status, string(resp.Body)})
			}
		}
	}
}

// A refusal that is an error is its caller's own: nobody changes what others get, it holds no request, which is valid
// during a call only, and what lies behind one is not behind the next with the same code.
func TestRefusalsAsErrors(t *testing.T) {
	keys := map[string]error{"a": errDown, "b": nil}
	g := core.MustNew(core.Config{User: byUser, Refuse: func(context.Context, *core.Refusal) *core.Response { return nil }}).
		MustGuard(core.Policy{Key: core.Func(func(r *core.Request) (string, error) { return strings.Repeat("k", 256), keys[r.RawQuery] })})
	task := core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: "n"})
	for _, refused := range []func(query string) error{
		func(query string) error {
			_, _, err := g.Key(&core.Request{Headers: post("", nil), Method: "POST", Route: "/orders", RawQuery: query})
			return err
		},
		func(query string) error {
			_, err := core.Do(t.Context(), task, core.Call{}, func(context.Context) (int, error) { return 0, nil })
			return err
		},
	} {
		first, ok := errors.AsType[*core.Refusal](refused("a"))
		require.True(t, ok)
		assert.Equal(t, 400, first.Status)
		assert.ErrorContains(t, first, string(first.Code))
		assert.NotEmpty(t, first.Detail)
		assert.Nil(t, first.Request)
		assert.Equal(t, first.Code == codes.KeyInvalid, errors.Is(first, errDown))
		code := first.Code
		*first = core.Refusal{Code: "mine"}
		second := refused("b")
		assert.ErrorIs(t, second, code)
		assert.NotErrorIs(t, second, errDown)
	}
}
