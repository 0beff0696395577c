// Package journaltest is the conformance suite of package journal. The journal must keep its promises on one Redis, on a Redis Cluster, and on the in-process
// server.
package journaltest

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

// Run runs the suite. connect returns a client of the server to test, with ContextTimeoutEnabled. Each test has its own namespace and removes its keys;
// they run in parallel.
func Run(t *testing.T, connect func(t *testing.T) redis.UniversalClient) {
	all := testsOfTheHistory()
	maps.Copy(all, testsOfTheRest())
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newSuite(t, connect(t)))
		})
	}
}

func testsOfTheHistory() map[string]func(*suite) {
	return map[string]func(*suite){
		"end completes running":           endCompletesRunning,
		"records in any order":            recordsInAnyOrder,
		"abandoned keeps its start":       abandonedKeepsItsStart,
		"first of equal records stays":    firstRecordStays,
		"later attempt replaces earlier":  laterAttemptReplaces,
		"repeated batch changes nothing":  repeatedBatch,
		"late running revives nothing":    lateRunning,
		"fields survive":                  fieldsSurvive,
		"order and limits of Runs":        orderAndLimits,
		"newest of each job":              recentOfEach,
		"batch over many jobs":            manyJobs,
		"invalid records":                 invalidRecords,
		"bounded by runs":                 boundedByRuns,
		"bounded beside other writers":    boundedByWriters,
		"lowered limit":                   loweredLimit,
		"running is trimmed last":         runningLast,
		"too old is trimmed":              tooOld,
		"all expires":                     allExpires,
		"output of every size":            outputSizes,
		"oldest output goes first":        oldestOutput,
		"many small outputs":              smallOutputs,
		"damage is reported and skipped":  damage,
		"foreign keys fail one job alone": foreignKeys,
		"replicas come and go":            replicas,
		"name of a lost replica is back":  nameIsBack,
		"loss beside a damaged list":      lossIsClaimedBesideDamage,
		"foreign replicas":                foreignReplicas,
		"forgotten replica":               forgottenReplica,
		"epochs":                          epochs,
		"jobs are described":              jobs,
		"one run":                         oneRun,
		"failures of a window":            failuresOfAWindow,
		"streaks of failures":             streaks,
		"streaks and late reports":        streaksOfLateReports,
		"streaks and gaps":                streaksOfGaps,
		"streaks and a late ok":           streaksOfALateOK,
		"streaks and other ends":          streaksOfOtherEnds,
		"durations of runs":               durations,
		"runs by their ids":               runsByID,
	}
}

func testsOfTheRest() map[string]func(*suite) {
	return map[string]func(*suite){
		"requests":                       requests,
		"answers to requests":            answers,
		"damaged requests":               damagedRequests,
		"requests expire":                requestsExpire,
		"requests are received":          requestsAreHeard,
		"live output":                    liveOutput,
		"incidents of Redis":             incidents,
		"configurations":                 configurations,
		"configurations of versions":     configurationsOfVersions,
		"long configurations":            longConfigurations,
		"configurations have one writer": configurationsHaveOneWriter,
		"damaged configurations":         damagedConfigurations,
		"uses of locks":                  lockUses,
		"outboxes":                       outboxes,
		"long outboxes":                  longOutboxes,
		"lost records":                   lostRecords,
		"queues of notifications":        queues,
		"queues have one leader":         queuesHaveOneLeader,
		"queues are bounded":             queuesAreBounded,
		"queues are read by place":       queuesAreReadByPlace,
		"interrupted attempts":           queuesKeepInterruptedAttempts,
		"open problems":                  openProblems,
		"format":                         format,
		"secret of sessions":             sessionSecrets,
		"all keys in the namespace":      keys,
		"namespaces share nothing":       namespaces,
	}
}

type suite struct {
	*testing.T
	ctx       context.Context
	client    redis.UniversalClient
	namespace string
	now       time.Time
}

