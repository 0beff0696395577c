package locktest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func damages() []theorem {
	return []theorem{
		{"DamageOfAJobsLockIsNamed", damagedJob, layout},             // Promise: damage
		{"DamageOfAPlainLockIsNamed", damagedPlain, layout},          // Promise: damage
		{"LongLedgerIsNamed", longLedger, layout},                    // Promise: damage
		{"FloorOfNoClockIsMended", floorOfNoClock, layout},           // Promise: damage
		{"FloorOfAClockThatWasSetBackGrows", floorSetBack, layout},   // Promise: damage
		{"LongestBeyondAllLeasesIsMended", longestOfNoLease, layout}, // Promise: damage
		{"PauseOfNoClockIsMended", pauseOfNoClock, layout},           // Promise: damage
		{"FenceRefusesTokensOfNoClock", fenceAhead, fenced},          // Promise: P4, damage
		{"FenceThatWasClosedForGoodIsMended", fenceMended, fenced},   // Promise: P4, damage
	}
}

// junk is what anything may have written into a field.
var junk = []string{"300000000", "-1", "1.5", "9007199254740992", "1e308", "nan", "inf", "x", "", "a\nb\nc\nd\ne\nf\ng\nh", "\x00\xff\r\n",
	"99999999999999999999 99999999999999999999;", strings.Repeat("1 done;", 100)}

// fine reports whether an error is nil, or names the damage, or is one that an intact lock may give, too.
func fine(err error) bool {
	return err == nil || errors.Is(err, locking.ErrCorrupt) || errors.Is(err, locking.ErrLost) || errors.Is(err, locking.ErrReleased) ||
		errors.Is(err, locking.ErrLimit)
}

// damage writes junk into each field in turn, has everything asked of the lock, and demands that each answer is fine, and that the other lock is
// granted meanwhile. With -short it writes a fourth of the junk. prepare makes the lock, and ask asks.
func damage(b *bench, fields []string, prepare func(name string) lease.Run, ask func(name string, l lease.Run) map[string]error) {
	for n, field := range fields {
		named := 0
		for m, text := range junk {
			if testing.Short() && (n+m)%4 != 0 && text != "x" {
				continue
			}
			name := fmt.Sprintf("damaged-%d-%d", n, m)
			l := prepare(name)
			key, of, _ := strings.Cut(strings.ReplaceAll(field, "ID", l.ID()), "/")
			if err := b.rdb.HSet(b.ctx, b.prefix+"{"+name+"}"+key, of, text).Err(); err != nil {
				b.Fatal(err)
			}
			errs := ask(name, l)
			for _, what := range slices.Sorted(maps.Keys(errs)) {
				if err := errs[what]; !fine(err) {
					b.Errorf("%s with %s = %.40q: %v", what, field, text, err)
				} else if errors.Is(err, locking.ErrCorrupt) {
					named++
				}
			}
			b.release(b.wins(b.b, lease.Request{Lock: name + "-other"}))
		}
		if named == 0 {
			b.Errorf("no damage of %s is named", field)
		}
	}
}

func damagedJob(b *bench) {
	fields := []string{"/floor", "/longest", "/closed", "/low", "/since", "/since2", "/limit", "/used", "/delay", "/delayed", "/e0", "/r0", "/iID",
		"/paused", "/outcomes", "/followers", "/settled", ":ledger/7", ":ledger/x", ":orphans/other"}
	damage(b, fields, func(name string) lease.Run {
		b.look(b.a, lease.InspectRequest{Lock: name, Permanent: true, Schedule: schedule})
		return b.wins(b.a, lease.Request{Lock: name, Permanent: true, AnyLimit: true, Trigger: "t"})
	}, func(name string, l lease.Run) map[string]error {
		r := lease.Request{Lock: name, Permanent: true, AnyLimit: true, Trigger: "t"}
		again, tick, adopts := r, r, r
		again.ID, adopts.Adopt = l.ID(), "other"
		tick.Tick = &lease.Tick{At: b.now().Truncate(time.Second), Previous: b.now().Add(-time.Hour), Schedule: schedule}
		look := lease.InspectRequest{Lock: name, Permanent: true, Follower: "child", SettleThrough: b.now().Add(-time.Hour), SettleOutcome: "missed"}
		return map[string]error{
			"acquire":     b.b.Engine().Acquire(b.ctx, r).Err,
			"ask again":   b.b.Engine().Acquire(b.ctx, again).Err,
			"claim":       b.b.Engine().Acquire(b.ctx, tick).Err,
			"adopt":       b.b.Engine().Acquire(b.ctx, adopts).Err,
			"look":        b.b.Engine().Inspect(b.ctx, []lease.InspectRequest{look})[0].Err,
			"stop":        b.b.Engine().Stop(b.ctx, []lease.StopRequest{{Lock: name, Permanent: true, Reason: "r", Tick: tick.Tick.At, From: b.now(), Slots: 1}})[0].Err,
			"pause":       b.b.Engine().Pause(b.ctx, []lease.PauseRequest{{Lock: name, Permanent: true, Outcome: "skipped"}})[0].Err,
			"end a pause": b.b.Engine().Pause(b.ctx, []lease.PauseRequest{{Lock: name, Permanent: true, End: true}})[0].Err,
			"end well":    l.MarkSucceeded(b.ctx, true),
			"release":     l.ReleaseWith(b.ctx, true),
		}
	})
}

