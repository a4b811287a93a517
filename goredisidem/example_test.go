package goredisidem_test

import (
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/goredisidem"
)

// The client is the service's own. It may be one for Sentinel or for a cluster.
func ExampleNew() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"10.0.0.7:6379"}}) // of go-redis v9
	store, err := goredisidem.New(client, redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	engine, err := core.New(core.Config{Service: "shop", Store: store, User: core.UserFromHeader("X-User")})
	if err != nil {
		log.Fatal(err)
	}
	_ = engine // guards are made from it
}
