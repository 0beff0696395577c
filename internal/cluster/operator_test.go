package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/locking"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an empty cluster on a Redis of its own.
type cluster struct {
	server  *embedded.Server
	conn    *redisconn.Conn
	journal *journal.Journal
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	s, conn, j := redistest.StartJournal(t)
	return &cluster{s, conn, j}
}

// operator returns an operator of the cluster.
func (c *cluster) operator(t *testing.T, cfg Config) *Operator {
	t.Helper()
	cfg.Conn, cfg.Journal, cfg.Namespace = c.conn, c.journal, "default"
	o, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// elector returns the elector of a replica.
func (c *cluster) elector(t *testing.T, replica string) *election.Elector {
	t.Helper()
	locks, err := locking.New(c.conn.LockConfig("default", replica))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	e, err := election.New(election.Config{Locks: locks})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// describe has a replica describe jobs, which are enabled and run daily.
func (c *cluster) describe(t *testing.T, jobs ...journal.JobInfo) {
	t.Helper()
	for i := range jobs {
		jobs[i].Schedule, jobs[i].Timezone, jobs[i].Seen = []string{"@daily"}, "UTC", time.Now()
	}
	if err := c.journal.DescribeJobs(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) register(t *testing.T, r journal.Replica) {
	t.Helper()
	r.ID, r.Started, r.Seen = "id-"+r.Name, time.Now(), time.Now()
	if _, err := c.journal.Register(t.Context(), r, time.Minute); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) record(t *testing.T, records ...journal.Record) {
	t.Helper()
	if err := c.journal.Record(t.Context(), records); err != nil {
		t.Fatal(err)
	}
}

// ended is the record of a run that has ended.
func ended(job, run string) journal.Record {
	output := "hello\n"
	now := time.Now()
	return journal.Record{RunID: run, Job: job, Token: 1, Replica: "a", Outcome: "ok", Started: now, Finished: now, Output: &output}
}

// A refused request has a reason and a text.
func TestErrorsHaveReasons(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true, Tags: []string{"disk"}, Where: map[string]string{"zone": "b"}}, journal.JobInfo{Name: "off"})
	c.register(t, journal.Replica{Name: "a", Labels: map[string]string{"zone": "a"}})
	c.record(t, ended("removed", "run-1"))
	o := c.operator(t, Config{Jobs: []ConfiguredJob{{Name: "fresh", Tags: []string{"new"}}}})
	ctx := t.Context()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	trigger := func(job string, tick time.Time) error {
		_, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: job, Tick: tick})
		return err
	}
	pause := func(s Selection) error {
		done, err := o.Pause(ctx, PauseRequest{Selection: s, Requester: ann})
		if done != nil {
			t.Errorf("%v: paused %v", s, done)
		}
		return err
	}
	history := func(job string) error {
		_, err := o.History(ctx, HistoryRequest{Job: job, Limit: 1})
		return err
	}
	logs := func(job, run string) error {
		_, err := o.Logs(ctx, LogsRequest{Job: job, Run: run, Limit: 1})
		return err
	}
	cancel := func(job, run string) error {
		_, err := o.Cancel(ctx, CancelRequest{Requester: ann, Job: job, Run: run})
		return err
	}
	for _, tt := range []struct {
		err, reason error
		text        string
	}{
		{trigger("bakcup", time.Time{}), ErrUnknownJob, `no job "bakcup"; did you mean "backup"?`},
		{trigger("fresh", time.Time{}), ErrNoReplica, "job fresh: no replica has it"},
		{trigger("off", time.Time{}), ErrDisabled, "job off is not enabled, so no replica has it"},
		{trigger("backup", noon), ErrNotATick, "2026-03-01T12:00:00Z is no tick of job backup; the last one before it is 2026-03-01T00:00:00Z"},
		{trigger("backup", noon.Add(-12*time.Hour)), ErrNoReplica, "job backup: no replica is there that could run it"},
		{pause(Selection{Jobs: []string{"vacuum"}}), ErrUnknownJob, `no job "vacuum"`},
		{pause(Selection{Tags: []string{"disc"}}), ErrUnknownTag, `no job has the tag "disc"; did you mean "disk"?`},
		{pause(Selection{}), ErrInvalid, "no jobs are selected"},
		{history("vacuum"), ErrUnknownJob, `no job "vacuum"`},
		{history("fresh"), nil, ""},
		{cancel("removed", ""), ErrUnknownJob, `job "removed" has runs in the history but is no longer configured, here or on any replica`},
		{cancel("backup", "run-1"), ErrUnknownRun, "job backup has no run run-1 that is under way"},
		{cancel("a}b", ""), ErrUnknownJob, `no job "a}b"`},
		{logs("removed", ""), nil, ""},
		{logs("removed", "run-2"), ErrUnknownRun, `job removed has no run "run-2" in the history`},
		{o.Follow(ctx, FollowRequest{Job: "vacuum"}, Viewer{}), ErrUnknownJob, `no job "vacuum"`},
	} {
		if !errors.Is(tt.err, tt.reason) || tt.err != nil && tt.text != "" && tt.err.Error() != tt.text {
			t.Errorf("%v, want %q for the reason %v", tt.err, tt.text, tt.reason)
		}
	}
	incomplete := c.operator(t, Config{Incomplete: true})
	if _, err := incomplete.Cancel(ctx, CancelRequest{Requester: ann, Job: "removed"}); err != nil {
		t.Errorf("a configuration that cannot be read may have it: %v", err)
	}
}

