package locking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// LookRequest asks what a lock knows.
type LookRequest struct {
	Lock      string
	Permanent bool // as in [Request]
	// Schedule, if set, announces the schedule of a replica that starts: if it is not the lock's current one, it begins
	// now, and ticks before now are decided.
	Schedule string
	// SettleThrough, if set, settles every tick up to it that is still undecided, once the server's clock is past SettleDeadline; but not
	// those in [State.Open] that were decided before they were given back.
	SettleThrough, SettleDeadline time.Time
	// SettleOutcome, if set, is with which outcome these are settled, as ticks of the schedule SettleSchedule. It is kept for them together: see
	// [State.Settled].
	SettleOutcome, SettleSchedule string
	// Follower, if set, is the name of a lock whose ticks follow those of this one: it is told which have ended well. Used is the tick up to which
	// it needs no outcome any more; what all followers have used is forgotten, as are followers that nobody has named for a day, and of more than a
	// thousand outcomes the oldest. A tick has an outcome only if it was told: see [Lease.Conclude]. A server that has lost its memory has lost the outcomes.
	Follower string
	Used     time.Time
	// Told are ticks of [State.Settled] whose outcome is known elsewhere now: they are forgotten.
	Told []time.Time
}

// State is what a lock knows. Times are by the server's clock.
type State struct {
	Now     time.Time
	Floor   Token       // the greatest token so far
	Decided time.Time   // every tick up to this one is decided, but for those in Open
	Open    []time.Time // ticks that were given back before their start, oldest first: see [Lease.GiveBack]
	Before  time.Time   // the same, before SettleThrough
	Closed  time.Time   // no grants until then; zero or past if the lock is open
	Pause   Pause       // the newest: see [Pause.On] for whether it is over
	Rows    []Row
	Orphans []Row
	Through time.Time    // to a follower: every tick up to this one has ended; not known while the lock is closed
	Ended   []Ended      // and these of them, oldest first, have ended well
	Settled []Settlement // ticks that nobody has told of yet
	Err     error        // the outcome is unknown; the rest is empty
}

// Settlement is a tick that was settled without a grant, by a request with [Tick.KeepOutcome]: when, and how. Or it is all undecided ticks after
// one and up to Tick, by a [LookRequest] with a SettleOutcome. The newest hundred are kept.
type Settlement struct {
	Tick, At time.Time
	Outcome  string
	After    time.Time // zero for a single tick
	Schedule string    // "" for a single tick
}

// newSettlement is one as it is kept: how is the outcome, or lines that tell after which tick, the outcome, and the schedule.
func newSettlement(tick, at int64, how string) Settlement {
	s := Settlement{Tick: fromMicros(tick * 1e6), At: fromMicros(at), Outcome: how}
	if lines := strings.SplitN(how, "\n", 3); len(lines) == 3 {
		s.After, s.Outcome, s.Schedule = time.Unix(parseNumber(lines[0]), 0).UTC(), lines[1], lines[2]
	}
	return s
}

// Row is a lease as others see it. An orphan's has ended; its Expiry is zero.
type Row struct {
	ID, Owner string
	Slot      int
	Token     Token
	Length    time.Duration
	Expiry    time.Time
	Tick      time.Time // zero without one
	Attempt   int
	Trigger   string
	Memo      string
	EndedWell bool   // an orphan's work had ended well when its holder died: see [Lease.EndedWell]
	Stopped   string // why the holder of an orphan was to stop before its lease ended, see [Client.Stop]; "" if it was not
}

// Look tells the state of many locks in one round trip. Leases that have ended make room first, and those with a
// trigger become orphans.
func (c *Client) Look(ctx context.Context, locks []LookRequest) []State {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	states := make([]State, len(locks))
	err := c.ready()
	var calls []call
	var valid []int
	for i, l := range locks {
		if fault := cmp.Or(checkName(l.Lock), l.validate(), err); fault != nil {
			states[i].Err = fmt.Errorf("look at %q: %w", l.Lock, fault)
			continue
		}
		valid = append(valid, i)
		if c.quorum == nil {
			calls = append(calls, c.look(l))
		}
	}
	if c.quorum != nil {
		c.quorum.look(ctx, locks, states, valid)
		return states
	}
	replies := c.exec(ctx, calls)
	c.lookOnly(ctx, locks, valid, replies)
	for n, got := range replies {
		states[valid[n]] = state(locks[valid[n]].Lock, got)
	}
	return states
}

// lookOnly repeats, without writing, the looks that a user was refused who may only read: from Redis 7 on, and on one master.
func (c *Client) lookOnly(ctx context.Context, locks []LookRequest, valid []int, replies []reply) {
	var calls []call
	var refused []int
	for n, got := range replies {
		if l := locks[valid[n]]; redis.IsPermissionError(got.err) && l.changesNothing() {
			calls = append(calls, c.lookBy(c.scripts.lookOnly, l))
			refused = append(refused, n)
		}
	}
	if len(calls) == 0 {
		return
	}
	for i, got := range c.exec(ctx, calls) {
		if got.err == nil { // else the refusal says what is missing
			replies[refused[i]] = got
		}
	}
}

