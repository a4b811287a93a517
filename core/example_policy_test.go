package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/httpidem"
)

// An order is known by its number and by what is ordered. A note to the courier may differ.
func ExampleFields() {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	orders := engine.MustGuard(core.Policy{Key: core.Params(core.Fields("order.id", "items.*.sku"))})
	key := func(body string) string {
		key, _, err := orders.Key(&core.Request{
			Method: "POST", Route: "/orders", ContentType: "application/json", Body: []byte(body),
		})
		if err != nil {
			return err.Error()
		}
		return key.Raw()
	}
	first := key(`{"order":{"id":7},"items":[{"sku":"A-1","qty":2}],"note":"ring twice"}`)
	fmt.Println(first == key(`{"items":[{"sku":"A-1","qty":2}],"order":{"id":7},"note":"leave at the door"}`))
	fmt.Println(first == key(`{"order":{"id":8},"items":[{"sku":"A-1","qty":2}],"note":"ring twice"}`))
	// Output:
	// true
	// false
}

// What changes with each try is not a part of the operation.
func ExampleExclude() {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	orders := engine.MustGuard(core.Policy{Key: core.Params(core.Exclude("device.gps", "**.traceId"))})
	key := func(body string) string {
		key, _, err := orders.Key(&core.Request{
			Method: "POST", Route: "/orders", ContentType: "application/json", Body: []byte(body),
		})
		if err != nil {
			return err.Error()
		}
		return key.Raw()
	}
	first := key(`{"sku":"A-1","device":{"gps":"52.5,13.4"},"meta":{"traceId":"t-1"},"timestamp":1}`)
	fmt.Println(first == key(`{"sku":"A-1","device":{"gps":"48.1,11.6"},"meta":{"traceId":"t-2"},"timestamp":2}`))
	fmt.Println(first == key(`{"sku":"B-2","device":{"gps":"52.5,13.4"},"meta":{"traceId":"t-1"},"timestamp":1}`))
	// Output:
	// true
	// false
}

// Each tenant has users of its own.
func ExampleUserFunc() {
	user := core.UserFunc(func(r *core.Request) (core.User, error) {
		name, lines := r.Headers.Header("X-User", 0)
		if name == "" || lines > 1 {
			return core.User{}, core.ErrNoUser
		}
		return core.User{ID: r.Host + " " + name}, nil
	})
	engine := core.MustNew(core.Config{User: user})
	orders := engine.MustGuard(core.Policy{})
	handler := httpidem.New(orders)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("ordered at", r.Host)
	}))

	for _, host := range []string{"a.example", "b.example", "a.example"} {
		r := httptest.NewRequest("POST", "http://"+host+"/orders", strings.NewReader("pizza"))
		r.Header.Set("X-User", "ann")
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// ordered at a.example
	// ordered at b.example
}

// A right that has been withdrawn since the first response was given is asked for again.
func ExamplePolicy_authorize() {
	mayRead := true
	policy := core.ClientKey()
	policy.Authorize = func(context.Context, *core.Request) error {
		if !mayRead {
			return errors.New("ann has left the company")
		}
		return nil
	}
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	handler := httpidem.New(engine.MustGuard(policy))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "the report")
	}))
	send := func() {
		r := httptest.NewRequest("POST", "/reports", nil)
		r.Header.Set("X-User", "ann")
		r.Header.Set("Idempotency-Key", "k-1")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get(core.ReplayedHeader) == "true")
	}
	send()
	send()
	mayRead = false
	send()
	// Output:
	// 200 false
	// 200 true
	// 403 false
}

// charge begins an operation that does not come to its end: the bank has not answered.
func charge(t *core.Task) {
	_, _ = core.Do(context.Background(), t, core.Call{Key: "c-1"}, func(ctx context.Context) (string, error) {
		core.RunFrom(ctx).Abandon()
		return "", errors.New("the bank has not answered")
	})
}

// Taking over is right where a second run does no harm, or where the handler can tell it from the first.
func ExampleRecovery() {
	engine := core.MustNew(core.Config{})
	for _, recovery := range []core.Recovery{core.TakeOver(), core.Uncertain(nil)} {
		task := engine.MustTask(core.TaskPolicy{Name: fmt.Sprint("charge ", recovery), Record: core.Record{Abandoned: recovery}})
		charge(task)
		result, err := core.Do(context.Background(), task, core.Call{Key: "c-1"}, func(ctx context.Context) (string, error) {
			return fmt.Sprint("attempt ", core.RunFrom(ctx).Attempt()), nil
		})
		fmt.Printf("%q %t\n", result.Value, errors.Is(err, codes.Uncertain))
	}
	// Output:
	// "attempt 2" false
	// "" true
}

// The bank knows whether the first run has taken effect.
func ExamplePolicy_reconcile() {
	charged := map[core.Key]bool{}
	engine := core.MustNew(core.Config{})
	task := engine.MustTask(core.TaskPolicy{
		Name: "charge",
		Record: core.Record{
			Abandoned: core.Uncertain(func(_ context.Context, u core.Uncertainty) (core.Verdict, error) {
				if !charged[u.Key] {
					return core.RunAgain(), nil
				}
				return core.Finished([]byte(`"charged by the first run"`)), nil
			}),
		},
	})
	do := func() {
		result, err := core.Do(context.Background(), task, core.Call{Key: "c-1"}, func(ctx context.Context) (string, error) {
			run := core.RunFrom(ctx)
			charged[run.Key()] = true
			run.Abandon() // the answer got lost
			return "", errors.New("the bank has not answered")
		})
		fmt.Printf("%q %v %t\n", result.Value, err, result.Replayed)
	}
	do()
	do()
	// Output:
	// "" the bank has not answered false
	// "charged by the first run" <nil> true
}

// The answers of a service with an error format of its own.
func ExampleConfig_refuse() {
	engine := core.MustNew(core.Config{
		User: core.UserFromHeader("X-User"),
		Refuse: func(_ context.Context, r *core.Refusal) *core.Response {
			return &core.Response{
				Status: http.StatusOK,
				Header: []core.Field{{Name: "Content-Type", Value: "application/json"}},
				Body:   fmt.Appendf(nil, `{"code":%d00,"msg":%q,"data":null}`, r.Status, r.Detail),
			}
		},
	})
	handler := httpidem.New(engine.MustGuard(core.ClientKey()))(http.NotFoundHandler())
	r := httptest.NewRequest("POST", "/payments", nil)
	r.Header.Set("X-User", "ann")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get(core.RefusedHeader), w.Body)
	// Output:
	// 200 key_missing {"code":40000,"msg":"This operation needs an idempotency key.","data":null}
}

// An observer is told what happens.
func ExampleConfig_observe() {
	engine := core.MustNew(core.Config{Observe: func(_ context.Context, e core.Event) {
		if e.Kind != core.StoreIsLocal {
			fmt.Println(e.Kind, e.Route, e.Attempt)
		}
	}})
	receipts := engine.MustTask(core.TaskPolicy{Name: "send receipt"})
	for range 2 {
		_, _ = core.Do(context.Background(), receipts, core.Call{Key: "message-1"},
			func(context.Context) (string, error) { return "sent", nil })
	}
	// Output:
	// started DO send receipt 1
	// completed DO send receipt 1
	// replayed DO send receipt 0
}
