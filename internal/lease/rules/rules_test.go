package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// second is what the test's instants are counted from.
const second = 1_792_000_000

// lock is a register with a clock, and one claimant that is given whichever slot it asks for.
type lock struct {
	*testing.T
	g     *Register
	now   int64 // seconds after second
	token int64
}

func newLock(t *testing.T) *lock {
	t.Helper()
	g, err := Read("")
	if err != nil {
		t.Fatal(err)
	}
	l := &lock{T: t, g: g}
	l.g.Inspect(lease.InspectRequest{Schedule: "every second"}, 0, l.micros(), l.micros())
	return l
}

func (l *lock) micros() int64 { return (second + l.now) * 1e6 }

func tick(n int64) *lease.Tick {
	at := time.Unix(second+n, 0)
	return &lease.Tick{At: at, Previous: at.Add(-time.Second), Schedule: "every second"}
}

// claim asks for a tick by a new lease id, with slot 0, or none of them with -1.
func (l *lock) claim(id string, slot int, t *lease.Tick) Ruling {
	l.token++
	v := View{Now: l.micros(), Latest: l.micros(), Slot: slot, Full: slot < 0, Token: l.micros() + l.token}
	v.Kept, v.Ballots = v.Token, []int64{v.Token}
	return l.g.Claim(lease.Request{Lock: "x", ID: id, Trigger: "schedule", Tick: t}.WithDefaults(), "owner", v)
}

func (l *lock) want(got Ruling, word, outcome string) {
	l.Helper()
	if got.Word != word || got.Outcome != outcome {
		l.Errorf("%s %q, want %s %q", got.Word, got.Outcome, word, outcome)
	}
}

func TestTickIsGrantedOnce(t *testing.T) {
	l := newLock(t)
	l.want(l.claim("early", 0, tick(1)), "early", "")
	l.now = 1
	l.want(l.claim("a", 0, tick(1)), lease.OutcomeGranted, "")
	l.want(l.claim("b", 0, tick(1)), "decided", lease.OutcomeGranted)
	l.g.End(&lease.Request{ID: "a", Tick: tick(1)}, false)
	l.want(l.claim("c", 0, tick(1)), "decided", lease.OutcomeGranted)
}

func TestUndoneGrantOpensItsTick(t *testing.T) {
	l := newLock(t)
	l.now = 1
	l.want(l.claim("a", 0, tick(1)), lease.OutcomeGranted, "")
	l.g.End(&lease.Request{ID: "a", Tick: tick(1)}, true)
	l.want(l.claim("b", 0, tick(1)), lease.OutcomeGranted, "")
}

func TestTickOfAFullLockIsSettled(t *testing.T) {
	l := newLock(t)
	l.now = 1
	l.want(l.claim("a", -1, tick(1)), "held", "")
	skips := tick(1)
	skips.IfHeld, skips.KeepOutcome = "skipped", true
	l.want(l.claim("b", -1, skips), "settled", "skipped")
	if n := len(l.g.Settled); n != 1 {
		t.Errorf("%d settlements are kept", n)
	}
	l.g.Acknowledge([]time.Time{skips.At})
	if n := len(l.g.Settled); n != 0 {
		t.Errorf("%d settlements are kept after their record", n)
	}
}

func TestDeadRunIsCarriedOnAsTheNextAttempt(t *testing.T) {
	l := newLock(t)
	l.now = 1
	run := l.claim("a", 0, tick(1)).Run
	l.g.EndDead([]string{"a"}, run.Token-1)
	if len(l.g.Orphans) != 0 {
		t.Error("a run is dead whose rows may live")
	}
	l.g.EndDead([]string{"a"}, run.Token)
	adopts := lease.Request{Lock: "x", ID: "b", Trigger: "recovery", Adopt: "a"}.WithDefaults()
	got := l.g.Claim(adopts, "owner", View{Now: l.micros(), Latest: l.micros(), Token: run.Token + 1})
	l.want(got, lease.OutcomeGranted, "")
	if got.Run.Attempt != 2 || got.Run.Tick != second+1 || len(l.g.Orphans) != 0 {
		t.Errorf("%+v, and %d orphans", got.Run, len(l.g.Orphans))
	}
	l.g.End(&lease.Request{ID: "b", Tick: tick(1)}, true)
	if len(l.g.Orphans) != 1 {
		t.Error("the orphan of a recovery that was undone is gone")
	}
}

