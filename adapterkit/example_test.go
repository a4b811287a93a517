package adapterkit_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
)

// A framework: its handlers return errors, of which somebody further out makes responses.
type (
	Context struct {
		W http.ResponseWriter
		R *http.Request
	}
	Handler func(*Context) error
)

// exchange is the adapter's.
type exchange struct {
	adapterkit.Exchange
	c    *Context
	next Handler
}

func (x *exchange) Describe(r *adapter.Request) {
	x.Exchange.Describe(r)
	r.Native = x.c
	// This framework has no patterns. One that has spells them as adapter.Request.Route says, and fills in PathParams.
	adapterkit.DescribeRoute(x.c.R, adapterkit.HostOf(x.c.R), "", r)
}

func (x *exchange) Writer() http.ResponseWriter     { return x.c.W }
func (x *exchange) SetWriter(w http.ResponseWriter) { x.c.W = w }

func (x *exchange) Next(r *http.Request) error {
	original, ctx := x.c.R, r.Context()
	defer func() {
		adapterkit.Adopt(original, r, x.c.R, ctx)
		x.c.R = original
	}()
	x.c.R = r
	return x.next(x.c)
}

// Guard is what the adapter's users mount.
func Guard(g *core.Guard, next Handler) Handler {
	return func(c *Context) error {
		x := &exchange{c: c, next: next}
		x.Start(x, c.R)
		err := g.Serve(c.R.Context(), x)
		x.End()
		return err
	}
}

// The adapter of a small framework. The second request gets the first one's answer; an error is a failure, and the next try
// runs.
func Example() {
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	tries := 0
	pay := Guard(engine.MustGuard(core.ClientKey()), func(c *Context) error {
		if tries++; tries == 1 {
			return errors.New("the bank is closed")
		}
		c.W.WriteHeader(http.StatusCreated)
		return nil
	})
	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("X-User", "ann")
		r.Header.Set("Idempotency-Key", "k-1")
		w := httptest.NewRecorder()
		if err := pay(&Context{w, r}); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
		fmt.Println(w.Code, "try", tries, "replayed:", adapterkit.Replayed(w))
	}
	// Output:
	// 503 try 1 replayed: false
	// 201 try 2 replayed: false
	// 201 try 2 replayed: true
}