// TestNothingIsDoneWithoutRedis looks at the errors of each operation.
func TestNothingIsDoneWithoutRedis(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	c.server.Close()
	ctx, all := t.Context(), Selection{All: true}
	for name, do := range map[string]func() error{
		"status":  func() error { _, err := o.Status(ctx, StatusRequest{}); return err },
		"history": func() error { _, err := o.History(ctx, HistoryRequest{}); return err },
		"logs":    func() error { _, err := o.Logs(ctx, LogsRequest{Job: "backup"}); return err },
		"follow":  func() error { return o.Follow(ctx, FollowRequest{Job: "backup"}, Viewer{}) },
		"trigger": func() error { _, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: "backup"}); return err },
		"cancel":  func() error { _, err := o.Cancel(ctx, CancelRequest{Requester: ann, Job: "backup"}); return err },
		"pause":   func() error { _, err := o.Pause(ctx, PauseRequest{Selection: all, Requester: ann}); return err },
		"resume":  func() error { _, err := o.Resume(ctx, ResumeRequest{all, ann}); return err },
		"forget":  func() error { return o.Forget(ctx, "node-7", ann) },
		"next":    func() error { _, err := o.NextTicks(ctx, nil, Window{Limit: 1}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := do()
			var away *UnavailableError
			if !errors.Is(err, ErrUnavailable) || !errors.As(err, &away) || !strings.HasPrefix(err.Error(), away.Doing+": ") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOperatorSteers pauses a job, stops its run, and resumes it, as the status shows.
func TestOperatorSteers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true, Tags: []string{"disk"}}, journal.JobInfo{Name: "report", Enabled: true})
	c.register(t, journal.Replica{Name: "a"})
	o, ctx := c.operator(t, Config{}), t.Context()
	result := c.elector(t, "a").Claim(ctx, []election.Claim{{Lock: election.JobLock("backup"), ID: "run-1", Slots: 1, Trigger: "manual", Lease: time.Minute}})[0]
	if election.TermOf(result) == nil {
		t.Fatalf("%+v", result)
	}
	paused, err := o.Pause(ctx, PauseRequest{Selection{Tags: []string{"disk"}}, Requester{"ann", "new disks"}, time.Hour})
	if err != nil || len(paused) != 1 || !paused[0].Paused || paused[0].WasPaused || paused[0].Until.Sub(*paused[0].Since) != time.Hour {
		t.Errorf("%+v %v", paused, err)
	}
	st, err := o.Status(ctx, StatusRequest{})
	if err != nil || len(st.Replicas) != 1 || len(st.Jobs) != 2 {
		t.Fatalf("%+v %v", st, err)
	}
	backup, report := st.Jobs[0], st.Jobs[1]
	if !backup.Paused || backup.PausedReason != "new disks" || backup.PausedBy != "ann" || len(backup.Holders) != 1 || backup.Holders[0].Replica != "a" || backup.Next == nil {
		t.Errorf("%+v", backup)
	}
	if report.Paused || report.Holders == nil || len(report.Holders) > 0 {
		t.Errorf("%+v", report)
	}
	canceled, err := o.Cancel(ctx, CancelRequest{Requester: ann, Job: "backup"})
	if err != nil || len(canceled) != 1 || canceled[0].RunID != "run-1" || canceled[0].Replica != "a" || canceled[0].Tick != nil {
		t.Errorf("%+v %v", canceled, err)
	}
	resumed, err := o.Resume(ctx, ResumeRequest{Selection{Jobs: []string{"report", "backup"}}, ann})
	if err != nil || len(resumed) != 2 || resumed[0].Job != "backup" || !resumed[0].WasPaused || resumed[0].Paused || resumed[1].WasPaused {
		t.Errorf("%+v %v", resumed, err)
	}
}

