package redisconn

import (
	"strings"

	"github.com/cronclave/cronclave/internal/config"
)

// The commands that a user of Redis needs, as rules of ACL SETUSER. Reading needs readCommands, everything else also writeCommands, and a Cluster also
// clusterCommands.
const (
	readCommands = "+ping +time +info +select +client|setname +eval_ro +evalsha_ro +type +exists +get +pttl" +
		" +hget +hmget +hgetall +hlen +hvals +hexists +zrange +zrevrange +zrangebyscore +zrangebylex +zscore +zrank +zcard +zcount"
	writeCommands = "+wait +eval +evalsha +script|load +set +setnx +del +pexpire +persist +hset +hsetnx +hdel +hincrby +sadd +smembers +xadd +xrange" +
		" +zadd +zrem +zremrangebyscore +zremrangebyrank +zremrangebylex +multi +exec +watch +unwatch" +
		" +publish +subscribe +spublish +ssubscribe"
	clusterCommands = "+asking +cluster|slots +cluster|info +command"
)

// Rights describes what a user of Redis needs in a namespace, as rules of ACL SETUSER.
type Rights struct {
	User, Namespace string
	Topology        config.Topology
}

// All returns the minimal rights for replicas and all commands.
func (r Rights) All() string {
	return r.aclRule("~cronclave:"+r.Namespace+":* &cronclave:"+r.Namespace+":*", readCommands+" "+writeCommands)
}

// ReadOnly returns the minimal rights for status and history. It needs Redis 7.
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
