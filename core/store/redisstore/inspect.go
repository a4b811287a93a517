package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/core/store"
)

// inspector is the store's store.Inspector. A list goes through the keys of one master after the other by SCAN, in no order. A
// record that stands throughout may be in it more than once, and a page may have some more records than Query.Limit.
type inspector struct{ *Store }

// Lookup implements store.Inspector.
func (s inspector) Lookup(ctx context.Context, key string) (store.Record, error) {
	a, _, err := s.run(ctx, command{script: lookupScript, key: key})
	if err != nil {
		return store.Record{}, err
	}
	if a.record == "" {
		return store.Record{}, store.ErrNoRecord
	}
	r, err := parseRecord(a.record, a.left)
	if err != nil {
		return store.Record{}, err
	}
	found := r.told(key, len(r.result))
	if found.Size > 0 {
		found.Result = []byte(r.result)
	}
	return found, nil
}

// told returns what an inspector tells of the record. size is that of its result.
func (r *record) told(key string, size int) store.Record {
	if r.state != store.Done || r.expired {
		size = 0
	}
	return store.Record{Key: key, State: r.state, Expired: r.expired, Attempt: r.attempt, Fingerprint: strings.Clone(r.fingerprint),
		About: store.About{ID: r.about.ID, Policy: strings.Clone(r.about.Policy), Creator: strings.Clone(r.about.Creator),
			Remark: strings.Clone(r.about.Remark)},
		Begun: r.begun, Remaining: r.remaining, Size: size}
}

// headMax is the greatest length of a record before its result.
const headMax = len("R01;64;") + 2*maxDecimal + len(store.Owner{}) + maxFingerprint + aboutHead + 4*256

// List implements store.Inspector. The cursor is the address of a master, SCAN's cursor there, and its next COUNT: the fewer records of
// a page were wanted, the more keys are looked at for the next one.
func (s inspector) List(ctx context.Context, q store.Query, cursor string) (page []store.Record, next string, err error) {
	addr, number, count := "", uint64(0), q.Size()
	if cursor != "" {
		if n, _ := fmt.Sscanf(cursor, "%s %d %d", &addr, &number, &count); n < 2 {
			return nil, "", store.ErrCursor
		}
	}
	count = min(max(count, q.Size()), maxCount)
	p, err := ask(ctx, s.Store, func(ctx context.Context) (p scanned, err error) {
		nodes, err := s.client.Nodes(ctx)
		if err != nil {
			return p, err
		}
		addrs := slices.Sorted(maps.Keys(nodes))
		// A master may have gone since. Another one has its records then, wherever it is in the order: the list begins again.
		i, there := slices.BinarySearch(addrs, addr)
		if !there {
			i, number = 0, 0
		}
		for ; i < len(addrs); i, number = i+1, 0 {
			node := nodes[addrs[i]]
			if number == 0 && len(addrs) > 1 {
				info := ask1(ctx, node, "INFO", "replication")
				if info.Err != nil {
					return p, info.Err
				}
				if field(info.Text, "role") != "master" {
					continue
				}
			}
			p.page, number, err = s.scan(ctx, node, &q, number, count)
			count = min(count*q.Size()/max(len(p.page), 1), 4*count)
			switch {
			case number != 0:
				p.next = fmt.Sprint(addrs[i], " ", number, " ", count)
			case i+1 < len(addrs):
				p.next = fmt.Sprint(addrs[i+1], " 0 ", count)
			}
			return p, err
		}
		return p, nil
	})
	if err != nil {
		return nil, "", err
	}
	return p.page, p.next, nil
}

