// Package examples is one little shop, served by several frameworks. Each of the programs
// reads as documentation of its adapter and runs with nothing installed:
//
//	go run ./examples/gin
//	go run ./examples/echo
//	go run ./examples/echo5
//	go run ./examples/fiber
//	go run ./examples/fiber3
//	go run ./examples/nethttp
//
// The first run compiles the framework, the Redis client and the drivers of all databases, which takes
// a minute or more on two cores. Later runs start at once.
//
// Command signclient sends signed requests to one of them, good and bad ones, and folder
// clients holds clients in other languages.
//
// Command orders-worker is another shop: it takes orders by HTTP, and charges
// for them in workers behind RabbitMQ.
//
// Commands ucp and adcp serve agents: a business of the Universal Commerce Protocol, and a seller of the Ad Context Protocol.
//
// Command chain is a client, a shop and a bank, over links that lose requests and answers.
//
// Command goredis is a service that gives idem its own client of Redis, which is one of go-redis.
//
// What is sold, and how each route is protected, is defined in package shop. Folder browser
// tests the pages of the programs as people use them.
package examples
