package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

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
