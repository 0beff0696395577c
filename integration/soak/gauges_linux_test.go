package soak

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/harness"
)

// gauge has the resources of the long-lived replica and Redis at one moment.
type gauge struct {
	at     time.Time
	values map[string]float64
}

type gauges []gauge

// limits bound how much greater a gauge's median may be in the last quarter than in the second: by a part, and a
// fixed amount besides. The first quarter is for things that fill up: the history, the pools, the heap.
var limits = []struct {
	name    string
	part    float64
	besides float64
}{
	{"memory of the replica, MiB", 0.15, 4},
	{"open files", 0.25, 5},
	{"threads", 0.25, 5},
	{"goroutines", 0.25, 5},
	{"keys in Redis", 0.25, 20},
}

// dataInRedis is the size of all keys. It is not compared by quarters, since faults empty Redis, and some minutes later the history is full again.
const dataInRedis = "data in Redis, MiB"

const mib = 1 << 20

// mostInRedis is how much that may be, by the formula of docs/redis-keys.md. These jobs print nothing.
func (s *soak) mostInRedis() float64 {
	jobs, writers := len(s.kinds), 0
	for _, at := range s.seats {
		writers += at.lives
	}
	return float64(jobs*(2250+500*(soakRuns+writers)+64)+1000*writers+3000) / mib
}

// keptInRedis is the size of the keys by Redis' own account, less those that mark for three seconds that a lease was
// released.
func keptInRedis(t *testing.T, c *redis.Client) (bytes int64) {
	t.Helper()
	keys := c.Scan(t.Context(), 0, "*", 1000).Iterator()
	for keys.Next(t.Context()) {
		if strings.Contains(keys.Val(), ":dead:") {
			continue
		}
		n, err := c.MemoryUsage(t.Context(), keys.Val(), 0).Result()
		if errors.Is(err, redis.Nil) { // it has just gone
			continue
		}
		harness.Must(t, err)
		bytes += n
	}
	harness.Must(t, keys.Err())
	return bytes
}

// sampleEvery is how often is measured: forty times at least.
func (s *soak) sampleEvery() time.Duration {
	return min(30*time.Second, max(time.Second, s.length/40))
}

func (g gauges) latest() time.Time {
	if len(g) == 0 {
		return time.Time{}
	}
	return g[len(g)-1].at
}

func measure(t *testing.T, pid int, c *redis.Client) gauge {
	t.Helper()
	status := procStatus(t, pid)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	harness.Must(t, err)
	keys, err := c.DBSize(t.Context()).Result()
	harness.Must(t, err)
	return gauge{time.Now(), map[string]float64{
		"memory of the replica, MiB": status["VmRSS"] / 1024,
		"open files":                 float64(len(files)),
		"threads":                    status["Threads"],
		"keys in Redis":              float64(keys),
		dataInRedis:                  float64(keptInRedis(t, c)) / mib,
	}}
}

// procStatus has the numbers of /proc/PID/status.
func procStatus(t *testing.T, pid int) map[string]float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	harness.Must(t, err)
	values := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if fields := strings.Fields(rest); len(fields) > 0 {
			values[name], _ = strconv.ParseFloat(fields[0], 64) // names and masks are no numbers
		}
	}
	return values
}

// countGoroutines has the runtime of a Go program list its goroutines in its log from time to time. The product needs no
// door for that. The moments drift through the second in which jobs run.
func countGoroutines(every time.Duration) string {
	return fmt.Sprintf("GODEBUG=schedtrace=%d,scheddetail=1", every.Milliseconds()+370)
}

var (
	schedTrace = regexp.MustCompile(`^SCHED (\d+)ms: `)
	goroutine  = regexp.MustCompile(`^ *G\d+: status=([0-57-9]|\d\d)\(`) // 6 is dead, and kept for the next one
)

// goroutines reads the counts that countGoroutines had a replica write. A line that the log's own got into is not counted.
func goroutines(t *testing.T, log string, began time.Time) (g gauges) {
	t.Helper()
	f, err := os.Open(log)
	harness.Must(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := lines.Text()
		if head := schedTrace.FindStringSubmatch(text); head != nil {
			ms, _ := strconv.ParseInt(head[1], 10, 64)
			g = append(g, gauge{began.Add(time.Duration(ms) * time.Millisecond), map[string]float64{"goroutines": 0}})
		}
		if len(g) > 0 && goroutine.MatchString(text) {
			g[len(g)-1].values["goroutines"]++
		}
	}
	harness.Must(t, lines.Err())
	return g
}

// quarter is the median of a gauge in one quarter of some time; there may be none.
func (g gauges) quarter(name string, n int, from, to time.Time) (float64, bool) {
	part := to.Sub(from) / 4
	var values []float64
	for _, one := range g {
		value, has := one.values[name]
		if has && !one.at.Before(from.Add(time.Duration(n-1)*part)) && one.at.Before(from.Add(time.Duration(n)*part)) {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		return 0, false
	}
	slices.SortFunc(values, cmp.Compare[float64])
	return values[len(values)/2], true
}

// judge demands that nothing has grown, if the first quarter was long enough for the history to be full, and returns
// the medians. Redis never had more than its most.
func (g gauges) judge(t *testing.T, from, to time.Time, full time.Duration, most float64) (rows [][2]string) {
	t.Helper()
	data := 0.0
	for _, one := range g {
		data = max(data, one.values[dataInRedis])
	}
	if data > most || data == 0 {
		t.Errorf("%s: %.2f, which may be %.2f at most", dataInRedis, data, most)
	}
	rows = append(rows, [2]string{dataInRedis + ", most, and what it may be", fmt.Sprintf("%.2f, %.2f", data, most)})
	for _, l := range limits {
		second, has := g.quarter(l.name, 2, from, to)
		last, hasLast := g.quarter(l.name, 4, from, to)
		if to.Sub(from) > 4*full {
			if most := second*(1+l.part) + l.besides; !has || !hasLast || last > most {
				t.Errorf("%s: %.1f in the second quarter and %.1f in the last, which may be %.1f at most", l.name, second, last, most)
			}
		}
		rows = append(rows, [2]string{l.name + ", second and last quarter", fmt.Sprintf("%.1f, %.1f", second, last)})
	}
	return rows
}
