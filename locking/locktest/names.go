package locktest

import (
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func named() []theorem {
	return []theorem{
		{"TickThatHasANameIsGrantedOnceByAnyInstant", onceByName, nothing},              // Promise: P1
		{"LedgerOfNamesIsNoClockThatWasAhead", namesAreBehind, nothing},                 // Promise: P1
		{"TickIsNotMissedBeforeItIsDue", notMissedBeforeDue, nothing},                   // Promise: P5
		{"GapIsNotMissedBeforeItIsDue", gapNotMissedBeforeDue, nothing},                 // Promise: P5
		{"TicksInAnotherZoneBeginNow", anotherZone, nothing},                            // Promise: P5
		{"TicksOfBothZonesOfARollOutAreGrantedOnce", bothZones, nothing},                // Promise: P1
		{"TickInAnotherZoneIsOfTheOldServerThatForgot", anotherZoneForgotten, memory},   // Promise: P1
		{"PauseCoversInstants", pauseOfNames, nothing},                                  // Promise: P1
		{"TickThatWasGivenBackHoldsUpWhatFollowsByItsInstant", namedGivenBack, nothing}, // Promise: P5
		{"TickOfAnotherZoneIsNotReopened", notReopenedElsewhere, nothing},               // Promise: P1
		{"NewZoneRulesAreInUseSinceTheirAnnouncement", rulesSince, nothing},             // Promise: P5
	}
}

// In these tests a tick's name is its local time, less 14 hours. One zone is 7 hours behind UTC, or by other data 6; another is 9 ahead.
const (
	edmonton = "ed000000."
	tokyo    = "70c90000."
	byNew    = 20 * time.Hour
	byOld    = 21 * time.Hour
	inTokyo  = 5 * time.Hour
)

// zoned is a tick that is due at an instant.
func zoned(zone string, due time.Time, behind time.Duration) *lease.Tick {
	at := due.Add(-behind)
	return &lease.Tick{At: at, Instant: due, Previous: at.Add(-time.Minute), Schedule: zone + "s"}
}

// zonedSince announces a schedule of the zone to the lock, and then sets the time of the announcement to since. The names of its ticks are behind their instants by behind.
func zonedSince(b *bench, zone string, behind time.Duration, since time.Time) {
	b.Helper()
	b.look(b.client("announcer"), lease.InspectRequest{Permanent: true, Schedule: zone + "s", Behind: int64(behind / time.Second)})
	b.setSince(since.Add(-behind))
}

func onceByName(b *bench) {
	zonedSince(b, edmonton, byNew, b.first.Add(-time.Second))
	due := b.first.Add(time.Minute)
	first := zoned(edmonton, due, byNew)
	b.release(b.wins(b.a, lease.Request{Tick: first}))
	later := zoned(edmonton, due.Add(time.Hour), byOld)
	if !later.At.Equal(first.At) {
		b.Fatalf("%v and %v: two names", first.At, later.At)
	}
	for _, c := range []*locking.Client{b.a, b.b, b.client("c")} {
		if a := b.gets(c, lease.Request{Tick: later}, lease.Decided); a.Outcome != "granted" {
			b.Errorf("decided as %q", a.Outcome)
		}
	}
	next := zoned(edmonton, due.Add(61*time.Minute), byOld) // and the other way round
	b.release(b.wins(b.b, lease.Request{Tick: next}))
	b.gets(b.a, lease.Request{Tick: zoned(edmonton, due.Add(time.Minute), byNew)}, lease.Decided)
}

func namesAreBehind(b *bench) {
	zonedSince(b, edmonton, byOld, b.first.Add(-time.Second))
	at := b.now().Truncate(time.Second)
	first := zoned(edmonton, at, byNew)
	first.Previous = b.first.Add(-byNew - 2*time.Hour) // all before are decided
	b.release(b.wins(b.a, lease.Request{Tick: first}))
	for _, behind := range []time.Duration{byOld, byNew, byOld} { // the ledger is an hour ahead of what the old data show
		if a := b.gets(b.b, lease.Request{Tick: zoned(edmonton, at.Add(-time.Minute), behind)}, lease.Decided); a.Outcome == "skipped" {
			b.Error(a.Outcome)
		}
	}
	b.gets(b.b, lease.Request{Tick: zoned(edmonton, at, byOld)}, lease.Decided)
}

// late is a tick past its deadline.
func late(t *lease.Tick) *lease.Tick {
	t.Deadline, t.IfLate = t.Instant.Add(time.Second), "missed late"
	return t
}

func notMissedBeforeDue(b *bench) {
	zonedSince(b, edmonton, byOld, b.first.Add(-time.Second))
	due := b.now().Truncate(time.Second).Add(-20 * time.Minute)
	a := b.gets(b.a, lease.Request{Tick: late(zoned(edmonton, due, byNew))}, lease.Settled)
	if a.Outcome != "missed late" {
		b.Error(a.Outcome)
	}
	again := late(zoned(edmonton, due, byNew))
	b.gets(b.b, lease.Request{Tick: again}, lease.Decided) // it was due by these data
	now := b.now().Truncate(time.Second).Add(time.Second)
	b.waitUntil(now)
	due = now.Add(time.Second)
	behind := byNew + due.Sub(zoned(edmonton, again.Instant, byNew).Instant)
	other := zoned(edmonton, due, behind)
	if !other.At.Equal(again.At) {
		b.Fatal("two names")
	}
	b.waitUntil(due)
	b.release(b.wins(b.b, lease.Request{Tick: other}))
	b.gets(b.a, lease.Request{Tick: other}, lease.Decided)
	b.gets(b.client("c"), lease.Request{Tick: zoned(edmonton, due.Add(time.Second), behind+time.Second)}, lease.Early)
	b.waitUntil(due.Add(time.Second))
	b.gets(b.client("c"), lease.Request{Tick: zoned(edmonton, due.Add(time.Second), behind+time.Second)}, lease.Decided) // it has had its grant
}

func gapNotMissedBeforeDue(b *bench) {
	zonedSince(b, edmonton, byOld, b.first.Add(-time.Second))
	due := b.now().Truncate(time.Second).Add(-20 * time.Minute)
	gone := zoned(edmonton, due, byNew)
	b.look(b.a, lease.InspectRequest{Permanent: true, SettleThrough: gone.At, SettleDeadline: due, SettleOutcome: "missed down", SettleSchedule: edmonton + "s"})
	b.gets(b.b, lease.Request{Tick: gone}, lease.Decided)
	due = b.now().Truncate(time.Second).Add(2 * time.Second)
	b.waitUntil(due)
	other := zoned(edmonton, due, due.Sub(gone.At))
	b.release(b.wins(b.b, lease.Request{Tick: other}))
	b.gets(b.a, lease.Request{Tick: other}, lease.Decided)
}

func anotherZone(b *bench) {
	zonedSince(b, tokyo, inTokyo, b.first.Add(-time.Second))
	for n := range 3 {
		b.release(b.wins(b.a, lease.Request{Tick: zoned(tokyo, b.first.Add(time.Duration(n)*time.Minute), inTokyo)}))
	}
	began := b.now()
	for _, behind := range []time.Duration{byNew, 0, inTokyo} { // to the west, to instants, and back
		zone := map[time.Duration]string{byNew: edmonton, 0: "", inTokyo: tokyo}[behind]
		st := b.look(b.client("edited"), lease.InspectRequest{Permanent: true, Schedule: zone + "s", Behind: int64(behind / time.Second)})
		if since := st.Decided.Add(behind); since.Before(began.Add(-2*time.Second)) || since.After(b.now()) {
			b.Errorf("%q: decided up to the tick of %v, and the schedule began at %v", zone, since, began)
		}
		b.gets(b.b, lease.Request{Tick: zoned(zone, began.Truncate(time.Second).Add(-time.Minute), behind)}, lease.Decided)
		due := b.now().Truncate(time.Second).Add(time.Second)
		b.waitUntil(due)
		tick := zoned(zone, due, behind)
		b.release(b.wins(b.b, lease.Request{Tick: tick}))
		for _, c := range []*locking.Client{b.a, b.b, b.client("c")} {
			b.gets(c, lease.Request{Tick: tick}, lease.Decided)
		}
	}
}

func bothZones(b *bench) {
	zonedSince(b, tokyo, inTokyo, b.first.Add(-time.Second))
	b.release(b.wins(b.a, lease.Request{Tick: zoned(tokyo, b.first, inTokyo)}))
	b.look(b.b, lease.InspectRequest{Permanent: true, Schedule: edmonton + "s", Behind: int64(byNew / time.Second)})
	var ran []*lease.Tick
	for range 3 {
		due := b.now().Truncate(time.Second).Add(time.Second)
		b.waitUntil(due)
		for c, tick := range map[*locking.Client]*lease.Tick{b.a: zoned(tokyo, due, inTokyo), b.b: zoned(edmonton, due, byNew)} {
			b.release(b.wins(c, lease.Request{Tick: tick}))
			ran = append(ran, tick)
		}
		for _, tick := range ran {
			b.gets(b.client("c"), lease.Request{Tick: tick}, lease.Decided)
		}
	}
}

func notReopenedElsewhere(b *bench) {
	zonedSince(b, edmonton, byNew, b.first.Add(-time.Second))
	due := b.now().Truncate(time.Second).Add(time.Second)
	b.waitUntil(due)
	granted := zoned(edmonton, due, byNew)
	l := b.wins(b.a, lease.Request{Tick: granted, Trigger: "schedule"})
	b.look(b.b, lease.InspectRequest{Permanent: true, Schedule: tokyo + "s", Behind: int64(inTokyo / time.Second)})
	b.giveBack(l)
	namesake := zoned(tokyo, granted.At.Add(inTokyo), inTokyo) // of this morning
	b.gets(b.b, lease.Request{Tick: namesake}, lease.Decided)
	if st := b.look(b.b, lease.InspectRequest{Permanent: true}); len(st.Orphans) != 1 || st.Orphans[0].ID != l.ID() {
		b.Errorf("the run that never began has no outcome to come: %+v", st.Orphans)
	}
}

func anotherZoneForgotten(b *bench) {
	zonedSince(b, tokyo, inTokyo, b.first.Add(-time.Second))
	b.release(b.wins(b.a, lease.Request{Tick: zoned(tokyo, b.first, inTokyo)}))
	b.look(b.b, lease.InspectRequest{Permanent: true, Schedule: edmonton + "s", Behind: int64(byNew / time.Second)})
	due := b.now().Truncate(time.Second).Add(time.Second)
	b.waitUntil(due)
	tick := zoned(edmonton, due, byNew)
	b.release(b.wins(b.b, lease.Request{Tick: tick}))
	b.forget()
	b.gets(b.b, lease.Request{Tick: tick}, lease.Closed)
	b.open()
	b.gets(b.client("c"), lease.Request{Tick: tick}, lease.Decided)
}

func pauseOfNames(b *bench) {
	zonedSince(b, edmonton, byNew, b.first.Add(-time.Second))
	due := b.now().Truncate(time.Second)
	b.release(b.wins(b.a, lease.Request{Tick: zoned(edmonton, due.Add(-time.Minute), byNew)}))
	if a := b.a.Engine().Pause(b.ctx, []lease.PauseRequest{{Lock: lock, Permanent: true, Outcome: "skipped paused", For: time.Hour}})[0]; a.Err != nil {
		b.Fatal(a.Err)
	}
	due = b.now().Truncate(time.Second).Add(time.Second)
	b.waitUntil(due)
	if a := b.gets(b.b, lease.Request{Tick: zoned(edmonton, due, byNew)}, lease.Settled); a.Outcome != "skipped paused" {
		b.Error(a.Outcome)
	}
	if a := b.a.Engine().Pause(b.ctx, []lease.PauseRequest{{Lock: lock, Permanent: true, End: true}})[0]; a.Err != nil {
		b.Fatal(a.Err)
	}
	due = b.now().Truncate(time.Second).Add(time.Second)
	b.waitUntil(due)
	b.release(b.wins(b.b, lease.Request{Tick: zoned(edmonton, due, byNew)}))
}

func namedGivenBack(b *bench) {
	due := b.now().Truncate(time.Second).Add(-3 * time.Minute)
	zonedSince(b, edmonton, byNew, due.Add(-time.Second))
	follow := func() lease.State {
		return b.look(b.client("f"), lease.InspectRequest{Permanent: true, Follower: "f"})
	}
	follow()
	back := zoned(edmonton, due, byNew)
	b.giveBack(b.wins(b.a, lease.Request{Tick: back, Trigger: "schedule"}))
	next := zoned(edmonton, due.Add(time.Minute), byNew)
	concludeRun(b, b.wins(b.a, lease.Request{Tick: next, Trigger: "schedule"}), true)
	if st := follow(); !st.Through.Before(back.At) || len(st.Open) != 1 || !st.Open[0].Equal(back.At) {
		b.Errorf("ended through %v, open %v, though %v may still run", st.Through, st.Open, back.At)
	}
	concludeRun(b, b.wins(b.b, lease.Request{Tick: back, Trigger: "schedule"}), true)
	if st := follow(); !st.Through.Equal(next.At) || len(st.Ended) != 2 {
		b.Errorf("ended through %v: %v", st.Through, st.Ended)
	}
}

func rulesSince(b *bench) {
	announce := func(rules string) time.Time {
		return b.look(b.client("c"), lease.InspectRequest{Permanent: true, Schedule: edmonton + "s", Behind: 72000, ZoneRules: rules}).RulesSince
	}
	if since := announce("aaaa"); !since.IsZero() {
		b.Errorf("the first rules are new since %v", since)
	}
	if since := announce("aaaa"); !since.IsZero() {
		b.Errorf("the same rules are new since %v", since)
	}
	before := b.now()
	since := announce("bbbb")
	if since.Before(before.Add(-timeout)) || since.After(b.now().Add(timeout)) {
		b.Errorf("others are new since %v, and that was %v", since, before)
	}
	if again := announce("bbbb"); !again.Equal(since) {
		b.Errorf("then since %v, not %v", again, since)
	}
}
