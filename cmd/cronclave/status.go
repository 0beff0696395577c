package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Print the replicas, the leader, the jobs, and what is not as it should be",
		Example: "  cronclave status --redis redis://10.0.0.5:6379/0 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := a.openView(cmd.Context())
			if err != nil {
				return err
			}
			defer v.close()
			locks, err := openLocks(v.redis, v.cfg.Namespace, "status")
			if err != nil {
				return err
			}
			defer func() { _ = locks.Close() }() // it only waits
			h, err := examine(cmd.Context(), v.redis)
			if err != nil {
				h.warn("redis", "%v", err)
			}
			s := survey{cfg: v.cfg, locks: locks, journal: v.journal, warnings: h.Warnings, recent: recentRuns}
			if asJSON {
				s.recent = 1
			}
			st, err := s.status(cmd.Context())
			if err != nil {
				return unavailable("read the status of namespace "+v.cfg.Namespace, err)
			}
			if asJSON {
				return a.printJSON(st)
			}
			return a.printStatus(st)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// status is the JSON of the command.
type status struct {
	Namespace string          `json:"namespace"`
	Now       time.Time       `json:"now"`
	Leader    *statusLeader   `json:"leader,omitempty"`
	Replicas  []statusReplica `json:"replicas"`
	Jobs      []statusJob     `json:"jobs"`
	Warnings  []warning       `json:"warnings"`
}

type statusLeader struct {
	Replica string `json:"replica"`
	Token   int64  `json:"token"`
}

type statusReplica struct {
	Name          string    `json:"name"`
	Version       string    `json:"version"`
	Started       time.Time `json:"started"`
	Seen          time.Time `json:"seen"`
	ConfigDigest  string    `json:"config_digest"`
	ClockOffsetMS int64     `json:"clock_offset_ms"`
	ClockErrorMS  int64     `json:"clock_error_ms"`
	Running       int       `json:"running"`
	Unable        string    `json:"unable,omitempty"` // why it claims nothing

	labels scheduler.Labels
}

func (r statusReplica) clock() offsetEstimate { return offsetEstimate{r.ClockOffsetMS, r.ClockErrorMS} }

type statusJob struct {
	Name     string          `json:"name"`
	Schedule []string        `json:"schedule"`
	After    []string        `json:"after,omitempty"`
	Timezone string          `json:"timezone"`
	Paused   bool            `json:"paused"`
	Last     *journal.Record `json:"last,omitempty"`
	Next     *time.Time      `json:"next,omitempty"`
	Holders  []statusHolder  `json:"holders"`

	PausedSince  *time.Time `json:"paused_since,omitempty"`
	PausedUntil  *time.Time `json:"paused_until,omitempty"` // left out where somebody has to resume it
	PausedReason string     `json:"paused_reason,omitempty"`

	where  scheduler.Labels // nil where it has no ticks
	recent []journal.Record // newest first
}

// recentRuns is of how many ticks and runs of each job the text counts the outcomes.
const recentRuns = 10

type statusHolder struct {
	Replica string     `json:"replica"`
	Slot    int        `json:"slot"`
	Token   int64      `json:"token"`
	Tick    *time.Time `json:"tick,omitempty"`
	Expires time.Time  `json:"expires"`
}

// survey puts the status together.
type survey struct {
	cfg      *config.Config
	locks    *locking.Client
	journal  *journal.Journal
	warnings []warning
	recent   int // how many records of each job are read
}

func (s *survey) status(ctx context.Context) (*status, error) {
	now, err := s.locks.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	st := &status{Namespace: s.cfg.Namespace, Now: now, Replicas: []statusReplica{}, Jobs: []statusJob{}}
	if err := s.cluster(ctx, st); err != nil {
		return nil, err
	}
	if err := s.jobs(ctx, st); err != nil {
		return nil, err
	}
	s.warnAbout(st)
	st.Warnings = append([]warning{}, s.warnings...)
	return st, nil
}

