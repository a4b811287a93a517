package shop

import (
	"context"
	"strings"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql" // the drivers behind sqlstore
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// Store is where the shop's records are.
type Store struct {
	store.Store
	// Limit counts the tokens that each user gets: on Redis in all processes together, else in
	// each. See [core.TokenConfig].
	Limit func(context.Context, core.User) (time.Duration, error)
	// Records returns how many records there are; nil: that would have to be counted.
	Records func() int
	// Close gives up connections. No guard may be in use any more.
	Close func()
}

// service is the same for all six programs: they share their records, and nobody else's.
const service = "shop"

// A user gets as many tokens in a window.
const (
	maxTokens    = 20
	tokensWindow = time.Minute
)

// The schemes that [OpenStore] knows, by the package that serves them.
var (
	redisSchemes = []string{"redis://", "rediss://", "unix://"}
	sqlSchemes   = []string{"sqlite:", "postgres://", "postgresql://", "mysql://"}
)

// isStore says whether name has the form of a store's name.
func isStore(name string) bool {
	return name == "memory" || hasPrefix(name, redisSchemes) || hasPrefix(name, sqlSchemes)
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if len(s) > len(p) && strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// OpenStore opens the store that o names. The server must be there, and the table is made
// if it isn't.
func OpenStore(o Options) (*Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	switch {
	case hasPrefix(o.Store, redisSchemes):
		s, err := redisstore.NewURL(o.Store, redisstore.Config{})
		if err != nil {
			return nil, err
		}
		limit, stop, err := limitOnRedis(o.Store)
		if err != nil {
			s.Close()
			return nil, err
		}
		return &Store{s, limit, nil, func() { stop(); s.Close() }}, nil
	case hasPrefix(o.Store, sqlSchemes):
		s, err := sqlstore.NewURL(ctx, o.Store, sqlstore.Config{})
		if err != nil {
			return nil, err
		}
		// A database does not remove by itself what has expired.
		ctx, stop := context.WithCancel(context.Background())
		var purging sync.WaitGroup
		purging.Go(func() { _ = s.PurgeEvery(ctx, 10*time.Minute) })
		return &Store{s, perUser(maxTokens, tokensWindow), nil, func() { stop(); purging.Wait(); s.Close() }}, nil
	default:
		s, err := memstore.New(memstore.Config{})
		if err != nil {
			return nil, err
		}
		return &Store{s, perUser(maxTokens, tokensWindow), s.Len, func() {}}, nil
	}
}

// limitOnRedis is the limit with a client of its own, which stop closes.
func limitOnRedis(url string) (limit func(context.Context, core.User) (time.Duration, error), stop func(), err error) {
	options, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	options.DisableCache = true // nothing is read from it
	client, err := rueidis.NewClient(options)
	if err != nil {
		return nil, nil, err
	}
	limit, err = perUserOnRedis(client, service+":tokens", maxTokens, tokensWindow)
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return limit, client.Close, nil
}
