package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// A ReplicaState is the state of a replica.
type ReplicaState string

// The states of a registered replica.
const (
	ReplicaUp       ReplicaState = "up"
	ReplicaDraining ReplicaState = "draining" // it finishes its last runs
	ReplicaUnable   ReplicaState = "unable"   // it claims nothing: see [Replica.Unable]
	ReplicaSilent   ReplicaState = "silent"   // it has not renewed its registration in time, because it stands still, is cut off, or has died
)

// A LostReplica is a replica whose registration has expired.
type LostReplica struct {
	Name string    `json:"name"`
	Seen time.Time `json:"seen"`
}

// A Replica is a registered replica.
type Replica struct {
	Name          string    `json:"name"`
	Version       string    `json:"version"`
	Started       time.Time `json:"started"`
	Seen          time.Time `json:"seen"`
	ConfigDigest  string    `json:"config_digest"`
	ZoneData      string    `json:"zone_data,omitempty"` // version of the time zone data; "" for older versions of cronclave
	ClockOffsetMS int64     `json:"clock_offset_ms"`
	ClockErrorMS  int64     `json:"clock_error_ms"`
	Running       int       `json:"running"`
	MaxRunning    int       `json:"max_running,omitempty"` // maximum number of runs at once; 0 for older versions of cronclave
	// LeaseMargin is the smallest margin with which the replica renewed or lost a lease within the last minute. It is nil if the replica renewed and lost no
	// lease, and for older versions of cronclave.
	LeaseMargin *journal.LeaseMargin `json:"lease_margin,omitempty"`
	Unable      string               `json:"unable,omitempty"` // reason why the replica claims nothing

	State ReplicaState `json:"state"`
	// StoodStill is the last interval in which the replica's process did not run. It is nil if no such interval ended within the last hour.
	StoodStill *journal.Interval `json:"stood_still,omitempty"`
}

// Clock returns the offset of the replica's clock.
func (r Replica) Clock() ClockOffset {
	return ClockOffset{MS: r.ClockOffsetMS, ErrorMS: r.ClockErrorMS}
}

// Load returns the number of runs and the maximum number, such as "3 of 8".
func (r Replica) Load() string {
	if r.MaxRunning == 0 {
		return strconv.Itoa(r.Running)
	}
	return fmt.Sprintf("%d of %d", r.Running, r.MaxRunning)
}

// LowMargin reports whether a lease of the replica was renewed late, or lost.
func (r Replica) LowMargin() bool { return r.LeaseMargin != nil && r.LeaseMargin.Low() }

func (r Replica) recentProblems() (list []Problem) {
	if r.State == ReplicaSilent {
		list = append(list, Problem{Level: LevelWarning, Code: "replica_silent", Replica: r.Name, Since: &r.Seen,
			Message: fmt.Sprintf("replica %s is silent: it stands still, is cut off from Redis, or has died; look at its machine", r.Name)})
	}
	if i := r.StoodStill; i != nil {
		list = append(list, Problem{Level: LevelAdvice, Code: "stood_still", Replica: r.Name, Since: &i.To,
			Message: fmt.Sprintf("replica %s stood still from %s for %v: its process was stopped, or got no CPU time; look for what stopped it", r.Name,
				i.From.UTC().Format(time.RFC3339), i.Length().Round(time.Second))})
	}
	if r.LowMargin() {
		list = append(list, Problem{Level: LevelWarning, Code: "lease_margin", Replica: r.Name, Message: r.lateRenewal()})
	}
	return list
}

// lateRenewal describes a lease that was lost or renewed late. The text for the leadership is shorter, because nothing is stopped before the leader's lease
// ends, and users can't set the length of this lease.
func (r Replica) lateRenewal() string {
	m, of := *r.LeaseMargin, cmp.Or(FirstLine(r.LeaseMargin.Of, 80), "a job")
	const causes = "Redis or the network is slow, or the replica's machine is overloaded; find the cause"
	if m.Lost() {
		return fmt.Sprintf("replica %s lost the lease of %s within the last minute: Redis was away or lost its data, or %s", r.Name, of, causes)
	}
	stops, advice := "", ""
	if m.Of != journal.MarginOfLeadership {
		stops, advice = "; with 38 % left a run may be stopped", ", or set a longer lease"
	}
	return fmt.Sprintf("replica %s renewed the lease of %s with only %v left (two thirds are usual%s): %s%s", r.Name, of, m, stops, causes, advice)
}

