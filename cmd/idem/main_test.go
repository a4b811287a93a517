package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/backend"
)

// night is a service with a stuck operation, and an operator with a shell.
type night struct {
	*testing.T
	url, service, table string
	engine              *core.Engine
	guard               *core.Guard
	charges             http.Handler
	log                 bytes.Buffer
	stuck               bool
	runs                int
}

// stores are the stores that have a URL.
var stores = map[string]func(*testing.T) string{
	"redis": func(t *testing.T) string { return backend.Redis(t) }, "postgres": func(t *testing.T) string { return backend.Postgres(t) },
	"mysql":  func(t *testing.T) string { return backend.MySQL(t) },
	"sqlite": func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "idem.db") },
}

func newNight(t *testing.T, url string, seal *core.Seal) *night {
	n := &night{T: t, url: url, service: "night-" + store.NewOwner().String(), stuck: true}
	var records store.Store
	if strings.HasPrefix(url, "redis") {
		s, err := redisstore.NewURL(url, redisstore.Config{})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		records = s
	} else {
		n.table = "idem_cli_" + strings.ToLower(store.NewOwner().String()[:8])
		s, err := sqlstore.NewURL(t.Context(), url, sqlstore.Config{Table: n.table})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		records = s
		t.Cleanup(func() {
			db, _, err := sqlstore.Open(url)
			require.NoError(t, err)
			defer db.Close()
			_, err = db.Exec("DROP TABLE " + n.table)
			require.NoError(t, err)
		})
	}
	n.engine = core.MustNew(core.Config{Store: records, Service: n.service, User: core.UserFromHeader("X-User"), Seal: seal,
		Remark:  func(context.Context) string { return "invoice of a book" },
		Observe: core.LogEvents(slog.New(slog.NewTextHandler(&n.log, nil)), slog.LevelInfo)})
	n.guard = n.engine.MustGuard(core.Policy{Name: "charges", Key: core.Header(core.Required), Record: core.Record{
		Abandoned: core.Uncertain(nil), Retention: time.Minute, RememberAbandoned: time.Minute}})
	mux := http.NewServeMux()
	mux.Handle("POST /charges", httpidem.New(n.guard)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run := core.RunFrom(r.Context())
		if n.runs++; n.stuck {
			run.Abandon()
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "attempt %d, takeover %t", run.Attempt(), run.Takeover())
	})))
	n.charges = mux
	return n
}

// charge sends POST /charges, and returns what comes of it.
func (n *night) charge(key string) string {
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/charges", strings.NewReader("{}"))
	r.Header.Set("X-User", "alice")
	r.Header.Set("Idempotency-Key", key)
	n.charges.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", w.Body)
}

// idem types a command, and expects an exit status. It returns what was printed.
func (n *night) idem(status int, args ...string) string {
	n.Helper()
	var out, errs bytes.Buffer
	got := run(n.Context(), append([]string{"-store", n.url, "-service", n.service, "-table", n.table}, args...), &out, &errs)
	require.Equal(n, status, got, "%v: %s%s", args, &out, &errs)
	return out.String() + errs.String()
}

// uncertain makes a stuck operation, and returns its digest from the log line of a duplicate.
func (n *night) uncertain(key string) string {
	n.Helper()
	n.charge(key)
	n.log.Reset()
	require.Contains(n, n.charge(key), "409 ")
	line := regexp.MustCompile(` key=([0-9a-f]{16}) .*code=uncertain`).FindStringSubmatch(n.log.String())
	require.NotNil(n, line, n.log.String())
	return line[1]
}

