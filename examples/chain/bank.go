package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
	_ "modernc.org/sqlite" // the driver of the ledgers, and of sqlstore

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/grpcidem"
)

// bank is the service that has effects, which cost money. Each method is one effect.
type bank struct {
	db      *sql.DB
	records *sqlstore.Store
}

// serveBank serves until the process is killed, or its parent ends.
func serveBank(o options) error {
	ctx := context.Background()
	db, err := openLedger(ctx, o.file("bank"))
	if err != nil {
		return err
	}
	records, err := sqlstore.New(db, sqlstore.SQLite, sqlstore.Config{})
	if err != nil {
		return err
	}
	if err := records.Migrate(ctx); err != nil {
		return err
	}
	engine, err := core.New(core.Config{Service: "bank", Store: records})
	if err != nil {
		return err
	}
	guard, err := grpcidem.New(engine, grpcidem.Config{
		SharedByAllCallers: true, // there is one: the shop
		// The effect and its record are one transaction, so that a run which was cut off may be taken over.
		Policy: core.TaskPolicy{Record: core.Record{Lease: 2 * time.Second}, Duplicate: core.Wait(5 * time.Second)},
	})
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(guard.Unary))
	b := &bank{db, records}
	methods := make([]grpc.MethodDesc, len(o.effects))
	for i, effect := range o.effects {
		methods[i] = b.method(effect)
	}
	// As generated code would.
	server.RegisterService(&grpc.ServiceDesc{ServiceName: bankName, HandlerType: (*any)(nil), Methods: methods}, b)
	l, err := net.Listen("tcp", o.bank)
	if err != nil {
		return err
	}
	go endWithParent()
	return server.Serve(l)
}

const bankName = "chain.Bank"

// do does an effect for an order, and returns a receipt. What makes it happen once is that the guard's record is committed with it.
func (b *bank) do(ctx context.Context, effect, order string) (string, error) {
	result, err := b.records.RunTx(ctx, b.db, func(tx *sql.Tx) ([]byte, error) {
		r, err := tx.ExecContext(ctx, "INSERT INTO ledger (effect, customer_order) VALUES (?, ?)", effect, order)
		if err != nil {
			return nil, err
		}
		id, err := r.LastInsertId()
		return fmt.Appendf(nil, "%s-%d", effect, id), err
	})
	return string(result.Value), err
}

// method is what protoc would generate for an effect.
func (b *bank) method(effect string) grpc.MethodDesc {
	full := "/" + bankName + "/" + effect
	return grpc.MethodDesc{MethodName: effect,
		Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			order := new(wrapperspb.StringValue)
			if err := decode(order); err != nil {
				return nil, err
			}
			return intercept(ctx, order, &grpc.UnaryServerInfo{Server: b, FullMethod: full},
				func(ctx context.Context, order any) (any, error) {
					receipt, err := b.do(ctx, effect, order.(*wrapperspb.StringValue).GetValue())
					return wrapperspb.String(receipt), err
				})
		}}
}

// dialBank connects the shop to the bank, over a link that loses things. What was not answered is tried again, under the same key.
func dialBank(o options) (*grpc.ClientConn, error) {
	return grpc.NewClient(o.bank, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpcidem.Client(codes.Unavailable), newLink(o).Unary))
}

// openLedger opens a database with a ledger: of the bank's effects, or of the shop's runs.
func openLedger(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx,
		"CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY, effect TEXT NOT NULL, customer_order TEXT NOT NULL)")
	return db, err
}

// endWithParent ends the process when its parent, which holds the other end of stdin, has ended.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}