func (r *statusReader) readReplicas(ctx context.Context) (err error) {
	r.replicas, err = r.journal.Replicas(ctx)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	last := lastIncident(r.status.Incidents, r.replicas)
	r.awaited, r.back = r.status.Now.Sub(last) < registerWithin, answersSince(last, r.status.Redis.Servers, r.status.Now)
	for _, e := range r.replicas {
		r.warnOfReplica(e)
		r.status.Replicas = append(r.status.Replicas, Replica{e.Name, e.Version, e.Started, e.Seen, e.ConfigDigest, FirstLine(e.ZoneData, longestDigest), e.ClockOffsetMS, e.ClockErrorMS, e.Running, e.MaxRunning,
			e.LeaseMargin, e.Unable, stateOf(e, r.status.Now, r.back), recentInterval(e.StoodStill, r.status.Now, rememberStandstill)})
	}
	slices.SortFunc(r.status.Replicas, func(a, b Replica) int { return cmp.Compare(a.Name, b.Name) })
	r.warnOfNames()
	if err := r.readLost(ctx); err != nil {
		return err
	}
	r.warnOfTooFew()
	return r.warnOfConfigs(ctx)
}

func (r *statusReader) readIncidents(ctx context.Context) (err error) {
	r.status.Incidents, err = r.journal.Incidents(ctx, r.status.Now)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	if lost := newestIncident(r.status.Incidents, journal.DataLoss, r.status.Now); lost != nil {
		r.status.DataLost = &lost.Interval
	}
	return nil
}

// rememberStandstill is the time for which a status shows that a replica stood still.
const rememberStandstill = time.Hour

func recentInterval(i *journal.Interval, now time.Time, remember time.Duration) *journal.Interval {
	if i == nil || now.Sub(i.To) > remember {
		return nil
	}
	return i
}

func (r *statusReader) readLost(ctx context.Context) error {
	lost, missing, err := r.lostReplicas(ctx, journal.ShownLost)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	for _, l := range lost {
		up := slices.ContainsFunc(r.replicas, func(e journal.Replica) bool { return e.Name == l.Name })
		switch {
		case up || r.status.Now.Sub(l.Seen) >= journal.RememberLost:
		case missing[l.Name] != nil && r.status.Now.Sub(r.back) < registerWithin: // the replica may be up, and not registered again yet
			r.awaited = true
		default:
			r.status.Lost = append(r.status.Lost, LostReplica(l))
		}
	}
	return nil
}

// stateOf returns the state of a replica according to its last registration. Redis may not have answered before back. So a replica counts as silent only after
// it had time to register since back.
func stateOf(e journal.Replica, now, back time.Time) ReplicaState {
	switch {
	case now.Sub(e.Seen) >= registerWithin && now.Sub(back) >= registerWithin:
		return ReplicaSilent
	case e.Draining:
		return ReplicaDraining
	case e.Unable != "":
		return ReplicaUnable
	}
	return ReplicaUp
}

// CountStates counts replicas by state, according to their registrations. The result has every state, even with a count of 0.
func CountStates(replicas []journal.Replica, now time.Time) map[ReplicaState]int {
	count := map[ReplicaState]int{ReplicaUp: 0, ReplicaDraining: 0, ReplicaUnable: 0, ReplicaSilent: 0}
	for _, r := range replicas {
		count[stateOf(r, now, time.Time{})]++
	}
	return count
}

// MaxClockOffset is the largest offset of a replica's clock that causes no warning, in milliseconds.
const MaxClockOffset = redisconn.MaxClockOffset

