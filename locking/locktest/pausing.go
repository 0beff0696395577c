package locktest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func pausing() []theorem {
	return []theorem{
		{"PausedTickIsSettledByWhoeverAsks", pausedTick, nothing}, // Promise: P6
		{"PauseStopsNothingButTicks", pauseStopsTicks, nothing},
		{"TicksOfPausedTimeAreSettledAfterIt", pausedTime, nothing}, // Promise: P6
		{"PauseEndsByTheServersClock", pauseEnds, nothing},
		{"PauseThatIsOnIsCarriedOn", pauseCarriedOn, nothing},
		{"TickThatWasTooLateBeforeThePauseIsLate", lateBeforePause, nothing}, // Promise: P6
		{"EndOfNoPauseSettlesNothing", endOfNone, nothing},                   // Promise: P6
		{"PauseIsOfOneLineAndBounded", pauseRefused, nothing},
		{"ForgottenPauseIsRestoredByAnObserver", forgottenPause, memory},              // Promise: P6
		{"LostPauseIsRestoredByAnObserverThoughNothingElseIs", lostPause, memory},     // Promise: P6
		{"EndOfAPauseIsNotUndoneByAnObserverOfThePause", endOutlivesObserver, memory}, // Promise: P5
		{"EndOfAForgottenPauseCounts", endOfForgotten, memory},                        // Promise: P5
		{"PauseIsHeardOf", pauseHeard, memory},                                        // Promise: P6
		{"PauseIsTakenFromAnotherLock", pauseTaken, nothing},                          // Promise: P6
	}
}

const stopped = "skipped paused"

func pause(b *bench, c *locking.Client, r lease.PauseRequest) lease.PauseAnswer {
	b.Helper()
	r.Lock, r.Permanent = lock, true
	if r.Outcome == "" {
		r.Outcome = stopped
	}
	a := c.Engine().Pause(b.ctx, []lease.PauseRequest{r})[0]
	if a.Err != nil {
		b.Fatal(a.Err)
	}
	return a
}

func resume(b *bench, c *locking.Client) lease.PauseAnswer {
	b.Helper()
	return pause(b, c, lease.PauseRequest{End: true})
}

// setPause fakes when the pause of the lock began and ended.
func setPause(b *bench, from, until time.Time) {
	b.Helper()
	text := fmt.Sprintf("%d,%d,%d,%s,", from.UnixMicro(), from.UnixMicro(), until.UnixMicro(), stopped)
	if b.onQuorum() {
		setRegister(b, "paused", text)
		return
	}
	b.set("paused", text)
}

// settles fails the test unless the pause settles a tick.
func settles(b *bench, c *locking.Client, n int) {
	b.Helper()
	if a := b.gets(c, lease.Request{Tick: b.tick(n)}, lease.Settled); a.Outcome != stopped {
		b.Errorf("tick %d is settled as %q", n, a.Outcome)
	}
}

func pausedTick(b *bench) {
	b.known()
	runs(b, b.a, 0)
	pause(b, b.b, lease.PauseRequest{Reason: "a, b; c"})
	settles(b, b.a, 1)
	decided(b, b.b, 1, stopped)
	abstains := b.ask(b.b, lease.Request{Tick: b.tick(2), Abstain: true})
	if b.wants(abstains, lease.Settled); abstains.Outcome != stopped {
		b.Errorf("by one who abstains: %+v", abstains)
	}
	if p := b.state().Pause; p.Reason != "a, b; c" || !p.On(b.now()) || !p.Until.IsZero() {
		b.Errorf("the lock tells %+v", p)
	}
	if a := resume(b, b.b); a.Before.Reason == "" || a.After.On(a.Now) {
		b.Errorf("the end tells %+v", a)
	}
	runs(b, b.a, 3)
	runs(b, b.b, 4)
}

func pauseStopsTicks(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{Tick: b.tick(0), Permanent: true})
	pause(b, b.a, lease.PauseRequest{})
	if a := b.gets(b.b, lease.Request{Tick: b.tick(0)}, lease.Decided); a.Holder != "a" {
		b.Errorf("of a tick that runs: %+v", a)
	}
	b.release(l)
	b.release(b.wins(b.b, lease.Request{Permanent: true, Trigger: "manual"}))
	if a := resume(b, b.a); !a.Before.On(a.Now) {
		b.Errorf("the end tells %+v", a)
	}
	if a := resume(b, b.a); a.Before.On(a.Now) {
		b.Errorf("the second end tells %+v", a)
	}
}