// changesNothing tells a request that only asks.
func (l LookRequest) changesNothing() bool {
	return l.Schedule == "" && l.SettleThrough.IsZero() && l.SettleOutcome == "" && l.Follower == "" && len(l.Told) == 0
}

func (c *Client) look(l LookRequest) call { return c.lookBy(c.scripts.look, l) }

func (c *Client) lookBy(s *script, l LookRequest) call {
	through := ""
	if !l.SettleThrough.IsZero() {
		through = strconv.FormatInt(l.SettleThrough.Unix(), 10)
	}
	args := []any{l.Schedule, through, toMicros(l.SettleDeadline)}
	if l.Follower != "" || len(l.Told) > 0 || l.SettleOutcome != "" {
		args = append(args, l.Follower, max(l.Used.Unix(), 0))
	}
	if len(l.Told) > 0 || l.SettleOutcome != "" {
		told := ""
		for _, tick := range l.Told {
			told += strconv.FormatInt(tick.Unix(), 10) + ";"
		}
		args = append(args, told, l.settleHow())
	}
	return c.call(s, l.Lock, "", l.Permanent, args...)
}

// settleHow is the outcome of what is settled, and its schedule, as it is kept; "" if it is not.
func (l LookRequest) settleHow() string {
	if l.SettleOutcome == "" {
		return ""
	}
	return l.SettleOutcome + "\n" + l.SettleSchedule
}

// Bury forgets orphans whose outcome was recorded.
func (c *Client) Bury(ctx context.Context, lock string, ids ...string) (err error) {
	defer shield(&err)
	if err := checkName(lock); err != nil {
		return fmt.Errorf("bury orphans of %q: %w", lock, err)
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if c.quorum != nil {
		if err := c.quorum.bury(ctx, lock, ids); err != nil {
			return fmt.Errorf("bury orphans of %q: %w", lock, err)
		}
		return nil
	}
	if err := c.cfg.Redis.HDel(ctx, c.keys(lock, "")[2], ids...).Err(); err != nil {
		return fmt.Errorf("bury orphans of %q: %w", lock, unknown(err))
	}
	return nil
}

// endedWell is in the place of a reason, in the first line of an orphan: see lua/state.lua.
const endedWell = "\tok"

func state(lock string, got reply) State {
	if got.err != nil || got.verdict != "state" {
		err := errors.Join(got.err)
		if err == nil {
			err = fmt.Errorf("%w: the request reached the server too late", ErrUnknown)
		}
		return State{Err: fmt.Errorf("look at %q: %w", lock, err)}
	}
	decided := max(got.low, got.number(0)/1e6)
	s := State{Now: fromMicros(got.now), Floor: Token(got.floor), Decided: fromMicros(decided * 1e6),
		Closed: fromMicros(got.number(1)), Before: fromMicros(got.number(3) * 1e6), Open: openTicks(got.ledger),
		Pause: readPause(got.paused).pause()}
	rows := got.list(4)
	for i := 0; i+2 < len(rows); i += 3 {
		if row, ok := parseRow(text(rows[i+2])); ok {
			row.Slot, row.Expiry = int(number(rows[i])), fromMicros(number(rows[i+1]))
			s.Rows = append(s.Rows, row)
		}
	}
	orphans := got.list(5)
	for i := 0; i+1 < len(orphans); i += 2 {
		first, rest, _ := strings.Cut(text(orphans[i+1]), "\n")
		if row, ok := parseRow(rest); ok {
			slot, reason, _ := strings.Cut(first, " ")
			row.Slot, _ = strconv.Atoi(slot)
			if row.EndedWell = reason == endedWell; !row.EndedWell {
				row.Stopped = reason
			}
			s.Orphans = append(s.Orphans, row)
		}
	}
	s.followed(got)
	settled := got.list(8)
	for i := 0; i+2 < len(settled); i += 3 {
		s.Settled = append(s.Settled, newSettlement(number(settled[i]), number(settled[i+1]), text(settled[i+2])))
	}
	return s
}

// openTicks are those of a ledger, "tick prev state how;...", that are open again.
func openTicks(ledger string) []time.Time {
	var open []time.Time
	for entry := range strings.SplitSeq(ledger, ";") {
		if part := strings.SplitN(entry, " ", 4); len(part) == 4 && part[2] == reopened {
			open = append(open, fromMicros(parseNumber(part[0])*1e6))
		}
	}
	slices.SortFunc(open, time.Time.Compare)
	return open
}

// parseRow reads "id\nowner\nlease\ntoken\ntick\nattempt\ntrigger\nmemo", as the scripts write it.
func parseRow(s string) (Row, bool) {
	part := strings.SplitN(s, "\n", 8)
	if len(part) < 8 {
		return Row{}, false
	}
	return Row{
		ID: part[0], Owner: part[1], Length: time.Duration(parseNumber(part[2])) * time.Microsecond, Token: Token(parseNumber(part[3])),
		Tick: fromMicros(parseNumber(part[4]) * 1e6), Attempt: int(parseNumber(part[5])), Trigger: part[6], Memo: part[7],
	}, true
}

// parseNumber reads what a script wrote.
func parseNumber(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }
