package redisconn

import (
	"strings"

	"github.com/cronclave/cronclave/internal/config"
)

// The commands that a user of Redis needs, in the words of ACL SETUSER. The first are for looking at a cluster, the second come to that for all
// else; in a Cluster the third do, too.
const (
	readCommands = "+ping +time +info +select +client|setname +eval_ro +evalsha_ro +type +exists +get +pttl" +
		" +hget +hmget +hgetall +hlen +hvals +hexists +zrange +zrevrange +zrangebyscore +zrangebylex +zscore +zrank +zcard +zcount"
	writeCommands = "+wait +eval +evalsha +script|load +set +setnx +del +pexpire +persist +hset +hsetnx +hdel +hincrby +sadd +smembers +xadd +xrange" +
		" +zadd +zrem +zremrangebyscore +zremrangebyrank +zremrangebylex +multi +exec +watch +unwatch" +
		" +publish +subscribe +spublish +ssubscribe"
	clusterCommands = "+asking +cluster|slots +cluster|info +command"
)

// Rights are what a user of Redis needs in a namespace, as rules of ACL SETUSER.
type Rights struct {
	User, Namespace string
	Topology        config.Topology
}

// All are the least rights with which replicas and every command work.
func (r Rights) All() string {
	return r.rule("~cronclave:"+r.Namespace+":* &cronclave:"+r.Namespace+":*", readCommands+" "+writeCommands)
}

// ReadOnly are the least rights with which status and history work, from Redis 7 on.
func (r Rights) ReadOnly() string {
	return r.rule("%R~cronclave:"+r.Namespace+":*", readCommands)
}

func (r Rights) rule(keys, commands string) string {
	words := []string{"ACL SETUSER", r.User, keys, commands}
	if r.Topology == config.Cluster {
		words = append(words, clusterCommands)
	}
	return strings.Join(words, " ")
}
