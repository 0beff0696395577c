package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/run"
)

// The types of package run that a [Runner] uses.
type (
	Runner = run.Runner
	Func   = run.Func
	Run    = run.Run
	Result = run.Result
)

// A Job has a Runner, a schedule, and the policies for its runs.
type Job struct {
	// Name matches [A-Za-z0-9][A-Za-z0-9_-]{0,127}. It is the job's identity on all replicas. A "@" and the name of a replica, which may contain dots, may
	// follow: see [ReplicaLabel]. The name has at most 180 characters.
	Name string
	// Schedule has one or more cron expressions: see package cronspec. Location is their time zone, and defaults to UTC. [cronspec.LoadLocation] returns
	// the same zone on every machine.
	Schedule []string
	Location *time.Location
	// Except has cron expressions, and ExceptDates has days in Location such as "2026-12-25". The instants of these expressions and days are not ticks.
	// Ticks begin at StartsAt and end before ExpiresAt; zero means no bound. A job without any tick is invalid, but a job that has expired is valid.
	Except, ExceptDates []string
	StartsAt, ExpiresAt time.Time
	// After, instead of a Schedule, has the names of other jobs, the parents. The job runs once for each tick that ended ok for all parents. This tick is due
	// when, for every parent, the tick and all earlier ticks are decided and their runs have ended. StartDeadline counts from that time, and defaults to the
	// time until the next common instant of the parents' schedules, at most 1h. If a parent's tick fails or does not run, the job has no tick at this instant.
	// A job with After must not set Schedule, Location, Except, ExceptDates, StartsAt, ExpiresAt, Jitter or CatchUp.
	After []string
	// Jitter is the maximum delay of a tick. The delay of each tick is computed from a hash of job and tick, so it is the same on every replica. A delayed tick
	// is always due before the next instant of the schedule.
	Jitter time.Duration
	// Runner runs the job. Required.
	Runner Runner
	// Parallel is the maximum number of runs at once in the cluster. PerTick is the number of runs for each tick. PerReplica is the maximum number of
	// runs at once on one replica. Each defaults to 1.
	Parallel, PerTick, PerReplica int
	// Pool is a semaphore that jobs share. A run of the job also needs a slot of the pool. Defaults to none.
	Pool Pool
	// Overlap is the policy for a tick that finds all slots held. Defaults to OverlapSkip.
	Overlap Overlap
	// StartDeadline is the maximum time from the tick plus its jitter to the start of the run. Afterwards the tick is missed. Defaults to the time until
	// the next tick, at most 1h. With OverlapQueue it defaults to 1h.
	StartDeadline time.Duration
	// CatchUp selects the ticks that run after their StartDeadline, if it passed because no replica was up or Redis did not answer. Defaults to CatchUpNone.
	CatchUp CatchUp
	// Timeout is the time after which a run is stopped. Defaults to 24h; negative means no timeout. KillGrace is the time from the stop of a run until
	// it is killed. Defaults to 10s; negative means that the run is killed at once.
	Timeout, KillGrace time.Duration
	// StartTimeout is the maximum time until the Runner calls [Run.Began]. If the work has not begun by then, the grant is given back. If StartTimeout
	// is zero, there is no limit, and the work begins when the Runner is called.
	StartTimeout time.Duration
	// Retry repeats failed runs. Defaults to no retry.
	Retry Retry
	// Recover runs a tick again if its run was interrupted. Defaults to no recovery.
	Recover Recover
	// Lease is the time after which the cluster replaces a replica that has died. Defaults to 30s; at least 1s, at most 24h.
	Lease time.Duration
	// Where has the labels that a replica needs to run the job: see [Config.Labels] and [ReplicaLabel]. The other replicas only record ticks that no replica
	// runs. Defaults to none: any replica may run the job.
	Where Labels
	// OutlivesLease lets a run go on after its lease is lost. Another replica may then start a second run, and only the fencing token protects the
	// resource. By default, a run is stopped before its lease ends.
	OutlivesLease bool
}

