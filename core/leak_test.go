package core

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/core/adapter"
)

// poisonHTTPOperations overwrites all memory of an httpOperation in the pool, which is in nobody's use.
func poisonHTTPOperations() {
	f := httpOperations.Get().(*httpOperation)
	scratch := f.scratch[:cap(f.scratch)]
	for i := range scratch {
		scratch[i] = 0xA5
	}
	params, fields := f.req.PathParams[:cap(f.req.PathParams)], f.resp.Header[:cap(f.resp.Header)]
	for i := range params {
		params[i] = adapter.Pair{Name: "poison", Value: "poison"}
	}
	for i := range fields {
		fields[i] = Field{Name: "X-Poison", Value: "poison"}
	}
	httpOperations.Put(f)
}

// taggedExchange is an exchange of which every value says whose it is.
type taggedExchange struct {
	mark string
	key  bool // it has a client key
	got  Response
	ran  Key
}

func (x *taggedExchange) Header(name string, i int) (string, int) {
	switch {
	case name == "X-User":
		return "user" + x.mark, 1
	case name == DefaultKeyHeader && x.key:
		return "key" + x.mark, 1
	}
	return "", 0
}

func (x *taggedExchange) Describe(r *Request) {
	r.Method, r.Route, r.RawQuery, r.ContentType = "POST", "/orders/:id/:part", "q="+x.mark, "application/json"
	r.PathParams = append(r.PathParams, adapter.Pair{Name: "id", Value: x.mark}, adapter.Pair{Name: "part", Value: x.mark})
}

func (x *taggedExchange) ReadBody(int64) ([]byte, error) {
	return fmt.Appendf(nil, `{"b":%q,"a":1}`, x.mark), nil
}

func (x *taggedExchange) answer() *Response {
	return &Response{Status: 201, Header: []Field{{Name: "Location", Value: x.mark}, {Name: "X-Mark", Value: "mark" + x.mark}},
		Body: []byte(strings.Repeat(x.mark, 1+len(x.mark)*37%19))}
}

func (x *taggedExchange) Run(ctx context.Context, _ int) (adapter.Capture, error) {
	x.ran = RunFrom(ctx).Key()
	poisonHTTPOperations()
	return adapter.Capture{Response: x.answer()}, nil
}

func (x *taggedExchange) Answer(r *Response) error {
	poisonHTTPOperations()
	x.got = Response{Status: r.Status, Header: append([]Field(nil), r.Header...), Body: r.Body} // the body is not copied
	return nil
}

func (x *taggedExchange) Pass(context.Context) error { return nil }
func (x *taggedExchange) Deliver([]Field) error      { return nil }

// TestNothingLeaks: operations at once, in memory that is used again and poisoned in between,
// have the key, the record and the replay that are their own.
func TestNothingLeaks(t *testing.T) {
	e := MustNew(Config{User: UserFromHeader("X-User")})
	byParameters, byKey := e.MustGuard(Policy{}), e.MustGuard(Policy{Key: Header(Required)})
	const operations = 4000
	guard := func(x *taggedExchange) *Guard {
		if x.key {
			return byKey
		}
		return byParameters
	}
	all := make([]*taggedExchange, operations)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !t.Failed() {
				i := int(next.Add(1) - 1)
				if i >= operations {
					return
				}
				x := &taggedExchange{mark: fmt.Sprintf("%d-%s.", i, strings.Repeat("m", i%23)), key: i%2 == 0}
				all[i] = x
				if err := guard(x).Serve(context.Background(), x); err != nil || x.ran == (Key{}) {
					t.Errorf("%s: %v, key %s", x.mark, err, x.ran)
				}
				poisonHTTPOperations()
				if err := guard(x).Serve(context.Background(), x); err != nil {
					t.Errorf("%s: %v", x.mark, err)
				}
				poisonHTTPOperations()
			}
		})
	}
	wg.Wait()
	for _, x := range all {
		if t.Failed() {
			return
		}
		want := x.answer()
		want.Header = append(want.Header, Field{Name: ReplayedHeader, Value: "true"})
		if fmt.Sprint(x.got) != fmt.Sprint(*want) {
			t.Errorf("%s: replayed %v, want %v", x.mark, x.got, *want)
		}
		r := Request{Headers: x}
		x.Describe(&r)
		r.Body, _ = x.ReadBody(0)
		if key, _, err := guard(x).Key(&r); err != nil || key != x.ran {
			t.Errorf("%s ran under %s, want %s (%v)", x.mark, x.ran, key, err)
		}
	}
}

// TestKeyWithinKey: a key source may ask another guard for a key, and is handed its own request
// before, while and after that.
func TestKeyWithinKey(t *testing.T) {
	e := MustNew(Config{User: UserFromHeader("X-User")})
	inner := e.MustGuard(Policy{})
	outer := e.MustGuard(Policy{Key: Func(func(r *Request) (string, error) {
		poisonHTTPOperations()
		before := fmt.Sprint(*r)
		key, _, err := inner.Key(r)
		poisonHTTPOperations()
		if after := fmt.Sprint(*r); after != before {
			t.Errorf("the request was %s, and then %s", before, after)
		}
		if r.RawQuery == "q=panic" {
			panic(r.RawQuery)
		}
		return key.Raw(), err
	})})
	request := func(x *taggedExchange) *Request {
		r := &Request{Headers: x, PathParams: make([]adapter.Pair, 0, 8)}
		x.Describe(r)
		r.Body, _ = x.ReadBody(0)
		return r
	}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 200 {
				x := &taggedExchange{mark: fmt.Sprintf("%d-%d.", n, i)}
				r := request(x)
				whole := fmt.Sprint(*r, r.PathParams[:cap(r.PathParams)])
				key, fingerprint, err := outer.Key(r)
				poisonHTTPOperations()
				if again := fmt.Sprint(*r, r.PathParams[:cap(r.PathParams)]); err != nil || again != whole {
					t.Errorf("%s: %v, and the request has become %s", x.mark, err, again)
				}
				if err := outer.Serve(context.Background(), x); err != nil || x.ran != key {
					t.Errorf("%s ran under %s, want %s (%v)", x.mark, x.ran, key, err)
				}
				func() {
					defer func() { _ = recover() }()
					_, _, _ = outer.Key(request(&taggedExchange{mark: "panic"}))
				}()
				if k, f, err := outer.Key(r); err != nil || k != key || f != fingerprint {
					t.Errorf("%s: the key was %s, and then %s (%v)", x.mark, key, k, err)
				}
			}
		})
	}
	wg.Wait()
}
