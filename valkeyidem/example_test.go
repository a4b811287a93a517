package valkeyidem_test

import (
	"log"

	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/valkeyidem"
)

// The client is the service's own. It may be one for Sentinel or for a cluster.
func ExampleNew() {
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{"10.0.0.7:6379"}, PipelineMultiplex: -1})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store := valkeyidem.New(client, redisstore.Config{}) // with your valkey.Client
	defer store.Close()
	engine, err := core.New(core.Config{Service: "shop", Store: store, User: core.UserFromHeader("X-User")})
	if err != nil {
		log.Fatal(err)
	}
	_ = engine // guards are made from it
}
