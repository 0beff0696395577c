package redisconn

import (
	"cmp"
	"slices"

	"github.com/cronclave/cronclave/internal/config"
)

// Deployment is the Redis of a cluster: its kind, its servers, and its limits.
type Deployment struct {
	Kind Kind `json:"kind"`
	// Servers are the masters: of a quorum that of the history, and then those of the locks in their order; else by their addresses.
	Servers []Server `json:"servers"`
	// ServerCount is how many there are: a look shows [MostServers] at most.
	ServerCount int `json:"server_count"`
	// Limits are the promises that a Redis of this kind cannot keep as it is set, a sentence each.
	Limits []string `json:"limits"`
}

// MostServers is how many masters of a Cluster a look shows.
const MostServers = 100

// Kind is how Redis is deployed. Its limits depend on that.
type Kind string

// The kinds.
const (
	KindSingle   Kind = "single"   // one server
	KindSentinel Kind = "sentinel" // a master that Sentinels watch
	KindCluster  Kind = "cluster"
	KindQuorum   Kind = "quorum"   // independent masters for the locks, and a Redis for the history
	KindEmbedded Kind = "embedded" // a server inside a process of cronclave
)

// kind is that of the configuration. That a server is an embedded one shows only in its answer.
func (c *Conn) kind() Kind {
	_, ours := c.InProcess()
	switch {
	case c.HasQuorum():
		return KindQuorum
	case ours:
		return KindEmbedded
	case c.url.Topology == config.Cluster:
		return KindCluster
	case c.url.Topology == config.Sentinel:
		return KindSentinel
	}
	return KindSingle
}

// keeps is what cronclave keeps on the servers of the connection itself.
func (c *Conn) keeps() Keeps {
	if c.HasQuorum() {
		return KeepsHistory
	}
	return KeepsAll
}

// complete adds the facts about all servers together.
func (c *Conn) complete(d Deployment) Deployment {
	if d.Kind == "" || c.HasQuorum() {
		d.Kind = c.kind()
	}
	if d.Servers == nil {
		d.Servers = []Server{}
	}
	d.ServerCount = len(d.Servers)
	d.Limits = limitsOf(facts{kind: d.Kind, acked: c.acked, servers: d.Servers})
	slices.SortStableFunc(d.Servers, func(a, b Server) int { return cmp.Compare(a.rank(), b.rank()) })
	d.Servers = d.Servers[:min(len(d.Servers), MostServers)]
	return d
}
