package faults_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write core/store/FAULTS.md; needs a run of all tests")

// documented is where the tables stand, between marks.
const (
	documented    = "../../core/store/FAULTS.md"
	begin         = "<!-- table: go test ./internal/faults -update -->\n"
	beginMeasured = "<!-- measured: go test ./internal/faults -update -->\n"
	end           = "<!-- end of table -->\n"
)

// The headings of the table, in its order.
const (
	redisServer  = "Redis: the server"
	redisLink    = "Redis: the link"
	redisReplica = "Redis: replicas and failover"
	sqlServers   = "PostgreSQL and MariaDB: server and connections"
	transactions = "DoTx: business change and record in one transaction"
	services     = "The service itself"
)

var sections = []struct{ title, about string }{
	{redisServer, "One server, Redis 7.0 or Valkey 8.1, is killed, frozen, emptied or filled. " +
		"Valkey has a command that compares the owner of a record; on Redis a script does so."},
	{redisLink, "The connection between the service and its server."},
	{redisReplica, "A replica takes over. Replication is asynchronous: see " +
		"[what a failover can lose](#what-a-failover-of-redis-can-lose)."},
	{sqlServers, "The database server is killed, or ends the connection."},
	{transactions, "The handler's change is made in the transaction that holds the record."},
	{services, "Two processes, one on Gin and one on Fiber (both on net/http where a clock is wrong), share a store. " +
		"One is killed, frozen, or has a wrong clock."},
}

// row is what a test has found out about one fault.
type row struct {
	fault      string // what happened, and when
	store      string // to which store
	operations int    // different operations that clients asked for
	tally
	answers string // what clients got, in order of time
}

func (r row) String() string {
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %s |\n",
		r.fault, r.store, r.operations, r.executions, r.duplicates, r.losses, r.answers)
}

// found are the rows by the heading under which they stand.
var found struct {
	sync.Mutex
	rows map[string][]row
}

// measured is what is different at each run, and so only written and never compared.
var measured struct {
	sync.Mutex
	lines []string
}

// report compares r with the table, or keeps it to be written.
func report(t *testing.T, section string, r row) {
	t.Helper()
	found.Lock()
	if found.rows == nil {
		found.rows = map[string][]row{}
	}
	found.rows[section] = append(found.rows[section], r)
	found.Unlock()
	if *update {
		return
	}
	table, err := os.ReadFile(documented)
	require.NoError(t, err)
	if !strings.Contains(string(table), r.String()) {
		t.Errorf("%s does not say (go test ./internal/faults -update, and read what changes):\n%s", documented, r)
	}
}

// write puts the rows that were found into the document, in the order of sections.
func write() error {
	doc, err := os.ReadFile(documented)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(doc, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no marks for the table", documented)
	}
	var b bytes.Buffer
	b.Write(head)
	b.WriteString(begin)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", s.title, s.about)
		b.WriteString("| fault | store | operations | executions | duplicates | losses | clients got |\n")
		b.WriteString("|---|---|---:|---:|---:|---:|---|\n")
		if len(found.rows[s.title]) == 0 {
			return fmt.Errorf("no test has reported to the section %q: -update needs a run of all of them", s.title)
		}
		slices.SortFunc(found.rows[s.title], func(a, b row) int {
			return cmp.Or(cmp.Compare(a.fault, b.fault), cmp.Compare(a.store, b.store))
		})
		for _, r := range found.rows[s.title] {
			b.WriteString(r.String())
		}
	}
	b.WriteString("\n" + end)
	head, rest, ok = bytes.Cut(tail, []byte(beginMeasured))
	_, tail, ok2 = bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no marks for what is measured", documented)
	}
	b.Write(head)
	b.WriteString(beginMeasured)
	b.WriteString("| clients | delay of the replication link | replicas waited for | operations a second | " +
		"masters killed | of them with a loss | acknowledged operations | lost |\n")
	b.WriteString("|---:|---|---:|---:|---:|---:|---:|---:|\n")
	b.WriteString(strings.Join(measured.lines, ""))
	b.WriteString(end)
	b.Write(tail)
	return os.WriteFile(documented, b.Bytes(), 0o644)
}