// TestNight: on each store a stuck operation is found from a log line, and released, settled or forgotten.
func TestNight(t *testing.T) {
	for name, url := range stores {
		t.Run(name, func(t *testing.T) {
			n := newNight(t, url(t), nil)
			digest := n.uncertain("k")
			assert.Regexp(t, `(?s)^DIGEST .*`+digest+` +abandoned +1 .* charges +POST /charges +~[0-9a-f]{8} `, n.idem(0, "list"))
			shown := n.idem(0, "show", digest)
			assert.Contains(t, shown, fmt.Sprintf(" %d\n", os.Getpid()), "who")
			assert.NotContains(t, shown, "alice")
			assert.Contains(t, n.idem(0, "show", "-reveal", digest), "alice")

			assert.NotContains(t, n.idem(0, "list", "-older", "1h"), digest)
			t.Setenv("IDEM_STORE", n.url)
			t.Setenv("IDEM_SERVICE", n.service)
			t.Setenv("IDEM_TABLE", n.table)
			var out bytes.Buffer
			assert.Zero(t, run(t.Context(), []string{"show", digest}, &out, &out), &out)
			t.Setenv("IDEM_SERVICE", "another")
			for _, args := range []string{"list", "list -state done", "count", "show " + digest, "find -key k", "forget " + digest} {
				var out, errs bytes.Buffer
				status := map[bool]int{true: 0, false: 1}[strings.HasPrefix(args, "list") || args == "count"]
				assert.Equal(t, status, run(t.Context(), strings.Fields(args), &out, &errs), args)
				assert.Contains(t, errs.String(), `the store has no record of the service "another"`, args)
			}
			assert.Empty(t, n.idem(0, "list", "-policy", "another"), "the service has others")

			assert.Contains(t, n.idem(1, "release", digest), "add -yes")
			n.idem(0, "release", digest, "-yes", "-actor", "ana", "-reason", "the bank\x1b[2J knows nothing")
			assert.Contains(t, n.idem(0, "show", digest), "release by ana: the bank\ufffd[2J knows nothing")
			assert.NotContains(t, n.idem(0, "list"), "\x1b")
			assert.Contains(t, n.idem(1, "release", digest, "-yes"), "free")
			n.stuck = false
			assert.Equal(t, "201 attempt 2, takeover true", n.charge("k"))
			assert.Contains(t, n.idem(1, "release", digest, "-yes"), "done")
			assert.Equal(t, "attempt 2, takeover true", strings.TrimSpace(
				strings.SplitN(n.idem(0, "find", "-user", "alice", "-route", "POST /charges", "-key", "k", "-body"), "\n\n", 2)[1]))
			assert.NotContains(t, n.idem(0, "find", "-user", "alice", "-key", "k"), "takeover true")
			n.idem(1, "find", "-user", "bob", "-key", "k")

			n.stuck = true
			digest = n.uncertain("settled")
			answer := filepath.Join(t.TempDir(), "answer.json")
			require.NoError(t, os.WriteFile(answer, []byte("refunded\x1b[2J"), 0o600))
			n.idem(0, "settle", digest, "-status", "402", "-body", answer, "-retain", "1m", "-yes")
			runs := n.runs
			assert.Equal(t, "402 refunded\x1b[2J", n.charge("settled"))
			shown = n.idem(0, "show", digest, "-body")
			assert.Contains(t, shown, "refunded\ufffd[2J", "the terminal would act on it")
			assert.Contains(t, shown, "Content-Type: application/json")
			assert.Equal(t, runs, n.runs)

			var all []object
			for line := range strings.Lines(n.idem(0, "list", "-json")) {
				var o object
				require.NoError(t, json.Unmarshal([]byte(line), &o))
				all = append(all, o)
			}
			require.Len(t, all, 2)
			for _, o := range all {
				assert.Equal(t, []any{"done", "charges", "POST /charges"}, []any{o.State, o.Policy, o.Route})
				assert.Greater(t, o.Remaining, 0.0)
				assert.Positive(t, o.Bytes)
			}
			assert.Regexp(t, `(?s)abandoned  0\n.*done       2\n`, n.idem(0, "count"))
			part := n.idem(0, "list", "-limit", "1", "-json") // a program, too, is told that it has not got all
			assert.Regexp(t, `^{.*}\n… the first 1; -all lists all, and -reveal prints a cursor for the rest\n$`, part)
			cursor := regexp.MustCompile(`-from (\S+)`).FindStringSubmatch(n.idem(0, "list", "-limit", "1", "-reveal"))
			require.NotNil(t, cursor)
			rest := n.idem(0, "list", "-from", cursor[1], "-json")
			var first, second object
			require.NoError(t, json.Unmarshal([]byte(strings.SplitN(part, "\n", 2)[0]), &first))
			require.NoError(t, json.Unmarshal([]byte(rest), &second), rest)
			assert.NotEqual(t, first.Digest, second.Digest)
			assert.Equal(t, 2, strings.Count(n.idem(0, "list", "-all", "-limit", "1", "-json"), "\n"))
			assert.Contains(t, n.idem(2, "list", "-from", "forged"), "cursor")
			assert.Contains(t, n.idem(2, "list", "-from", "0..Zm9yZ2Vk"), "cursor")

			n.idem(0, "forget", digest, "-yes")
			assert.Contains(t, n.idem(1, "show", digest), "no such operation")
			n.charge("settled")
			assert.Equal(t, runs+1, n.runs)

			// A task that runs.
			task := n.engine.MustTask(core.TaskPolicy{Name: "mail",
				Record: core.Record{Retention: time.Minute, RememberAbandoned: time.Minute}})
			_, err := core.Do(t.Context(), task, core.Call{Key: "m"}, func(ctx context.Context) (string, error) {
				id := core.RunFrom(ctx).ID().String()
				assert.Contains(t, n.idem(1, "forget", id, "-yes"), "running")
				n.idem(0, "forget", id, "-yes", "-running")
				return "", nil
			})
			require.NoError(t, err)
			_, err = core.Do(t.Context(), task, core.Call{Key: "v"}, func(ctx context.Context) (string, error) {
				core.RunFrom(ctx).Abandon()
				digest = core.RunFrom(ctx).Key().String()
				return "", nil
			})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(answer, []byte(`"sent"`), 0o600))
			n.idem(0, "settle", digest, "-body", answer, "-retain", "1m", "-yes")
			r, err := core.Do(t.Context(), task, core.Call{Key: "v"}, func(context.Context) (string, error) { return "again", nil })
			require.NoError(t, err)
			assert.Equal(t, core.Result[string]{Value: "sent", Replayed: true}, r)

			// A webhook.
			policy := core.SignedEvent()
			policy.Name, policy.Retention = "stripe", time.Minute
			hooks := httpidem.New(n.engine.MustGuard(policy))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			hooks.ServeHTTP(httptest.NewRecorder(),
				httptest.NewRequest("POST", "/hooks", nil).WithContext(core.WithCallerEvent(t.Context(), "acme", "evt_1")))
			assert.Regexp(t, `(?s)state +Done: .*policy +stripe\n.*route +stripe\n`,
				n.idem(0, "find", "-user", "acme", "-route", "stripe", "-key", "evt_1"))

			if name == "redis" {
				n.idem(2, "purge", "-yes")
			} else {
				assert.NotContains(t, n.idem(1, "purge"), "removed")
				assert.Contains(t, n.idem(0, "purge", "-yes"), "removed 0 expired records")
			}
		})
	}
}

