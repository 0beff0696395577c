package operator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

// TestNoUserEmptiesTheAuditLog: acts that change nothing have one entry for each user and kind, and each user has a rate. An act of before stays.
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
	for i := range 3 * journal.ActsAMinute {
		switch err := idle[i%len(idle)](i); {
		case err == nil:
			allowed++
		case errors.Is(err, ErrTooMany):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if allowed > 2*journal.ActsAMinute || refused == 0 { // a minute may end meanwhile
		t.Errorf("%d acts were allowed, %d refused", allowed, refused)
	}
	if _, err := o.Resume(ctx, ResumeRequest{Selection{All: true}, ann}); err != nil {
		t.Errorf("another user: %v", err)
	}
	acts, err := o.Acts(ctx, journal.MaxActs)
	if err != nil || len(acts) != 4 {
		t.Fatalf("%d entries, want the pause, the resumption and two of acts that changed nothing: %+v, %v", len(acts), acts, err)
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
	acts, err := o.Acts(ctx, 1)
	if err != nil || len(acts) != 1 || acts[0].By != "ann" {
		t.Errorf("the newest act: %+v, %v", acts, err)
	}
	if n := client.ZCard(context.Background(), key).Val(); n < journal.MaxActs {
		t.Errorf("%d entries are left", n)
	}
}
