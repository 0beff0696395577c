package redisconn

import (
	"cmp"
	"slices"

	"github.com/cronclave/cronclave/internal/config"
)

// A Deployment describes the Redis of a cluster: its kind, its servers, and its limits.
type Deployment struct {
	Kind Kind `json:"kind"`
	// Servers are the masters, sorted by address. With a quorum, the server of the history comes first, and then the masters of the locks in the order of the
	// configuration.
	Servers []Server `json:"servers"`
	// ServerCount is the number of masters. Servers has at most [MostServers] of them.
	ServerCount int `json:"server_count"`
	// Limits has a sentence for each guarantee that a Redis of this kind with these settings can't give.
	Limits []string `json:"limits"`
}

// MostServers is the maximum number of masters of a Cluster in [Deployment].Servers.
const MostServers = 100

// A Kind is a way to deploy Redis. The limits depend on it.
type Kind string

// The kinds.
const (
	KindSingle   Kind = "single"   // one server
	KindSentinel Kind = "sentinel" // a master behind Sentinels
	KindCluster  Kind = "cluster"
	KindQuorum   Kind = "quorum"   // independent masters for the locks, and a Redis for the history
	KindEmbedded Kind = "embedded" // a server inside a process of cronclave
)

// configuredKind returns the kind that the configuration implies. It can't detect the embedded Redis of another process, which only the reply to INFO
// shows.
func (c *Conn) configuredKind() Kind {
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

// keptData returns the data that cronclave keeps on the servers of the connection itself.
func (c *Conn) keptData() Keeps {
	if c.HasQuorum() {
		return KeepsHistory
	}
	return KeepsAll
}

// completeDeployment sets the fields that depend on all servers, and sorts and truncates the list of servers.
func (c *Conn) completeDeployment(d Deployment) Deployment {
	if d.Kind == "" || c.HasQuorum() {
		d.Kind = c.configuredKind()
	}
	if d.Servers == nil {
		d.Servers = []Server{}
	}
	d.ServerCount = len(d.Servers)
	d.Limits = limitsOf(facts{kind: d.Kind, acked: c.acked, servers: d.Servers})
	slices.SortStableFunc(d.Servers, func(a, b Server) int { return cmp.Compare(a.sortRank(), b.sortRank()) })
	d.Servers = d.Servers[:min(len(d.Servers), MostServers)]
	return d
}
