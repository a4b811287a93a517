package fiberidem_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/fiberidem"
	"github.com/idem-go/idem/internal/fibertest"
)

// Fiber reuses the memory of every request. 20,000 keys go over 64 connections, with bodies
// of different lengths so that each overwrites a part of the one before; then each is
// sent again in another order. Every operation runs once, everybody gets his own
// body, and nothing that was kept has changed.
func TestManyKeysManyConnections(t *testing.T) {
	const keys, connections, shards = 20_000, 64, 7

	var runs [keys]atomic.Int32
	var kept [keys]core.Key
	var events sync.Map
	engine := fibertest.NewEngine(t, func(e core.Event) {
		if e.Kind != core.StoreIsLocal { // which has no route
			events.LoadOrStore(e.Route, e.Kind)
		}
	})
	guard := engine.MustGuard(core.Policy{Key: core.Header(core.Required)})
	app := newApp()
	app.Post("/echo/:shard", fiberidem.New(guard), func(c *fiber.Ctx) error {
		var i int
		if _, err := fmt.Sscanf(c.Get("X-Number"), "%d", &i); err != nil {
			return err
		}
		runs[i].Add(1)
		run := fiberidem.Run(c)
		kept[i] = run.Key()
		c.Set("X-Echo", c.Get("Idempotency-Key"))
		return c.Send(c.Body()) // shares the request's memory
	})
	s := serve(t, app)

	bodyOf := func(dst []byte, i int) []byte {
		unit := fmt.Appendf(nil, "<%d>", i)
		return append(dst[:0], bytes.Repeat(unit, 1+(i*7919)%97)...)
	}
	round := func(order []int, replayed string) {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range connections {
			wg.Go(func() {
				conn, err := net.Dial("tcp", s.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				r, w := bufio.NewReader(conn), bufio.NewWriter(conn)
				req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
				defer fasthttp.ReleaseRequest(req)
				defer fasthttp.ReleaseResponse(resp)
				var body []byte
				for {
					at := next.Add(1) - 1
					if at >= int64(len(order)) {
						return
					}
					i := order[at]
					body = bodyOf(body, i)
					key := fmt.Sprintf("key-%d", i)
					req.Reset()
					req.Header.SetMethod("POST")
					req.SetRequestURI(fmt.Sprintf("http://%s/echo/%d", s.Addr, i%shards))
					req.Header.Set("Idempotency-Key", key)
					req.Header.Set("X-Number", fmt.Sprint(i))
					req.SetBody(body)
					if err := errors.Join(req.Write(w), w.Flush(), resp.Read(r)); err != nil {
						t.Errorf("%s: %v", key, err)
						return
					}
					if resp.StatusCode() != 200 || !bytes.Equal(resp.Body(), body) ||
						string(resp.Header.Peek("X-Echo")) != key ||
						string(resp.Header.Peek(core.ReplayedHeader)) != replayed {
						t.Errorf("%s got another's answer: %.300s", key, resp)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(keys)
	round(order, "")
	rand.New(rand.NewPCG(3, 4)).Shuffle(keys, func(i, j int) { order[i], order[j] = order[j], order[i] })
	round(order, "true")

	distinct := make(map[core.Key]bool, keys)
	for i := range keys {
		if n := runs[i].Load(); n != 1 {
			t.Fatalf("key-%d ran %d times", i, n)
		}
		if !strings.HasSuffix(kept[i].Raw(), fmt.Sprintf("K=key-%d", i)) {
			t.Fatalf("the key of key-%d has become %s", i, kept[i].Raw())
		}
		distinct[kept[i]] = true
	}
	require.Len(t, distinct, keys)
	events.Range(func(route, _ any) bool {
		require.Equal(t, "POST /echo/:shard", route)
		return true
	})
}

func TestManyIdenticalRequests(t *testing.T) {
	const requests = 200
	cases := []struct {
		name      string
		duplicate core.Duplicate
		refused   bool // duplicates may be refused
	}{
		{"replay", core.Replay(), true},
		{"reject", core.Reject(""), true},
		{"wait", core.Wait(20 * time.Second), false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var runs atomic.Int32
			arrived := make(chan struct{}, requests)
			app := newApp()
			app.Use(func(c *fiber.Ctx) error {
				arrived <- struct{}{}
				return c.Next()
			})
			guard := fibertest.NewEngine(t).MustGuard(core.Policy{Duplicate: tc.duplicate})
			app.Post("/coupons/:id", fiberidem.New(guard), func(c *fiber.Ctx) error {
				for range requests / 2 { // so that many meet a run that goes on
					<-arrived
				}
				return c.Status(201).SendString(fmt.Sprint("run ", runs.Add(1)))
			})
			s := serve(t, app)
			replies := make([]fibertest.Reply, requests)
			var wg sync.WaitGroup
			for i := range replies {
				wg.Go(func() { replies[i] = s.Send("POST", "/coupons/1", `{"a":1}`) })
			}
			wg.Wait()
			require.EqualValues(t, 1, runs.Load())
			firsts := 0
			for _, r := range replies {
				require.NoError(t, r.Err)
				if tc.refused && r.Status == 409 {
					require.Equal(t, "application/problem+json", r.Header.Get("Content-Type"))
					continue
				}
				require.Equal(t, 201, r.Status)
				require.Equal(t, "run 1", r.Body)
				if !r.Replayed() {
					firsts++
				}
			}
			require.Equal(t, 1, firsts)
		})
	}
}