// dump returns all that the store has of the service.
func (n *night) dump() string {
	var all bytes.Buffer
	if !strings.HasPrefix(n.url, "redis") {
		db, _, err := sqlstore.Open(n.url)
		require.NoError(n, err)
		defer db.Close()
		rows, err := db.Query("SELECT * FROM " + n.table)
		require.NoError(n, err)
		defer rows.Close()
		columns, err := rows.Columns()
		require.NoError(n, err)
		values, dest := make([][]byte, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		for rows.Next() {
			require.NoError(n, rows.Scan(dest...))
			all.Write(bytes.Join(values, []byte{0}))
		}
		require.NoError(n, rows.Err())
		return all.String()
	}
	client, err := rueidis.NewClient(rueidis.MustParseURL(n.url))
	require.NoError(n, err)
	defer client.Close()
	for cursor, begun := uint64(0), false; !begun || cursor != 0; begun = true {
		page, err := client.Do(n.Context(),
			client.B().Scan().Cursor(cursor).Match("idem:"+n.service+":*").Count(1000).Build()).AsScanEntry()
		require.NoError(n, err)
		cursor = page.Cursor
		for _, key := range page.Elements {
			value, err := client.Do(n.Context(), client.B().Get().Key(key).Build()).ToString()
			require.NoError(n, err)
			all.WriteString(key + value)
		}
	}
	return all.String()
}

// TestSealed: on each store, what a dump shows of a service with and without a Seal, and what an operator does.
func TestSealed(t *testing.T) {
	const text = "digest=ZGlnZXN0MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=,a=YWFhYWFhMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk="
	seal, err := core.ParseSeal(text)
	require.NoError(t, err)
	request := func(n *night) { // one that succeeds, one that is abandoned, and a task that fails after a step
		n.stuck = false
		assert.Equal(n, "201 attempt 1, takeover false", n.charge("done"))
		assert.Equal(n, "201 attempt 1, takeover false", n.charge("done"))
		assert.Equal(n, 1, n.runs)
		task := n.engine.MustTask(core.TaskPolicy{Name: "mail", Record: core.Record{RememberAbandoned: time.Minute}})
		var card string
		for i := range 2 {
			_, err := core.Do(n.Context(), task, core.Call{Key: "m", Fingerprint: "PIN 1234"},
				func(ctx context.Context) (_ int, err error) {
					card, err = core.Step(ctx, "card", func(context.Context) (string, error) { return fmt.Sprint("visa-", i), nil })
					require.NoError(n, err)
					return 0, context.Canceled
				})
			assert.ErrorIs(n, err, context.Canceled)
		}
		assert.Equal(n, "visa-0", card)
	}
	for name, url := range stores {
		t.Run(name, func(t *testing.T) {
			plain, n := newNight(t, url(t), nil), newNight(t, url(t), seal)
			request(plain)
			request(n)
			before, now := plain.dump(), n.dump()
			_, fingerprint, err := plain.guard.Key(&core.Request{Method: "POST", Route: "/charges", Body: []byte("{}"),
				Headers: header{"X-User": "alice", "Idempotency-Key": "done"}})
			require.NoError(t, err)
			for _, private := range []string{"takeover false", "visa-0", "PIN 1234", "invoice of a book", fingerprint} {
				assert.Contains(t, before, private)
				assert.NotContains(t, now, private)
			}
			for _, readable := range []string{"alice", "K=done", "charges", "mail"} {
				assert.Contains(t, now, readable)
			}

			n.stuck = true
			digest := n.uncertain("stuck")
			assert.NotContains(t, n.idem(0, "list"), "invoice of a book")
			n.idem(0, "release", digest, "-yes", "-reason", "no money")
			assert.NotContains(t, n.dump(), "no money")
			assert.Contains(t, n.idem(1, "settle", digest, "-status", "204", "-retain", "1m", "-yes"), operations.ErrSealed.Error())
			assert.Contains(t, n.idem(0, "find", "-user", "alice", "-key", "done", "-body"), "there is no Config.Seal")
			object := n.idem(0, "find", "-user", "alice", "-key", "done", "-body", "-json")
			assert.Contains(t, object, `"unopened":"the stored data can't be opened`)
			assert.NotContains(t, object, `"body"`)

			for _, wrong := range []string{
				strings.Replace(text, ",a=YWFh", ",a=YWFi", 1), strings.Replace(text, ",a=", ",b=", 1), text + ",allow-unsealed,open-only",
			} {
				t.Setenv("IDEM_SEAL", wrong) // the service could not open the answer, or would not take it
				assert.Contains(t, n.idem(1, "settle", digest, "-status", "204", "-retain", "1m", "-yes"), operations.ErrSealed.Error())
				n.idem(1, "release", digest, "-yes", "-reason", "no money")
				assert.NotContains(t, n.dump(), "no money")
			}
			// The new key has not come to the service yet.
			t.Setenv("IDEM_SEAL", strings.Replace(text, ",a=", ",new=bmV3bmV3bmV3MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY=,a=", 1))
			assert.Contains(t, n.idem(0, "list"), "invoice of a book")
			assert.Contains(t, n.idem(0, "find", "-user", "alice", "-key", "done", "-body"), "attempt 1, takeover false")
			n.idem(0, "settle", digest, "-status", "402", "-retain", "1m", "-yes", "-reason", "no money")
			assert.Equal(t, "402 ", n.charge("stuck"))
			assert.NotContains(t, n.dump(), "no money")
			assert.Contains(t, n.idem(0, "show", digest), "no money")
			t.Setenv("IDEM_SEAL", "a=secret")
			assert.NotContains(t, n.idem(2, "list"), "secret")
		})
	}
}

// header is the header of a request, for its key.
type header map[string]string

func (h header) Header(name string, _ int) (string, int) { return h[name], min(len(h[name]), 1) }

// TestUsage: what was not understood does nothing, and says why.
func TestUsage(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.db")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	t.Setenv("IDEM_STORE", "sqlite:"+empty)
	for args, want := range map[string]string{
		"":                                     "no command is given",
		"dance":                                `unknown command "dance"`,
		"list x":                               "no argument",
		"list -state open":                     "-state",
		"list -limit -1":                       "not be negative",
		"show zz":                              "16 hexadecimal digits",
		"forget 0123456789abcdefg":             "16 hexadecimal digits",
		"-store redis://h:port/ list":          "malformed",
		"-store redis://%zz list":              "malformed",
		"-store postgres://h:port/d list":      "malformed",
		"-store postgres://h/d?port=x list":    "malformed",
		"-store mysql://h:port/d list":         "malformed",
		"-store sqlite: list":                  "names no file",
		"list -older -1h":                      "not be negative",
		"list -yes":                            "-yes",
		"show":                                 "takes one operation",
		"show a b":                             "takes one operation",
		"find -user u":                         "needs -key",
		"settle x -status 200":                 "-retain",
		"settle x -status 100 -retain 1h":      "from 200 to 999",
		"-store ftp://x list":                  "-store must be",
		"-service a:b list":                    "Config.Service",
		"-table idem.a.b list":                 "Table",
		"list -store mysql://nonsense@@%zz/ -": "no argument",
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, 2, run(t.Context(), strings.Fields(args), &out, &errs), args)
		assert.Contains(t, errs.String(), want, args)
		assert.Empty(t, out.String(), args)
	}
	var out, errs bytes.Buffer
	assert.Equal(t, 0, run(t.Context(), []string{"-help"}, &out, &errs))
	assert.Contains(t, out.String(), "idem -store URL")
	t.Setenv("IDEM_STORE", "")
	assert.Equal(t, 0, run(t.Context(), []string{"help", "list"}, &out, &errs))
	assert.Equal(t, 2, strings.Count(out.String(), "idem -store URL"))
	out.Reset()
	assert.Equal(t, 0, run(t.Context(), []string{"version"}, &out, &errs))
	assert.Regexp(t, `^idem \S+ \(go1\S*.*\)\n$`, out.String())
	for _, away := range []string{"redis://127.0.0.1:1", "postgres://127.0.0.1:1/d", "mysql://127.0.0.1:1/d",
		"sqlite:" + empty + "x", "sqlite:" + empty} {
		assert.Equal(t, 1, run(t.Context(), []string{"-store", away, "list"}, &out, &errs), away)
	}
}

