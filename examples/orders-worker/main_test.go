package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/backend"
)

func TestMain(m *testing.M) {
	if os.Getenv("IDEM_ORDERS_WORKER") == "" {
		os.Exit(m.Run())
	}
	main()
}

func TestChaos(t *testing.T) {
	for name, database := range map[string]func(testing.TB) string{
		"SQLite":     func(testing.TB) string { return "" },
		"PostgreSQL": backend.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-addr", "127.0.0.1:0", "-orders", "30", "-chaos", "-seed", "1", "-store", database(t))
			cmd.Env = append(os.Environ(), "IDEM_ORDERS_WORKER=1", "IDEM_AMQP_URL="+backend.AMQP(t))
			out, err := cmd.CombinedOutput() // also of its workers
			require.NoError(t, err, "%s", out)
			killed := map[string]bool{}
			for _, line := range regexp.MustCompile(`worker \d+ is killed`).FindAllString(string(out), -1) {
				killed[line] = true
			}
			require.Len(t, killed, 5, "%s", out)
			require.Regexp(t, `(?m)^requests absorbed +[1-9]`, string(out))
			require.Regexp(t, `(?m)^orders +30$`, string(out))
			require.Regexp(t, `(?m)^charges +30$`, string(out))
			require.Regexp(t, `(?m)^messages absorbed +[1-9]`, string(out))
			require.NotContains(t, string(out), "DATA RACE")
		})
	}
}

func TestLedgerSeesWhatIsWrong(t *testing.T) {
	broker = backend.AMQP(t)
	s := &service{addr: "127.0.0.1:0"}
	defer s.close(true)
	require.NoError(t, s.open(t.Context()))
	for _, step := range []struct {
		statement string
		right     bool
	}{
		{"INSERT INTO {name}_absorbed VALUES ('orders')", true},
		{"INSERT INTO {name}_orders VALUES ('1', 5)", false},  // without a charge
		{"INSERT INTO {name}_charges VALUES ('1', 5)", false}, // without a message
		{"INSERT INTO {name}_outbox SELECT 1, '1', '', '', 'x', '{}', '', '', 0, 2, 0, 0, ''", true},
		{"UPDATE {name}_outbox SET state = 0", false}, // unsent
		{"UPDATE {name}_outbox SET state = 2", true},
		{"UPDATE {name}_charges SET amount = 6", false},
		{"UPDATE {name}_charges SET amount = 5", true},
		{"INSERT INTO {name}_charges VALUES ('2', 0)", false}, // of no order
		{"UPDATE {name}_charges SET order_id = '1'", false},   // twice
	} {
		_, err := s.db.Exec(s.sql(step.statement))
		require.NoError(t, err)
		l, err := s.ledger(t.Context())
		require.NoError(t, err)
		require.Equal(t, step.right, l.check() == nil, "%s\n%s", step.statement, l)
	}
	l, err := s.ledger(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, l["orders charged twice"])
	require.True(t, l.settled())
	require.False(t, ledger{"messages unsent": 1}.settled())
	require.False(t, ledger{"orders not charged": 1}.settled())
}

// TestRunSaysWhatIsWrong: a run whose ledger is wrong at the end fails.
func TestRunSaysWhatIsWrong(t *testing.T) {
	broker = backend.AMQP(t)
	for _, statement := range []string{"DELETE FROM {name}_charges", "INSERT INTO {name}_charges VALUES ('1', 5)"} {
		s := &service{addr: "127.0.0.1:0", orders: 1}
		err := s.run(t.Context(), func(ctx context.Context) error {
			_, err := s.db.ExecContext(ctx, s.sql(statement))
			return err
		})
		require.Equal(t, strings.HasPrefix(statement, "INSERT"), err != nil, "%s: %v", statement, err)
	}
}

// TestCustomersNoticeAnotherAnswer: a customer that sends a request again gets the first answer, or reports another one.
func TestCustomersNoticeAnotherAnswer(t *testing.T) {
	for _, answers := range []string{"11", "12"} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(answers[asked : asked+1]))
			asked++
		}))
		err := (&service{listener: server.Listener}).place(t.Context(), "k", 5)
		server.Close()
		require.Equal(t, answers == "12", err != nil, "%v", err)
		require.Equal(t, 2, asked)
	}
}
