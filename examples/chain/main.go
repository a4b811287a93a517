// Command chain shows that an operation happens once over two services and links that lose things:
//
//	client -> shop (Gin) -> bank (gRPC)
//
// Each link loses a third of the requests, and a third of the answers, and each service is killed twice. The client tries again
// until it has an answer; so does the shop. In the end the program compares the ledgers: each order has each of its effects once.
//
//	go run ./examples/chain
//	go run ./examples/chain -effects charge
//	go run ./examples/chain -store redis://127.0.0.1:6379
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// options are those of all three roles.
type options struct {
	role, shop, bank, dir, store string
	effects                      []string
	orders, kills                int
	loss                         float64
	seed                         uint64
}

func main() {
	var o options
	var effects string
	flag.StringVar(&o.role, "role", "", "`shop` or bank: set by the program for the processes that it starts")
	flag.StringVar(&o.shop, "shop", "", "`address` of the shop (default: any free one)")
	flag.StringVar(&o.bank, "bank", "", "`address` of the bank (default: any free one)")
	flag.StringVar(&o.dir, "dir", "", "`folder` of the ledgers (default: a temporary one)")
	flag.StringVar(&o.store, "store", "", "the shop's `store`: redis://…, or an SQLite file")
	flag.StringVar(&effects, "effects", "reserve,charge,ship", "`calls` of the bank that make an order, in this order")
	flag.IntVar(&o.orders, "orders", 200, "how many orders the client sends")
	flag.IntVar(&o.kills, "kills", 2, "how often each service is killed")
	flag.Float64Var(&o.loss, "loss", 0.3, "the share of requests, and of answers, that each link loses")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "of what is lost")
	flag.Parse()
	o.effects = strings.FieldsFunc(effects, func(r rune) bool { return r == ',' })
	if len(o.effects) == 0 || o.orders <= 0 || o.loss < 0 || o.loss >= 1 {
		log.Fatal("chain: -effects names what is done, -orders is more than zero, and -loss is from 0 to less than 1")
	}

	// The end of the parent is the end of a service, see start. It must not end at the terminal's interrupt before.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch o.role {
	case "shop":
		err = serveShop(o)
	case "bank":
		err = serveBank(o)
	default:
		err = run(ctx, o)
	}
	if err != nil {
		stop()
		log.Fatalf("%s: %v", "chain "+o.role, err)
	}
}

// run starts the services, sends the orders, and compares the ledgers.
func run(ctx context.Context, o options) error {
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "chain")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.dir = dir
	}
	for _, addr := range []*string{&o.shop, &o.bank} {
		if *addr == "" {
			*addr = freeAddr()
		}
	}
	services := map[string]*service{"bank": {options: o}, "shop": {options: o}}
	for role, s := range services {
		s.role = role
		if err := s.start(); err != nil {
			return err
		}
		defer s.kill()
	}
	fmt.Printf("%d orders of %s; each link loses %.0f %% of the requests and of the answers (-seed %d)\n",
		o.orders, strings.Join(o.effects, ", "), 100*o.loss, o.seed)

	c := newClient(o)
	answers := make([]order, o.orders)
	faults := make([]error, o.orders)
	numbers := make(chan int)
	var done sync.WaitGroup
	for range 64 {
		done.Go(func() {
			for i := range numbers {
				answers[i], faults[i] = c.order(ctx, i)
			}
		})
	}
	for i := range o.orders {
		numbers <- i
		// The kills are spread over the orders.
		for k := range 2 * o.kills {
			if i == (k+1)*o.orders/(2*o.kills+1) {
				if err := services[[]string{"shop", "bank"}[k%2]].restart(); err != nil {
					return err
				}
			}
		}
	}
	close(numbers)
	done.Wait()
	for i, err := range faults {
		if err != nil {
			return fmt.Errorf("order %d has no answer: %w", i, err)
		}
	}
	return compare(o, c, answers)
}

// service is a process of this program in another role.
type service struct {
	options
	process *exec.Cmd
	ends    io.Closer // with this process, and then the service ends, too
	kills   int
}

func (s *service) start() error {
	s.process = exec.Command(os.Args[0], "-role", s.role, "-shop", s.shop, "-bank", s.bank, "-dir", s.dir, "-store", s.store,
		"-effects", strings.Join(s.effects, ","), "-loss", fmt.Sprint(s.loss), "-seed", fmt.Sprint(s.seed+uint64(s.kills)))
	s.process.Stderr = os.Stderr
	var err error
	if s.ends, err = s.process.StdinPipe(); err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	addr := map[string]string{"shop": s.shop, "bank": s.bank}[s.role]
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			s.kill()
			return fmt.Errorf("the %s does not listen: %w", s.role, err)
		}
	}
}

// kill ends the process as a crash does.
func (s *service) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func (s *service) restart() error {
	s.kills++
	fmt.Printf("the %s is killed\n", s.role)
	s.kill()
	return s.start()
}

func freeAddr() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// service returns the shop's name in its store: each run of this program has orders of its own.
func (o *options) service() string {
	_, port, _ := net.SplitHostPort(o.shop)
	return fmt.Sprintf("chain-%d-%s", os.Getppid(), port)
}

// file returns the path of a database.
func (o *options) file(name string) string { return filepath.Join(o.dir, name+".db") }
