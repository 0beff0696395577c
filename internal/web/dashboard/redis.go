package dashboard

import (
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
)

// redisPart shows the servers and the limits of Redis.
type redisPart struct {
	Kind    string
	Servers []redisServer
	More    int // number of further servers, which have no line
	Limits  []string
}

// A redisServer is one server of the Redis deployment.
type redisServer struct {
	Mark           mark
	Address, Fault string
	console.RedisCells
}

// redisKinds has the titles of the kinds of deployments.
var redisKinds = map[string]string{
	"single": "One server", "sentinel": "A master that Sentinels watch", "cluster": "A Redis Cluster", "quorum": "A quorum of independent masters", "embedded": "An embedded server",
}

func redisOf(st *cluster.Status) redisPart {
	part := redisPart{Kind: redisKinds[string(st.Redis.Kind)], More: st.Redis.ServerCount - len(st.Redis.Servers), Limits: st.Redis.Limits}
	for _, s := range st.Redis.Servers {
		shown := redisServer{Mark: markOK, Address: cleanText(s.Address), Fault: cleanText(s.Fault), RedisCells: console.RedisCellsOf(s)}
		if s.State != cluster.RedisUp {
			shown.Mark = markBad
		}
		part.Servers = append(part.Servers, shown)
	}
	return part
}