func pausedTime(b *bench) {
	b.known()
	setPause(b, b.tick(1).At, b.tick(3).At)
	runs(b, b.a, 0)
	settles(b, b.a, 1)
	settles(b, b.b, 2)
	runs(b, b.a, 3)
	runs(b, b.b, 4)
	s := b.state()
	if s.Pause.On(s.Now) || s.Pause.Covers(b.tick(0).At) || !s.Pause.Covers(b.tick(2).At) || s.Pause.Covers(b.tick(3).At) {
		b.Errorf("the lock tells %+v", s.Pause)
	}
}

// pauseTaken: of the pauses of two locks the one that was changed later counts, and an end is a change.
func pauseTaken(b *bench) {
	b.known()
	const from = "{all}:job"
	ofOther := func(r lease.PauseRequest) {
		b.Helper()
		r.Lock, r.Permanent, r.Outcome = from, true, stopped
		if a := b.b.Engine().Pause(b.ctx, []lease.PauseRequest{r})[0]; a.Err != nil {
			b.Fatal(a.Err)
		}
	}
	take := func() {
		b.Helper()
		if err := b.a.Engine().TakePause(b.ctx, from, lock); err != nil {
			b.Fatal(err)
		}
	}
	take()
	runs(b, b.a, 0)
	ofOther(lease.PauseRequest{Reason: "why"})
	take()
	settles(b, b.a, 1)
	settles(b, b.b, 2)
	if p := b.state().Pause; p.Reason != "why" || !p.On(b.now()) {
		b.Errorf("the lock tells %+v", p)
	}
	resume(b, b.b)
	take()
	runs(b, b.a, 3)
	ofOther(lease.PauseRequest{Reason: "again"})
	take()
	settles(b, b.b, 4)
	ofOther(lease.PauseRequest{End: true})
	take()
	runs(b, b.a, 5)
	pause(b, b.b, lease.PauseRequest{})
	take()
	settles(b, b.a, 6)
}

func pauseEnds(b *bench) {
	b.known()
	a := pause(b, b.a, lease.PauseRequest{For: time.Second})
	if got := a.After.Until.Sub(a.After.From); got != time.Second {
		b.Errorf("a pause for a second lasts %v", got)
	}
	settles(b, b.a, 0)
	b.waitUntil(a.After.Until.Add(50 * time.Millisecond)) // the nodes of a quorum have clocks of their own
	runs(b, b.b, 1)
}

// endOfNone: the end of a pause that never was is a word, too. The server's clock is set back since.
func endOfNone(b *bench) {
	b.known()
	resume(b, b.a)
	said := b.now().Add(30 * time.Second).UnixMicro()
	text := fmt.Sprintf("%d,%d,%d,,", said, said, said)
	if b.onQuorum() {
		setRegister(b, "paused", text)
	} else {
		b.set("paused", text)
	}
	runs(b, b.a, 0)
}

func pauseCarriedOn(b *bench) {
	first := pause(b, b.a, lease.PauseRequest{For: time.Hour, Reason: "one"})
	again := pause(b, b.b, lease.PauseRequest{Reason: "two"})
	if again.Before != first.After || !again.After.From.Equal(first.After.From) || !again.After.Until.IsZero() || again.After.Reason != "two" {
		b.Errorf("first %+v, then %+v", first, again)
	}
	resume(b, b.a)
	if fresh := pause(b, b.a, lease.PauseRequest{}); !fresh.After.From.After(first.After.From) {
		b.Errorf("after the end: %+v", fresh)
	}
}