func (s *survey) cluster(ctx context.Context, st *status) error {
	office, err := election.NewOffice(election.OfficeConfig{Locks: s.locks, Name: leaderOffice})
	if err != nil {
		return err
	}
	leader, ok, err := office.Leader(ctx)
	if err != nil {
		return err
	}
	if ok {
		st.Leader = &statusLeader{leader.Name, leader.Token}
	}
	replicas, err := s.journal.Replicas(ctx)
	if err = s.tolerate(err); err != nil {
		return err
	}
	for _, r := range replicas {
		if r.Refused != "" {
			s.warnings = append(s.warnings, warning{"config_refused", fmt.Sprintf("replica %s keeps its last good configuration; the new one is faulty: %s", r.Name, r.Refused)})
		}
		if r.Unable != "" {
			s.warnings = append(s.warnings, warning{"cannot_start", fmt.Sprintf("replica %s claims nothing: its machine cannot start programs (%s); its ticks go to the other replicas", r.Name, r.Unable)})
		}
		if r.Heartbeat != "" {
			s.warnings = append(s.warnings, warning{"heartbeat", fmt.Sprintf("leader %s: %s", r.Name, r.Heartbeat)})
		}
		st.Replicas = append(st.Replicas, statusReplica{r.Name, r.Version, r.Started, r.Seen, r.ConfigDigest, r.ClockOffsetMS, r.ClockErrorMS, r.Running, r.Unable, r.Labels})
	}
	s.warnings = append(s.warnings, sameNames(replicas, st.Now)...)
	if err := s.compare(ctx, campsOf(replicas)); err != nil {
		return err
	}
	slices.SortFunc(st.Replicas, func(a, b statusReplica) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// compare warns of replicas that disagree on the configuration, and names the jobs.
func (s *survey) compare(ctx context.Context, c camps) error {
	if len(c) < 2 {
		return nil
	}
	s.warnings = append(s.warnings, warning{"config_differs", "replicas run different configurations: " + c.String()})
	where, err := disagreement(ctx, s.journal, c)
	if err = s.tolerate(err); err != nil {
		return err
	}
	for _, line := range where {
		s.warnings = append(s.warnings, warning{"config_differs", "the configurations differ: " + line})
	}
	return nil
}

func (s *survey) jobs(ctx context.Context, st *status) error {
	infos, err := s.journal.Jobs(ctx)
	if err = s.tolerate(err); err != nil {
		return err
	}
	elector, err := election.New(election.Config{Locks: s.locks})
	if err != nil {
		return err
	}
	inquiries := make([]election.Inquiry, len(infos))
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = info.Name
		inquiries[i] = election.Inquiry{Job: info.Name}
	}
	recent, err := s.journal.Recent(ctx, names, s.recent)
	if err = s.tolerate(err); err != nil {
		return err
	}
	for i, state := range elector.Survey(ctx, inquiries) {
		if state.Err != nil {
			return state.Err
		}
		job := statusJob{Name: infos[i].Name, Schedule: append([]string{}, infos[i].Schedule...), After: infos[i].After, Timezone: infos[i].Timezone,
			Holders: holders(state), Next: nextTick(infos[i], st.Now)}
		job.pauseIn(state)
		if infos[i].Enabled {
			job.where = infos[i].Where
		}
		if job.recent = recent[job.Name]; len(job.recent) > 0 {
			job.Last = &job.recent[0]
		}
		st.Jobs = append(st.Jobs, job)
	}
	return nil
}

// tolerate turns foreign data in Redis into a warning: what else was read is good.
func (s *survey) tolerate(err error) error {
	if !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	s.warnings = append(s.warnings, warning{"corrupt_data", err.Error()})
	return nil
}

func holders(state election.State) []statusHolder {
	list := []statusHolder{}
	for _, r := range state.Running {
		h := statusHolder{Replica: r.Holder, Slot: r.Slot, Token: r.Token, Expires: r.Expires}
		if !r.Tick.IsZero() {
			h.Tick = &r.Tick
		}
		list = append(list, h)
	}
	return list
}

func nextTick(info journal.JobInfo, now time.Time) *time.Time {
	if !info.Enabled {
		return nil
	}
	spec, zone, err := scheduleOf(info)
	if err != nil {
		return nil
	}
	next := spec.Next(now)
	if next.IsZero() {
		return nil
	}
	next = next.In(zone)
	return &next
}

// scheduleOf is the schedule that a replica has described.
func scheduleOf(info journal.JobInfo) (spec *cronspec.Schedule, zone *time.Location, err error) {
	if zone, err = cronspec.LoadLocation(info.Timezone); err != nil {
		return nil, nil, err
	}
	spec, err = cronspec.Parse(info.Schedule, cronspec.Options{Name: info.Name, Location: zone,
		Except: info.Except, ExceptDates: info.ExceptDates, StartsAt: info.StartsAt, ExpiresAt: info.ExpiresAt})
	return spec, zone, err
}

func (s *survey) warnAbout(st *status) {
	warn := func(code, format string, args ...any) {
		s.warnings = append(s.warnings, warning{code, fmt.Sprintf(format, args...)})
	}
	for _, r := range st.Replicas {
		if o := r.clock(); o.far() {
			warn("clock_off", "the clock of replica %s is off (%v); promises hold, but set it right", r.Name, o)
		}
	}
	if len(st.Replicas) == 0 {
		warn("no_replica", "no replica is up in namespace %s", st.Namespace)
		return
	}
	for _, j := range st.Jobs {
		if !slices.ContainsFunc(st.Replicas, func(r statusReplica) bool { return r.labels.Include(j.where) }) {
			warn("nowhere", "no replica that is up has the labels of job %s (%s): its ticks are missed", j.Name, labelled(j.where))
		}
	}
}
