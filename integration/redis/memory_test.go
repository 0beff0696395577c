package redis

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
)

var memoryRuns = flag.Int("memory", 10_000, "runs that TestMemoryInRedisIsBounded makes in all, a hundred of each job")

const (
	runsOfAJob = 100
	keptOfAJob = 50 // the default of [history].runs
	tailOfARun = 500
	// outputOfAJob is [history].max_bytes, small enough to be reached; it is kept in blocks of 256 bytes then.
	outputOfAJob = 32 << 10
	blocksOfAJob = outputOfAJob / 256
	fewDigests   = 2 // configurations at a time, as in a roll-out
	// settingsOfAJob is how many keys a job has, tables' included.
	settingsOfAJob = 44
	replicasUp     = 3
)

// kindsOfKeys is the formula of docs/redis-keys.md: how many keys there are of each kind, and how many bytes they take at the most.
var kindsOfKeys = []struct {
	kind  string // the part after the namespace
	keys  func(jobs int) int
	bytes func(jobs int) int
}{
	{`\{[^}]+\}:job`, perJob(1), perJob(1200)},
	{`\{[^}]+\}:runs`, perJob(1), perJob(200 + 80*(keptOfAJob+1))},
	{`\{[^}]+\}:records`, perJob(1), perJob(200 + 420*(keptOfAJob+1))},
	{`\{[^}]+\}:streak`, perJob(1), perJob(200)},
	{`\{[^}]+\}:took`, perJob(1), perJob(500)},
	{`\{[^}]+\}:output`, perJob(1), perJob(200 + outputOfAJob + 200*blocksOfAJob)},
	{`\{leader\}:leader`, exactly(1), exactly(1200)},
	{"jobs", exactly(1), perJob(500)},
	{"history", exactly(1), perJob(150)},
	{"digests:.*", exactly(fewDigests), perJob(fewDigests * 64)},
	{"settings:.*", exactly(fewDigests), func(jobs int) int { return fewDigests * (3000 + 350*jobs) }},
	{"replicas", exactly(1), exactly(1000)},
	{"replica:.*", exactly(replicasUp), exactly(1000 * replicasUp)},
	{"format", exactly(1), exactly(100)},
	{"epoch", exactly(1), exactly(150)},
}

func perJob(n int) func(int) int { return func(jobs int) int { return jobs * n } }

func exactly(n int) func(int) int { return func(int) int { return n } }

// The memory in Redis is bounded by the formula of docs/redis-keys.md (P9). The test drives locks and history through
// a hundred runs of each job, and compares all remaining keys with it: their number is exact, their bytes, by Redis'
// own account, are a bound.
// Promise: P9
func TestMemoryInRedisIsBounded(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	b := newBooks(t, *memoryRuns/runsOfAJob)
	b.announce(t)
	for n := range runsOfAJob {
		b.tick(t, b.first.Add(time.Duration(n)*time.Second))
	}
	harness.Eventually(t, harness.StartTimeout, "end of the releases' tombstones", func() bool {
		for _, key := range b.keys(t) {
			if strings.Contains(key, ":dead:") {
				return false
			}
		}
		return true
	})
	b.audit(t)
}

// books is a cluster without processes: the data that replicas write to Redis, and nothing else.
type books struct {
	redis   *redis.Client
	elector *election.Elector
	journal *journal.Journal
	jobs    []string
	first   time.Time // tick
}

func newBooks(t *testing.T, jobs int) *books {
	t.Helper()
	s := harness.StartRedis(t, harness.RedisOpts{})
	b := &books{redis: s.Client, first: harness.RedisTime(t, s.Client).Truncate(time.Second).Add(-time.Hour)}
	locks, err := locking.New(locking.Config{Redis: s.Client, Prefix: "cronclave:it:", Owner: "r0", Timeout: harness.Soon / 4})
	harness.Must(t, err)
	t.Cleanup(func() { _ = locks.Close() }) // it only waits
	b.elector, err = election.New(election.Config{Locks: locks})
	harness.Must(t, err)
	b.journal, err = journal.New(journal.Config{Redis: s.Client, Namespace: "it", Runs: keptOfAJob, MaxBytes: outputOfAJob, Timeout: harness.Soon})
	harness.Must(t, err)
	for n := range jobs {
		b.jobs = append(b.jobs, fmt.Sprintf("nightly-backup-%04d", n))
	}
	leadership, err := election.NewLeadership(election.LeadershipConfig{Locks: locks, Name: "leader"})
	harness.Must(t, err)
	ctx, resign := context.WithCancel(t.Context())
	leadership.Campaign(ctx, func(context.Context, *election.Term) { resign() })
	return b
}

