package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// FuzzCheckName accepts a name only if it is safe: all keys of a lock whose name is good lie in one hash slot,
// and belong to no other lock.
func FuzzCheckName(f *testing.F) {
	for _, name := range []string{"a", "{a}:b", "{a}{b}", "}{", "{a}:queue", "a:dead:b", "{a}:dead:b"} {
		f.Add(name, "id")
	}
	f.Fuzz(func(t *testing.T, name, id string) {
		if lease.CheckName(name) != nil {
			return
		}
		keys := script.Keys(script.Key("p:", name), id)
		tag := hashTag(keys[0])
		if tag == "" {
			t.Fatalf("%q has no hash tag", keys[0])
		}
		for _, k := range keys {
			if hashTag(k) != tag {
				t.Errorf("%q has another tag than %q", k, keys[0])
			}
			if own, isName := strings.CutPrefix(k, "p:"); isName && k != keys[0] && strings.Contains(name, "{") && lease.CheckName(own) == nil && !strings.ContainsAny(id, "{}") {
				t.Errorf("the key %q is another lock's name", k)
			}
		}
	})
}

// hashTag is the part of a key that decides its slot, by the rules of Redis Cluster; "" if it is the whole key.
func hashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !ok || !closed {
		return ""
	}
	return tag
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	good := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer good.Close()
	bad := redis.NewClient(&redis.Options{})
	defer bad.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{})
	defer cluster.Close()
	failover := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: []string{"127.0.0.1:1"}})
	defer failover.Close()
	for want, cfg := range map[string]Config{
		"Config.Redis is missing":              {},
		"ContextTimeoutEnabled":                {Redis: bad},
		"without it a hung socket can outlast": {Redis: cluster},
		"in the options of Config.Redis":       {Redis: failover},
		"line break":                           {Redis: good, Owner: "a\nb"},
		"must not be negative":                 {Redis: good, Timeout: -1},
		"Config.Idle is -1ns":                  {Redis: good, Idle: -1},
		"Config.AckTimeout must not":           {Redis: good, AckTimeout: -1},
		"Config.AckedReplicas and":             {Redis: good, AckedReplicas: -1},
		"must be less than Config.Timeout":     {Redis: good, AckTimeout: time.Second},
	} {
		c, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}
