package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

// quorum is a cluster on five masters.
type quorum struct {
	*cluster
	masters []*master
	links   []*linkTasks
	clients []*redis.Client
}

// onQuorum runs a test in a bubble, on five masters.
func onQuorum(t *testing.T, test func(q *quorum)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &quorum{cluster: &cluster{t: t, start: time.Now()}}
		for range 5 {
			server, err := embedded.Start(embedded.Config{DialOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			q.masters = append(q.masters, &master{server: server})
		}
		q.server = q.masters[0].server
		defer func() {
			for _, m := range q.masters {
				m.goOn()
			}
			for _, r := range q.replicas {
				r.Abort()
				r.leave()
			}
			for _, c := range q.clients {
				_ = c.Close()
			}
			for _, l := range q.links {
				l.under.Wait()
			}
			for _, m := range q.masters {
				m.server.Close()
			}
			pass(2 * time.Second)
		}()
		test(q)
	})
}

// join runs a replica. By the seed its requests take longer or shorter.
func (q *quorum) join(name string, jobs []scheduler.Job, seed uint64, edits ...func(*scheduler.Config)) *replica {
	q.t.Helper()
	r := &replica{name: name, cluster: q.cluster, done: make(chan struct{}), rdb: redis.NewClient(&redis.Options{Addr: q.server.Addr()})}
	const most = 20 * time.Millisecond
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	cfg := locking.Config{Prefix: "cronclave:test:", Owner: name, Clock: func() time.Duration { return time.Since(q.start) }}
	for _, m := range q.masters {
		l := &linkTasks{master: m, latency: func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return 100*time.Microsecond + time.Duration(random.Int64N(int64(most)))
		}}
		q.links = append(q.links, l)
		c := redis.NewClient(&redis.Options{Addr: m.server.Addr(), Dialer: l.Dial, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		q.clients = append(q.clients, c)
		cfg.Quorum = append(cfg.Quorum, c)
	}
	var err error
	if r.locks, err = locking.New(cfg); err != nil {
		q.t.Fatal(err)
	}
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		q.t.Fatal(err)
	}
	sc := scheduler.Config{Jobs: jobs, Claimer: spy{elector, r}, Journal: r, Replica: name, Logger: q.logger(name), GrantEvents: elector, Pools: elector}
	for _, edit := range edits {
		edit(&sc)
	}
	if r.Scheduler, err = scheduler.New(sc); err != nil {
		q.t.Fatal(err)
	}
	q.replicas = append(q.replicas, r)
	q.mu.Lock()
	q.members = append(q.members, name)
	q.mu.Unlock()
	r.run()
	return r
}

// quorumOfThree runs three replicas with two jobs of each second, whose requests take up to 20 ms to a master: claims for a tick meet there in any order.
func quorumOfThree(q *quorum, seed uint64) (names []string) {
	q.quiet = true
	names = []string{"a", "b"}
	var jobs []scheduler.Job
	for _, name := range names {
		jobs = append(jobs, q.job(name, "* * * * * *", 50*time.Millisecond, startDeadline(time.Minute), lease(10*time.Second)))
	}
	for i := range uint64(3) {
		q.join(fmt.Sprintf("r%d", i), jobs, 10*seed+i, q.ranked)
	}
	return names
}

// outage is when a majority stands still.
type outage struct{ from, to time.Duration }

// checkInOrder demands that the ticks of a job ran in order, up to last, each once, no later than most after their instants. For ticks that came due
// while no replica could decide them, most counts from the end of the outage. A tick that came due just behind such a backlog may be skipped: the last
// run of it is on.
func (q *quorum) checkInOrder(job string, last int, most time.Duration, outages ...outage) {
	q.t.Helper()
	q.checkRuns(job, 1, 1)
	granted, told := q.granted(job), q.told(job)
	if !slices.IsSorted(granted) {
		q.t.Errorf("ticks of %s in the order of their grants: %v", job, granted)
	}
	for s := 1; s <= last; s++ {
		due := time.Duration(s) * time.Second
		behind := slices.ContainsFunc(outages, func(o outage) bool { return due > o.to && due <= o.to+most })
		if !slices.Contains(granted, s) && !(behind && len(told[s]) == 1 && told[s][0] == "skipped overlap") {
			q.t.Errorf("job %s, tick %d did not run: %v", job, s, told[s])
		}
	}
	for _, r := range q.runs(job) {
		due := r.Tick.Sub(q.start)
		for _, o := range outages {
			if due > o.from && due <= o.to {
				due = o.to
			}
		}
		if late := r.from.Sub(q.start) - due; late > most && q.second(r.Tick) <= last {
			q.t.Errorf("job %s, tick %d began %v late", job, q.second(r.Tick), late)
		}
	}
}

// Two of five masters hang: each claim needs all three others. Claims that ask them at once, each in another order, have one or two votes each; when they wait for
// the silent, and keep what they have meanwhile, the ticks of a minute are up to 20 s late.
// Promise: P5, quorum
func TestQuorumIsPromptWhileAMinorityHangs(t *testing.T) {
	testtier.Slow(t)
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			onQuorum(t, func(q *quorum) {
				names := quorumOfThree(q, seed)
				q.at(5500 * time.Millisecond)
				q.masters[0].stop()
				q.masters[1].stop()
				q.at(25500 * time.Millisecond)
				q.masters[0].goOn()
				q.masters[1].goOn()
				q.at(32500 * time.Millisecond)
				for _, name := range names {
					q.checkInOrder(name, 31, time.Second)
				}
			})
		})
	}
}

// Replicas that cannot start a run give its tick back, one after the other. On a quorum that is not published, and the third replica runs the tick in
// time all the same.
func TestQuorumTakesUpWhatIsNotStarted(t *testing.T) {
	testtier.Slow(t)
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("hangs ", hangs), func(t *testing.T) {
			onQuorum(t, func(q *quorum) {
				m := newMachine("r0", "r1")
				if hangs {
					m.hangs = make(chan struct{})
					defer close(m.hangs)
				}
				var jobs []scheduler.Job
				for _, name := range []string{"a", "b", "c"} {
					jobs = append(jobs, q.job(name, "*/20 * * * * *", time.Second, m.on, lease(time.Minute)))
				}
				for i := range uint64(3) {
					q.join(fmt.Sprintf("r%d", i), jobs, i, q.ranked, startsOthers)
				}
				q.at(95 * time.Second)
				for _, j := range jobs {
					onceEach(t, q.cluster, j.Name, seconds(20, 80, 20))
				}
				if m.tries("r0") == 0 || m.tries("r1") == 0 {
					t.Error("the sick replicas have not tried to start a run")
				}
			})
		})
	}
}

// A majority stands still for seven seconds, five times. When it goes on all that came due meanwhile runs, the oldest first, before three seconds have passed.
// Promise: quorum
func TestQuorumBacklogIsPromptAndInOrder(t *testing.T) {
	testtier.Slow(t)
	onQuorum(t, func(q *quorum) {
		names := quorumOfThree(q, 7)
		var outages []outage
		for round := range time.Duration(5) {
			away := 5500*time.Millisecond + round*15*time.Second
			q.at(away)
			for _, m := range q.masters[:3] {
				m.stop()
			}
			q.at(away + 7*time.Second)
			for _, m := range q.masters[:3] {
				m.goOn()
			}
			outages = append(outages, outage{away, away + 7*time.Second})
			q.at(away + 11*time.Second)
			for _, name := range names {
				q.checkInOrder(name, q.second(q.start.Add(away))+10, 3*time.Second, outages...)
			}
		}
	})
}
