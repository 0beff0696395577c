package cluster

import (
	"fmt"
	"strings"

	"github.com/cronclave/cronclave/internal/redisconn"
)

// RedisServer is a Redis server in a status.
type RedisServer = redisconn.Server

// RedisUp is the state of a Redis server that answers and can be used.
const RedisUp = redisconn.ServerUp

// mostNamed is the maximum number of servers that an error names.
const mostNamed = 3

// withServers adds the servers that are not up to the error of a status that could not be read. If the only server is down, it adds nothing, because the error
// already says so.
func withServers(err error, servers []RedisServer) error {
	var named []string
	down := 0
	for _, s := range servers {
		if s.State == RedisUp || len(servers) == 1 && s.State == redisconn.ServerAway {
			continue
		}
		if down++; down <= mostNamed {
			named = append(named, fmt.Sprintf("%s is %s: %s", s.Address, s.State, s.Fault))
		}
	}
	switch {
	case down == 0:
		return err
	case down > mostNamed:
		named = append(named, fmt.Sprintf("and %d more", down-mostNamed))
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(named, "; "))
}
