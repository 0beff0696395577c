package operator

import (
	"fmt"
	"strings"

	"github.com/cronclave/cronclave/internal/redisconn"
)

// RedisServer is a server of the cluster's Redis in a status.
type RedisServer = redisconn.Server

// RedisUp is the state of a server of Redis that answers and is fit.
const RedisUp = redisconn.ServerUp

// mostNamed is the maximum number of servers that an error names.
const mostNamed = 3

// withServers adds the servers that are not up to the error of a status that could not be read. It omits the only server if that is down, because the error
// itself says so.
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
