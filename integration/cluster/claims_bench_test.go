package cluster

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

const (
	stormJobs     = 10_000
	stormReplicas = 3
	stormRounds   = 5
)

// storm is the result of jobs that were all due in the same second.
type storm struct {
	took  time.Duration // from the tick to the last grant
	cpu   float64       // seconds that Redis worked
	share float64       // of the grants, of the replica that won most
}

// BenchmarkTenThousandJobs has three replicas claim jobs that are due at once: as the scheduler does it, and with one
// EVALSHA of the same script in a goroutine for each claim. Rounds of the two alternate; reported are medians.
func BenchmarkTenThousandJobs(b *testing.B) {
	r, err := harness.RealRedis()
	if err != nil {
		b.Fatal(err)
	}
	server, err := harness.Launch(b.Context(), r.Source, []string{"--save", "", "--appendonly", "no"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := server.Remove(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as cronclave run has it; the plain claims gain by it, too
	for b.Loop() {
		var ours, plain []storm
		for range stormRounds {
			ours = append(ours, ourStorm(b, server.Addr()))
			plain = append(plain, plainStorm(b, server.Addr()))
		}
		took, base := medianOf(ours, storm.seconds), medianOf(plain, storm.seconds)
		cpu, baseCPU := medianOf(ours, storm.work), medianOf(plain, storm.work)
		b.ReportMetric(took, "s")
		b.ReportMetric(base, "plain-s")
		b.ReportMetric(took/base, "time-ratio")
		b.ReportMetric(cpu, "redis-cpu-s")
		b.ReportMetric(baseCPU, "plain-redis-cpu-s")
		b.ReportMetric(cpu/baseCPU, "redis-cpu-ratio")
		b.ReportMetric(100*medianOf(ours, func(s storm) float64 { return s.share }), "%-most")
	}
}

func (s storm) seconds() float64 { return s.took.Seconds() }

func (s storm) work() float64 { return s.cpu }

func medianOf(storms []storm, of func(storm) float64) float64 {
	var all []float64
	for _, s := range storms {
		all = append(all, of(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// stormClient is a client as cronclave makes one.
func stormClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute})
}

// cpuOf is how long Redis has worked so far.
func cpuOf(b *testing.B, rdb *redis.Client) float64 {
	b.Helper()
	info, err := rdb.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// ourStorm runs three schedulers until every job was granted and every replica knows it.
func ourStorm(b *testing.B, addr string) storm {
	b.Helper()
	rdb := stormClient(addr)
	defer rdb.Close()
	rdb.FlushAll(b.Context())
	at := time.Now().Add(20 * time.Second).Truncate(time.Second).UTC()
	schedule := []string{fmt.Sprintf("%d %d * * * *", at.Second(), at.Minute())}
	var last atomic.Int64
	release := make(chan struct{})
	wins := make([]atomic.Int64, stormReplicas)
	ctx, cancel := context.WithCancel(b.Context())
	var replicas sync.WaitGroup
	answered := counted{last: &last, n: &atomic.Int64{}}
	names := make([]string, stormReplicas)
	for i := range names {
		names[i] = fmt.Sprint("r", i)
	}
	for i := range stormReplicas {
		runner := scheduler.Func(func(context.Context, *scheduler.Run) error {
			wins[i].Add(1)
			<-release
			return nil
		})
		jobs := make([]scheduler.Job, stormJobs)
		for n := range jobs {
			jobs[n] = scheduler.Job{Name: fmt.Sprintf("job-%d", n), Schedule: schedule, Runner: runner, Lease: 10 * time.Minute}
		}
		own := stormClient(addr)
		locks, err := locking.New(locking.Config{Redis: own, Prefix: "cronclave:storm:", Owner: fmt.Sprint("r", i), Timeout: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		elector, err := election.New(election.Config{Locks: locks})
		if err != nil {
			b.Fatal(err)
		}
		s, err := scheduler.New(scheduler.Config{Jobs: jobs, Claimer: answered.by(elector), MaxRunning: stormJobs, Replica: names[i],
			GrantEvents: elector, Peers: func(scheduler.Labels) (string, []string) { return names[i], names }})
		if err != nil {
			b.Fatal(err)
		}
		replicas.Go(func() {
			_ = s.Run(ctx)
			_ = locks.Close()
			_ = own.Close()
		})
	}
	if wait := time.Until(at) - 500*time.Millisecond; wait > 0 {
		<-time.After(wait)
	}
	if n := rdb.DBSize(b.Context()).Val(); n < stormJobs {
		b.Fatalf("the replicas were not ready in time: %d locks", n)
	}
	before := cpuOf(b, rdb)
	var won int64
	shares := map[int]int64{}
	for deadline := at.Add(2 * time.Minute); won < stormJobs; {
		if time.Now().After(deadline) {
			b.Fatalf("%d answers, %d grants", answered.n.Load(), won)
		}
		<-time.After(10 * time.Millisecond)
		won = 0
		for i := range wins {
			shares[i] = wins[i].Load()
			won += shares[i]
		}
	}
	took := time.Unix(0, last.Load()).Sub(at)
	<-time.After(time.Second) // for those who lost
	s := storm{took: took, cpu: cpuOf(b, rdb) - before}
	if won != stormJobs {
		b.Fatalf("%d grants of %d ticks", won, stormJobs)
	}
	s.share = float64(slices.Max(slices.Collect(maps.Values(shares)))) / stormJobs
	close(release)
	cancel()
	replicas.Wait()
	b.Logf("ours  %.3fs, Redis worked %.3fs, wins %v, %d answers", s.seconds(), s.cpu, shares, answered.n.Load())
	return s
}

// counted counts claims that were answered, and knows when the last was granted.
type counted struct {
	*election.Elector
	last, n *atomic.Int64
}

func (c counted) by(e *election.Elector) counted {
	c.Elector = e
	return c
}

func (c counted) Claim(ctx context.Context, claims []election.Claim) []election.Result {
	results := c.Elector.Claim(ctx, claims)
	for _, r := range results {
		if r.Verdict == election.Granted {
			c.last.Store(time.Now().UnixNano())
		}
		c.n.Add(1)
	}
	return results
}

// plainStorm sends the same script's EVALSHA for each claim, in a goroutine of its own.
func plainStorm(b *testing.B, addr string) storm {
	b.Helper()
	rdb := stormClient(addr)
	defer rdb.Close()
	rdb.FlushAll(b.Context())
	tape := &tape{}
	template := tape.claim(b, addr)
	at := time.Now().Add(2 * time.Second).Truncate(time.Second)
	var last, won atomic.Int64
	ready := make(chan struct{})
	var all sync.WaitGroup
	var clients []*redis.Client
	for i := range stormReplicas {
		own := stormClient(addr)
		clients = append(clients, own)
		for n := range stormJobs {
			all.Go(func() {
				<-ready
				got, err := own.Do(b.Context(), template.of(n, i, at)...).Slice()
				if err != nil {
					b.Error(err)
				} else if got[0] == "granted" {
					last.Store(time.Now().UnixNano())
					won.Add(1)
				}
			})
		}
	}
	<-time.After(time.Until(at.Add(5 * time.Millisecond)))
	before, start := cpuOf(b, rdb), time.Now()
	close(ready)
	all.Wait()
	s := storm{took: time.Unix(0, last.Load()).Sub(start), cpu: cpuOf(b, rdb) - before}
	for _, c := range clients {
		c.Close()
	}
	if won.Load() != stormJobs {
		b.Fatalf("%d grants of %d ticks", won.Load(), stormJobs)
	}
	b.Logf("plain %.3fs, Redis worked %.3fs", s.seconds(), s.cpu)
	return s
}

// tape records a claim as it goes over the wire.
type tape struct{ args []any }

func (t *tape) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *tape) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (t *tape) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" {
			t.args = slices.Clone(cmds[0].Args())
		}
		return next(ctx, cmds)
	}
}

// claim has the script loaded, and keeps the arguments of one claim.
func (t *tape) claim(b *testing.B, addr string) stormArgs {
	b.Helper()
	rdb := stormClient(addr)
	defer rdb.Close()
	rdb.AddHook(t)
	locks, err := locking.New(locking.Config{Redis: rdb, Prefix: "cronclave:storm:"})
	if err != nil {
		b.Fatal(err)
	}
	defer locks.Close()
	elector, err := election.New(election.Config{Locks: locks})
	if err != nil {
		b.Fatal(err)
	}
	tick := time.Unix(1_000_000_000, 0)
	c := election.Claim{Lock: election.JobLock("JOB"), ID: "ID", Trigger: "schedule", Slots: 1, Lease: 10 * time.Minute,
		Tick: &election.Tick{At: tick, Previous: tick.Add(-time.Hour), Schedule: "x", NotBefore: tick, Deadline: tick.Add(time.Second), PerTick: 1,
			IfHeld: "skipped overlap", IfLate: "missed late"}}
	if got := elector.Claim(b.Context(), []election.Claim{c})[0]; got.Err != nil {
		b.Fatal(got.Err)
	}
	return t.args
}

type stormArgs []any

// of makes the claim of one job by one replica. Each lock is new, so the schedule must be known a while: none is given.
func (a stormArgs) of(job, replica int, at time.Time) []any {
	args := slices.Clone(a)
	argv := 3 + a[2].(int) // behind name, script, number of keys, and keys
	for i := 3; i < argv; i++ {
		args[i] = strings.NewReplacer("JOB", fmt.Sprint("job-", job), "ID", fmt.Sprint("id-", job, "-", replica)).Replace(args[i].(string))
	}
	args[argv] = fmt.Sprint("id-", job, "-", replica)
	args[argv+1] = at.Add(time.Hour).UnixMicro() // not-after
	args[argv+8] = fmt.Sprint("r", replica)
	args[argv+16], args[argv+17] = at.Unix(), at.Unix()-3600
	args[argv+18], args[argv+19] = at.UnixMicro(), at.Add(time.Hour).UnixMicro()
	args[argv+21] = "" // as a schedule that the lock knows
	return args
}