// announce registers the replicas and the jobs. Their schedule has been known for an hour: the test writes that past
// itself, in the form of lua/state.lua.
func (b *books) announce(t *testing.T) {
	t.Helper()
	now, ttl := harness.RedisTime(t, b.redis), time.Hour
	harness.Must(t, b.journal.ClaimFormat(t.Context()))
	configuration := journal.Configuration{Jobs: map[string]journal.JobConfig{}}
	for n := range settingsOfAJob {
		configuration.Common = append(configuration.Common, journal.Setting{Key: fmt.Sprintf("setting_%02d", n), Value: `"value"`})
	}
	var infos []journal.JobInfo
	var inquiries []election.InspectRequest
	for _, job := range b.jobs {
		configuration.Jobs[job] = journal.JobConfig{Digest: "0123abcd", Own: map[string]string{"setting_00": `"*/5 9-17 * * 1-5"`, "setting_01": `"Europe/Berlin"`,
			"setting_02": `"/usr/local/bin/backup" and 2 arguments`, "setting_03": `"1h"`, "setting_04": `["night", "backup"]`}}
		infos = append(infos, journal.JobInfo{Name: job, Schedule: []string{"*/5 9-17 * * 1-5"}, Timezone: "Europe/Berlin", Parallel: 1, PerTick: 1,
			Digest: "0123456789abcdef", Enabled: true, Since: now, Seen: now})
		inquiries = append(inquiries, election.InspectRequest{Lock: election.JobLock(job), Schedule: "0123456789abcdef"})
	}
	harness.Must(t, b.journal.DescribeJobs(t.Context(), infos))
	for n := range replicasUp {
		config := fmt.Sprintf("%016d", n%fewDigests)
		_, err := b.journal.Register(t.Context(), journal.Replica{ID: fmt.Sprintf("replica-%d-abcdefgh", n), Name: fmt.Sprintf("replica-%d", n), Version: "v1.2.3",
			Started: now, Seen: now, ConfigDigest: config, Running: 100, Labels: map[string]string{"zone": "a"}}, ttl)
		harness.Must(t, err)
		harness.Must(t, b.journal.KeepConfiguration(t.Context(), journal.ConfigID{Digest: config, Version: "v1.2.3"}, ttl, func() journal.Configuration { return configuration }))
	}
	for _, s := range b.elector.Inspect(t.Context(), inquiries) {
		harness.Must(t, s.Err)
	}
	_, err := b.redis.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, job := range b.jobs {
			p.HSet(t.Context(), "cronclave:it:{"+job+"}:job", "since", b.first.Add(-time.Second).UnixMicro())
		}
		return nil
	})
	harness.Must(t, err)
}

// tick has each job run once, with all that is said of it.
func (b *books) tick(t *testing.T, at time.Time) {
	t.Helper()
	claims := make([]election.Claim, len(b.jobs))
	for i, job := range b.jobs {
		claims[i] = election.Claim{Lock: election.JobLock(job), ID: rand.Text(), Slots: 1, Lease: time.Minute, Trigger: "schedule",
			Tick: &election.Tick{At: at, Previous: at.Add(-time.Second), Schedule: "0123456789abcdef", PerTick: 1}}
	}
	var begun, ended []journal.Record
	var releases sync.WaitGroup
	places := make(chan struct{}, 64)
	for i, r := range b.elector.Claim(t.Context(), claims) {
		if r.Verdict != election.Granted {
			t.Fatalf("tick %v of %s: %+v", at, b.jobs[i], r)
		}
		slot, code, ms, output := election.TermOf(r).Slot(), 0, int64(1234), strings.Repeat("x", tailOfARun)
		record := journal.Record{RunID: claims[i].ID, Job: b.jobs[i], Tick: at, Trigger: "schedule", Slot: &slot, Attempt: 1, Token: election.TermOf(r).Token(),
			Replica: "replica-0", Outcome: journal.OutcomeRunning, Started: at.Add(time.Millisecond)}
		begun = append(begun, record)
		record.Outcome, record.ExitCode, record.Finished, record.DurationMS, record.Output = journal.OutcomeOK, &code, at.Add(time.Second), &ms, &output
		ended = append(ended, record)
		places <- struct{}{}
		releases.Go(func() {
			defer func() { <-places }()
			if err := election.TermOf(r).End(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	harness.Must(t, b.journal.Record(t.Context(), begun))
	releases.Wait()
	harness.Must(t, b.journal.Record(t.Context(), ended))
}

func (b *books) keys(t *testing.T) (keys []string) {
	t.Helper()
	all := b.redis.Scan(t.Context(), 0, "*", 10_000).Iterator()
	for all.Next(t.Context()) {
		keys = append(keys, all.Val())
	}
	harness.Must(t, all.Err())
	return keys
}

// audit compares all keys with the formula.
func (b *books) audit(t *testing.T) {
	t.Helper()
	count, bytes := map[string]int{}, map[string]int{}
	total := 0
	for _, key := range b.keys(t) {
		size, err := b.redis.MemoryUsage(t.Context(), key, 0).Result()
		harness.Must(t, err)
		kind := kindOf(key)
		if kind == "" {
			t.Errorf("key %s is none of the formula's", key)
		}
		count[kind]++
		bytes[kind] += int(size)
		total += int(size)
	}
	for _, k := range kindsOfKeys {
		keys, most := k.keys(len(b.jobs)), k.bytes(len(b.jobs))
		t.Logf("%-20s %6d keys, %9d bytes of %9d", k.kind, count[k.kind], bytes[k.kind], most)
		if count[k.kind] != keys || bytes[k.kind] > most {
			t.Errorf("%s: %d keys of %d bytes, want %d of at most %d", k.kind, count[k.kind], bytes[k.kind], keys, most)
		}
	}
	t.Logf("%d jobs after %d runs: %d bytes, %d for each job", len(b.jobs), len(b.jobs)*runsOfAJob, total, total/len(b.jobs))
}

func kindOf(key string) string {
	for _, k := range kindsOfKeys {
		if regexp.MustCompile("^cronclave:it:" + k.kind + "$").MatchString(key) {
			return k.kind
		}
	}
	return ""
}