func (j *Job) forRuns() *run.Job {
	of := &run.Job{Runner: j.Runner, Timeout: j.Timeout, KillGrace: j.KillGrace, StartTimeout: j.StartTimeout, Lease: j.Lease, OutlivesLease: j.OutlivesLease,
		Retries: j.Retry.Max, RetryPause: j.Retry.pauseAfter, Pool: j.Pool.Name, PoolSlots: j.Pool.Slots, PoolWait: cmp.Or(j.StartDeadline, agenda.LongestAuto)}
	if j.Recover.Max > 0 {
		of.Recovers = j.Recover.allowsAttempt
	}
	return of
}

var (
	plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)
	jobName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}(@[A-Za-z0-9][A-Za-z0-9._-]{0,127})?$`)
)

// longestName is the maximum length of a job's name. The record of a tick without a run gets an id of the name and 17 more bytes at most, and ids are bounded, too.
const longestName = 180

func (j Job) withDefaults() Job {
	j.Parallel = cmp.Or(j.Parallel, 1)
	j.PerTick = cmp.Or(j.PerTick, 1)
	j.PerReplica = cmp.Or(j.PerReplica, 1)
	j.Timeout = cmp.Or(j.Timeout, 24*time.Hour)
	j.KillGrace = max(cmp.Or(j.KillGrace, 10*time.Second), 0)
	j.Lease = cmp.Or(j.Lease, 30*time.Second)
	j.Retry = j.Retry.withDefaults()
	j.Overlap = cmp.Or(j.Overlap, OverlapSkip)
	j.CatchUp = j.CatchUp.withDefaults()
	return j
}

func (j Job) validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("job %s: "+format, append([]any{j.Name}, args...)...))
		}
	}
	fault(!jobName.MatchString(j.Name) || len(j.Name) > longestName, "a name is made of letters, digits, _ and -")
	fault(j.Runner == nil, "Runner is missing")
	fault(j.Parallel < 1 || j.Parallel > 1000, "Parallel is %d: it must be from 1 to 1000", j.Parallel)
	fault(j.PerTick < 1 || j.PerTick > j.Parallel, "PerTick is %d: it must be from 1 to Parallel, %d", j.PerTick, j.Parallel)
	fault(j.PerReplica < 1 || j.PerReplica > j.Parallel, "PerReplica is %d: it must be from 1 to Parallel, %d", j.PerReplica, j.Parallel)
	fault(j.Lease < time.Second || j.Lease > election.MaxLease, "Lease is %v: it must be from 1s to %v", j.Lease, election.MaxLease)
	fault(j.Retry.findFault() != "", "%s", j.Retry.findFault())
	fault(overlapFault(j.Overlap) != "", "%s", overlapFault(j.Overlap))
	fault(j.Pool.findFault() != "", "%s", j.Pool.findFault())
	fault(j.CatchUp.findFault(j.PerTick) != "", "%s", j.CatchUp.findFault(j.PerTick))
	fault(j.Recover.findFault(j.PerTick) != "", "%s", j.Recover.findFault(j.PerTick))
	fault(j.afterFault() != "", "%s", j.afterFault())
	fault(j.Jitter < 0 || j.StartDeadline < 0 || j.StartTimeout < 0, "Jitter, StartDeadline and StartTimeout must not be negative")
	return errors.Join(faults...)
}

// An Overlap is the policy for a tick that finds all slots of its job held. Runs of earlier ticks or runs outside the schedule may hold them.
type Overlap = agenda.Overlap

// The overlap policies.
const (
	OverlapSkip  = agenda.Skip   // the tick is skipped; the default
	OverlapQueue = agenda.Queued // the first such tick waits for a slot until its StartDeadline; the ticks after it are skipped
	// OverlapReplace stops the oldest run that began before the tick, on any replica. That run ends as canceled (replaced), and then the tick runs. If
	// newer ticks need all the slots before the tick runs, the tick is skipped. Late ticks that waited because Redis or all replicas were down run one
	// after the other, without replacing each other. But if the run of such a late tick lasts longer than the period of the schedule, the newest tick
	// replaces it.
	OverlapReplace = agenda.Replace
)

func overlapFault(o Overlap) string {
	switch o {
	case OverlapSkip, OverlapQueue, OverlapReplace:
		return ""
	}
	return fmt.Sprintf("Overlap is %q: it must be %q, %q or %q", o, OverlapSkip, OverlapQueue, OverlapReplace)
}

// A CatchUp selects the ticks that still run after their StartDeadline. Only ticks that were late because no replica was up, or Redis did not answer, are
// caught up. A replica whose process was suspended counts as down. A tick for which the replicas had no free place is not caught up.
type CatchUp struct {
	// Policy selects the ticks. Defaults to CatchUpNone.
	Policy CatchUpPolicy
	// Window is the maximum age of these ticks. Defaults to 24h.
	Window time.Duration
}

// A CatchUpPolicy selects the late ticks that still run.
type CatchUpPolicy = agenda.CatchUp

// The catch-up policies. A job that is new to the cluster, or whose schedule was changed, has nothing to catch up.
const (
	CatchUpNone   = agenda.CatchUpNone   // all late ticks are missed; the default
	CatchUpLatest = agenda.CatchUpLatest // only the newest late tick runs, unless a later tick is already due
	CatchUpAll    = agenda.CatchUpAll    // all late ticks run one after the other, oldest first; at most the last 1,000
)

func (c CatchUp) withDefaults() CatchUp {
	return CatchUp{cmp.Or(c.Policy, CatchUpNone), cmp.Or(c.Window, 24*time.Hour)}
}

func (c CatchUp) findFault(perTick int) string {
	switch {
	case c.Policy != CatchUpNone && c.Policy != CatchUpLatest && c.Policy != CatchUpAll:
		return fmt.Sprintf("CatchUp is %q: it must be %q, %q or %q", c.Policy, CatchUpNone, CatchUpLatest, CatchUpAll)
	case c.Window < 0:
		return fmt.Sprintf("CatchUp.Window is %v: it must not be negative", c.Window)
	case c.Policy != CatchUpNone && perTick > 1:
		return fmt.Sprintf("CatchUp is %q: it must be %q where PerTick is more than 1", c.Policy, CatchUpNone)
	}
	return ""
}

// Recover runs a tick again if the replica of its run died, drained or lost the lease. Any replica may run it. With Recover, a tick runs at least
// once instead of at most once. Each recovery has a greater token, a new run id, and the trigger "recovery". The zero value means no recovery.
type Recover struct {
	// Max is the maximum number of attempts after the first; at most 100. The tries of [Retry] count as attempts, too.
	Max int
}

func (r Recover) findFault(perTick int) string {
	switch {
	case r.Max < 0 || r.Max > 100:
		return fmt.Sprintf("Recover.Max is %d: it must be from 0 to 100", r.Max)
	case r.Max > 0 && perTick > 1:
		return fmt.Sprintf("Recover needs PerTick 1, and it is %d: a recovery would not know whose share of the tick it has", perTick)
	}
	return ""
}

// allowsAttempt reports whether a tick may have another attempt after an interrupted one. Runs outside the schedule have no tick and are never recovered.
func (r Recover) allowsAttempt(tick time.Time, attempt int) bool {
	return attempt <= r.Max && !tick.IsZero()
}

// A recoverRules has the settings of a job with Recover that are also used outside the loop.
type recoverRules struct {
	Recover
	slots int // with OverlapReplace the number of slots of the job; otherwise 0
}

func (j *Job) recoverRules() recoverRules {
	if j.Overlap != OverlapReplace {
		return recoverRules{Recover: j.Recover}
	}
	return recoverRules{j.Recover, j.Parallel}
}

// isDisplaced reports whether runs of newer ticks hold all slots of a job with OverlapReplace. A recovery of the orphan would then never get a slot,
// because each free slot goes to a newer tick.
func (r recoverRules) isDisplaced(orphan election.Run, running []election.Run) bool {
	newer := 0
	for _, other := range running {
		if other.Tick.After(orphan.Tick) {
			newer++
		}
	}
	return r.slots > 0 && newer >= r.slots
}

// Labels are names and values that a replica has, or that a job requires of its replicas.
type Labels map[string]string

// Include reports whether l contains all of others.
func (l Labels) Include(others Labels) bool {
	for name, want := range others {
		if value, has := l[name]; !has || value != want {
			return false
		}
	}
	return true
}

// ReplicaLabel is a label that each replica has by itself. Its value is [Config.Replica]. A job whose Where has this label is for one replica only.
const ReplicaLabel = "@replica"

// ErrElsewhere means that this replica must not run a job, because it lacks labels in the job's Where.
var ErrElsewhere = errors.New("this replica lacks labels that the job requires")

// isOfOne reports whether only one replica may run the job.
func (j *Job) isOfOne() bool { return j.Where[ReplicaLabel] != "" }

// A Pool is a semaphore that jobs share across the cluster, first come, first served. A run waits for a slot of the pool until the StartDeadline of
// its tick, and holds the slot until the run ends, through all its tries. The zero value means no pool.
type Pool struct {
	// Name matches [A-Za-z0-9][A-Za-z0-9_-]{0,127}.
	Name string
	// Slots is the number of slots, from 1 to 1000. All jobs of a pool must have the same number.
	Slots int
}

func (p Pool) findFault() string {
	switch {
	case p == Pool{}:
		return ""
	case !plainName.MatchString(p.Name):
		return fmt.Sprintf("Pool.Name is %q: a name is made of letters, digits, _ and -", p.Name)
	case p.Slots < 1 || p.Slots > 1000:
		return fmt.Sprintf("Pool.Slots is %d: it must be from 1 to 1000", p.Slots)
	}
	return ""
}

// Retry repeats a run that failed or timed out, on the same replica, with the same lease and token. Each try has the whole Timeout. The zero value
// means no retry.
type Retry struct {
	// Max is the maximum number of tries after the first; at most 100. Attempts of [Recover] count, too.
	Max int
	// Delay is the pause before the second try. The pause doubles with each try, up to MaxDelay. A random part of up to half is subtracted, so that runs
	// that failed at the same time are not all retried at the same time. Delay defaults to 5s, or to MaxDelay if that is less. MaxDelay defaults to 5m,
	// or to Delay if that is more.
	Delay, MaxDelay time.Duration
}

func (r Retry) withDefaults() Retry {
	if r.Max == 0 {
		return Retry{}
	}
	r.Delay = cmp.Or(r.Delay, min(5*time.Second, cmp.Or(r.MaxDelay, 5*time.Second)))
	r.MaxDelay = cmp.Or(r.MaxDelay, max(5*time.Minute, r.Delay))
	return r
}

func (r Retry) findFault() string {
	switch {
	case r.Max < 0 || r.Max > 100:
		return fmt.Sprintf("Retry.Max is %d: it must be from 0 to 100", r.Max)
	case r.Delay < 0 || r.MaxDelay < r.Delay:
		return fmt.Sprintf("Retry.MaxDelay is %v: it must not be less than Delay, %v, nor that negative", r.MaxDelay, r.Delay)
	}
	return ""
}

// pauseAfter returns the pause after a try. The number of the first try is 1.
func (r Retry) pauseAfter(number int) time.Duration {
	d := r.Delay
	for ; number > 1 && d < r.MaxDelay; number-- {
		d *= 2
	}
	d = min(d, r.MaxDelay)
	return d - rand.N(d/2+1)
}

func (j *Job) isChained() bool { return len(j.After) > 0 }

func (j *Job) afterFault() string {
	if !j.isChained() {
		return ""
	}
	for _, has := range []struct {
		name string
		set  bool
	}{
		{"Schedule", len(j.Schedule) > 0}, {"Location", j.Location != nil}, {"Except", len(j.Except) > 0}, {"ExceptDates", len(j.ExceptDates) > 0},
		{"StartsAt", !j.StartsAt.IsZero()}, {"ExpiresAt", !j.ExpiresAt.IsZero()}, {"Jitter", j.Jitter != 0}, {"CatchUp", j.CatchUp.Policy != CatchUpNone},
	} {
		if has.set {
			return "After does not go with " + has.name + ": the ticks are those of the jobs before"
		}
	}
	return ""
}