func damagedPlain(b *bench) {
	fields := []string{"/floor", "/longest", "/closed", "/limit", "/used", "/delay", "/e0", "/r0", "/iID"}
	damage(b, fields, func(name string) lease.Run {
		return b.wins(b.a, lease.Request{Lock: name, Slots: 2})
	}, func(name string, l lease.Run) map[string]error {
		return map[string]error{
			"acquire":   b.b.Engine().Acquire(b.ctx, lease.Request{Lock: name}).Err,
			"as plain":  b.b.Engine().Acquire(b.ctx, lease.Request{Lock: name, Slots: 2, AnyLimit: true}).Err,
			"ask again": b.b.Engine().Acquire(b.ctx, lease.Request{Lock: name, Slots: 2, ID: l.ID()}).Err,
			"release":   l.Release(b.ctx),
		}
	})
}

func longLedger(b *bench) {
	b.known()
	for part := range 5 {
		values := map[string]string{}
		for i := range 1000 {
			values[fmt.Sprint(b.first.Unix()+int64(part*1000+i))] = "1 done granted"
		}
		if err := b.rdb.HSet(b.ctx, b.keys()[1], values).Err(); err != nil {
			b.Fatal(err)
		}
	}
	if a := b.a.Engine().Acquire(b.ctx, lease.Request{Lock: lock, Permanent: true, Tick: b.tick(1)}); !errors.Is(a.Err, locking.ErrCorrupt) || a.Unsure() {
		b.Errorf("%q, %v", a.Verdict, a.Err)
	}
}

func floorOfNoClock(b *bench) {
	for i, floor := range []int64{1<<53 - 1, b.now().Add(25 * time.Hour).UnixMicro()} {
		name := fmt.Sprint("poisoned-", i)
		b.release(b.wins(b.a, lease.Request{Lock: name, Slots: 2}))
		if err := b.rdb.HSet(b.ctx, b.prefix+"{"+name+"}", "floor", floor).Err(); err != nil {
			b.Fatal(err)
		}
		one := b.wins(b.a, lease.Request{Lock: name, Slots: 2})
		two := b.wins(b.b, lease.Request{Lock: name, Slots: 2})
		if one.Token() >= two.Token() || two.Token() > locking.Token(b.now().Add(time.Minute).UnixMicro()) {
			b.Errorf("after a floor of %d: %d, %d", floor, one.Token(), two.Token())
		}
	}
}

// A clock that was ahead for a while has granted tokens that holders may have used: the next ones are greater.
func floorSetBack(b *bench) {
	ahead := b.now().Add(20 * time.Hour).UnixMicro()
	b.release(b.wins(b.a, lease.Request{Slots: 2}))
	b.set("floor", ahead)
	one, two := b.wins(b.b, lease.Request{Slots: 2}), b.wins(b.a, lease.Request{Slots: 2})
	if int64(one.Token()) <= ahead || two.Token() <= one.Token() {
		b.Errorf("after a floor of %d: %d, %d", ahead, one.Token(), two.Token())
	}
}

func longestOfNoLease(b *bench) {
	b.known()
	b.set("longest", 8e15)
	b.set("closed", 8e15)
	a := b.ask(b.a, lease.Request{Tick: b.tick(1)})
	if a.Verdict != lease.Closed || a.Until.After(b.now().Add(locking.MaxLease)) {
		b.Errorf("%q until %v", a.Verdict, a.Until)
	}
}

func pauseOfNoClock(b *bench) {
	b.known()
	b.set("paused", fmt.Sprintf("%d,%d,0,skipped,forever", int64(1<<53-1), b.first.UnixMicro()))
	got := b.a.Engine().Pause(b.ctx, []lease.PauseRequest{{Lock: lock, Permanent: true, End: true}})[0]
	if got.Err != nil || got.After.On(b.now().Add(time.Second)) {
		b.Fatalf("%+v", got)
	}
	b.gets(b.a, lease.Request{Tick: &lease.Tick{At: b.now().Add(time.Second).Truncate(time.Second), Previous: b.now().Add(-time.Hour), Schedule: schedule}}, lease.Early)
}

func fenceAhead(b *bench) {
	f := b.a.Fence(resource)
	passes(b, f, 7)
	for _, token := range []locking.Token{greatest, locking.Token(b.now().Add(2 * time.Minute).UnixMicro())} {
		if err := f.Pass(b.ctx, token); !errors.Is(err, locking.ErrAhead) || errors.Is(err, locking.ErrStale) || errors.Is(err, locking.ErrUnknown) {
			b.Errorf("token %d: %v", token, err)
		}
	}
	passes(b, b.b.Fence(resource), 8)
	passes(b, f, b.wins(b.a, lease.Request{}).Token())
}

func fenceMended(b *bench) {
	if err := b.rdb.Set(b.ctx, b.prefix+fenceKey, int64(greatest), 0).Err(); err != nil {
		b.Fatal(err)
	}
	l := b.wins(b.a, lease.Request{})
	passes(b, b.b.Fence(resource), l.Token())
	refusesToken(b, b.a.Fence(resource), l.Token()-1, l.Token())
}
