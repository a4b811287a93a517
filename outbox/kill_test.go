package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/outbox"
)

// childOutbox names the environment variable that makes the test binary a relay, see child.
const childOutbox = "IDEM_OUTBOX_CHILD"

// assignment configures a child process.
type assignment struct{ Name, URL, Table, Broker string }

// child relays until it is killed.
func child() {
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "the child:", err)
			os.Exit(1)
		}
	}
	go func() { // whoever has started it is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	var a assignment
	die(json.Unmarshal([]byte(os.Getenv(childOutbox)), &a))
	db, dialect, err := sqlstore.Open(a.URL)
	die(err)
	box, err := outbox.New(db, dialect, outbox.Options{Table: a.Table})
	die(err)
	relay, err := box.NewRelay(outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		body, err := json.Marshal(messages)
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.Broker+"/"+a.Name, bytes.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Body.Close()
	}), outbox.RelayOptions{Name: a.Name, Lease: 300 * time.Millisecond, Poll: 5 * time.Millisecond, Pause: 5 * time.Millisecond, Batch: 20})
	die(err)
	die(relay.Run(context.Background()))
}

// When a child is killed.
const (
	beforeItArrives = iota // what it has sent never gets to the broker
	beforeItIsConfirmed
	whenItIsConfirmed // somewhere about the note of it
	moments
)

// killing is a broker that kills those who publish.
type killing struct {
	broker
	killed chan string // names of children

	mu       sync.Mutex
	children map[string]*exec.Cmd
	waits    int // calls until the next one is killed; below zero: none is
	moment   int
}

func (k *killing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var messages []outbox.Message
	if err := json.NewDecoder(r.Body).Decode(&messages); err != nil {
		return // it was killed while it was speaking
	}
	name := r.URL.Path[1:]
	k.mu.Lock()
	process := k.children[name] // nil if the sender is buried: what it has sent arrives all the same
	kill, moment := process != nil && k.waits == 0, k.moment
	if process != nil {
		k.waits--
	}
	k.mu.Unlock()
	end := func() {
		if kill {
			_ = process.Process.Kill()
			k.killed <- name
		}
	}
	switch moment {
	case beforeItArrives:
		end()
		if kill {
			return
		}
	case beforeItIsConfirmed:
		defer end()
	case whenItIsConfirmed:
		defer time.AfterFunc(rand.N(3*time.Millisecond), end)
	}
	_ = k.Publish(r.Context(), messages)
}

// TestKilled: a relay is killed 50 times, at all moments, while messages are written. Another one
// stands by each time.
func TestKilled(t *testing.T) {
	const keys = 6
	kills := 50
	if testing.Short() {
		kills = 12
	}
	each(t, func(f *fixture) {
		k := &killing{killed: make(chan string, 1), children: map[string]*exec.Cmd{}, waits: -1}
		server := httptest.NewServer(k)
		f.Cleanup(server.Close)
		born := 0
		birth := func() {
			born++
			a := assignment{fmt.Sprint("relay ", born), f.url, f.table, server.URL}
			order, err := json.Marshal(a)
			require.NoError(f, err)
			binary, err := os.Executable()
			require.NoError(f, err)
			cmd := exec.Command(binary)
			cmd.Env = append(os.Environ(), childOutbox+"="+string(order))
			cmd.Stderr = os.Stderr
			_, err = cmd.StdinPipe() // which is closed when this process ends, however it does
			require.NoError(f, err)
			k.mu.Lock() // it may publish at once
			defer k.mu.Unlock()
			require.NoError(f, cmd.Start())
			k.children[a.Name] = cmd
		}
		bury := func(name string) {
			k.mu.Lock()
			cmd := k.children[name]
			delete(k.children, name)
			k.mu.Unlock()
			_ = cmd.Process.Kill()
			assert.Error(f, cmd.Wait(), "nobody has killed the child")
		}
		f.Cleanup(func() {
			for name := range k.children {
				bury(name)
			}
		})
		birth()
		birth()

		written := map[string]int{} // messages, by key
		for n := range kills {
			k.mu.Lock()
			k.waits, k.moment = rand.N(4), n%moments
			k.mu.Unlock()
			var writers sync.WaitGroup
			for i := range keys {
				key := fmt.Sprint(i)
				var messages []outbox.Message
				count := 1 + rand.N(5)
				if i == 0 {
					count = 4 // one in each call: as many as may be waited for
				}
				for range count {
					messages = append(messages, named(fmt.Sprintf("%s/%d", key, written[key]))...)
					written[key]++
				}
				messages = append(messages, named(fmt.Sprintf("free %d %d", n, i))...)
				written[""]++
				writers.Go(func() { assert.NoError(f, f.tryWrite(messages...)) })
			}
			writers.Wait()
			select {
			case name := <-k.killed:
				bury(name)
				birth()
			case <-time.After(time.Minute):
				require.FailNow(f, "nobody publishes")
			}
		}
		f.sent()
		for name := range k.children {
			bury(name)
		}
		server.Close()

		// Nothing is lost, and the order of the first occurrences is kept.
		total := 0
		for key, n := range written {
			names := first(k.names(key))
			require.Len(f, names, n)
			require.True(f, key == "" || slicesIsInOrder(names), names)
			total += n
		}
		// The duplicates are absorbed by who knows them by their ID.
		store := f.inbox()
		replayed := 0
		for _, m := range k.arrived {
			result, err := store.DoTx(f.Context(), f.db, "message:"+m.ID, func(tx *sql.Tx) ([]byte, error) { return nil, f.enter(tx, m.ID) })
			require.NoError(f, err)
			if result.Replayed {
				replayed++
			}
		}
		var entries, distinct int
		require.NoError(f, f.db.QueryRow("SELECT COUNT(*), COUNT(DISTINCT name) FROM "+f.table+"_entries").Scan(&entries, &distinct))
		require.Equal(f, total, entries)
		require.Equal(f, total, distinct)
		require.Equal(f, k.count()-total, replayed)
		require.Positive(f, replayed, "relays that are killed before the note leave duplicates")
		f.Logf("%d kills: %d messages came %d times, %d duplicates were absorbed", kills, total, k.count(), replayed)
	})
}
