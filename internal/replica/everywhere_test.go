package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

const everywhereJobs = `
[defaults]
schedule = "@hourly"
command = "true"
[jobs.tidy]
per_tick = "all"
[jobs.zoned]
per_tick = "all"
where = { zone = "a" }
[jobs.once]
`

func newFleet(j *journal.Journal, self string, cfg *config.Config) *fleet {
	return &fleet{journal: j, log: hclog.NewNullLogger(), self: self, jobs: cfg.JobDigests, news: make(chan struct{}, 1)}
}

// instances returns the names of the jobs of a configuration for the fleet.
func (f *fleet) instances(cfg *config.Config) (names []string) {
	for _, job := range f.instancesOf(cfg).Jobs {
		names = append(names, job.Name)
	}
	return names
}

func (f *fleet) names() []string { return slices.Sorted(maps.Keys(*f.members.Load())) }

// A replica belongs to the fleet from its registration until it has left the registry, and a lost one until it is forgotten. No reading that fails drops one.
func TestFleet(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	ctx := t.Context()
	f, self := newFleet(j, "a", loadConfig(t, everywhereJobs)), journal.Replica{Name: "a", Seen: time.Now()}
	up := func(names ...string) (list []journal.Replica) {
		for _, name := range names {
			list = append(list, journal.Replica{Name: name, Labels: map[string]string{"zone": name}})
		}
		return list
	}
	gone := redis.Z{Score: float64(time.Now().UnixMilli()), Member: "c-abcdefgh"}
	lost, old := redis.Z{Score: gone.Score, Member: "c"}, redis.Z{Score: gone.Score - float64(journal.RememberLost.Milliseconds()), Member: "d"}
	for _, step := range []struct {
		what  string
		do    func() error
		up    []journal.Replica
		whole bool
		want  []string
	}{
		{"the registry cannot be read", nil, nil, false, []string{"a"}},
		{"all are up", nil, up("b", "c"), true, []string{"a", "b", "c"}},
		{"entries are damaged", nil, up("c"), false, []string{"a", "b", "c"}},
		{"and again", nil, nil, false, []string{"a", "b", "c"}},
		{"one has left", nil, up("c"), true, []string{"a", "b", "c"}},
		{"and is not back", nil, up("c"), true, []string{"a", "c"}},
		{"a registration has expired", func() error { return rdb.ZAdd(ctx, "cronclave:default:replicas", gone).Err() }, nil, true, []string{"a", "c"}},
		{"for long", nil, nil, true, []string{"a", "c"}},
		{"the leader moves it", func() error { return rdb.ZRem(ctx, "cronclave:default:replicas", gone.Member).Err() }, nil, true, []string{"a", "c"}},
		{"to the lost ones", func() error { return rdb.ZAdd(ctx, "cronclave:default:lost", lost).Err() }, nil, true, []string{"a", "c"}},
		{"for long, too", nil, nil, true, []string{"a", "c"}},
		{"it is forgotten", func() error { return j.ForgetLost(ctx, "c") }, nil, true, []string{"a", "c"}},
		{"for good", nil, nil, true, []string{"a"}},
		{"others were lost a day ago", func() error { return rdb.ZAdd(ctx, "cronclave:default:lost", old, lost).Err() }, nil, true, []string{"a", "c"}},
	} {
		if step.do != nil {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
		}
		f.updateMembers(ctx, self, step.up, step.whole)
		if got := f.names(); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
	}
	if len(f.news) != 1 {
		t.Error("the reloader is not woken")
	}
}

