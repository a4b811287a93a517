package faults_test

// The headings of the table, in its order.
const (
	redisServer  = "Redis: the server"
	redisLink    = "Redis: the link"
	redisReplica = "Redis: replicas and failover"
	sqlServers   = "PostgreSQL and MariaDB: server and connections"
	transactions = "DoTx: business change and record in one transaction"
	services     = "The service itself"
)

var sections = []struct{ title, about string }{
	{redisServer, "One Redis server, which is killed, frozen, emptied or full."},
	{redisLink, "The connection between the service and Redis."},
	{redisReplica, "A replica takes over. Replication is asynchronous: see below for what that can lose."},
	{sqlServers, "The database server is killed, or ends the connection."},
	{transactions, "The handler's change is made in the transaction that holds the record."},
	{services, "Two processes, one on Gin and one on Fiber, share a store; one is killed, frozen, or has a wrong clock."},
}
