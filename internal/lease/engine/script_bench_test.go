package engine

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// BenchmarkScripts takes and gives back locks, and reports how long the server works for one script, by its own account: on the Redis that CRONCLAVE_TEST_REDIS names.
func BenchmarkScripts(b *testing.B) {
	o, err := redis.ParseURL(os.Getenv("CRONCLAVE_TEST_REDIS"))
	if err != nil {
		b.Skip("CRONCLAVE_TEST_REDIS names no server")
	}
	o.ContextTimeoutEnabled, o.ReadTimeout = true, 20*time.Second
	rdb := redis.NewClient(o)
	defer rdb.Close()
	for name, r := range map[string]Request{
		"compact": {Lock: "a"},
		"short":   {Lock: "b", Permanent: true},
		"whole":   {Lock: "c", Slots: 2},
		"pool of": {Lock: "d", Slots: 100, AnyLimit: true, Permanent: true},
		"orphans": {Lock: "e", Permanent: true, Trigger: "t"},
	} {
		b.Run(name, func(b *testing.B) {
			c, err := New(Config{Redis: rdb, Prefix: fmt.Sprintf("bench-%d:", time.Now().UnixNano()), Timeout: 20 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			rdb.ConfigResetStat(b.Context())
			for b.Loop() {
				a := c.Acquire(b.Context(), r)
				if a.Verdict != Granted {
					b.Fatal(a.Verdict, a.Err)
				}
				if err := a.Lease.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			stats := rdb.Info(b.Context(), "commandstats").Val()
			if m := regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=\d+,usec_per_call=([0-9.]+)`).FindStringSubmatch(stats); m != nil {
				us, _ := strconv.ParseFloat(m[1], 64)
				b.ReportMetric(us, "server-us/script")
			}
		})
	}
}
