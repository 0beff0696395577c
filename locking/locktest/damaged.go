package locktest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
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
	return err == nil || errors.Is(err, engine.ErrCorrupt) || errors.Is(err, engine.ErrLost) || errors.Is(err, engine.ErrReleased) ||
		errors.Is(err, engine.ErrLimit)
}

// damage writes junk into each field in turn, has everything asked of the lock, and demands that each answer is fine, and that the other lock is
// granted meanwhile. prepare makes the lock, and ask asks.
func damage(b *bench, fields []string, prepare func(name string) *engine.Lease, ask func(name string, l *engine.Lease) map[string]error) {
	for n, field := range fields {
		named := 0
		for m, text := range junk {
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
				} else if errors.Is(err, engine.ErrCorrupt) {
					named++
				}
			}
			b.release(b.wins(b.b, engine.Request{Lock: name + "-other"}))
		}
		if named == 0 {
			b.Errorf("no damage of %s is named", field)
		}
	}
}

func damagedJob(b *bench) {
	fields := []string{"/floor", "/longest", "/closed", "/low", "/since", "/since2", "/limit", "/used", "/delay", "/delayed", "/e0", "/r0", "/iID",
		"/paused", "/outcomes", "/followers", "/settled", ":ledger/7", ":ledger/x", ":orphans/other"}
	damage(b, fields, func(name string) *engine.Lease {
		b.look(b.a, engine.InspectRequest{Lock: name, Permanent: true, Schedule: schedule})
		return b.wins(b.a, engine.Request{Lock: name, Permanent: true, AnyLimit: true, Trigger: "t"})
	}, func(name string, l *engine.Lease) map[string]error {
		r := engine.Request{Lock: name, Permanent: true, AnyLimit: true, Trigger: "t"}
		again, tick, adopts := r, r, r
		again.ID, adopts.Adopt = l.ID(), "other"
		tick.Tick = &engine.Tick{At: b.now().Truncate(time.Second), Previous: b.now().Add(-time.Hour), Schedule: schedule}
		look := engine.InspectRequest{Lock: name, Permanent: true, Follower: "child", SettleThrough: b.now().Add(-time.Hour), SettleOutcome: "missed"}
		return map[string]error{
			"acquire":     b.b.Acquire(b.ctx, r).Err,
			"ask again":   b.b.Acquire(b.ctx, again).Err,
			"claim":       b.b.Acquire(b.ctx, tick).Err,
			"adopt":       b.b.Acquire(b.ctx, adopts).Err,
			"look":        b.b.Inspect(b.ctx, []engine.InspectRequest{look})[0].Err,
			"stop":        b.b.Stop(b.ctx, []engine.StopRequest{{Lock: name, Permanent: true, Reason: "r", Tick: tick.Tick.At, From: b.now(), Slots: 1}})[0].Err,
			"pause":       b.b.Pause(b.ctx, []engine.PauseRequest{{Lock: name, Permanent: true, Outcome: "skipped"}})[0].Err,
			"end a pause": b.b.Pause(b.ctx, []engine.PauseRequest{{Lock: name, Permanent: true, End: true}})[0].Err,
			"end well":    engine.RunOf(l).MarkSucceeded(b.ctx, true),
			"release":     engine.RunOf(l).ReleaseWith(b.ctx, true),
		}
	})
}

