package mcptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
)

// A shop is what the servers of both SDKs serve.
type shop struct {
	mu      sync.Mutex
	runs    map[string]int
	gate    chan struct{} // what opens the gate closes it
	waiting chan struct{} // has a value for each call of the gate that waits
	more    []tool
}

func newShop() *shop {
	return &shop{runs: make(map[string]int), gate: make(chan struct{}), waiting: make(chan struct{}, 1000)}
}

// call is a call as a tool gets it, and said what it answers.
type (
	call struct {
		arguments map[string]any
		confirmed string // what the person said; empty: nobody has been asked
		state     string
	}
	said struct {
		text, structured string
		meta             map[string]any
		isError          bool
		asks, state      string
		err              error
	}
)

type tool struct {
	name                 string
	readOnly, idempotent bool
	handle               func(ctx context.Context, c *call) said
}

const (
	anything = `{"type":"object","properties":{}}`
	schema   = `{"type":"object","properties":{"item":{"type":"string"},"key":{"type":"string"}},"required":["item"]}`
)

// count counts a run of a tool and returns its number.
func (s *shop) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[name]++
	return s.runs[name]
}

func (s *shop) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.runs)
}

func (s *shop) tools() []tool {
	counting := func(name string) func(context.Context, *call) said {
		return func(_ context.Context, c *call) said {
			return said{text: fmt.Sprintf("%s %v, run %d", name, c.arguments["item"], s.count(name))}
		}
	}
	return append([]tool{
		{name: "order", handle: func(_ context.Context, c *call) said {
			n := s.count("order")
			return said{text: fmt.Sprintf("<order> %d & %v", n, c.arguments["item"]),
				structured: fmt.Sprintf(`{"order":%d,"big":9007199254740993}`, n),
				meta: map[string]any{"shop/till": 4, "shop/big": 9007199254740993, "progressToken": "p", "traceparent": "00-1-2-00",
					"io.modelcontextprotocol/related-task": map[string]any{"taskId": "t-1"}}}
		}},
		{name: "read", readOnly: true, handle: counting("read")},
		{name: "upsert", idempotent: true, handle: counting("upsert")},
		{name: "fail", handle: func(context.Context, *call) said {
			return said{text: fmt.Sprintf("sold out %d", s.count("fail")), isError: true}
		}},
		{name: "broken", handle: func(context.Context, *call) said {
			return said{err: fmt.Errorf("broken %d", s.count("broken"))}
		}},
		{name: "pay", handle: func(_ context.Context, c *call) said {
			switch c.confirmed {
			case "":
				return said{asks: "Really?", state: fmt.Sprintf("state %d", s.count("asked"))}
			case "accept":
				return said{text: fmt.Sprintf("paid %d", s.count("pay"))}
			}
			return said{text: "not paid"}
		}},
		{name: "gate", handle: func(ctx context.Context, c *call) said {
			n := s.count("gate")
			s.waiting <- struct{}{}
			select {
			case <-s.gate:
				return said{text: fmt.Sprintf("through %d", n)}
			case <-ctx.Done():
				return said{err: context.Cause(ctx)}
			}
		}},
		{name: "await", readOnly: true, handle: func(ctx context.Context, _ *call) said { // until somebody waits at the gate
			select {
			case <-s.waiting:
				return said{text: "somebody waits"}
			case <-ctx.Done():
				return said{err: errors.New("nobody waits")}
			}
		}},
		{name: "open", readOnly: true, handle: func(context.Context, *call) said {
			close(s.gate)
			return said{text: "open"}
		}},
		{name: "counts", readOnly: true, handle: func(context.Context, *call) said {
			b, err := json.Marshal(s.counts())
			return said{text: string(b), err: err}
		}},
	}, s.more...)
}