// TestTriggerFromRequestToEnd plays the replica: it answers a request, and has a run that prints and ends.
func TestTriggerFromRequestToEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
	c.register(t, journal.Replica{Name: "a"})
	o, ctx := c.operator(t, Config{}), t.Context()
	asked, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: "backup", Follow: true})
	if err != nil || len(asked) != 1 || asked[0].By != "ann" {
		t.Fatalf("%+v %v", asked, err)
	}
	r := asked[0].Request
	if followed, err := c.journal.Followed(ctx, []string{"backup"}); err != nil || len(followed) != 1 {
		t.Errorf("nobody is known to follow: %v", err)
	}
	over, end := context.WithCancelCause(ctx)
	end(io.EOF)
	if _, err := o.AwaitStart(over, r, nil); !errors.Is(err, ErrNotStarted) || !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if err := c.journal.Answer(ctx, journal.Answer{Request: r.ID, Outcome: journal.OutcomeRunning, Replica: "a", RunID: "run-1"}); err != nil {
		t.Fatal(err)
	}
	triggered, err := o.AwaitStart(ctx, r, nil)
	if err != nil || !triggered.Started() || triggered.RunID != "run-1" || triggered.Replica != "a" {
		t.Fatalf("%+v %v", triggered, err)
	}
	chunk := journal.Chunk{Lines: []journal.Line{{Text: "hello"}, {Text: "oh", Stderr: true}}, End: true}
	if _, err := c.journal.Publish(ctx, "backup", "run-1", chunk); err != nil {
		t.Fatal(err)
	}
	c.record(t, ended("backup", "run-1"))
	var lines []string
	view := Viewer{Line: func(l OutputLine) { lines = append(lines, l.RunID+" "+l.Stream+" "+l.Line) }}
	if err := o.AwaitEnd(ctx, triggered, view); err != nil {
		t.Fatal(err)
	}
	if want := []string{"run-1 stdout hello", "run-1 stderr oh"}; !slices.Equal(lines, want) {
		t.Errorf("printed %q, want %q", lines, want)
	}
	if !triggered.Started() || triggered.Outcome != "ok" || triggered.Run == nil || triggered.Run.RunID != "run-1" {
		t.Errorf("%+v", triggered)
	}
}

