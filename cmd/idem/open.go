package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // the drivers behind sqlstore
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/store/sqlstore"
)

var redisSchemes = []string{"redis", "rediss", "unix", "valkey", "valkeys"}

// open opens the store that url names. A table is not made. warn gets what Redis's settings are, see redisstore.Config.
func open(ctx context.Context, url, table string, warn func(error)) (records store.Store, closeStore func(), err error) {
	scheme, _, _ := strings.Cut(url, ":")
	switch {
	case slices.Contains(redisSchemes, scheme):
		s, err := redisstore.NewURL(url, redisstore.Config{Warn: warn})
		if err != nil {
			if _, malformed := rueidis.ParseURL(url); malformed != nil {
				err = errUsage{err}
			}
			return nil, nil, err
		}
		return s, s.Close, nil
	case slices.Contains([]string{"postgres", "postgresql", "mysql", "sqlite"}, scheme):
		if file, _, _ := strings.Cut(strings.TrimPrefix(url, "sqlite:"), "?"); scheme == "sqlite" && file != "" {
			if _, err := os.Stat(file); err != nil { // opening it would make one
				return nil, nil, err
			}
		}
		db, dialect, err := sqlstore.Open(url)
		if err != nil {
			return nil, nil, errUsage{err}
		}
		s, err := sqlstore.New(db, dialect, sqlstore.Config{Table: table})
		if err != nil {
			db.Close()
			return nil, nil, errUsage{err}
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := db.PingContext(ctx); err != nil {
			s.Close()
			db.Close()
			if errors.As(err, new(*pgconn.ParseConfigError)) { // which pgx says no earlier
				err = usage("the URL is malformed: %w", err)
			}
			return nil, nil, err
		}
		return s, func() { s.Close(); db.Close() }, nil
	}
	return nil, nil, usage("-store must be redis://, rediss://, unix://, postgres://, mysql:// or sqlite:FILE, not %q", scheme)
}
