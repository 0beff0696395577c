package operator

import (
	"fmt"
	"strings"

	"github.com/cronclave/cronclave/internal/redisconn"
)

// RedisServer is a server of the cluster's Redis, as a status has it.
type RedisServer = redisconn.Server

// The state of a server of Redis that answers and is fit.
const RedisUp = redisconn.ServerUp

// mostNamed is how many servers an error names.
const mostNamed = 3

// withServers adds the servers that are not up to an error: the status that would show them could not be read. That the only server is away is what the
// error itself says.
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
