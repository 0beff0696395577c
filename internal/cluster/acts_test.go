package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/redis/go-redis/v9"
)

var ann = Requester{By: "ann"}

// TestAudit has each act done once, and the audit log then has all of them.
func TestAudit(t *testing.T) {
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true}, journal.JobInfo{Name: "report", Enabled: true})
	c.register(t, journal.Replica{Name: "r1"})
	o, ctx := c.operator(t, Config{}), t.Context()
	because := Requester{By: "ann", Reason: "new disks"}
	tick := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, act := range []func() error{
		func() error {
			_, err := o.Trigger(ctx, TriggerRequest{Requester: because, Job: "backup", Tick: tick})
			return err
		},
		func() error { _, err := o.Cancel(ctx, CancelRequest{Requester: because, Job: "backup"}); return err },
		func() error {
			_, err := o.Pause(ctx, PauseRequest{Selection{All: true}, because, time.Hour})
			return err
		},
		func() error {
			_, err := o.Resume(ctx, ResumeRequest{Selection{Jobs: []string{"report"}}, because})
			return err
		},
	} {
		if err := act(); err != nil {
			t.Fatal(err)
		}
	}
	acts, _, err := o.Acts(ctx, 10)
	if err != nil || len(acts) != 4 {
		t.Fatalf("%d acts, %v", len(acts), err)
	}
	slices.SortFunc(acts, func(a, b journal.Act) int { return strings.Compare(a.Kind, b.Kind) }) // within a millisecond their order is not known
	for i, want := range []journal.Act{{Kind: "cancel", Jobs: []string{"backup"}}, {Kind: "pause", Jobs: []string{"backup", "report"}}, {Kind: "resume", Jobs: []string{"report"}}, {Kind: "trigger", Jobs: []string{"backup"}}} {
		got := acts[i]
		if got.Kind != want.Kind || !slices.Equal(got.Jobs, want.Jobs) || got.JobCount != len(want.Jobs) || got.By != "ann" || got.Reason != "new disks" || got.ID == "" || got.Time.IsZero() {
			t.Errorf("act %+v, want %+v", got, want)
		}
	}
	if until := acts[1].Until; until == nil || until.Sub(acts[1].Time) != time.Hour {
		t.Errorf("the pause lasts until %v", until)
	}
	if got := acts[3].Tick; got == nil || !got.Equal(tick) {
		t.Errorf("tick %v was run again", got)
	}
}

// TestActsWithoutIncidents keeps the acts if the incidents or the clock cannot be read, and says what is not known then.
func TestActsWithoutIncidents(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup"})
	o, clockless := c.operator(t, Config{}), c.operator(t, Config{})
	if _, err := o.Pause(t.Context(), PauseRequest{Selection{All: true}, Requester{By: "ann"}, 0}); err != nil {
		t.Fatal(err)
	}
	c.count(t, func(args []any) bool { return strings.HasSuffix(fmt.Sprint(args...), ":incidents") }).failing = errors.New("no answer")
	acts, lost, err := o.Acts(t.Context(), 10)
	if err != nil || len(acts) != 1 || lost != "earlier acts may be missing: read the incidents of Redis: no answer" {
		t.Errorf("%+v, %q, %v", acts, lost, err)
	}
	if acts, lost, err := o.Acts(t.Context(), 1); err != nil || len(acts) != 1 || lost != "" {
		t.Errorf("a full list: %+v, %q, %v", acts, lost, err)
	}
	c.count(t, func(args []any) bool { return !strings.Contains(fmt.Sprint(args...), ":audit") }).failing = errors.New("no answer")
	if acts, lost, err := clockless.Acts(t.Context(), 10); err != nil || len(acts) != 1 || !strings.HasPrefix(lost, "earlier acts may be missing: read the clock of Redis: ") {
		t.Errorf("without a clock: %+v, %q, %v", acts, lost, err)
	}
}