func lateBeforePause(b *bench) {
	b.known()
	pause(b, b.a, lease.PauseRequest{})
	late := b.tick(0)
	late.Deadline, late.IfLate = b.tick(1).At, "missed late"
	if a := b.gets(b.b, lease.Request{Tick: late}, lease.Settled); a.Outcome != "missed late" {
		b.Errorf("%+v", a)
	}
	setPause(b, b.now().Add(time.Hour), b.now().Add(2*time.Hour)) // by a clock that was ahead
	soon := b.tick(1)
	soon.Deadline, soon.IfLate = b.now().Add(time.Minute), "missed late"
	if a := b.gets(b.b, lease.Request{Tick: soon}, lease.Settled); a.Outcome != stopped {
		b.Errorf("since a clock was ahead: %+v", a)
	}
	setPause(b, b.tick(3).At, b.tick(5).At)
	within := b.tick(2)
	within.Deadline, within.IfLate = b.tick(4).At, "missed late"
	if a := b.gets(b.b, lease.Request{Tick: within}, lease.Settled); a.Outcome != "missed late" {
		b.Errorf("nobody asked while it was paused: %+v", a)
	}
}

func pauseRefused(b *bench) {
	for _, r := range []lease.PauseRequest{{}, {Outcome: "a;b"}, {Outcome: stopped, For: -1}, {Outcome: stopped, For: 1e6 * time.Hour},
		{Outcome: stopped, Reason: "two\nlines"}, {Outcome: stopped, Reason: strings.Repeat("é", 201)}} {
		r.Lock = lock
		if a := b.a.Engine().Pause(b.ctx, []lease.PauseRequest{r})[0]; a.Err == nil {
			b.Errorf("%+v is taken", r)
		}
	}
	pause(b, b.a, lease.PauseRequest{Reason: strings.Repeat("é", 200)})
	if p := b.state().Pause; p.Reason != strings.Repeat("é", 200) {
		b.Errorf("%+v", p)
	}
}

func forgottenPause(b *bench) {
	b.known()
	runs(b, b.a, 0)
	pause(b, b.client("operator"), lease.PauseRequest{Reason: "12 34 done x"})
	settles(b, b.a, 1)
	forgetAndOpen(b, 2)
	settles(b, b.a, 2)
	settles(b, b.client("newcomer"), 3)
	if p := b.state().Pause; p.Reason != "12 34 done x" {
		b.Errorf("the lock tells %+v", p)
	}
}

// forgetAndOpen has a client that was there before ask for a tick, so that the lock is closed, and
// opens it.
func forgetAndOpen(b *bench, n int) {
	b.Helper()
	b.forget()
	b.gets(b.a, lease.Request{Tick: b.tick(n)}, lease.Closed)
	b.open()
}

func lostPause(b *bench) {
	b.known()
	runs(b, b.a, 0)
	restore := b.snapshot()
	pause(b, b.a, lease.PauseRequest{})
	restore()
	settles(b, b.a, 1)
	settles(b, b.b, 2)
}

func endOutlivesObserver(b *bench) {
	b.known()
	pause(b, b.a, lease.PauseRequest{})
	settles(b, b.a, 0)
	resume(b, b.b)
	runs(b, b.a, 1)
	forgetAndOpen(b, 2)
	runs(b, b.a, 2)
}

func endOfForgotten(b *bench) {
	b.known()
	pause(b, b.a, lease.PauseRequest{})
	settles(b, b.a, 0)
	b.forget()
	resume(b, b.client("operator"))
	runs(b, b.a, 1)
}

func pauseHeard(b *bench) {
	b.known()
	b.look(b.b, lease.InspectRequest{Permanent: true})
	ctx, cancel := context.WithCancel(b.ctx)
	heard, done := make(chan []lease.GrantEvent), make(chan struct{})
	go func() {
		defer close(done)
		b.b.Engine().Subscribe(ctx, func(n []lease.GrantEvent) {
			select {
			case heard <- n:
			case <-ctx.Done():
			}
		})
	}()
	defer func() {
		cancel()
		<-done
	}()
	for listening := false; !listening; { // pauses are asked for again until one is heard
		pause(b, b.a, lease.PauseRequest{})
		select {
		case n := <-heard:
			if listening = true; len(n) != 0 {
				b.Errorf("it is no grant: %+v", n)
			}
		case <-time.After(20 * time.Millisecond):
		}
	}
	b.forget()
	if s := b.look(b.b, lease.InspectRequest{Permanent: true}); !s.Pause.On(s.Now) {
		b.Errorf("who has heard of it tells the server: %+v", s.Pause)
	}
}