// A replica that starts while another one is lost knows its labels by the jobs that are described for it.
func TestFleetLearnsTheLabelsOfTheLost(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	ctx, cfg := t.Context(), loadConfig(t, everywhereJobs)
	before := cfg.ForReplicas([]string{"a", "b", "c"}, func(j config.Job) bool { return j.On != "c" || j.Of != "zoned" })
	if err := j.DescribeJobs(ctx, DescribeJobs(before, time.Now())); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "c"} {
		if err := rdb.ZAdd(ctx, "cronclave:default:lost", redis.Z{Score: float64(time.Now().UnixMilli()), Member: name}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	f := newFleet(j, "d", cfg)
	f.updateMembers(ctx, journal.Replica{Name: "d", Seen: time.Now()}, nil, true)
	if names, want := f.instances(cfg), []string{"once", "tidy@b", "tidy@c", "tidy@d", "zoned@b"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// TestFleetDuringARollOut: nobody records the ticks of a job for a replica that lacks the job, has it with another schedule, or has not said yet. Once the
// replica has the job, its instance is there, and it stays while the replica is lost.
func TestFleetDuringARollOut(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	ctx, cfg := t.Context(), loadConfig(t, everywhereJobs)
	publish := func(jobs string) string {
		other := loadConfig(t, jobs)
		if err := j.KeepConfiguration(ctx, journal.ConfigID{Digest: other.Digest()}, time.Minute, func() journal.Configuration { return configurationOf(other) }); err != nil {
			t.Fatal(err)
		}
		return other.Digest()
	}
	f, self := newFleet(j, "a", cfg), journal.Replica{Name: "a", Seen: time.Now(), ConfigDigest: cfg.Digest()}
	tidy := "[jobs.tidy]\nper_tick = \"all\"\ncommand = \"true\"\nschedule = "
	for _, step := range []struct {
		what, config string
		has          bool
	}{
		{"it has the job", cfg.Digest(), true}, {"it has not published its jobs", "unknown", false}, {"it has no such job", publish(everywhereJobs[:strings.Index(everywhereJobs, "[jobs.tidy]")] + "[jobs.once]\n"), false},
		{"at other times", publish(tidy + "\"@daily\"\n"), false}, {"and another job", publish(tidy + "\"@hourly\"\n[jobs.more]\nschedule = \"@daily\"\ncommand = \"true\"\n"), true},
	} {
		f.updateMembers(ctx, self, []journal.Replica{{Name: "b", ConfigDigest: step.config}}, true)
		if names := f.instances(cfg); slices.Contains(names, "tidy@b") != step.has || !slices.Contains(names, "tidy@a") {
			t.Errorf("%s: %v", step.what, names)
		}
	}
	if err := rdb.ZAdd(ctx, "cronclave:default:lost", redis.Z{Score: float64(time.Now().UnixMilli()), Member: "b"}).Err(); err != nil {
		t.Fatal(err)
	}
	for range absentFor + 1 {
		f.updateMembers(ctx, self, nil, true)
	}
	if names := f.instances(cfg); !slices.Contains(names, "tidy@b") {
		t.Errorf("lost: %v", names)
	}
}

// A job whose name is too long beside the name of another replica has no instance there. The other instances stay.
func TestInstanceWithoutAName(t *testing.T) {
	t.Parallel()
	_, _, j := redistest.StartJournal(t)
	job, far := strings.Repeat("j", 120), strings.Repeat("r", 63)
	cfg := loadConfig(t, fmt.Sprintf("[jobs.%s]\nschedule = \"@hourly\"\ncommand = \"true\"\nper_tick = \"all\"\n", job))
	f := newFleet(j, "a", cfg)
	f.updateMembers(t.Context(), journal.Replica{Name: "a"}, []journal.Replica{{Name: far}, {Name: "b"}}, true)
	if names, want := f.instances(cfg), []string{job + "@a", job + "@b"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// The fleet is bounded, and has this replica in any case. Names that no job can have are left out.
// Promise: P9
func TestFleetIsBounded(t *testing.T) {
	t.Parallel()
	_, _, j := redistest.StartJournal(t)
	f := newFleet(j, "z", loadConfig(t, everywhereJobs))
	var up []journal.Replica
	for i := range 2 * mostFleet {
		up = append(up, journal.Replica{Name: fmt.Sprintf("r%04d", i)}, journal.Replica{Name: fmt.Sprintf("r %d", i)})
	}
	f.updateMembers(t.Context(), journal.Replica{Name: "z"}, up, true)
	if names := f.names(); len(names) != mostFleet || names[0] != "r0000" || names[mostFleet-2] != "r0998" || names[mostFleet-1] != "z" {
		t.Errorf("%d replicas, from %s to %s", len(names), names[0], names[len(names)-1])
	}
}

// joiner is a replica as far as its instances are concerned.
func joiner(t *testing.T, conn *redisconn.Conn, j *journal.Journal, cfg *config.Config) *Replica {
	t.Helper()
	locks, err := locking.New(conn.LockConfig("default", "a"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	r := &Replica{name: "a", log: hclog.NewNullLogger(), locks: locks}
	r.reloader.fleet = newFleet(j, "a", cfg)
	r.cfg.Store(cfg.ForReplicas(nil, nil))
	return r
}

// joinFleet registers the replica and applies its instances, as membership and reloader do.
func (r *Replica) joinFleet(ctx context.Context, j *journal.Journal, cfg *config.Config) error {
	self := journal.Replica{ID: "a-abcdefgh", Name: "a", Started: time.Now(), Seen: time.Now()}
	if _, err := j.Register(ctx, self, time.Minute); err != nil {
		return err
	}
	up, err := j.Replicas(ctx)
	r.reloader.fleet.updateMembers(ctx, self, up, err == nil)
	r.cfg.Store(r.withInstances(ctx, cfg))
	return err
}

// A user pauses a job that runs on every replica, or ends its pause, before or after a replica joins: its instance is paused as the job is. An instance that
// was resumed by itself stays so when its replica returns.
// Promise: P6
func TestJoinerTakesOverThePause(t *testing.T) {
	t.Parallel()
	ann := cluster.Requester{By: "ann"}
	for _, tc := range []struct {
		steps  string
		paused bool
	}{
		{"join", false}, {"pause join", true}, {"join pause", true}, {"pause resume join", false}, {"pause join resume", false}, {"join pause resume", false},
		{"join pause resume-one", false}, {"join pause resume-one join", false}, {"join pause-one join", true}, {"join pause resume-one pause join", true},
		{"join pause-one pause resume join", false}, {"join lost pause join", true}, {"join lost pause loss join", true},
	} {
		t.Run(tc.steps, func(t *testing.T) {
			t.Parallel()
			_, conn, j := redistest.StartJournal(t)
			ctx, cfg := t.Context(), loadConfig(t, everywhereJobs)
			o, err := cluster.New(cluster.Config{Conn: conn, Journal: j, Namespace: "default", Jobs: []cluster.ConfiguredJob{{Name: "tidy", Everywhere: true}}})
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			r := joiner(t, conn, j, cfg)
			for _, step := range strings.Fields(tc.steps) {
				job := "tidy"
				if of, one := strings.CutSuffix(step, "-one"); one {
					job, step = "tidy@a", of
				}
				switch step {
				case "join":
					if len(r.cfg.Load().Jobs) > 1 && !r.reloader.fleet.again.Load() { // it restarts
						r = joiner(t, conn, j, cfg)
					}
					err = r.joinFleet(ctx, j, cfg)
				case "pause":
					_, err = o.Pause(ctx, cluster.PauseRequest{Selection: cluster.Selection{Jobs: []string{job}}, Requester: ann})
				case "resume":
					_, err = o.Resume(ctx, cluster.ResumeRequest{Selection: cluster.Selection{Jobs: []string{job}}, Requester: ann})
				case "lost": // Redis loses its data, and so the registration
					err = conn.FlushAll(ctx).Err()
				case "loss": // the replica notices
					r.reloader.fleet.takeAgain()
				}
				if step == "join" && err == nil {
					err = j.DescribeJobs(ctx, DescribeJobs(r.cfg.Load(), time.Now()))
				}
				if err != nil {
					t.Fatalf("%s: %v", step, err)
				}
			}
			if r.cfg.Load().Job("tidy@a") == nil {
				t.Fatal("it has no instance")
			}
			elector, err := election.New(election.Config{Locks: r.locks})
			if err != nil {
				t.Fatal(err)
			}
			st := elector.Inspect(ctx, []election.InspectRequest{{Lock: election.JobLock("tidy@a")}})[0]
			if st.Err != nil || st.Pause.On(st.Now) != tc.paused {
				t.Errorf("paused: %v, %v", st.Pause, st.Err)
			}
		})
	}
}

// A job whose labels no replica has is in the status, with a problem, until a replica has an instance of it.
func TestJobWithoutAnInstanceIsAProblem(t *testing.T) {
	t.Parallel()
	_, conn, j := redistest.StartJournal(t)
	ctx, cfg := t.Context(), loadConfig(t, everywhereJobs)
	o, err := cluster.New(cluster.Config{Conn: conn, Journal: j, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r := joiner(t, conn, j, cfg)
	for _, step := range []struct {
		zone           string // of a replica that comes
		jobs, problems []string
	}{
		{"b", []string{"once", "tidy@a", "tidy@b", "zoned"}, []string{"zoned"}},
		{"a", []string{"once", "tidy@a", "tidy@b", "zoned@b"}, nil},
	} {
		b := journal.Replica{ID: "b-abcdefgh", Name: "b", Labels: map[string]string{"zone": step.zone}, Started: time.Now(), Seen: time.Now()}
		if _, err := j.Register(ctx, b, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := r.joinFleet(ctx, j, cfg); err != nil {
			t.Fatal(err)
		}
		if err := j.DescribeJobs(ctx, DescribeJobs(r.cfg.Load(), time.Now())); err != nil {
			t.Fatal(err)
		}
		st, err := o.Status(ctx, cluster.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var jobs, problems []string
		for _, job := range st.Jobs {
			jobs = append(jobs, job.Name)
		}
		for _, p := range st.Problems {
			if p.Code == cluster.CodeNowhere {
				problems = append(problems, p.Job)
			}
		}
		if !slices.Equal(jobs, step.jobs) || !slices.Equal(problems, step.problems) {
			t.Errorf("zone %s: jobs %v, problems %v; want %v, %v", step.zone, jobs, problems, step.jobs, step.problems)
		}
	}
}

// While the pause of its job cannot be read a replica has no new instance. The instances that it has stay.
func TestInstanceWaitsForThePause(t *testing.T) {
	t.Parallel()
	s, conn, j := redistest.StartJournal(t)
	ctx, cfg := t.Context(), loadConfig(t, everywhereJobs)
	had, late := joiner(t, conn, j, cfg), joiner(t, conn, j, cfg)
	if err := had.joinFleet(ctx, j, cfg); err != nil {
		t.Fatal(err)
	}
	self := journal.Replica{Name: "a"}
	s.Close()
	late.reloader.fleet.updateMembers(ctx, self, []journal.Replica{{Name: "b"}}, false)
	had.reloader.fleet.takeAgain()
	for r, want := range map[*Replica][]string{had: {"once", "tidy@a"}, late: {"once", "tidy@b"}} {
		var names []string
		for _, job := range r.withInstances(ctx, cfg).Jobs {
			names = append(names, job.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("%v, want %v", names, want)
		}
	}
	if !had.reloader.fleet.again.Load() {
		t.Error("the pause is not taken over again")
	}
}

// The locks of jobs that the configuration has not had for a day are forgotten, because the names of replicas may come and go. The locks of its jobs are kept,
// and the lock of a job that has only instances.
// Promise: P9
func TestLocksOfGoneInstancesAreForgotten(t *testing.T) {
	t.Parallel()
	_, conn, _ := redistest.StartJournal(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clock atomic.Int64
	connect := func(conn *redisconn.Conn) (*locking.Client, *election.Elector) {
		settings := conn.LockConfig("default", "a")
		settings.Clock = func() time.Duration { return time.Duration(clock.Load()) }
		locks, err := locking.New(settings)
		if err != nil {
			t.Fatal(err)
		}
		elector, err := election.New(election.Config{Locks: locks})
		if err != nil {
			t.Fatal(err)
		}
		return locks, elector
	}
	locks, elector := connect(conn)
	defer locks.Close()
	_, aside, _ := redistest.StartJournal(t) // the scheduler must not observe the same locks
	others, claimer := connect(aside)
	defer others.Close()
	r := &Replica{name: "a", log: hclog.NewNullLogger(), locks: locks, processes: &Processes{}}
	var err error
	if r.scheduler, err = scheduler.New(scheduler.Config{Claimer: claimer}); err != nil {
		t.Fatal(err)
	}
	var runs sync.WaitGroup
	defer runs.Wait()
	defer stop()
	runs.Go(func() { _ = r.scheduler.Run(ctx) })

	jobs := []string{"once", "tidy", "tidy@a", "tidy@b"}
	elector.Pause(ctx, jobs, election.PauseOrder{Outcome: run.SkippedPaused})
	cfg := loadConfig(t, everywhereJobs).ForReplicas([]string{"a"}, func(config.Job) bool { return true })
	for _, step := range []struct {
		passes time.Duration
		known  []string
	}{{23 * time.Hour, jobs}, {25 * time.Hour, jobs[:3]}} {
		clock.Add(int64(step.passes))
		if err := errors.Join(r.applyJobs(ctx, cfg), conn.FlushAll(ctx).Err()); err != nil {
			t.Fatal(err)
		}
		var known []string
		for _, job := range jobs {
			st := elector.Inspect(ctx, []election.InspectRequest{{Lock: election.JobLock(job)}})[0]
			if st.Err != nil {
				t.Fatal(st.Err)
			}
			if st.Pause.On(st.Now) {
				known = append(known, job)
			}
		}
		if !slices.Equal(known, step.known) {
			t.Errorf("after %v the locks of %q are known, want %q", step.passes, known, step.known)
		}
	}
}

// A name of a replica that cannot be part of a job's name is an error at the start.
func TestNameOfAReplicaFitsItsInstances(t *testing.T) {
	t.Parallel()
	cfg := loadConfig(t, everywhereJobs)
	for name, fine := range map[string]bool{"web-1.example.org": true, "web_1": true, "web 1": false, "-": false, strings.Repeat("x", 200): false} {
		if err := checkInstanceNames(cfg, name); (err == nil) != fine || err != nil && !strings.Contains(err.Error(), "--replica") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkInstanceNames(loadConfig(t, "[jobs.a]\nschedule = \"@hourly\"\ncommand = \"true\"\n"), "web 1"); err != nil {
		t.Errorf("without such a job: %v", err)
	}
}

// The configuration is applied again where the fleet has changed, and only there, and never for the sake of other jobs.
func TestReloaderAppliesInstances(t *testing.T) {
	t.Parallel()
	cfg := loadConfig(t, everywhereJobs)
	var instances []string
	var applied []int
	r := &Replica{log: hclog.NewNullLogger()}
	r.cfg.Store(cfg.ForReplicas(nil, nil))
	l := &reloader{log: r.log, cfg: &r.cfg, monitor: &r.monitor, describeSoon: func() {},
		instances: func(_ context.Context, cfg *config.Config) *config.Config {
			return cfg.ForReplicas([]string{"b", "c"}, func(j config.Job) bool { return slices.Contains(instances, j.Name) })
		},
		apply: func(_ context.Context, cfg *config.Config) error {
			applied = append(applied, len(cfg.Jobs))
			return nil
		}}
	for range 2 {
		l.applyInstances(t.Context()) // no replica fits, which is new, too
	}
	instances = []string{"tidy@b"}
	l.applyInstances(t.Context())
	l.applyInstances(t.Context())
	instances = []string{"tidy@b", "tidy@c", "zoned@c"}
	l.applyInstances(t.Context())
	instances = []string{"tidy@c", "zoned@c"}
	l.applyInstances(t.Context())
	l.applyInstances(t.Context())
	if want := []int{1, 2, 4, 3}; !slices.Equal(applied, want) {
		t.Errorf("applied %v jobs, want %v", applied, want)
	}
	if added, changed, removed := compareJobs(r.cfg.Load(), cfg); added+changed+removed != 0 {
		t.Errorf("%d, %d, %d jobs differ from those of the file", added, changed, removed)
	}
}

// A configuration without jobs that run on every replica is in use elsewhere, so it stays as it is.
func TestOtherConfigurationsStay(t *testing.T) {
	t.Parallel()
	_, conn, j := redistest.StartJournal(t)
	cfg := loadConfig(t, "[jobs.a]\nschedule = \"@hourly\"\ncommand = \"true\"\n")
	r := joiner(t, conn, j, cfg)
	done := make(chan bool)
	go func() { done <- len(cfg.Jobs) == 1 }()
	if got := r.withInstances(t.Context(), cfg); got != cfg || !<-done {
		t.Errorf("%+v", got.Jobs)
	}
}