func damagedPlain(b *bench) {
	fields := []string{"/floor", "/longest", "/closed", "/limit", "/used", "/delay", "/e0", "/r0", "/iID"}
	damage(b, fields, func(name string) *engine.Lease {
		return b.wins(b.a, engine.Request{Lock: name, Slots: 2})
	}, func(name string, l *engine.Lease) map[string]error {
		return map[string]error{
			"acquire":   b.b.Acquire(b.ctx, engine.Request{Lock: name}).Err,
			"as plain":  b.b.Acquire(b.ctx, engine.Request{Lock: name, Slots: 2, AnyLimit: true}).Err,
			"ask again": b.b.Acquire(b.ctx, engine.Request{Lock: name, Slots: 2, ID: l.ID()}).Err,
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
	if a := b.a.Acquire(b.ctx, engine.Request{Lock: lock, Permanent: true, Tick: b.tick(1)}); !errors.Is(a.Err, engine.ErrCorrupt) || a.Unsure() {
		b.Errorf("%q, %v", a.Verdict, a.Err)
	}
}

func floorOfNoClock(b *bench) {
	for i, floor := range []int64{1<<53 - 1, b.now().Add(25 * time.Hour).UnixMicro()} {
		name := fmt.Sprint("poisoned-", i)
		b.release(b.wins(b.a, engine.Request{Lock: name, Slots: 2}))
		if err := b.rdb.HSet(b.ctx, b.prefix+"{"+name+"}", "floor", floor).Err(); err != nil {
			b.Fatal(err)
		}
		one := b.wins(b.a, engine.Request{Lock: name, Slots: 2})
		two := b.wins(b.b, engine.Request{Lock: name, Slots: 2})
		if one.Token() >= two.Token() || two.Token() > engine.Token(b.now().Add(time.Minute).UnixMicro()) {
			b.Errorf("after a floor of %d: %d, %d", floor, one.Token(), two.Token())
		}
	}
}

// A clock that was ahead for a while has granted tokens that holders may have used: the next ones are greater.
func floorSetBack(b *bench) {
	ahead := b.now().Add(20 * time.Hour).UnixMicro()
	b.release(b.wins(b.a, engine.Request{Slots: 2}))
	b.set("floor", ahead)
	one, two := b.wins(b.b, engine.Request{Slots: 2}), b.wins(b.a, engine.Request{Slots: 2})
	if int64(one.Token()) <= ahead || two.Token() <= one.Token() {
		b.Errorf("after a floor of %d: %d, %d", ahead, one.Token(), two.Token())
	}
}

func longestOfNoLease(b *bench) {
	b.known()
	b.set("longest", 8e15)
	b.set("closed", 8e15)
	a := b.ask(b.a, engine.Request{Tick: b.tick(1)})
	if a.Verdict != engine.Closed || a.Until.After(b.now().Add(engine.MaxLease)) {
		b.Errorf("%q until %v", a.Verdict, a.Until)
	}
}

func pauseOfNoClock(b *bench) {
	b.known()
	b.set("paused", fmt.Sprintf("%d,%d,0,skipped,forever", int64(1<<53-1), b.first.UnixMicro()))
	got := b.a.Pause(b.ctx, []engine.PauseRequest{{Lock: lock, Permanent: true, End: true}})[0]
	if got.Err != nil || got.After.On(b.now().Add(time.Second)) {
		b.Fatalf("%+v", got)
	}
	b.gets(b.a, engine.Request{Tick: &engine.Tick{At: b.now().Add(time.Second).Truncate(time.Second), Previous: b.now().Add(-time.Hour), Schedule: schedule}}, engine.Early)
}

func fenceAhead(b *bench) {
	f := b.a.Fence(resource)
	passes(b, f, 7)
	for _, token := range []engine.Token{greatest, engine.Token(b.now().Add(2 * time.Minute).UnixMicro())} {
		if err := f.Pass(b.ctx, token); !errors.Is(err, engine.ErrAhead) || errors.Is(err, engine.ErrStale) || errors.Is(err, engine.ErrUnknown) {
			b.Errorf("token %d: %v", token, err)
		}
	}
	passes(b, b.b.Fence(resource), 8)
	passes(b, f, b.wins(b.a, engine.Request{}).Token())
}

func fenceMended(b *bench) {
	if err := b.rdb.Set(b.ctx, b.prefix+fenceKey, int64(greatest), 0).Err(); err != nil {
		b.Fatal(err)
	}
	l := b.wins(b.a, engine.Request{})
	passes(b, b.b.Fence(resource), l.Token())
	refusesToken(b, b.a.Fence(resource), l.Token()-1, l.Token())
}