// Requests with the same id of the caller, job and tick are one, while it waits and once it was answered.
func TestTriggerAgainWithTheSameID(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true}, journal.JobInfo{Name: "report", Enabled: true})
	c.register(t, journal.Replica{Name: "a"})
	o, ctx := c.operator(t, Config{}), t.Context()
	trigger := func(job, id string) journal.Request {
		t.Helper()
		asked, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: job, ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return asked[0].Request
	}
	first, again := trigger("backup", "deploy 7"), trigger("backup", "deploy 7")
	if first.ID != again.ID || !first.Expires.Equal(again.Expires) {
		t.Errorf("%+v, then %+v", first, again)
	}
	if others := []string{trigger("report", "deploy 7").ID, trigger("backup", "deploy 8").ID, trigger("backup", "").ID, trigger("backup", "").ID}; slices.Contains(others, first.ID) || others[2] == others[3] {
		t.Errorf("%s is one with %q", first.ID, others)
	}
	if waiting, err := c.journal.Requests(ctx); err != nil || len(waiting) != 5 {
		t.Errorf("%d wait, want 5: %v", len(waiting), err)
	}
	if err := c.journal.Answer(ctx, journal.Answer{Request: first.ID, Outcome: journal.OutcomeRunning, Replica: "a", RunID: "run-1"}); err != nil {
		t.Fatal(err)
	}
	late := trigger("backup", "deploy 7")
	if late.ID != first.ID {
		t.Errorf("after the answer it is request %s, not %s", late.ID, first.ID)
	}
	if done, err := o.AwaitStart(ctx, late, nil); err != nil || done.RunID != "run-1" {
		t.Errorf("after the answer: %+v, %v", done, err)
	}
	if waiting, err := c.journal.Requests(ctx); err != nil || len(waiting) != 4 {
		t.Errorf("%d wait after the answer, want 4: %v", len(waiting), err)
	}
	acts, _, err := o.Acts(ctx, 100)
	if err != nil || len(acts) != 5 {
		t.Errorf("%d acts, want those of the five requests: %v", len(acts), err)
	}
	bob, err := o.Trigger(ctx, TriggerRequest{Requester: Requester{By: "bob"}, Job: "backup", ID: "deploy 7"})
	if err != nil || bob[0].ID == first.ID {
		t.Errorf("a request of another user: %+v, %v", bob, err)
	}
}

// A request with an id that was cut off before it was published is refused as any other while too many wait.
func TestTriggerAgainWhileTooManyWait(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
	c.register(t, journal.Replica{Name: "a"})
	o, ctx := c.operator(t, Config{}), t.Context()
	for i := range journal.MaxRequests {
		if _, err := c.journal.Ask(ctx, journal.Request{ID: "request-" + strconv.Itoa(i), Job: "backup"}, journal.MaxRequestLife); err != nil {
			t.Fatal(err)
		}
	}
	for _, which := range []string{"first", "second"} {
		_, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: "backup", ID: "deploy 7"})
		if !errors.Is(err, ErrTooMany) || errors.Is(err, ErrUnavailable) {
			t.Errorf("the %s time: %v, want %v", which, err, ErrTooMany)
		}
	}
}

// Concurrent requests with the same id are one, also for replicas that receive it more than once.
func TestTriggersWithTheSameIDAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
	c.register(t, journal.Replica{Name: "a"})
	o, ctx := c.operator(t, Config{}), t.Context()
	made := make([]journal.Request, 8)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			asked, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: "backup", ID: "x"})
			if err != nil {
				t.Error(err)
				return
			}
			made[i] = asked[0].Request
		})
	}
	all.Wait()
	for _, r := range made {
		if r.ID != made[0].ID || !r.Created.Equal(made[0].Created) {
			t.Errorf("%+v is not %+v", r, made[0])
		}
	}
	if waiting, err := c.journal.Requests(ctx); err != nil || len(waiting) != 1 || !waiting[0].Created.Equal(made[0].Created) {
		t.Errorf("%+v wait: %v", waiting, err)
	}
}