// TestDoctor: a store that is well, on each kind of server, and some that are not.
func TestDoctor(t *testing.T) {
	for name, url := range stores {
		t.Run(name, func(t *testing.T) {
			n := newNight(t, url(t), nil)
			said := n.idem(0, "doctor")
			assert.Contains(t, said, "it answers in")
			assert.Contains(t, said, "a test record went through its whole life")
			assert.NotContains(t, said, "bad ")
			for line := range strings.Lines(n.idem(0, "doctor", "-json")) {
				var f finding
				require.NoError(t, json.Unmarshal([]byte(line), &f))
				assert.Contains(t, []string{"ok", "warn"}, f.Level, f.What)
			}
		})
	}
	n := &night{T: t, service: "s", url: backend.StartRedis(t, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb").URL()}
	said := n.idem(1, "doctor")
	assert.Contains(t, said, "maxmemory-policy allkeys-lru")
	assert.Contains(t, said, "CONFIG SET maxmemory-policy noeviction")
	assert.Contains(t, said, "appendonly no")
	assert.Contains(t, said, "runs end with scripts")
	file := filepath.Join(t.TempDir(), "empty.db")
	for name, tc := range map[string]struct {
		url  string
		want []string
	}{
		"no replica": {backend.StartRedis(t, "--min-replicas-to-write", "1").URL(), []string{"NOREPLICAS", "lower min-replicas-to-write"}},
		"a replica":  {backend.StartRedis(t, "--replicaof", "127.0.0.1", "1").URL(), []string{"READONLY", "use the master"}},
	} {
		said := (&night{T: t, service: "s", url: tc.url}).idem(1, "doctor")
		for _, want := range append(tc.want, "bad   a test record: claim: ", "before you restart the service") {
			assert.Contains(t, said, want, name)
		}
	}
	n = &night{T: t, service: "s", url: "sqlite:" + file}
	assert.Contains(t, n.idem(1, "doctor"), "no such file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	said = n.idem(1, "doctor")
	assert.Contains(t, said, "create or update the table")
	assert.Contains(t, said, "a test record: claim: ")
}

// TestDoctorOfServersThatCompare: which commands a server of each version takes.
func TestDoctorOfServersThatCompare(t *testing.T) {
	for versions, want := range map[[2]string]string{
		{"7.2.4", "9.0.0"}: "SET IFEQ and DELIFEQ", {"7.2.4", "8.1.4"}: "releases take a script", {"7.2.4", "8.0.1"}: "with scripts",
		{"8.4.0", ""}: "SET IFEQ and DELEX", {"8.2.1", ""}: "with scripts", {"10.0.0", ""}: "DELEX", {"", ""}: "with scripts",
	} {
		assert.Contains(t, way(versions[0], versions[1]), want, versions)
	}
	n := &night{T: t, service: "s", url: backend.StartValkey(t).URL()}
	said := n.idem(0, "doctor")
	assert.Regexp(t, `: Valkey \d+\.\d+\.\d+, master`, said)
	assert.Contains(t, said, "it compares natively")
}

// TestDoctorBehindAPooler: a pooler that shares connections is seen whether or not anybody has used it before, and the rest of the store is
// looked at all the same.
func TestDoctorBehindAPooler(t *testing.T) {
	server := backend.Postgres(t)
	n := newNight(t, server, nil)
	for _, setting := range []string{"", "server_round_robin=1"} {
		n.url = backend.StartPgBouncer(t, server, 3, setting).URL()
		for _, visit := range []string{"a fresh pool", "a used one"} {
			said := n.idem(1, "doctor")
			assert.Contains(t, said, "bad   a pooler shares connections between transactions", visit)
			assert.Contains(t, said, "add pooler=transaction", visit)
			assert.Contains(t, said, "a test record went through its whole life", visit)
			assert.Equal(t, 1, strings.Count(said, "bad "), said)
		}
		n.url += "&pooler=transaction"
		said := n.idem(0, "doctor")
		assert.Contains(t, said, "ok    a pooler shares connections between transactions, and the URL says so")
		assert.NotContains(t, said, "bad ")
	}
	n.url = server
	assert.Contains(t, n.idem(0, "doctor"), "no pooler shares")
}

// TestPrefix: operations under a prefix of their own are found by it.
func TestPrefix(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "idem.db")
	s, err := sqlstore.NewURL(t.Context(), url, sqlstore.Config{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	task := core.MustNew(core.Config{Store: s, LegacyPrefix: "shop/"}).MustTask(core.TaskPolicy{Name: "mail"})
	_, err = core.Do(t.Context(), task, core.Call{Key: "m"}, func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	for args, want := range map[string]string{"-prefix shop/ list": "DO mail", "list": ""} {
		var out, errs bytes.Buffer
		require.Zero(t, run(t.Context(), append([]string{"-store", url}, strings.Fields(args)...), &out, &errs), "%s", &errs)
		assert.Contains(t, out.String(), want)
		assert.Equal(t, want == "", out.Len() == 0)
	}
}
