package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestCheckRedisURL(t *testing.T) {
	for _, good := range []string{
		"redis://localhost", "redis://localhost:6379", "redis://localhost/", "redis://127.0.0.1:6379/15", "redis://[::1]:6379/0",
		"rediss://user:p%40ss@redis.example:6380/1", "redis://:secret@h", "unix:///run/redis.sock", "unix://u:p@/run/redis.sock?db=3",
		"redis-sentinel://h1:26379,h2:26379/MASTER/0", "redis-sentinel://h1,h2/my-master.1_x", "rediss-sentinel://u:p%40@[::1]:1,h/m/",
		"redis-cluster://h1:6379,h2:6379", "redis-cluster://h", "rediss-cluster://:secret@h1,h2/", "redis-cluster://h/0",
	} {
		if _, err := ParseRedisURL(good); err != nil {
			t.Errorf("%s %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"":                   "must begin with",
		"localhost:6379":     "must begin with",
		"http://localhost":   "must begin with",
		"REDIS://localhost":  "must begin with",
		"redis://":           "names no host",
		"redis://:6379/0":    "names no host",
		"redis://h:0":        "port",
		"redis://h:65536":    "port",
		"redis://h:port":     "not a URL",
		"redis://:se/cret@h": "not a URL",
		"redis://:se#cret@h": "must not have a #",
		"redis://:se?cret@h": "query",
		"redis://h1,h2":      "one server",

		"redis-sentinel://h1,h2":             "names no master",
		"redis-sentinel://h1,h2/":            "names no master",
		"redis-sentinel://h1,h2/0/m":         "number of a database",
		"redis-sentinel://h1,h2/m/0/1":       "number of a database",
		"redis-sentinel://h1,h2/m/-1":        "number of a database",
		"redis-sentinel://h1,h2/m%20x":       "master's name",
		"redis-sentinel://h1,,h2/m":          "names no host",
		"redis-sentinel:///m":                "names no host",
		"redis-sentinel://h1:0/m":            "port",
		"redis-sentinel://h1:x/m":            "not a URL",
		"redis-sentinel://h1,h1:26379/m":     "names h1:26379 twice",
		"redis-sentinel://h1/m?secret=1":     "query",
		"redis-cluster://h1,h2/1":            "one database only",
		"redis-cluster://":                   "names no host",
		"redis-cluster://h1,h1":              "twice",
		"redis-cluster://:se/cret@h1,h2":     "not a URL",
		"rediss-cluster://a:b:secret@h1:1:2": "not a URL",
		"redis://h/0#secret":                 "must not have a #",
		"redis://h/db":                       "number of a database",
		"redis://h/0/1":                      "number of a database",
		"redis://h/-1":                       "number of a database",
		"redis://h/0?timeout=secret":         "query",
		"unix://run/redis.sock":              "absolute path",
		"unix://":                            "absolute path",
		"unix:///s?db=x":                     "query",
		"unix:///s?database=secret":          "query",
	} {
		_, err := ParseRedisURL(bad)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

func TestNearestZone(t *testing.T) {
	for name, want := range map[string]string{
		"Europe/Berln": "Europe/Berlin", "america/new_york": "America/New_York", "America/NewYork": "America/New_York", "Asia/Tokoy": "Asia/Tokyo",
		"EDT": "", "CEST": "", "UTC+1": "", "GMT+5": "", "Etc/GMT+15": "", "Mars/Olympus": "", "": "", strings.Repeat("x", 1<<20): "",
	} {
		if got := nearestZone(nil, name); got != want {
			t.Errorf("%.20q is nearest to %q, want %q", name, got, want)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "9-b_C": true, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false,
		"": false, "-a": false, "_a": false, "a b": false, "a.b": false, "é": false, "a\n": false, "a{b}": false,
	} {
		if got := ValidName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestParseRedisURL(t *testing.T) {
	for raw, want := range map[string]RedisURL{
		"redis://h":                             {Addrs: []string{"h:6379"}},
		"rediss://u:p%40@[::1]:1/3":             {TLS: true, User: "u", Password: "p@", Addrs: []string{"[::1]:1"}, DB: 3},
		"unix://u:p@/run/redis.sock?db=3":       {User: "u", Password: "p", Socket: "/run/redis.sock", DB: 3},
		"redis-sentinel://h1:1,h2/main/2":       {Topology: Sentinel, Addrs: []string{"h1:1", "h2:26379"}, Master: "main", DB: 2},
		"redis-sentinel://:p@h1/main":           {Topology: Sentinel, Password: "p", Addrs: []string{"h1:26379"}, Master: "main"},
		"rediss-cluster://u:p,q@h1,[fe80::1]:2": {Topology: Cluster, TLS: true, User: "u", Password: "p,q", Addrs: []string{"h1:6379", "[fe80::1]:2"}},
	} {
		if got, err := ParseRedisURL(raw); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", raw, got, err, want)
		}
	}
}