// The next ticks are those of all described jobs, without jobs that have no ticks.
func TestNextTicksOfDescribedJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "b", Enabled: true}, journal.JobInfo{Name: "a", Enabled: true}, journal.JobInfo{Name: "off"},
		journal.JobInfo{Name: "later", Enabled: true, After: []string{"a"}})
	o := c.operator(t, Config{})
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		names []string
		want  string
	}{{nil, "a 02, b 02, a 03"}, {[]string{"b"}, "b 02, b 03"}, {[]string{"off"}, ""}} {
		ticks, err := o.NextTicks(t.Context(), tt.names, Window{From: day, Until: day.AddDate(0, 0, 2), Limit: 3})
		var got []string
		for _, tick := range ticks {
			got = append(got, tick.Job+tick.At.Format(" 02"))
		}
		if strings.Join(got, ", ") != tt.want || err != nil {
			t.Errorf("of %v: %v %v, want %s", tt.names, got, err, tt.want)
		}
	}
	if _, err := o.NextTicks(t.Context(), []string{"c"}, Window{Limit: 1}); !errors.Is(err, ErrUnknownJob) {
		t.Error(err)
	}
}

// TestJSONHasNoNullLists: clients of the JSON read lists, also where they are empty.
func TestJSONHasNoNullLists(t *testing.T) {
	t.Parallel()
	o, ctx := newCluster(t).operator(t, Config{}), t.Context()
	st, err := o.Status(ctx, StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := o.History(ctx, HistoryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{st, h.Records} {
		if text, err := json.Marshal(v); err != nil || strings.Contains(string(text), "null") {
			t.Errorf("%s %v", text, err)
		}
	}
}

// commands counts the commands of a client that it is for, and has them fail if it has an error.
type commands struct {
	counted func(args []any) bool
	n       atomic.Int64
	failing error
}

// count counts the commands of a cluster's client from now on.
func (c *cluster) count(t *testing.T, counted func(args []any) bool) *commands {
	t.Helper()
	h := &commands{counted: counted}
	c.conn.AddHook(h)
	return h
}

func (h *commands) add(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if h.counted(cmd.Args()) {
			h.n.Add(1)
		}
	}
}

func (h *commands) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.add(cmd); h.failing != nil && h.counted(cmd.Args()) {
			cmd.SetErr(h.failing)
			return h.failing
		}
		return next(ctx, cmd)
	}
}

func (h *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.add(cmds...)
		return next(ctx, cmds)
	}
}

func TestNearestName(t *testing.T) {
	t.Parallel()
	names := []string{"backup", "nightly-backup", "report", "b"}
	for typed, want := range map[string]string{
		"bakcup": "backup", "Backup": "backup", "nightly": "nightly-backup", "nihgtly-backup": "nightly-backup",
		"reprot": "report", "re": "report", "x": "b", "vacuum": "", "c2": "", "nosuch": "",
	} {
		if got := Nearest(typed, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", typed, got, want)
		}
	}
	if got := Nearest("x", nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}

// TestFailedStatusNamesServers: without a status, its error is the only place that shows which servers of Redis are ill.
func TestFailedStatusNamesServers(t *testing.T) {
	t.Parallel()
	cause := errors.New("i/o timeout")
	away, full := RedisServer{Address: "a", State: "away", Fault: "refused"}, RedisServer{Address: "b", State: "read-only", Fault: "it is full"}
	up := RedisServer{Address: "c", State: RedisUp}
	for want, servers := range map[string][]RedisServer{
		"i/o timeout":                              {up, up},
		"i/o timeout (a is away: refused)":         {up, away, up},
		"i/o timeout (b is read-only: it is full)": {full},
		"i/o timeout (a is away: refused; b is read-only: it is full; a is away: refused; and 2 more)": {away, full, away, full, away},
	} {
		if err := withServers(cause, servers); err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := withServers(cause, []RedisServer{away}); err.Error() != cause.Error() {
		t.Errorf("the only server is away: %v", err)
	}
}
