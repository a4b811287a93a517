// Command loadgen puts services that run already under load and prints what came of it.
//
//	loadgen -duration 10s -duplicates 0.1 -rate 5000 http://127.0.0.1:8081 http://127.0.0.1:8082
//
// The services are those of benchmarks/load/service, fresh ones, behind the same store. It ends
// with code 1 if an operation was not carried out exactly once, or an answer was wrong.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/idem-go/idem/benchmarks/load"
)

func main() {
	log.SetFlags(0)
	p := load.Plan{Key: rand.Text()[:8] + "-", Seed: uint64(time.Now().UnixNano())}
	flag.IntVar(&p.Connections, "connections", load.DefaultConnections, "how many connections")
	flag.DurationVar(&p.Duration, "duration", 5*time.Second, "how long to measure")
	flag.DurationVar(&p.Warmup, "warmup", 500*time.Millisecond, "how long to send before that")
	flag.Float64Var(&p.Rate, "rate", 0, "requests a second in an open loop; 0: a closed loop")
	flag.Float64Var(&p.Duplicates, "duplicates", 0, "the share of requests that ask again, 0 to 1")
	flag.BoolVar(&p.Bare, "bare", false, "the services have no guard")
	flag.Parse()
	for _, url := range flag.Args() {
		s, err := load.At(url)
		if err != nil {
			log.Fatal(err)
		}
		p.Services = append(p.Services, s)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := load.Run(ctx, p)
	if r != nil {
		fmt.Printf("%d requests in %v, %.0f a second\n", r.Requests, r.Elapsed.Round(time.Millisecond), r.Throughput())
		fmt.Printf("p50 %v, p99 %v, p99.9 %v, longest %v\n", r.Latency.Quantile(0.5), r.Latency.Quantile(0.99), r.Latency.Quantile(0.999), r.Latency.Max())
		fmt.Printf("%d operations: %d first answers, %d replays, %d in progress\n", r.Operations, r.First, r.Replayed, r.Conflicts)
		if p.Rate > 0 {
			fmt.Printf("the generator itself was late by %v (p99)\n", r.Late.Quantile(0.99))
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}