// A ClockOffset is the difference between the clock of a replica and the clock of Redis.
type ClockOffset = redisconn.ClockOffset

// ClockOffsetOf returns the offset that a replica has registered.
func ClockOffsetOf(r journal.Replica) ClockOffset {
	return ClockOffset{MS: r.ClockOffsetMS, ErrorMS: r.ClockErrorMS}
}

const (
	// Leadership is the name under which package election elects the leader of the cluster.
	Leadership = "leader"
	// RegisterEvery is the interval at which a replica renews its registration.
	RegisterEvery = 5 * time.Second
	// RegistrationDelay is the maximum delay of a renewal by a replica that is up, because a call to Redis may take as long as its time-out.
	RegistrationDelay = 2 * redisconn.Timeout
)

// OccupiesName reports whether a replica is up and not draining, so that no other replica may have its name. A replica whose registration is overdue counts as
// crashed.
func OccupiesName(e journal.Replica, now time.Time) bool {
	return !e.Draining && now.Sub(e.Seen) < RegisterEvery+RegistrationDelay
}

// FormatLabels returns labels as zone=a, rack=7.
func FormatLabels(labels map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, name+"="+labels[name])
	}
	return strings.Join(list, ", ")
}

// FirstLine returns the first line of a text, cut to at most most characters.
func FirstLine(text string, most int) string {
	line, _, _ := strings.Cut(text, "\n")
	if letters := []rune(line); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return line
}

// registerWithin is the maximum time from the first answer of Redis until every replica that is up has registered.
const registerWithin = RegisterEvery + RegistrationDelay

// registerAgain is the maximum time from the end of an outage to the registration of a replica that was cut off. It allows for the pause between two
// attempts, and for one attempt that times out.
const registerAgain = 2 * RegistrationDelay

// lastIncident returns the end of the newest incident after which a replica may be up without a registration; zero if there is none. An outage counts until a
// replica has registered more than registerAgain after the outage. By then, every replica that was cut off has had time to register.
func lastIncident(newestFirst []journal.Incident, replicas []journal.Replica) time.Time {
	for _, in := range newestFirst {
		if in.Kind == journal.DataLoss || !slices.ContainsFunc(replicas, func(e journal.Replica) bool { return e.Seen.After(in.To.Add(registerAgain)) }) {
			return in.To
		}
	}
	return time.Time{}
}

// answersSince returns since, the end of the last incident, or the latest start of a Redis server if that is later. It ignores servers that started more than
// an hour ago, and the masters of a quorum, which have no registrations.
func answersSince(since time.Time, servers []redisconn.Server, now time.Time) time.Time {
	const long = 3600
	for _, s := range servers {
		if s.UptimeS == nil || *s.UptimeS > long || s.Keeps == redisconn.KeepsLocks {
			continue
		}
		if started := now.Add(-time.Duration(*s.UptimeS) * time.Second); started.After(since) {
			since = started
		}
	}
	return since
}

// newestIncident returns the newest incident of a kind within the last day, or nil.
func newestIncident(newestFirst []journal.Incident, kind string, now time.Time) *journal.Incident {
	for i, in := range newestFirst {
		if in.Kind == kind && now.Sub(in.To) <= journal.RememberLost {
			return &newestFirst[i]
		}
	}
	return nil
}

// lostActs describes a loss of Redis' data that may have removed entries of the audit log; "" if there is none. A loss does not count if an act from before the
// loss is still there, because the loss would have removed that act too.
func lostActs(newestFirst []journal.Incident, acts []journal.Act) string {
	for _, in := range newestFirst {
		if in.Kind == journal.DataLoss && !slices.ContainsFunc(acts, func(a journal.Act) bool { return a.Time.Before(in.From) }) {
			return fmt.Sprintf("Redis lost its data between %s: earlier acts may be missing, also if their pauses are in force", boundsText(in.Interval))
		}
	}
	return ""
}

func boundsText(i journal.Interval) string {
	return i.From.UTC().Format(time.RFC3339) + " and " + i.To.UTC().Format(time.RFC3339)
}
