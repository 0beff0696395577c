package lease

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "a b": true, "job:x": true, "{a}": true, "{a}:b": true, "p:{a}:b": true, "ü/?*": true, "a:queue": true, "a:dead": true,
		"": false, "{": false, "}": false, "{}": false, "a{}b": false, "{a": false, "a}": false, "}{": false, "{a}{b}": false,
		"{{a}}": false, "{a}}": false, "x{{a}": false, "{a}:queue": false, "{a}:b:ledger": false, "{a}:orphans": false, "{a}:dead": false, "{a}:dead:x": false,
	} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestRequestsThatCannotBeValid(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	tick := func(change func(*Tick)) Request {
		t := Tick{At: at, Previous: at.Add(-time.Second)}
		change(&t)
		return Request{Tick: &t, Slots: 2}
	}
	for want, r := range map[string]Request{
		"slots is 0":                  {Slots: -1},
		"slots is 1001":               {Slots: 1001},
		"lease is 1ms":                {Lease: time.Millisecond},
		"line break":                  {ID: "a\nb"},
		"lease id or trigger":         {Trigger: "a\nb"},
		"needs a trigger":             {Adopt: "x"},
		"brings its own tick":         {Adopt: "x", Trigger: "recovery", Tick: &Tick{At: at}},
		"whole second":                tick(func(t *Tick) { t.At = at.Add(1) }),
		"after 1970":                  tick(func(t *Tick) { t.At = time.Time{}; t.Previous = t.At.Add(-1) }),
		"the one before it":           tick(func(t *Tick) { t.Previous = at }),
		"per tick is 3":               tick(func(t *Tick) { t.PerTick = 3 }),
		"per tick is -1":              tick(func(t *Tick) { t.PerTick = -1 }),
		"needs the outcome IfLate":    tick(func(t *Tick) { t.Deadline = at }),
		"neither semicolons nor line": tick(func(t *Tick) { t.IfHeld = "a;9 8 done b" }),
		"semicolons nor line breaks":  tick(func(t *Tick) { t.IfLate = "a\nb" }),
	} {
		if err := r.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for name, r := range map[string]Request{"zero": {}, "tick": tick(func(*Tick) {}), "first tick": tick(func(t *Tick) { t.Previous = time.Time{} })} {
		if err := r.WithDefaults().Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzParseRow: whatever a memo holds, a row that was written is read as it was.
func FuzzParseRow(f *testing.F) {
	f.Add("id", "owner", "schedule", "memo\nof\n\nlines", int64(30e6), int64(1764590402000311), int64(1764590402), 1)
	f.Add("", "", "", "", int64(0), int64(0), int64(0), 0)
	f.Fuzz(func(t *testing.T, id, owner, trigger, memo string, lease, token, tick int64, attempt int) {
		_, _ = ParseRow(memo) // never panics
		if strings.ContainsAny(id+owner+trigger, "\n") || lease < 0 || lease > 1e15 || tick < 0 || tick > 1e11 {
			return
		}
		want := Row{ID: id, Holder: owner, Length: time.Duration(lease) * time.Microsecond, Token: Token(token),
			Tick: FromMicros(tick * 1e6), Attempt: attempt, Trigger: trigger, Memo: memo}
		text := strings.Join([]string{id, owner, itoa(lease), itoa(token), itoa(tick), itoa(int64(attempt)), trigger, memo}, "\n")
		if got, ok := ParseRow(text); !ok || got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func TestNameOfAnotherLocksKeyIsRefused(t *testing.T) {
	for _, part := range KeyParts {
		if CheckName("{orders}:"+part) == nil {
			t.Errorf("{orders}:%s is allowed", part)
		}
	}
	if CheckName("{orders}:dead:1") == nil {
		t.Error("{orders}:dead:1 is allowed")
	}
}

func TestGrantIsCountedFromBeforeTheRequest(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second / time.Microsecond)
	r := Request{Lock: "x", Lease: 10 * time.Second}
	g := Grant{Now: 5 * second, Expiry: 15 * second, Sent: time.Second, Received: 2 * time.Second}
	if want := time.Second + HoldFor(10*time.Second); g.Deadline(r.Lease) != want || g.Check(r) != nil {
		t.Errorf("deadline %v, want %v; %v", g.Deadline(r.Lease), want, g.Check(r))
	}
	g.Expiry = 100 * second // the server's clock was stepped back
	if left := g.Left(r.Lease); left != r.Lease {
		t.Errorf("%v is left of a lease of %v", left, r.Lease)
	}
	g.Received = g.Deadline(r.Lease)
	if err := g.Check(r); !errors.Is(err, ErrUnknown) {
		t.Errorf("the reply took as long as the lease: %v", err)
	}
}

func TestMissingRowAfterALostReleaseProvesNothing(t *testing.T) {
	t.Parallel()
	if got := (ReleaseRequest{Doubt: true}).Sure(ReleasedGone); got != ReleasedNow {
		t.Errorf("%q after a release whose reply was lost", got)
	}
	if got := (ReleaseRequest{}).Sure(ReleasedGone); got != ReleasedGone {
		t.Errorf("%q after no other release", got)
	}
}

func TestRetryWaitsNoLongerThanTheLeaseInTheWay(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for range 100 {
		if wait := RetryAfter(time.Second, time.Time{}, now); wait != time.Second {
			t.Errorf("%v for a pause of a second", wait)
		}
		if wait := RetryAfter(time.Second, now.Add(20*time.Millisecond), now); wait < 20*time.Millisecond || wait > 40*time.Millisecond {
			t.Errorf("%v, and the lease in the way runs out after 20ms", wait)
		}
	}
}

func TestWaitErrorNamesTheFault(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if err := WaitError(ctx, nil); !errors.Is(err, enough) {
		t.Error(err)
	}
	if err := WaitError(ctx, ErrUnknown); !errors.Is(err, enough) || !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestQuoteNames(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		"nothing": nil, `"a"`: {"a"}, `"a", "b", "c", "d", "e"`: {"a", "b", "c", "d", "e"}, `"a", "b", "c", "d", "e", 2 more`: {"a", "b", "c", "d", "e", "f", "g"},
	} {
		if got := QuoteNames(names); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestPauseRecordsAreRead reads pauses back, also those of older clients, which have no user.
func TestPauseRecordsAreRead(t *testing.T) {
	for _, p := range []PauseRecord{
		{Changed: 5, From: 3, Until: 9, Outcome: "skipped paused", Reason: "disks, & more; 100%", By: "ann&bob@host"},
		{Changed: 5, From: 3, Outcome: "skipped", By: "ann"},
		{Changed: 5, From: 3, Outcome: "skipped", Reason: "new disks"},
		{Changed: 5, From: 3, Until: 4},
	} {
		if got := ReadPause(p.Text()); got != p {
			t.Errorf("%q is read as %+v, want %+v", p.Text(), got, p)
		}
	}
	if got := ReadPause("5,3,0,skipped,new+disks"); got.Reason != "new disks" || got.By != "" {
		t.Errorf("of an older client: %+v", got)
	}
	if p := (PauseRecord{Changed: 5, From: 3, Outcome: "skipped", Reason: "x", By: "ann"}).Next(PauseRequest{End: true}, 7); p.By != "" || p.Reason != "" {
		t.Errorf("a pause that was ended still has its reason: %+v", p)
	}
}