// scanned is what a List returns.
type scanned struct {
	page []store.Record
	next string
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// maxCount is the greatest COUNT of a SCAN.
const maxCount = 1000

// scan returns what one SCAN of a node finds, and its next cursor.
func (s inspector) scan(ctx context.Context, node Client, q *store.Query, cursor uint64, count int) (
	page []store.Record, next uint64, err error) {
	notDone := len(q.States) > 0 && !slices.Contains(q.States, store.Done)
	found := ask1(ctx, node, "SCAN", strconv.FormatUint(cursor, 10), "MATCH", globEscaper.Replace(q.Prefix)+"*",
		"COUNT", strconv.Itoa(count))
	switch {
	case found.Err != nil:
		return nil, 0, found.Err
	case len(found.Parts) != 2:
		return nil, 0, errNoScan
	}
	if next, err = strconv.ParseUint(found.Parts[0].Text, 10, 64); err != nil {
		return nil, 0, errNoScan
	}
	// What a record begins with tells whether it is wanted, mostly; the rest is asked of those that may be.
	var commands []Command
	for _, key := range found.Parts[1].Parts {
		if q.Match == nil || q.Match(key.Text) {
			commands = append(commands, Command{Args: []string{"GETRANGE", key.Text, "0", strconv.Itoa(headMax)}, Key: 1})
		}
	}
	doAll(ctx, node, commands)
	var wanted []Command // two for each
	var heads []string
	for i := range commands {
		key, head := commands[i].Args[1], commands[i].Text
		switch err := commands[i].Err; {
		case err != nil && !isForeign(err):
			return nil, 0, err
		case err != nil || head == "" || head[0] == 'D' && notDone: // it is somebody else's, has gone, or is not wanted
		case q.Brief && head[0] == 'D':
			if r, err := parseRecord(head, -1); err == nil {
				if told := r.told(key, 0); q.Wants(&told) {
					page = append(page, told)
				}
			}
		default:
			wanted = append(wanted, Command{Args: []string{"STRLEN", key}, Key: 1}, Command{Args: []string{"PTTL", key}, Key: 1})
			heads = append(heads, head)
		}
	}
	doAll(ctx, node, wanted)
	for i, head := range heads {
		length, left := &wanted[2*i], &wanted[2*i+1]
		if err := cmp.Or(length.Err, left.Err); err != nil {
			if isForeign(length.Err) {
				continue // it has become somebody else's
			}
			return nil, 0, err
		}
		if r, err := parseRecord(head, left.Number); err == nil && left.Number != -2 {
			if told := r.told(length.Args[1], int(length.Number)-len(head)+len(r.result)); q.Wants(&told) {
				page = append(page, told)
			}
		}
	}
	return page, next, nil
}

var errNoScan = errors.New("redisstore: the server's answer to SCAN is malformed")

// ask1 sends one command that has no key.
func ask1(ctx context.Context, node Client, words ...string) Reply {
	commands := []Command{{Args: words}}
	node.Do(ctx, commands)
	return commands[0].Reply
}

// doAll sends commands, if there are any.
func doAll(ctx context.Context, node Client, commands []Command) {
	if len(commands) > 0 {
		node.Do(ctx, commands)
	}
}

// isForeign reports whether the value under a key is no string, and so none of ours.
func isForeign(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }

// Change implements store.Inspector.
func (s inspector) Change(ctx context.Context, key string, expected store.Record, c store.Change) error {
	if err := c.Validate(expected.State); err != nil {
		return err
	}
	letters := map[store.State]string{store.Running: "R", store.Abandoned: "A", store.Free: "F", store.Done: "D", 0: "0"}
	a, repeated, err := s.run(ctx, command{script: changeScript, key: key, n: 3, args: [6]string{
		string(expected.ID[:]) + letters[expected.State] + strconv.FormatUint(expected.Attempt, 10),
		letters[c.To] + strconv.FormatInt(ceil(c.Retention), 10) + ";" + c.Remark,
		string(c.Result),
	}})
	switch {
	case err != nil || a.number == 2:
		return err
	case repeated:
		return errUnknown
	case a.number == 1:
		return store.ErrMovedOn
	}
	return store.ErrNoRecord
}

// ask runs fn, which asks a server, in a goroutine of its own, and returns when ctx ends. See calls.
func ask[T any](ctx context.Context, s *Store, fn func(context.Context) (T, error)) (answer T, err error) {
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	if err := s.begin(); err != nil {
		return answer, err
	}
	answered := make(chan func() (T, error), 1)
	go func() {
		defer s.wg.Done()
		answer, err := fn(withoutDeadline{ctx})
		answered <- func() (T, error) { return answer, err }
	}()
	select {
	case answer := <-answered:
		return answer()
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}