func newSuite(t *testing.T, client redis.UniversalClient) *suite {
	s := &suite{T: t, ctx: t.Context(), client: client, namespace: "test-" + rand.Text()}
	now, err := client.Time(s.ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	s.now = now.UTC().Truncate(time.Second)
	t.Cleanup(func() {
		s.ctx = context.Background() // the test's has ended
		for _, key := range s.allKeys() {
			client.Del(s.ctx, key)
		}
	})
	return s
}

// journal returns a journal in the namespace of the test.
func (s *suite) journal(cfg journal.Config) *journal.Journal {
	s.Helper()
	cfg.Redis = s.client
	cfg.Namespace = cmp.Or(cfg.Namespace, s.namespace)
	cfg.Timeout = time.Minute // the machine may be slow
	j, err := journal.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	return j
}

// ended returns the record of a run that started i seconds ago and took 1 ms.
func (s *suite) ended(job, id string, outcome journal.Outcome, i int) journal.Record {
	r := s.running(job, id, i)
	r.Outcome = outcome
	r.Finished = r.Started.Add(time.Millisecond)
	r.DurationMS = new(int64(1))
	return r
}

func (s *suite) running(job, id string, i int) journal.Record {
	at := s.now.Add(-time.Duration(i) * time.Second)
	return journal.Record{RunID: id, Job: job, Tick: at, Trigger: "schedule", Slot: new(0), Attempt: 1,
		Token: at.UnixMicro(), Replica: "r1", Outcome: journal.OutcomeRunning, Started: at}
}

func (s *suite) record(j *journal.Journal, records ...journal.Record) {
	s.Helper()
	if err := j.Record(s.ctx, records); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) runs(j *journal.Journal, job string, n int) []journal.Record {
	s.Helper()
	records, err := j.Runs(s.ctx, job, n, true)
	if err != nil {
		s.Fatal(err)
	}
	return records
}

// expect compares the records of a job with texts "id outcome reason".
func (s *suite) expect(j *journal.Journal, job string, want ...string) {
	s.Helper()
	if got := describe(s.runs(j, job, 0)); !slices.Equal(got, want) {
		s.Errorf("recorded of %q:\n got %q\nwant %q", job, got, want)
	}
}

func describe(records []journal.Record) []string {
	var all []string
	for _, r := range records {
		all = append(all, strings.TrimSpace(r.RunID+" "+string(r.Outcome)+" "+string(r.Reason)))
	}
	return all
}

// allKeys returns the keys of the namespace, and of namespaces whose names begin with its name.
func (s *suite) allKeys() []string {
	s.Helper()
	var (
		mu   sync.Mutex // nodes of a Cluster are scanned at once
		keys []string
	)
	scan := func(ctx context.Context, c redis.Cmdable) error {
		it := c.Scan(ctx, 0, "*"+s.namespace+"*", 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			keys = append(keys, it.Val())
			mu.Unlock()
		}
		return it.Err()
	}
	var err error
	if c, ok := s.client.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(s.ctx, func(ctx context.Context, c *redis.Client) error { return scan(ctx, c) })
	} else {
		err = scan(s.ctx, s.client)
	}
	if err != nil {
		s.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

// key returns a key of a job: see the package comment of journal.
func (s *suite) key(job, name string) string {
	return "cronclave:" + s.namespace + ":{" + job + "}:" + name
}

// stored returns the number of entries in the index of a job and in its hash.
func (s *suite) stored(job string) (indexed, texts int) {
	s.Helper()
	n, err := s.client.ZCard(s.ctx, s.key(job, "runs")).Result()
	if err != nil {
		s.Fatal(err)
	}
	m, err := s.client.HLen(s.ctx, s.key(job, "records")).Result()
	if err != nil {
		s.Fatal(err)
	}
	return int(n), int(m)
}

// outputBytes returns the length of a job's output in Redis, without the prefixes of the blocks.
func (s *suite) outputBytes(job string) int {
	s.Helper()
	blocks, err := s.client.ZRange(s.ctx, s.key(job, "output"), 0, -1).Result()
	if err != nil {
		s.Fatal(err)
	}
	n := 0
	for _, b := range blocks {
		n += len(strings.SplitN(b, "|", 4)[3])
	}
	return n
}

// eventually repeats ok until it returns true. The clock of the server cannot be moved.
func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			s.Fatal("still not so: ", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}