func TestPauseSettlesTicksOfItsTime(t *testing.T) {
	l := newLock(t)
	pause := lease.PauseRecord{}.Next(lease.PauseRequest{Outcome: "paused", For: 2 * time.Second}, l.micros())
	l.g.Paused = pause.Text()
	l.now = 1
	l.want(l.claim("a", 0, tick(1)), "settled", "paused")
	l.now = 3
	l.want(l.claim("b", 0, tick(3)), lease.OutcomeGranted, "")
}

func TestEditedScheduleBeginsNow(t *testing.T) {
	l := newLock(t)
	l.now = 5
	l.g.Inspect(lease.InspectRequest{Schedule: "another"}, 0, l.micros(), l.micros())
	edited := tick(3)
	edited.Schedule = "another"
	l.want(l.claim("a", 0, edited), "decided", "")
}

// Lost runs that no follower asks about must not make a register that counts as damaged.
func TestOutcomesOfLostRunsAreBounded(t *testing.T) {
	l := newLock(t)
	if _, _, err := l.g.Follow("f", 0, l.micros()); err != nil {
		t.Fatal(err)
	}
	for n := range int64(5 * mostFollowed) {
		l.g.spoil(second + n)
	}
	if g, err := Read(l.g.Value()); err != nil || len(g.Outcomes) != mostFollowed || g.Outcomes[second+5*mostFollowed-1] != spoiled {
		t.Errorf("%v: %v", g, err)
	}
}

// A gap of missed ticks with a number out of bounds is damage: it would reopen ticks that were decided.
// Promise: P1, damage
func TestMissedOutOfBoundsIsDamage(t *testing.T) {
	for field, most := range map[string]int64{"after": lease.MaxTick, "through": lease.MaxTick, "at": lease.MaxNumber} {
		for _, n := range []int64{-1, most + 1} {
			if _, err := Read(fmt.Sprintf(`{"missed":{%q:%d}}`, field, n)); !errors.Is(err, lease.ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprint(n)) {
				t.Errorf("%s %d: %v", field, n, err)
			}
		}
	}
	if _, err := Read(fmt.Sprintf(`{"missed":{"after":%d,"through":%[1]d,"at":%d}}`, int64(lease.MaxTick), int64(lease.MaxNumber))); err != nil {
		t.Error(err)
	}
}

// FuzzRegister has a quorum read any register: one that is no register is refused, and the rules work on all others.
// Promise: damage
func FuzzRegister(f *testing.F) {
	for _, s := range []string{"", "{}", "null", "[]", `{"low":9223372036854775807}`, `{"low":-1}`, `{"ticks":{"7":{"prev":6,"state":"part","slots":[0,99999]}}}`,
		`{"ticks":{"7":{"prev":6,"state":"part","slots":[0]},"8":{"prev":7,"state":"done","how":"x"}},"digest":"s","since":1}`,
		`{"runs":{"a":{"owner":"o","slot":0,"token":5,"lease":1,"tick":7,"attempt":1,"trigger":"t"}},"followers":{"f":{"used":1,"seen":2}},"outcomes":{"7":-1,"8":0}}`,
		`{"paused":"9007199254740991,1,0,skipped,x"}`, `{"settled":[{"tick":1,"at":2,"how":"x"}]}`} {
		f.Add(s, int64(7))
	}
	f.Fuzz(func(t *testing.T, value string, tick int64) {
		g, err := Read(value)
		if err != nil {
			if !errors.Is(err, lease.ErrCorrupt) || !errors.Is(err, lease.ErrRefused) {
				t.Errorf("%v", err)
			}
			return
		}
		const now = int64(1_792_000_000_000_000)
		tick = min(max(tick, 1), lease.MaxTick)
		r := lease.Request{Lock: "x", Trigger: "t", Tick: &lease.Tick{At: time.Unix(tick, 0), Previous: time.Unix(tick-1, 0), Schedule: "s", IfHeld: "skipped"}}.WithDefaults()
		g.Claim(r, "o", View{Now: now, Latest: now})
		g.Inspect(lease.InspectRequest{Schedule: "s2", SettleOutcome: "missed", SettleSchedule: "s2"}, tick, now, now)
		g.RecordOutcome(tick, true, 1, now)
		g.Follow("f", tick, now)
		r.ID = "a"
		g.End(&r, true)
		again, err := Read(g.Value())
		if err != nil || again.Value() != g.Value() {
			t.Errorf("what the rules made of it: %v", err)
		}
	})
}
