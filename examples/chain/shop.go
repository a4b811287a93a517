package main

import (
	"context"
	"database/sql"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/ginidem"
)

// shop has no effects of its own: an order is what the bank does for it.
type shop struct {
	effects []string
	ledger  *sql.DB
	bank    *grpc.ClientConn
}

// serveShop serves until the process is killed, or its parent ends.
func serveShop(o options) error {
	ctx := context.Background()
	records, err := openRecords(ctx, o)
	if err != nil {
		return err
	}
	s := &shop{effects: o.effects}
	if s.ledger, err = openLedger(ctx, o.file("shop")); err != nil {
		return err
	}
	if s.bank, err = dialBank(o); err != nil {
		return err
	}
	engine, err := core.New(core.Config{
		Service: o.service(),
		Store:   records,
		User:    core.UserFromHeader("X-User"),
		// A service has one of its own, from where its secrets are.
		Secrets: []core.Secret{{Name: "2026", Key: []byte("an example, and so it is no secret")}},
	})
	if err != nil {
		return err
	}
	guard, err := engine.Guard(core.Policy{Name: "orders", Key: core.Header(core.Required),
		Record: core.Record{Lease: 2 * time.Second, Retention: time.Hour}})
	if err != nil {
		return err
	}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.POST("/orders/:id", ginidem.New(guard), s.order)
	l, err := net.Listen("tcp", o.shop)
	if err != nil {
		return err
	}
	go endWithParent()
	return (&http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second}).Serve(l)
}

func openRecords(ctx context.Context, o options) (store.Store, error) {
	if strings.HasPrefix(o.store, "redis") {
		return redisstore.NewURL(o.store, redisstore.Config{})
	}
	file := o.store
	if file == "" {
		file = o.file("records")
	}
	return sqlstore.NewURL(ctx, "sqlite:"+file, sqlstore.Config{})
}

// order is the handler. It may be cut off at any moment, and runs again then: a step that has finished does not, and one
// that has not sends the bank the same key as before.
func (s *shop) order(c *gin.Context) {
	ctx, id := c.Request.Context(), c.Param("id")
	if _, err := s.ledger.ExecContext(ctx, "INSERT INTO ledger (effect, customer_order) VALUES ('run', ?)", id); err != nil {
		c.String(http.StatusServiceUnavailable, err.Error()) // the database is busy, or the run has lost its lease: another try may do it
		return
	}
	receipts := make([]string, len(s.effects))
	for i, effect := range s.effects {
		receipt, err := core.Step(ctx, effect, func(ctx context.Context) (string, error) { return s.have(ctx, effect, id) })
		if err != nil {
			c.String(http.StatusBadGateway, "%s: %v", effect, err) // the client tries again, and the next run begins here
			return
		}
		receipts[i] = receipt
	}
	c.JSON(http.StatusCreated, order{Order: id, Receipts: receipts})
}

// have has the bank do something.
func (s *shop) have(ctx context.Context, effect, order string) (string, error) {
	key, err := core.RunFrom(ctx).Derive("bank/" + effect)
	if err != nil {
		return "", err
	}
	receipt := new(wrapperspb.StringValue)
	ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
	err = s.bank.Invoke(ctx, "/"+bankName+"/"+effect, wrapperspb.String(order), receipt)
	return receipt.GetValue(), err
}

// order is what the shop answers.
type order struct {
	Order    string   `json:"order"`
	Receipts []string `json:"receipts"`
}
