package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
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
