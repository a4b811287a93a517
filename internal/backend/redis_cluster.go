package backend

import (
	"errors"
	"net"
	"strconv"
	"testing"
)

// Cluster is a Redis Cluster that belongs to one test.
type Cluster struct {
	// Nodes are the masters, which divide the slots among them in this order.
	Nodes []*Server
}

// URL returns the cluster's URL, redis://host:port?addr=host:port&addr=host:port, as
// rueidis reads it.
func (c *Cluster) URL() string {
	url, mark := c.Nodes[0].URL(), "?"
	for _, node := range c.Nodes[1:] {
		url += mark + "addr=" + node.Addr()
		mark = "&"
	}
	return url
}

const (
	clusterSlots = 16384
	clusterBus   = 10000 // how far a node's second port is from its first
)

// StartRedisCluster starts three masters without replicas, and returns when each of them
// says that all slots are served. args are as for [StartRedis].
//
// When a node is killed, the others go on with the slots that they have
// (cluster-require-full-coverage no). A node that is started again, empty unless it has
// been told to persist, answers when it knows the cluster again.
func StartRedisCluster(tb testing.TB, args ...string) *Cluster {
	tb.Helper()
	args = append([]string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no",
	}, args...)
	c := new(Cluster)
	for range 3 {
		c.Nodes = append(c.Nodes, startRedis(tb, "", []int{clusterBus}, args...))
	}
	tell := func(node *Server, command ...string) {
		if _, err := ask(node.Addr(), command...); err != nil {
			tb.Fatal(command[:2], err)
		}
	}
	host, port, _ := net.SplitHostPort(c.Nodes[0].Addr())
	for i, node := range c.Nodes {
		// Different epochs, lest the nodes have to agree on them first.
		tell(node, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		slots := []string{"CLUSTER", "ADDSLOTS"}
		for slot := i * clusterSlots / 3; slot < (i+1)*clusterSlots/3; slot++ {
			slots = append(slots, strconv.Itoa(slot))
		}
		tell(node, slots...)
		if i > 0 {
			tell(node, "CLUSTER", "MEET", host, port)
		}
	}
	if err := eventually(func() error {
		var all error
		for _, node := range c.Nodes {
			all = errors.Join(all, says(node.Addr(), []string{"CLUSTER", "INFO"},
				"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3", "cluster_size:3"))
		}
		return all
	}); err != nil {
		tb.Fatal("the cluster does not form: ", err)
	}
	for _, node := range c.Nodes {
		node.mu.Lock()
		node.ready = func() error {
			return says(node.Addr(), []string{"CLUSTER", "INFO"}, "cluster_state:ok")
		}
		node.mu.Unlock()
	}
	return c
}
