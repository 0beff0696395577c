package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

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

// rights are what a user of Redis needs in a namespace.
type rights struct {
	user, namespace string
	topology        config.Topology
}

// all are the least rights with which replicas and every command work.
func (r rights) all() string {
	return r.rule("~cronclave:"+r.namespace+":* &cronclave:"+r.namespace+":*", readCommands+" "+writeCommands)
}

// looking are the least rights with which status and history work, from Redis 7 on.
func (r rights) looking() string {
	return r.rule("%R~cronclave:"+r.namespace+":*", readCommands)
}

func (r rights) rule(keys, commands string) string {
	words := []string{"ACL SETUSER", cmp.Or(r.user, "default"), keys, commands}
	if r.topology == config.Cluster {
		words = append(words, clusterCommands)
	}
	return strings.Join(words, " ")
}

// sayRights prints what an administrator of Redis can do about an error, where rights are missing.
func (a *app) sayRights(command string, err error) {
	if !redis.IsPermissionError(err) || a.rights.namespace == "" {
		return
	}
	fmt.Fprintf(a.says(), "These rights are enough:\n  %s\n", a.rights.all())
	if command == "status" || command == "history" {
		fmt.Fprintf(a.says(), "These are enough for status and history alone, from Redis 7 on:\n  %s\n", a.rights.looking())
	}
}
