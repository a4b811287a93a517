package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// customers place the orders, eight at a time, and wait until they are charged.
func (s *service) customers(ctx context.Context) error {
	errs, room, run := make([]error, s.orders), make(chan struct{}, 8), rand.Text()
	var all sync.WaitGroup
	for i := range errs {
		room <- struct{}{}
		all.Go(func() {
			time.Sleep(mathrand.N(time.Second)) // to think about it
			errs[i] = s.place(ctx, fmt.Sprint(run, "-", i), 500+i)
			<-room
		})
	}
	all.Wait()
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	return s.await(ctx, ledger.settled)
}

// place places an order, and asks again although it is placed. Who is not answered, or told to come back,
// asks again, too. The answer must never be another one.
func (s *service) place(ctx context.Context, key string, cents int) error {
	answer := ""
	for left := 2; left > 0; {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url()+"/orders",
			strings.NewReader(fmt.Sprintf(`{"amount":%d}`, cents)))
		if err != nil {
			return err
		}
		r.Header.Set("X-User", "ann")
		r.Header.Set("Idempotency-Key", key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err // it is the service of this process
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		switch {
		case err != nil || response.StatusCode == http.StatusConflict || response.StatusCode >= 500:
			time.Sleep(50 * time.Millisecond)
		case response.StatusCode != http.StatusCreated || answer != "" && answer != string(body):
			return fmt.Errorf("order %s: %s: %s, and before that: %s", key, response.Status, body, answer)
		default:
			answer = string(body)
			left--
		}
	}
	return nil
}

// chaos has two processes of this program relay and charge. Meanwhile it kills them and has messages
// sent again, as the seed says; their connections break by themselves, see dial. (Whom a fault strikes
// in the midst of what, depends on the moment: no two runs are the same.)
func (s *service) chaos(ctx context.Context) error {
	fmt.Printf("-seed %d: %d orders, two workers\n", s.seed, s.orders)
	var workers [2]worker
	for i := range workers {
		if err := workers[i].start(s); err != nil {
			return err
		}
		defer func() { _ = workers[i].end() }()
	}
	placed := make(chan error, 1)
	go func() { placed <- s.customers(ctx) }()
	random := mathrand.New(mathrand.NewPCG(s.seed, 0))
	const faults = 10
	for i, fault := range random.Perm(faults) { // spread over the work
		var now ledger
		err := s.await(ctx, func(l ledger) bool { now = l; return l["charges"] >= int64(s.orders)*int64(i+1)/(faults+1) })
		if err != nil {
			return err
		}
		what := ""
		if w := &workers[random.IntN(len(workers))]; fault%2 == 0 {
			what = fmt.Sprintf("worker %d is killed", w.Process.Pid)
			_, _ = w.Process.Kill(), w.Wait()
			err = w.start(s)
		} else {
			what, err = s.sendAgain(ctx, random.IntN(5))
		}
		if err != nil {
			return err
		}
		fmt.Printf("%4d orders, %4d charges: %s\n", now["orders"], now["charges"], what)
	}
	err := <-placed
	time.Sleep(2 * time.Second) // for duplicates that are still on their way
	return errors.Join(err, s.await(ctx, ledger.settled), workers[0].end(), workers[1].end())
}

// sendAgain makes a fifth of the messages unsent, as if a relay had died before it could mark them.
func (s *service) sendAgain(ctx context.Context, which int) (string, error) {
	result, err := s.db.ExecContext(ctx,
		s.sql("UPDATE {name}_outbox SET state = 0, state_at = 0 WHERE state = 2 AND position % 5 = $1"), which)
	if err != nil {
		return "", err
	}
	n, err := result.RowsAffected()
	return fmt.Sprintf("%d messages are sent again", n), err
}

// worker is a process of this program.
type worker struct {
	*exec.Cmd
	stdin io.Closer
}

// start starts a worker, also in the place of one that was killed.
func (w *worker) start(s *service) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	w.Cmd = exec.Command(program, "-worker", "-store", s.database, "-name", s.name)
	w.Stderr = os.Stderr
	stdin, err := w.StdinPipe()
	if err != nil {
		return err
	}
	w.stdin = stdin
	return w.Start()
}

// end lets a worker end what it has begun.
func (w *worker) end() error { return errors.Join(w.stdin.Close(), w.Wait()) }
