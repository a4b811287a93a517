package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// finding is what the doctor says about one thing.
type finding struct {
	Level string `json:"level"` // ok, warn or bad
	What  string `json:"what"`
	Do    string `json:"do,omitempty"`
}

var errIll = errors.New("the store has problems: see the lines marked bad")

// doctor looks at a store, and has a claim go through its whole life.
func (c *command) doctor(ctx context.Context, p *printer, warnings func() []error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ill := false
	say := func(level, what, do string) {
		ill = ill || level == "bad"
		if p.json {
			_ = json.NewEncoder(p.out).Encode(finding{level, what, do})
			return
		}
		fmt.Fprintf(p.out, "%-5s %s\n", level, operations.Printable(what))
		if do != "" {
			fmt.Fprintf(p.out, "      -> %s\n", operations.Printable(do))
		}
	}
	var err error
	if scheme, _, _ := strings.Cut(c.store, ":"); slices.Contains(redisSchemes, scheme) {
		err = doctorRedis(ctx, c.store, say)
		for _, warning := range warnings() {
			say("bad", warning.Error(), "")
		}
	} else {
		url := c.store
		if strings.HasPrefix(scheme, "postgres") {
			url, err = doctorPooler(ctx, c.store, say)
		}
		if err == nil {
			err = doctorSQL(ctx, url, c.table, say)
		}
		if url != c.store {
			records, closeStore, openErr := open(ctx, url, c.table, nil)
			if openErr != nil {
				return openErr
			}
			defer closeStore()
			c.records = records
		}
	}
	if err != nil {
		say("bad", err.Error(), "")
	}
	c.life(ctx, say)
	if ill {
		return errIll
	}
	return nil
}

// life has claims go through all that a store does, under keys that no engine makes.
func (c *command) life(ctx context.Context, say func(level, what, do string)) {
	inspect := c.records.Capabilities().Inspect
	key := "idem:doctor:" + store.NewOwner().String()
	claim := store.Claim{Owner: store.NewOwner(), About: store.About{ID: store.NewID(), Remark: "idem doctor"},
		Lease: time.Minute, Retention: time.Minute}
	steps := []struct {
		name string
		do   func() error
	}{
		{"claim", func() error { _, err := c.records.Acquire(ctx, key, claim); return err }},
		{"renew", func() error { return c.records.Renew(ctx, key, claim.Owner, time.Minute) }},
		{"abandon", func() error { return c.records.Abandon(ctx, key, claim.Owner) }},
		{"release, as an operator does", func() error {
			r, err := inspect.Lookup(ctx, key)
			if err != nil {
				return err
			}
			return inspect.Change(ctx, key, r, store.Change{To: store.Free})
		}},
		{"claim again", func() error { _, err := c.records.Acquire(ctx, key, claim); return err }},
		{"complete", func() error { return c.records.Complete(ctx, key, claim.Owner, []byte("result"), time.Minute) }},
		{"replay", func() error {
			g, err := c.records.Acquire(ctx, key, claim)
			if err == nil && (g.State != store.Done || string(g.Result) != "result") {
				err = fmt.Errorf("the record is %v, with %q", g.State, g.Result)
			}
			return err
		}},
		{"list", func() error {
			_, _, err := inspect.List(ctx, store.Query{Prefix: key, Limit: 1}, "")
			return err
		}},
		{"forget, as an operator does", func() error {
			r, err := inspect.Lookup(ctx, key)
			if err != nil {
				return err
			}
			return inspect.Change(ctx, key, r, store.Change{})
		}},
	}
	if watch := c.records.Capabilities().Watch; watch != nil {
		steps = append(steps[:2:2], append([]struct {
			name string
			do   func() error
		}{{"watch", func() error {
			_, stop, err := watch(ctx, key)
			if err == nil {
				stop()
			}
			return err
		}}}, steps[2:]...)...)
	}
	begun := time.Now()
	for _, step := range steps {
		if err := step.do(); err != nil {
			say("bad", fmt.Sprintf("a test record: %s: %v", step.name, err), "the service's calls fail in the same way"+cause(err)+
				". Fix this before you restart the service: its memory may hold the only copy of some results")
			return
		}
	}
	say("ok", fmt.Sprintf("a test record went through its whole life: %d calls in %v", len(steps),
		time.Since(begun).Round(time.Millisecond)), "")
}

