package core_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
)

// bank is a payment provider that answers each key once, and whose first answer gets lost.
type bank struct {
	charges map[string]string // by key
	lost    bool
}

func (b *bank) Charge(_ context.Context, key string, cents int) (string, error) {
	if b.charges[key] == "" {
		b.charges[key] = fmt.Sprintf("charge %d of %d cents", len(b.charges)+1, cents)
	}
	if !b.lost {
		b.lost = true
		return "", fmt.Errorf("the bank has not answered")
	}
	return b.charges[key], nil
}

var secrets = []core.Secret{{Name: "s1", Key: []byte("32 random bytes from a safe place")}}

// post sends a form of ann's.
func postForm(h http.Handler, form string) {
	r := httptest.NewRequest("POST", "/orders", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-User", "ann")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
}

// The bank's answer to the first attempt gets lost. The second attempt sends the same key, so that the card is charged once. Another
// order has another key, although it is equal.
func ExampleRun_Derive() {
	bank := &bank{charges: map[string]string{}}
	engine, err := core.New(core.Config{User: core.UserFromHeader("X-User"), Secrets: secrets})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := httpidem.New(engine.MustGuard(core.Exclusive()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := httpidem.Run(r).Derive("bank/charge")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		charge, err := bank.Charge(r.Context(), key, 500)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway) // the record is kept, and the retry has the same key
			return
		}
		fmt.Fprintln(w, charge)
	}))
	postForm(handler, "coffee=1")
	postForm(handler, "coffee=1") // the retry
	postForm(handler, "coffee=1") // a second coffee
	// Output:
	// 502 the bank has not answered
	// 200 charge 1 of 500 cents
	// 200 charge 2 of 500 cents
}

type mail struct{ sent int }

func (m *mail) Send(context.Context, string) (int, error) { m.sent++; return m.sent, nil }

// order charges and then sends a mail. What has finished is not done again.
func order(ctx context.Context, bank *bank, mailer *mail) (string, error) {
	reserved, err := core.Step(ctx, "reserve", func(context.Context) (string, error) { return mailer.reserve(), nil })
	if err != nil {
		return "", err
	}
	charge, err := core.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		key, err := core.RunFrom(ctx).Derive("bank/charge")
		if err != nil {
			return "", err
		}
		return bank.Charge(ctx, key, 500)
	})
	if err != nil {
		return "", err
	}
	mails, err := core.Step(ctx, "mail", func(ctx context.Context) (int, error) { return mailer.Send(ctx, charge) })
	return fmt.Sprintf("%s, %s, mail %d", reserved, charge, mails), err
}

func (m *mail) reserve() string {
	m.sent++
	return fmt.Sprint("note ", m.sent)
}

// The second attempt skips the step that has finished.
func ExampleStep() {
	bank, mailer := &bank{charges: map[string]string{}}, &mail{}
	engine := core.MustNew(core.Config{Secrets: secrets})
	orders := engine.MustTask(core.TaskPolicy{Name: "order"})
	for range 2 {
		result, err := core.Do(context.Background(), orders, core.Call{Key: "o-1"}, func(ctx context.Context) (string, error) {
			return order(ctx, bank, mailer)
		})
		fmt.Printf("%q %v, attempt %d\n", result.Value, err, result.Attempt)
	}
	// Output:
	// "" the bank has not answered, attempt 1
	// "note 1, charge 1 of 500 cents, mail 2" <nil>, attempt 2
}
