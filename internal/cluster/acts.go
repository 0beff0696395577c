package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/multierr"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A Requester names the user who requests an act, and the reason. Both are written to the audit log. The HTTP API decodes bodies into structs that embed a
// Requester, so their struct tags are part of the contract with users.
type Requester struct {
	// By is the name of the user. Required.
	By string `json:"-"`
	// Reason is one line of at most 200 characters, for display only; may be "".
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"for the audit log: one line"`
}

// requesterFault returns an error if the audit log would refuse the requester.
func (r Requester) requesterFault() error {
	switch {
	case r.By == "":
		return refusalError(ErrInvalid, "the name of the user is missing")
	case utf8.RuneCountInString(r.Reason) > maxReason:
		return refusalError(ErrInvalid, "the reason has %d characters: write at most %d", utf8.RuneCountInString(r.Reason), maxReason)
	case strings.ContainsFunc(r.Reason, unicode.IsControl):
		return refusalError(ErrInvalid, "the reason is %q: it must be one line, without tabs", r.Reason)
	}
	return nil
}

// maxReason is the maximum length of a reason, in characters.
const maxReason = 200

// auditAct writes an act to the audit log before the act is carried out, and returns the entry. After an error, only a cancel may be carried out. lasting is
// the length of a pause that ends by itself; otherwise 0. unwritten is the text of the error if Redis does not answer, such as [notDone].
func (o *Operator) auditAct(ctx context.Context, r Requester, act journal.Act, lasting time.Duration, unwritten string) (journal.Act, error) {
	act.By, act.Reason = r.By, r.Reason
	act, err := o.journal.Audit(ctx, act, lasting)
	switch {
	case err == nil:
		o.reportAct(act)
		return act, nil
	case errors.Is(err, journal.ErrInvalid): // the act has a malformed value, such as the name of a job
		return act, &refusal{ErrInvalid, err}
	case errors.Is(err, journal.ErrTooManyActs):
		return act, &refusal{ErrTooMany, fmt.Errorf("%s: nothing was done: %w", act.Kind, err)}
	}
	return act, unavailableError(unwritten, err)
}

// notDone returns the text of the error for an act that was not carried out because its entry in the audit log could not be written.
func notDone(kind string) string {
	return kind + ": nothing was done, as the audit log cannot be written"
}

func (o *Operator) reportAct(act journal.Act) {
	if o.cfg.OnAct != nil {
		o.cfg.OnAct(act)
	}
}

// markUnchanged marks the entry of an act that changed nothing, so that the log merges such entries of one user and kind. Errors are ignored.
func (o *Operator) markUnchanged(ctx context.Context, entry journal.Act) {
	if entry.ID != "" {
		_ = o.journal.Unchanged(ctx, entry)
	}
}

// Acts returns the newest acts, from new to old. Damaged entries are left out. lost describes a loss of Redis' data that may have removed entries from the
// list, or says that the losses cannot be read. It is "" if no loss is known, if the list is full, or if the list has acts from before the loss.
func (o *Operator) Acts(ctx context.Context, most int) (acts []journal.Act, lost string, err error) {
	acts, err = o.journal.Acts(ctx, most)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, "", unavailableError("read the audit log of namespace "+o.cfg.Namespace, err)
	}
	acts = append([]journal.Act{}, acts...)
	if len(acts) >= most {
		return acts, "", nil
	}
	now, err := o.Now(ctx)
	var incidents []journal.Incident
	if err == nil {
		incidents, err = o.journal.Incidents(ctx, now)
	}
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return acts, "earlier acts may be missing: " + FirstLine(err.Error(), 200), nil
	}
	return acts, lostActs(incidents, acts), nil
}

// maxPaused is the maximum number of jobs that one round trip pauses.
const maxPaused = 500

// A Selection selects the jobs that it names, the jobs with one of its tags, or all jobs.
type Selection struct {
	Jobs []string `json:"jobs,omitempty" maxItems:"1000" doc:"names of jobs"`
	Tags []string `json:"tags,omitempty" maxItems:"100" doc:"jobs with one of these tags"`
	All  bool     `json:"all,omitempty" doc:"all jobs"`
}

// A PauseRequest selects the jobs to pause.
type PauseRequest struct {
	Selection
	Requester
	// For is the length of the pause, by the clock of Redis. 0 means until the jobs are resumed.
	For time.Duration
}

// A ResumeRequest selects the jobs to resume.
type ResumeRequest struct {
	Selection
	Requester
}

// A PausedJob is the result of a pause or resume for one job. Its JSON is part of the contract with users.
type PausedJob struct {
	Job       string     `json:"job"`
	Paused    bool       `json:"paused"`
	WasPaused bool       `json:"was_paused"`
	Since     *time.Time `json:"since,omitempty"`
	Until     *time.Time `json:"until,omitempty"` // nil if the pause lasts until the job is resumed
	Reason    string     `json:"reason,omitempty"`
	By        string     `json:"by,omitempty"` // the user who paused it
}

// Pause pauses jobs: their ticks are skipped. A job that is already paused gets the new end and reason. If Pause fails before it tries to pause a job, the list
// is nil. If it fails later, the list has the jobs that were paused.
func (o *Operator) Pause(ctx context.Context, req PauseRequest) ([]PausedJob, error) {
	if err := req.Requester.requesterFault(); err != nil {
		return nil, err
	}
	order := election.PauseOrder{For: req.For, Outcome: run.SkippedPaused, Reason: req.Reason, By: req.By}
	if err := order.Validate(); err != nil {
		return nil, &refusal{ErrInvalid, err}
	}
	return o.pauseOrResume(ctx, req.Selection, req.Requester, journal.Act{Kind: journal.ActPause}, req.For, func(jobs []string) []election.Paused {
		return o.elector.Pause(ctx, jobs, order)
	})
}

// Resume ends the pauses of jobs. Its results have the same meaning as the results of [Operator.Pause].
func (o *Operator) Resume(ctx context.Context, req ResumeRequest) ([]PausedJob, error) {
	return o.pauseOrResume(ctx, req.Selection, req.Requester, journal.Act{Kind: journal.ActResume}, 0, func(jobs []string) []election.Paused {
		return o.elector.Resume(ctx, jobs)
	})
}

// pauseOrResume calls do with the selected jobs, in batches. If some jobs fail, it continues with the others, and returns the first error.
func (o *Operator) pauseOrResume(ctx context.Context, s Selection, by Requester, act journal.Act, lasting time.Duration, do func([]string) []election.Paused) ([]PausedJob, error) {
	if err := by.requesterFault(); err != nil {
		return nil, err
	}
	jobs, everywhere, err := o.selectedJobs(ctx, s)
	if err != nil {
		return nil, err
	}
	instances, err := allInstances(ctx, o, everywhere)
	if err != nil {
		return nil, err
	}
	if act.Jobs = sortedUnion(jobs, instances); len(act.Jobs) == 0 {
		return nil, refusalError(ErrNoJobs, "no job is known in namespace %s: neither the configuration nor a replica has one", o.cfg.Namespace)
	}
	entry, err := o.auditAct(ctx, by, act, lasting, notDone(act.Kind))
	if err != nil {
		return nil, err
	}
	done, changed, fault := applyPause(jobs, do)
	// The instances are read again after their jobs are paused: a replica that registers later finds the pause of the job.
	late, err := allInstances(ctx, o, everywhere)
	if err != nil {
		return done, err
	}
	instances = slices.DeleteFunc(sortedUnion(instances, late), func(name string) bool { return slices.Contains(jobs, name) })
	more, changedMore, again := applyPause(instances, do)
	done = append(done, more...)
	slices.SortFunc(done, func(a, b PausedJob) int { return cmp.Compare(a.Job, b.Job) })
	if fault = cmp.Or(fault, again); !changed && !changedMore && fault == nil {
		o.markUnchanged(ctx, entry)
	}
	return done, pauseError(fault, len(jobs)+len(instances)-len(done))
}

func sortedUnion(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// applyPause calls do with the jobs, in batches. It returns the jobs for which that succeeded, whether one of them changed, and the first error.
func applyPause(jobs []string, do func([]string) []election.Paused) (done []PausedJob, changed bool, fault error) {
	done = []PausedJob{}
	for some := range slices.Chunk(jobs, maxPaused) {
		for _, p := range do(some) {
			switch {
			case p.Err == nil:
				done = append(done, pausedJob(p))
				changed = changed || isChange(p)
			case fault == nil:
				fault = p.Err
			}
		}
	}
	return done, changed, fault
}

// isChange reports whether a pause or resume had an effect: it began or ended a pause, or changed the end, the reason or the user of one.
func isChange(p election.Paused) bool {
	before, after := p.Before.On(p.Now), p.After.On(p.Now)
	return before != after || after && (!p.Before.Until.Equal(p.After.Until) || p.Before.Reason != p.After.Reason || p.Before.By != p.After.By)
}

func pausedJob(p election.Paused) PausedJob {
	j := PausedJob{Job: p.Job, Paused: p.After.On(p.Now), WasPaused: p.Before.On(p.Now)}
	if j.Paused {
		j.Since, j.Until, j.Reason, j.By = &p.After.From, untilOf(p.After), p.After.Reason, p.After.By
	}
	return j
}

func untilOf(p election.Pause) *time.Time {
	if p.Until.IsZero() {
		return nil
	}
	return &p.Until
}

func pauseError(err error, jobs int) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, election.ErrUnknown):
		return &refusal{ErrInvalid, err}
	}
	return unavailableError(fmt.Sprintf("no answer from Redis for %d of the jobs, so the result is unknown; run the command again", jobs), err)
}

// selectedJobs returns the names of the selected jobs. Tags and All cover the local configuration and the jobs that replicas have described. The jobs with
// per_tick = "all" among them are also in everywhere, with the labels that their replicas need.
func (o *Operator) selectedJobs(ctx context.Context, s Selection) (names []string, everywhere map[string]scheduler.Labels, err error) {
	if len(s.Jobs) == 0 && len(s.Tags) == 0 && !s.All {
		return nil, nil, refusalError(ErrInvalid, "no jobs are selected")
	}
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return nil, nil, err
	}
	tags := tagsByJob(o.cfg.Jobs, infos)
	everywhere = jobsEverywhere(o.cfg.Jobs, infos)
	var known []string
	for name, has := range tags {
		known = append(known, has...)
		if s.All || slices.Contains(s.Jobs, name) || slices.ContainsFunc(has, func(tag string) bool { return slices.Contains(s.Tags, tag) }) {
			names = append(names, name)
		}
	}
	for _, name := range s.Jobs {
		if slices.Contains(names, name) {
			continue
		}
		if err := o.mustKnow(ctx, name); err != nil {
			return nil, nil, err
		}
		// mustKnow accepts a job that tags lacks if a replica has just described it. If the local configuration is incomplete, it also accepts a job of the
		// history.
		names = append(names, name)
	}
	for _, tag := range s.Tags {
		if !slices.Contains(known, tag) {
			return nil, nil, unknownTag(tag, known)
		}
	}
	maps.DeleteFunc(everywhere, func(name string, _ scheduler.Labels) bool { return !slices.Contains(names, name) })
	slices.Sort(names)
	return slices.Compact(names), everywhere, nil
}

// tagsByJob returns the tags of the jobs. A job with per_tick = "all" has the tags of its instances.
func tagsByJob(local []ConfiguredJob, infos []journal.JobInfo) map[string][]string {
	tags := map[string][]string{}
	for _, j := range local {
		tags[j.Name] = j.Tags
	}
	for _, info := range infos {
		tags[info.Name] = slices.Concat(tags[info.Name], info.Tags)
		if info.Of != "" {
			tags[info.Of] = slices.Concat(tags[info.Of], info.Tags)
		}
	}
	return tags
}

func unknownTag(tag string, known []string) error {
	if near := Nearest(tag, known); near != "" {
		return refusalError(ErrUnknownTag, "no job has the tag %q; did you mean %q?", tag, near)
	}
	return refusalError(ErrUnknownTag, "no job has the tag %q", tag)
}

// A CancelRequest selects the runs to stop.
type CancelRequest struct {
	Requester
	Job string `json:"-"`
	// Run is the id of one run; "" for all runs of the job.
	Run string `json:"run_id,omitempty" maxLength:"128" doc:"id of one run (default: all of the job)"`
}

// A CanceledRun is a run whose replica was asked to stop it. Its JSON is part of the contract with users.
type CanceledRun struct {
	RunID   string     `json:"run_id"`
	Job     string     `json:"job"`
	Replica string     `json:"replica"`
	Slot    int        `json:"slot"`
	Token   int64      `json:"token"`
	Tick    *time.Time `json:"tick,omitempty"`
}

// Cancel asks the replicas to stop runs of a job, and does not wait until they have stopped. With a quorum, the audit log is in another Redis than the locks.
// So Cancel stops runs even if the log cannot be written, and then returns both the runs and an error. If nothing runs, it returns no error. If the request
// names a run that is not in progress, it returns [ErrUnknownRun]. The list is never nil.
func (o *Operator) Cancel(ctx context.Context, req CancelRequest) ([]CanceledRun, error) {
	if err := req.requesterFault(); err != nil {
		return []CanceledRun{}, err
	}
	var unknown *UnknownJobError
	jobs := []string{req.Job}
	switch err := o.mustKnow(ctx, req.Job); {
	case errors.As(err, &unknown) && len(unknown.Instances) > 0:
		jobs = unknown.Instances
	case errors.As(err, &unknown) && !unknown.Removed: // a removed job may still have runs
		return []CanceledRun{}, err
	}
	entry, unaudited := o.auditAct(ctx, req.Requester, journal.Act{Kind: journal.ActCancel, Jobs: jobs, RunID: req.Run}, 0,
		"the runs will stop, but the audit log cannot be written")
	if errors.Is(unaudited, ErrInvalid) {
		return []CanceledRun{}, unaudited
	}
	canceled, err := cancelRuns(ctx, o.elector, jobs, req.Run)
	if unaudited != nil && (len(canceled) > 0 || errors.Is(err, election.ErrUnknown)) {
		o.reportAct(entry)
	}
	switch {
	case errors.Is(err, election.ErrUnknown):
		return canceled, unavailableError("cancel job "+req.Job, err)
	case err != nil: // the name of the job is malformed
		return canceled, &refusal{ErrInvalid, err}
	case len(canceled) > 0 && unaudited != nil:
		return canceled, unaudited
	case len(canceled) > 0:
		return canceled, nil
	}
	if unaudited == nil {
		o.markUnchanged(ctx, entry)
	}
	if err := o.mustKnow(ctx, req.Job); err != nil && len(jobs) == 1 && jobs[0] == req.Job {
		return canceled, err
	}
	if req.Run != "" {
		return canceled, refusalError(ErrUnknownRun, "job %s has no run %s that is under way", req.Job, req.Run)
	}
	return canceled, nil
}

// cancelRuns asks the replicas to stop runs of jobs. After an error it continues with the other jobs, and returns the first error.
func cancelRuns(ctx context.Context, elector *election.Elector, jobs []string, run string) (canceled []CanceledRun, fault error) {
	canceled = []CanceledRun{}
	for _, job := range jobs {
		runs, err := elector.Cancel(ctx, job, run)
		fault = cmp.Or(fault, err)
		for _, r := range runs {
			canceled = append(canceled, CanceledRun{RunID: r.ID, Job: job, Replica: r.Holder, Slot: r.Slot, Token: int64(r.Token), Tick: tickOf(r)})
		}
	}
	return canceled, fault
}

// ErrNotLost means that no lost replica has the name.
var ErrNotLost = errors.New("not a lost replica")

// Forget removes a lost replica from the status, because the replica will not return. It refuses to remove a replica that is up.
func (o *Operator) Forget(ctx context.Context, name string, by Requester) error {
	if err := by.requesterFault(); err != nil {
		return err
	}
	up, err := o.journal.Replicas(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return unavailableError("read the replicas", err)
	}
	if slices.ContainsFunc(up, func(e journal.Replica) bool { return e.Name == name }) {
		return refusalError(ErrNotLost, "replica %s is registered, so it is up, or was 15 seconds ago: nothing was done; stop it first", name)
	}
	lost, ids, err := o.lostReplicas(ctx, journal.MaxLost)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return unavailableError("read the lost replicas", err)
	}
	if !slices.ContainsFunc(lost, func(l journal.NamedLost) bool { return l.Name == name }) {
		var names []string
		for _, l := range lost {
			names = append(names, l.Name)
		}
		if near := Nearest(name, names); near != "" {
			return refusalError(ErrNotLost, "no lost replica %q; did you mean %q?", name, near)
		}
		return refusalError(ErrNotLost, "no lost replica %q; cronclave status lists the lost ones", name)
	}
	if _, err := o.auditAct(ctx, by, journal.Act{Kind: journal.ActForget, Jobs: []string{}, Replica: name}, 0, notDone(journal.ActForget)); err != nil {
		return err
	}
	if err := o.journal.ForgetLost(ctx, name, ids[name]...); err != nil && !errors.Is(err, journal.ErrCorrupt) { // a damaged key has no list of replicas, so there is no entry to remove
		return unavailableError("forget replica "+name, err)
	}
	return nil
}

// lostReplicas returns the lost replicas, at most most of the recorded ones. A leader may not have recorded a loss yet: missing maps the names of such replicas to their ids. If the error wraps
// [journal.ErrCorrupt], the results lack only damaged entries.
func (o *Operator) lostReplicas(ctx context.Context, most int) (lost []journal.NamedLost, missing map[string][]string, err error) {
	lost, damaged := o.journal.RecentlyLost(ctx, most)
	unnoted, more := o.journal.LostReplicas(ctx)
	for _, err := range []error{damaged, more} {
		if err != nil && !errors.Is(err, journal.ErrCorrupt) {
			return nil, nil, err //nolint:wrapcheck // the error names the operation
		}
	}
	missing = map[string][]string{}
	for _, m := range unnoted {
		name := journal.NameOf(m.ID)
		missing[name] = append(missing[name], m.ID)
		if !slices.ContainsFunc(lost, func(l journal.NamedLost) bool { return l.Name == name }) {
			lost = append(lost, journal.NamedLost{Name: name, Seen: m.Seen})
		}
	}
	return lost, missing, multierr.Join(damaged, more)
}
