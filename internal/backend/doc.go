// Package backend gives tests the servers that they need, and faults to go with them.
//
// There are three kinds of things here.
//
// Shared servers: [Redis], [Postgres], [MySQL], [AMQP] and [NATS] return the URL of a server
// that runs already, started by scripts/backends or by whoever set the environment variable.
// Other tests use the same server at the same time, so a test keeps to a key prefix or a
// table of its own, and cleans up.
//
// Own servers: [StartRedis], [StartValkey], [StartRedisCluster], [StartRedisSentinel], [StartValkeySentinel], [StartPostgres],
// [StartPgBouncer], [StartMariaDB], [StartGalera] and [StartRabbitMQ] start processes on free ports of 127.0.0.1. A test may
// kill, freeze and restart them. They end with the test, and also when the test binary is killed.
//
// A [Proxy] is a TCP link to any server that can fail: cut, stall, delay, lose the request
// or lose the answer.
//
//	redis := backend.StartRedis(t, "--appendonly", "yes")
//	proxy := backend.NewProxy(t, redis.Addr())
//	client := open(proxy.URL(redis.URL()))
//	lost := proxy.CutAfter([]byte("key 17"))
//	_, err := client.Do("SET", "key 17", "value") // err is not nil, and yet the key is set
//	<-lost
//
// # Servers that are not there
//
// A test whose server does not answer, or whose server program is not installed, is
// skipped, with a message that says what to do. With IDEM_REQUIRE_BACKENDS=1 in the
// environment it fails instead, so that continuous integration cannot skip unnoticed. With
// IDEM_BACKENDS=none no test looks for a server.
//
// Own servers are started on Linux only: freezing and killing a server with its child
// processes takes /proc, and ending it with the test binary takes the parent death signal.
//
// The package imports no driver: it speaks the few bytes of each protocol that it needs.
// It is for tests only.
package backend
