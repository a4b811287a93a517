package redisstore_test

import (
	"log"
	"time"

	"github.com/redis/rueidis"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
)

// The client is the program's own. It may be one for Sentinel or for a cluster.
func ExampleNew() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store := redisstore.New(client, redisstore.Config{ClientSideCache: time.Minute})
	defer store.Close()
	engine, err := core.New(core.Config{Service: "shop", Store: store, User: core.UserFromHeader("X-User")})
	if err != nil {
		log.Fatal(err)
	}
	_ = engine // guards are made from it
}

func ExampleNewURL() {
	store, err := redisstore.NewURL("redis://127.0.0.1:6379", redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}
