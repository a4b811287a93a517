package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

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
		nodes := s.client.Nodes()
		addrs := slices.Sorted(maps.Keys(nodes))
		// A master may have gone since. Another one has its records then, wherever it is in the order: the list begins again.
		i, there := slices.BinarySearch(addrs, addr)
		if !there {
			i, number = 0, 0
		}
		for ; i < len(addrs); i, number = i+1, 0 {
			node := nodes[addrs[i]]
			if number == 0 && len(addrs) > 1 {
				info, err := node.Do(ctx, node.B().Info().Section("replication").Build()).ToString()
				if err != nil {
					return p, err
				}
				if field(info, "role") != "master" {
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
func (s inspector) scan(ctx context.Context, node rueidis.Client, q *store.Query, cursor uint64, count int) (
	page []store.Record, next uint64, err error) {
	b := node.B()
	notDone := len(q.States) > 0 && !slices.Contains(q.States, store.Done)
	found, err := node.Do(ctx, b.Scan().Cursor(cursor).Match(globEscaper.Replace(q.Prefix)+"*").Count(int64(count)).Build()).AsScanEntry()
	if err != nil {
		return nil, 0, err
	}
	keys := found.Elements
	if q.Match != nil {
		keys = slices.DeleteFunc(keys, func(key string) bool { return !q.Match(key) })
	}
	// What a record begins with tells whether it is wanted, mostly; the rest is asked of those that may be.
	var commands rueidis.Commands
	for _, key := range keys {
		commands = append(commands, b.Getrange().Key(key).Start(0).End(int64(headMax)).Build())
	}
	heads := make([]string, 0, len(keys))
	wanted := keys[:0]
	for i, answer := range doMulti(ctx, node, commands) {
		switch head, err := answer.ToString(); {
		case err != nil && !isForeign(err):
			return nil, 0, err
		case err != nil || head == "" || head[0] == 'D' && notDone: // it is somebody else's, has gone, or is not wanted
		case q.Brief && head[0] == 'D':
			if r, err := parseRecord(head, -1); err == nil {
				if told := r.told(keys[i], 0); q.Wants(&told) {
					page = append(page, told)
				}
			}
		default:
			wanted, heads = append(wanted, keys[i]), append(heads, head)
		}
	}
	commands = nil
	for _, key := range wanted {
		commands = append(commands, b.Strlen().Key(key).Build(), b.Pttl().Key(key).Build())
	}
	answers := doMulti(ctx, node, commands)
	for i, key := range wanted {
		length, err1 := answers[2*i].AsInt64()
		left, err2 := answers[2*i+1].AsInt64()
		if err := errors.Join(err1, err2); err != nil {
			if isForeign(err1) {
				continue // it has become somebody else's
			}
			return nil, 0, err
		}
		if r, err := parseRecord(heads[i], left); err == nil && left != -2 {
			if told := r.told(key, int(length)-len(heads[i])+len(r.result)); q.Wants(&told) {
				page = append(page, told)
			}
		}
	}
	return page, found.Cursor, nil
}

// doMulti sends commands, if there are any.
func doMulti(ctx context.Context, node rueidis.Client, commands rueidis.Commands) []rueidis.RedisResult {
	if len(commands) == 0 {
		return nil
	}
	return node.DoMulti(ctx, commands...)
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
