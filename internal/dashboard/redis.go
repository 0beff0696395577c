package dashboard

import (
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/operator"
)

// redisPart shows the Redis of a cluster: its servers and its limits.
type redisPart struct {
	Kind    string
	Servers []redisServer
	More    int // number of servers without a line
	Limits  []string
}

// A redisServer is a server of Redis.
type redisServer struct {
	Mark           mark
	Address, Fault string
	console.RedisCells
}

// redisKinds has the names of the kinds of Redis.
var redisKinds = map[string]string{
	"single": "One server", "sentinel": "A master that Sentinels watch", "cluster": "A Redis Cluster", "quorum": "A quorum of independent masters", "embedded": "An embedded server",
}

func redisOf(st *operator.Status) redisPart {
	part := redisPart{Kind: redisKinds[string(st.Redis.Kind)], More: st.Redis.ServerCount - len(st.Redis.Servers), Limits: st.Redis.Limits}
	for _, s := range st.Redis.Servers {
		shown := redisServer{Mark: markOK, Address: cleanText(s.Address), Fault: cleanText(s.Fault), RedisCells: console.RedisCellsOf(s)}
		if s.State != operator.RedisUp {
			shown.Mark = markBad
		}
		part.Servers = append(part.Servers, shown)
	}
	return part
}
