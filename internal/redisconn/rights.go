package redisconn

import (
	"strings"

	"github.com/cronclave/cronclave/internal/config"
)

// The commands that a Redis user needs, as rules of ACL SETUSER. Reading needs readCommands. Everything else also needs writeCommands. A Cluster also
// needs clusterCommands.
const (
	readCommands = "+ping +time +info +select +client|setname +eval_ro +evalsha_ro +type +exists +get +pttl" +
		" +hget +hmget +hgetall +hlen +hvals +hexists +zrange +zrevrange +zrangebyscore +zrangebylex +zscore +zrank +zcard +zcount"
	writeCommands = "+wait +eval +evalsha +script|load +set +setnx +del +pexpire +persist +hset +hsetnx +hdel +hincrby +sadd +smembers +xadd +xrange" +
		" +zadd +zrem +zremrangebyscore +zremrangebyrank +zremrangebylex +multi +exec +watch +unwatch" +
		" +publish +subscribe +spublish +ssubscribe"
	clusterCommands = "+asking +cluster|slots +cluster|info +command"
)

// Rights generates the rules of ACL SETUSER that a Redis user needs in a namespace.
type Rights struct {
	User, Namespace string
	Topology        config.Topology
}

// All returns the minimal rules for replicas and for all commands.
func (r Rights) All() string {
	return r.aclRule("~cronclave:"+r.Namespace+":* &cronclave:"+r.Namespace+":*", readCommands+" "+writeCommands)
}

// ReadOnly returns the minimal rules for the commands status and history. They need Redis 7.
func (r Rights) ReadOnly() string {
	return r.aclRule("%R~cronclave:"+r.Namespace+":*", readCommands)
}

func (r Rights) aclRule(keys, commands string) string {
	words := []string{"ACL SETUSER", r.User, keys, commands}
	if r.Topology == config.Cluster {
		words = append(words, clusterCommands)
	}
	return strings.Join(words, " ")
}