// cause says why a server that answers takes no writes, and what to do, as the end of a sentence. It is empty for other errors.
func cause(err error) string {
	for _, c := range []struct{ word, why string }{
		{"NOREPLICAS", ": the server takes no writes without its replicas; bring them back, or lower min-replicas-to-write"},
		{"READONLY", ": this is a replica; use the master's address"},
		{"MISCONF", ": the server takes no writes while it can't save; its log says why"},
	} {
		if strings.Contains(err.Error(), c.word) {
			return c.why
		}
	}
	return ""
}

// latency says how long a call takes.
func latency(say func(level, what, do string), ping func() error) error {
	var took []time.Duration
	for range 21 {
		begun := time.Now()
		if err := ping(); err != nil {
			return err
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	level, do := "ok", ""
	if took[10] > 20*time.Millisecond {
		level, do = "warn", "each first request waits for two calls: move the store closer to the service"
	}
	say(level, fmt.Sprintf("it answers in %v (median of 21; the slowest took %v)", took[10].Round(10*time.Microsecond),
		took[20].Round(10*time.Microsecond)), do)
	return nil
}

func doctorRedis(ctx context.Context, url string, say func(level, what, do string)) error {
	o, err := rueidis.ParseURL(url)
	if err != nil {
		return errors.New("the URL is malformed")
	}
	o.DisableCache = true
	client, err := rueidis.NewClient(o)
	if err != nil {
		return err
	}
	defer client.Close()
	for addr, node := range client.Nodes() {
		if err := latency(say, func() error { return node.Do(ctx, node.B().Ping().Build()).Error() }); err != nil {
			return err
		}
		info, err := node.Do(ctx, node.B().Info().Section("everything").Build()).ToString()
		if err != nil {
			say("warn", addr+": INFO: "+err.Error(), "allow the user to run INFO: without it the doctor can't check the settings")
			continue
		}
		get := func(name string) string {
			for line := range strings.Lines(info) {
				if value, is := strings.CutPrefix(line, name+":"); is {
					return strings.TrimSpace(value)
				}
			}
			return ""
		}
		version, valkey := get("redis_version"), get("valkey_version")
		named := "Redis " + version
		if valkey != "" {
			named = "Valkey " + valkey
		}
		if atLeast(version, 6, 2) {
			say("ok", addr+": "+named+", "+get("role"), "")
		} else {
			say("bad", addr+": "+named, "use Redis 6.2 or later, or Valkey")
		}
		say("ok", addr+": "+way(version, valkey), "")
		if policy := get("maxmemory_policy"); policy == "noeviction" || policy == "" {
			say("ok", addr+": maxmemory-policy noeviction", "")
		} else {
			say("bad", addr+": maxmemory-policy "+policy+": when memory is full, the server drops records, and their operations run again",
				"run CONFIG SET maxmemory-policy noeviction, and set it in the configuration file")
		}
		used, _ := strconv.ParseFloat(get("used_memory"), 64)
		most, _ := strconv.ParseFloat(get("maxmemory"), 64)
		switch {
		case most == 0:
			say("warn", addr+": maxmemory is not set",
				"set it below the machine's memory: otherwise the system may kill the server when memory runs out")
		case used > 0.9*most:
			say("bad", fmt.Sprintf("%s: %.0f %% of its memory is used", addr, 100*used/most),
				"give the server more memory, or shorten the retention")
		default:
			say("ok", fmt.Sprintf("%s: %.0f %% of its memory is used", addr, 100*used/most), "")
		}
		if get("aof_enabled") == "1" {
			say("ok", addr+": appendonly yes", "")
		} else {
			say("warn", addr+": appendonly no: a restart loses records, and repeated requests run again", "set appendonly yes")
		}
		if get("role") == "master" {
			if n := get("connected_slaves"); n == "0" {
				say("warn", addr+": no replica", "without one, losing the server loses all records; with a replica and "+
					"Config.WaitForReplicas, a failover loses no acknowledged record")
			} else {
				say("ok", addr+": "+n+" replicas", "")
			}
		}
	}
	return nil
}

// way says how a run ends on a server of these versions; valkey is empty if it is not Valkey. The store finds it out as well.
func way(redis, valkey string) string {
	switch {
	case atLeast(valkey, 9, 0):
		return "it compares natively: runs end with SET IFEQ and DELIFEQ"
	case atLeast(valkey, 8, 1):
		return "it compares natively: results are stored with SET IFEQ; releases take a script"
	case valkey == "" && atLeast(redis, 8, 4):
		return "it compares natively: runs end with SET IFEQ and DELEX"
	}
	return "runs end with scripts, which cost the server more time; Valkey 8.1, Redis 8.4 and later compare natively"
}

// atLeast reports whether a version is major.minor or later.
func atLeast(version string, major, minor int) bool {
	var has [2]int
	n, _ := fmt.Sscanf(version, "%d.%d", &has[0], &has[1])
	return n == 2 && (has[0] > major || has[0] == major && has[1] >= minor)
}

// settings are queries about a database, by dialect: the good values, and what to do about others.
var settings = map[sqlstore.Dialect][]struct{ query, good, level, do string }{
	sqlstore.PostgreSQL: {
		{"SHOW fsync", "on", "bad", "set fsync = on: a crash corrupts the table"},
		{"SHOW synchronous_commit", "on|remote_apply|remote_write|local", "warn",
			"with off, a crash loses the latest claims and results, and repeated requests run again"},
		{"SHOW default_transaction_isolation", "read committed|repeatable read|serializable", "bad", "set read committed or stricter"},
		{"SHOW transaction_read_only", "off", "bad", "this is a standby, or a read-only session: use the primary's address"},
	},
	sqlstore.MySQL: {
		{"SELECT @@innodb_flush_log_at_trx_commit", "1", "warn", "with 0 or 2, a crash loses the latest claims and results: set 1"},
		{"SELECT @@autocommit", "1", "bad", "turn autocommit on: otherwise nothing is committed"},
		{"SELECT @@read_only", "0|OFF", "bad", "this server is read-only: use the primary's address"},
		{"SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')", "REPEATABLE-READ|READ-COMMITTED|SERIALIZABLE",
			"bad", "set READ COMMITTED or stricter"},
	},
	sqlstore.SQLite: {
		{"PRAGMA journal_mode", "wal", "warn", "set journal_mode=wal, as sqlstore.Open does: otherwise readers wait for writers"},
		{"PRAGMA quick_check(1)", "ok", "bad", "the file is damaged: restore it"},
	},
}

func doctorSQL(ctx context.Context, url, table string, say func(level, what, do string)) error {
	db, dialect, err := sqlstore.Open(url)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := latency(say, func() error { return db.QueryRowContext(ctx, "SELECT 1").Scan(new(int)) }); err != nil {
		return err
	}
	for _, s := range settings[dialect] {
		var name, value string
		columns := []any{&value}
		if strings.HasPrefix(s.query, "SHOW VARIABLES") {
			columns = []any{&name, &value}
		}
		switch err := db.QueryRowContext(ctx, s.query).Scan(columns...); {
		case err != nil:
			say("warn", s.query+": "+err.Error(), "")
		case slices.Contains(strings.Split(strings.ToLower(s.good), "|"), strings.ToLower(value)):
			say("ok", s.query+": "+value, "")
		default:
			say(s.level, s.query+": "+value, s.do)
		}
	}
	if err := doctorClock(ctx, db, dialect, say); err != nil {
		return err
	}
	s, err := sqlstore.New(db, dialect, sqlstore.Config{Table: table})
	if err != nil {
		return err
	}
	defer s.Close()
	expired, err := s.Expired(ctx, manyExpired)
	switch {
	case err != nil:
		say("bad", err.Error(), "create or update the table: call store.Migrate, or run what sqlstore.Schema returns")
	case expired >= manyExpired:
		say("warn", fmt.Sprintf("%d or more expired records have not been purged", expired),
			"call go store.PurgeEvery(ctx, 10*time.Minute) in every process; idem purge does it once")
	default:
		say("ok", fmt.Sprintf("the table exists, with %d expired records", expired), "")
	}
	return nil
}

const manyExpired = 100_000

// doctorClock compares the database's clock with this machine's. Leases are counted by the database's alone: a difference only misleads
// those who read times.
func doctorClock(ctx context.Context, db *sql.DB, dialect sqlstore.Dialect, say func(level, what, do string)) error {
	query := map[sqlstore.Dialect]string{
		sqlstore.PostgreSQL: "SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8",
		sqlstore.MySQL:      "SELECT UNIX_TIMESTAMP(SYSDATE(6)) + 0e0",
	}[dialect]
	if query == "" {
		return nil
	}
	var seconds float64
	before := time.Now()
	if err := db.QueryRowContext(ctx, query).Scan(&seconds); err != nil {
		return err
	}
	middle := before.Add(time.Since(before) / 2)
	off := time.UnixMicro(int64(seconds * 1e6)).Sub(middle).Round(time.Millisecond)
	if off > time.Second || off < -time.Second {
		say("warn", fmt.Sprintf("its clock differs from this machine's by %v", off),
			"leases are not affected, but ages in lists are wrong by as much: synchronise the clocks")
		return nil
	}
	say("ok", fmt.Sprintf("its clock differs from this machine's by %v", off), "")
	return nil
}

// doctorPooler looks for a pooler that gives each transaction another connection to the server: two clients that are connected at the
// same time meet on one backend, or one of them is on several. It returns the URL by which the rest can be asked behind such a pooler.
func doctorPooler(ctx context.Context, url string, say func(level, what, do string)) (string, error) {
	named := pooled.MatchString(url)
	mended := url
	if !named {
		sign := "?"
		if strings.Contains(url, "?") {
			sign = "&"
		}
		mended += sign + "pooler=transaction"
	}
	db, _, err := sqlstore.Open(mended)
	if err != nil {
		return url, err
	}
	defer db.Close()
	var conns [2]*sql.Conn
	for i := range conns {
		if conns[i], err = db.Conn(ctx); err != nil {
			return url, err
		}
		defer conns[i].Close()
	}
	clients := map[int]int{} // by backend
	shared := false
	for _, i := range []int{0, 1, 0, 0, 1, 1, 0, 1} { // not in turn: a pooler may have two backends, and give them in turn
		var pid int
		if err := conns[i].QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			return url, err
		}
		client, known := clients[pid]
		shared = shared || known && client != i
		clients[pid] = i
	}
	switch shared = shared || len(clients) > len(conns); {
	case shared && !named:
		say("bad",
			"a pooler shares connections between transactions, but the URL does not say so: prepared statements of two clients collide",
			"add pooler=transaction to the URL, here and in the service, and do not set Config.Prepared")
		return mended, nil
	case shared:
		say("ok", "a pooler shares connections between transactions, and the URL says so", "")
	default:
		say("ok", "no pooler shares connections between transactions", "")
	}
	return url, nil
}

// pooled matches a URL by which no statement is prepared, as sqlstore.Open and pgx have it.
var pooled = regexp.MustCompile(`[?&](pooler=transaction|default_query_exec_mode=(exec|simple_protocol))(&|$)`)
