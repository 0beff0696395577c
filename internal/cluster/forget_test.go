package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

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