// TestActsWithoutAName refuses acts that the audit log could not be true about, and does nothing.
func TestActsWithoutAName(t *testing.T) {
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
	o, ctx := c.operator(t, Config{}), t.Context()
	for _, by := range []Requester{{}, {By: "ann", Reason: "two\nlines"}, {By: "ann", Reason: strings.Repeat("x", 201)}} {
		if _, err := o.Pause(ctx, PauseRequest{Selection{All: true}, by, 0}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", by, err)
		}
		if _, err := o.Cancel(ctx, CancelRequest{Requester: by, Job: "backup"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", by, err)
		}
		if _, err := o.Trigger(ctx, TriggerRequest{Requester: by, Job: "backup"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", by, err)
		}
	}
	if acts, _, err := o.Acts(ctx, 10); err != nil || len(acts) != 0 {
		t.Errorf("acts %v, %v", acts, err)
	}
	st, err := o.Status(ctx, StatusRequest{})
	if err != nil || st.Jobs[0].Paused {
		t.Errorf("paused: %v, %v", st.Jobs, err)
	}
}

// TestUnauditedCancelIsReported: the audit log is in another Redis, which is away. The runs are stopped all the same, so the replica's log has the act.
func TestUnauditedCancelIsReported(t *testing.T) {
	t.Parallel()
	locks, history := newCluster(t), newCluster(t)
	history.server.Close()
	var reported []journal.Act
	o := (&cluster{locks.server, locks.conn, history.journal}).operator(t, Config{OnAct: func(a journal.Act) { reported = append(reported, a) }})
	ctx, req := t.Context(), CancelRequest{Requester: Requester{By: "ann", Reason: "it hangs"}, Job: "backup"}
	if canceled, _ := o.Cancel(ctx, req); len(canceled) != 0 || len(reported) != 0 {
		t.Fatalf("nothing runs: %+v, reported %+v", canceled, reported)
	}
	locks.run(t, locks.elector(t, "a"), "backup", "run-1")
	canceled, err := o.Cancel(ctx, req)
	if len(canceled) != 1 || !errors.Is(err, ErrUnavailable) || !strings.HasPrefix(err.Error(), "the runs will stop, but ") || strings.Contains(err.Error(), "nothing was done") {
		t.Errorf("%+v, %v", canceled, err)
	}
	if len(reported) != 1 || reported[0].Kind != journal.ActCancel || reported[0].By != "ann" || reported[0].Reason != "it hangs" || !slices.Equal(reported[0].Jobs, []string{"backup"}) {
		t.Errorf("reported %+v", reported)
	}
}

// TestNoUserEmptiesTheAuditLog: acts that change nothing have one entry for each user and kind, and each user has a rate, which never
// refuses one that stops something. An act of before stays.
func TestNoUserEmptiesTheAuditLog(t *testing.T) {
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
	c.register(t, journal.Replica{Name: "r1"})
	o, ctx := c.operator(t, Config{}), t.Context()
	if _, err := o.Pause(ctx, PauseRequest{Selection{All: true}, Requester{By: "eve", Reason: "no backup tonight"}, 0}); err != nil {
		t.Fatal(err)
	}
	idle := []func(i int) error{
		func(i int) error {
			_, err := o.Cancel(ctx, CancelRequest{Requester: Requester{By: "eve", Reason: fmt.Sprint(i)}, Job: "backup"})
			return err
		},
		func(i int) error {
			_, err := o.Cancel(ctx, CancelRequest{Requester: Requester{By: "eve"}, Job: "backup", Run: fmt.Sprint("none-", i)})
			if errors.Is(err, ErrUnknownRun) {
				return nil
			}
			return err
		},
		func(int) error {
			_, err := o.Pause(ctx, PauseRequest{Selection{All: true}, Requester{By: "eve", Reason: "no backup tonight"}, 0})
			return err
		},
	}
	allowed, refused := 1, 0
	stop := func(i int) {
		if err := idle[i%len(idle)](i); err != nil {
			t.Fatalf("stop %d: %v", i, err)
		}
		allowed++
	}
	for i := range 3 * journal.ActsAMinute {
		stop(i)
	}
	for range 3 * journal.ActsAMinute {
		switch _, err := o.Resume(ctx, ResumeRequest{Selection{All: true}, Requester{By: "eve"}}); {
		case err == nil:
			allowed++
		case errors.Is(err, ErrTooMany):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if resumed := 3*journal.ActsAMinute - refused; resumed > 2*journal.ActsAMinute || resumed == 0 { // a minute may end meanwhile
		t.Errorf("%d resumptions were allowed, %d refused", resumed, refused)
	}
	stop(0)
	stop(1)
	if _, err := o.Resume(ctx, ResumeRequest{Selection{All: true}, ann}); err != nil {
		t.Errorf("another user: %v", err)
	}
	acts, _, err := o.Acts(ctx, journal.MaxActs)
	if err != nil || len(acts) != 6 {
		t.Fatalf("%d entries, want the pause, the resumption and four of acts that changed nothing: %+v, %v", len(acts), acts, err)
	}
	counted, pauses := 0, 0
	for _, a := range acts {
		counted += max(a.Unchanged, 1)
		if a.Kind == journal.ActPause && a.Unchanged == 0 && a.Reason == "no backup tonight" {
			pauses++
		}
	}
	if counted != allowed+1 || pauses != 1 {
		t.Errorf("the log counts %d acts, want %d; it has %d pauses that changed something: %+v", counted, allowed+1, pauses, acts)
	}
}

// TestStopsBeyondTheRate: beyond the number of a day, pauses that change something are made and have one entry, the newest, of their user.
func TestStopsBeyondTheRate(t *testing.T) {
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
	o, ctx := c.operator(t, Config{}), t.Context()
	options, err := redis.ParseURL(c.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	for _, day := range []time.Time{time.Now(), time.Now().Add(24 * time.Hour)} { // midnight may pass meanwhile
		if err := client.HSet(ctx, "cronclave:default:acts:"+day.UTC().Format(time.DateOnly), "stops of eve", journal.ActsADay-2).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		jobs, err := o.Pause(ctx, PauseRequest{Selection{All: true}, Requester{By: "eve", Reason: fmt.Sprint(i)}, 0})
		if err != nil || len(jobs) != 1 || jobs[0].Reason != fmt.Sprint(i) {
			t.Fatalf("pause %d: %+v, %v", i, jobs, err)
		}
	}
	acts, _, err := o.Acts(ctx, journal.MaxActs)
	if err != nil || len(acts) != 3 || acts[0].Reason != "9" || acts[1].Reason != "1" || acts[2].Reason != "0" {
		t.Errorf("the log has %+v, %v; want two pauses up to the number of the day, and the newest", acts, err)
	}
}

// TestLaterEntriesPushNobodyOut: a thousand entries of a clock that was ahead neither hide nor remove the entry of an act.
func TestLaterEntriesPushNobodyOut(t *testing.T) {
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
	o, ctx := c.operator(t, Config{}), t.Context()
	const key = "cronclave:default:audit"
	options, err := redis.ParseURL(c.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	ahead := time.Now().Add(1000 * time.Hour)
	var members []redis.Z
	for i := range journal.MaxActs + 1 {
		members = append(members, redis.Z{Score: float64(ahead.UnixMilli() + int64(i)), Member: fmt.Sprintf(`{"id":"e%d","time":%q,"by":"eve","act":"resume","jobs":["backup"],"job_count":1}`, i, ahead.UTC().Format(time.RFC3339))})
	}
	if err := client.ZAdd(ctx, key, members...).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Pause(ctx, PauseRequest{Selection{All: true}, ann, 0}); err != nil {
		t.Fatal(err)
	}
	acts, _, err := o.Acts(ctx, 1)
	if err != nil || len(acts) != 1 || acts[0].By != "ann" {
		t.Errorf("the newest act: %+v, %v", acts, err)
	}
	if n := client.ZCard(context.Background(), key).Val(); n < journal.MaxActs {
		t.Errorf("%d entries are left", n)
	}
}

// lose has a replica disappear whose registration expired: by a leader that noted it, or not yet.
func (c *cluster) lose(t *testing.T, name string, ago time.Duration, noted bool) {
	t.Helper()
	id, seen := name+"-abcdefgh", time.Now().Add(-ago)
	if _, err := c.journal.Register(t.Context(), journal.Replica{ID: id, Name: name, Started: seen, Seen: seen}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.conn.Del(t.Context(), "cronclave:default:replica:"+id).Err(); err != nil { // as at the end of its time to live
		t.Fatal(err)
	}
	if !noted {
		return
	}
	if claimed, err := c.journal.ClaimLost(t.Context(), journal.LostReplica{ID: id, Seen: seen}); err != nil || !claimed {
		t.Fatal(err, claimed)
	}
}

func (c *cluster) problems(t *testing.T, o *Operator) (found []string, needsPerson bool) {
	t.Helper()
	st, err := o.Status(t.Context(), StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range st.Problems {
		if p.Code != "embedded" {
			found = append(found, strings.TrimSpace(string(p.Level)+" "+p.Code+" "+p.Replica+p.Job))
		}
	}
	return found, st.NeedsPerson()
}

// TestLostReplicaIsAProblemUntilItIsForgotten: a person is needed until the replica is forgotten, whether a leader has noted it or not, which the audit
// log has. A replica that is registered is not forgotten.
func TestLostReplicaIsAProblemUntilItIsForgotten(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	c.register(t, journal.Replica{Name: "up"})
	c.lose(t, "fresh", 20*time.Second, false)
	c.lose(t, "noted", 23*time.Hour, true)
	c.lose(t, "old", 25*time.Hour, true)
	if found, person := c.problems(t, o); !slices.Equal(found, []string{"warning replica_lost noted", "warning replica_lost fresh"}) || !person {
		t.Errorf("%q, %v", found, person)
	}
	by := Requester{By: "ann", Reason: "the machine is gone"}
	for name, want := range map[string]string{"up": "is registered", "note": `did you mean "noted"?`, "other": "status lists the lost ones"} {
		if err := o.Forget(t.Context(), name, by); !errors.Is(err, ErrNotLost) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := o.Forget(t.Context(), "noted", Requester{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("without a user: %v", err)
	}
	for _, name := range []string{"fresh", "noted"} {
		if err := o.Forget(t.Context(), name, by); err != nil {
			t.Error(err)
		}
	}
	if found, person := c.problems(t, o); len(found) > 0 || person {
		t.Errorf("%q, %v", found, person)
	}
	if missing, err := c.journal.LostReplicas(t.Context()); err != nil || len(missing) > 0 {
		t.Errorf("a leader would take it for lost again: %v, %v", err, missing)
	}
	acts, _, err := o.Acts(t.Context(), 10)
	slices.SortFunc(acts, func(a, b journal.Act) int { return strings.Compare(a.Replica, b.Replica) }) // they may be of one millisecond
	if err != nil || len(acts) != 2 || acts[0].Kind != "forget" || acts[0].By != "ann" || acts[0].Replica != "fresh" || acts[1].Replica != "noted" || acts[0].Reason != by.Reason {
		t.Errorf("%v, %+v", err, acts)
	}
}

// TestLostReplicasBesideDamage: a replica that no leader has noted is shown and forgotten if the list of those that were noted is damaged. One that was noted
// is if the registration of another one is damaged.
func TestLostReplicasBesideDamage(t *testing.T) {
	t.Parallel()
	by := Requester{By: "ann"}
	for damage, tc := range map[string]struct {
		noted   bool
		command []any
	}{
		"the list":       {false, []any{"SET", "cronclave:default:lost", "text"}},
		"a registration": {true, []any{"SADD", "cronclave:default:replica:odd-abcdefgh", "x"}},
	} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			o := c.operator(t, Config{})
			c.register(t, journal.Replica{Name: "up"})
			c.lose(t, "gone", time.Minute, tc.noted)
			for _, command := range [][]any{{"ZADD", "cronclave:default:replicas", time.Now().UnixMilli(), "odd-abcdefgh"}, tc.command} {
				if err := c.conn.Do(t.Context(), command...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if found, _ := c.problems(t, o); !slices.Contains(found, "warning replica_lost gone") || !slices.Contains(found, "warning corrupt_data") {
				t.Errorf("%q", found)
			}
			if err := o.Forget(t.Context(), "gone", by); err != nil {
				t.Error(err)
			}
			if found, _ := c.problems(t, o); slices.Contains(found, "warning replica_lost gone") {
				t.Errorf("forgotten: %q", found)
			}
		})
	}
}

// TestExpectedReplicas: with as many replicas as expected a lost one is advice. Fewer are a problem after a minute.
func TestExpectedReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	for _, name := range []string{"a", "b"} {
		c.register(t, journal.Replica{Name: name, Expected: 2})
	}
	c.lose(t, "gone", time.Minute, true)
	if found, person := c.problems(t, o); !slices.Equal(found, []string{"advice replica_lost gone"}) || person {
		t.Errorf("two of two: %q, %v", found, person)
	}
	since := func(ago time.Duration) map[string]time.Time {
		return map[string]time.Time{CodeTooFew: time.Now().Add(-ago)}
	}
	for _, tc := range []struct {
		ago  time.Duration
		want []string
	}{
		{59 * time.Second, []string{"warning replica_lost gone"}},
		{61 * time.Second, []string{"warning too_few_replicas", "warning replica_lost gone"}},
	} {
		c.register(t, journal.Replica{Name: "a", Expected: 3, Since: since(tc.ago)})
		if found, person := c.problems(t, o); !slices.Equal(found, tc.want) || !person {
			t.Errorf("two of three for %v: %q, %v", tc.ago, found, person)
		}
	}
	c.register(t, journal.Replica{Name: "c", Expected: 3})
	if found, person := c.problems(t, o); !slices.Equal(found, []string{"advice replica_lost gone"}) || person {
		t.Errorf("three of three: %q, %v", found, person)
	}
}

// TestCausesComeFirst: Redis, replicas, the configuration, pools, new failures with the newest first, old ones, and advice.
func TestCausesComeFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	list := []Problem{
		{Level: LevelAdvice, Code: "embedded"},
		{Level: LevelError, Code: codeJobFailed, Job: "old", Since: ago(25 * time.Hour)},
		{Level: LevelError, Code: codeJobFailed, Job: "older", Since: ago(50 * time.Hour)},
		{Level: LevelWarning, Code: codeJobMissed, Job: "late", Since: ago(time.Minute)},
		{Level: LevelError, Code: codeJobFailed, Job: "new", Since: ago(time.Hour)},
		{Level: LevelError, Code: codeJobFailed, Job: "newest", Since: ago(time.Minute)},
		{Level: LevelWarning, Code: CodeConfigRefused},
		{Level: LevelWarning, Code: "replica_silent"},
		{Level: LevelError, Code: "no_replica"},
		{Level: LevelWarning, Code: "writes_refused"},
		{Level: LevelWarning, Code: CodeHeartbeat},
	}
	sortByCause(list, now)
	var order []string
	for _, p := range list {
		order = append(order, p.Code+p.Job)
	}
	want := []string{"writes_refused", "no_replica", "replica_silent", "config_refused", "heartbeat", "job_failednewest", "job_failednew", "job_missedlate", "job_failedold", "job_failedolder", "embedded"}
	if !slices.Equal(order, want) {
		t.Errorf("%q", order)
	}
	st := &Status{Now: now, Problems: list}
	grouped := st.Grouped()
	if len(grouped) != 10 || grouped[8].Message != "2 jobs have failed for more than a day: old, older" || grouped[8].Level != LevelError || grouped[9].Code != "embedded" {
		t.Errorf("%+v", grouped)
	}
	if st.Problems = list[:9]; len(st.Grouped()) != 9 || st.Grouped()[8].Job != "old" {
		t.Errorf("a single one: %+v", st.Grouped())
	}
}
