package redis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// parameters describes the arguments of a script, in the order and with the names of the script's header. T is the struct with the values of a call,
// or a pointer to it.
type parameters[T any] []parameter[T]

// A parameter describes one argument. Trailing arguments that are not needed are omitted in groups. needed is set on the first parameter of a group,
// and reports whether a call needs the group.
type parameter[T any] struct {
	name   string
	value  func(T) any
	needed func(T) bool
}

// encode returns the arguments of a call.
func (p parameters[T]) encode(call T) []any { return p.append(nil, call) }

// append appends the arguments of a call to the words of a command.
func (p parameters[T]) append(words []any, call T) []any {
	n := len(p)
	for i := n - 1; i >= 0; i-- {
		if p[i].needed == nil {
			continue
		}
		if p[i].needed(call) {
			break
		}
		n = i
	}
	words = slices.Grow(words, n)
	for _, argument := range p[:n] {
		words = append(words, argument.value(call))
	}
	return words
}

func (p parameters[T]) argNames() []string {
	names := make([]string, len(p))
	for i := range p {
		names[i] = p[i].name
	}
	return names
}

// flag encodes a boolean for the scripts.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// Common has the first arguments of every script for a lock: see state.lua.
type Common struct {
	ID                  string
	Idle                int64 // in microseconds; 0 if the lock is permanent
	Floor, Longest, Low int64 // the newest state that the client has observed
	Pause, Ledger       string
	Sync                bool
}

// notAfterArg is the index of the argument with the instant, by Redis's clock, after which the script refuses to run. The argument is set when the call
// is sent.
const notAfterArg = 1

// syncArg is the index of the argument that announces a WAIT after the script. SyncOn is its value if there is one.
const (
	syncArg = 7
	syncOn  = "1"
)

var commonParams = parameters[*Common]{
	{name: "id", value: func(c *Common) any { return c.ID }},
	{name: "not_after", value: func(*Common) any { return 0 }},
	{name: "idle", value: func(c *Common) any { return c.Idle }},
	{name: "floor", value: func(c *Common) any { return c.Floor }},
	{name: "longest", value: func(c *Common) any { return c.Longest }},
	{name: "low", value: func(c *Common) any { return c.Low }},
	{name: "pause_and_ledger", value: func(c *Common) any { return lease.JoinPause(c.Pause, c.Ledger) }},
	{name: "sync", value: func(c *Common) any { return flag(c.Sync) }},
}

// Encode returns the script's ARGV.
func (c Common) Encode() []any { return commonParams.encode(&c) }

// AcquireArgs has the arguments of acquire.lua.
type AcquireArgs struct {
	lease.Request
	Owner    string
	Patience time.Duration // the time for which a waiter keeps its place without another request
}

func (a *AcquireArgs) hasTick() bool { return a.Tick != nil }
func (a *AcquireArgs) mayWait() bool { return a.Channel != "" || a.Delay > 0 }
func (a *AcquireArgs) isNamed() bool { return a.Tick.Behind() != 0 }
func (a *AcquireArgs) keepsState() bool {
	return a.hasTick() && (a.Tick.KeepFirst || a.Tick.KeepOutcome)
}
func (a *AcquireArgs) tickOrDelay() bool { return a.hasTick() || a.mayWait() }

// ofTick returns a function that returns a value of the tick. If there is no tick, the function returns none.
func ofTick(value func(t *lease.Tick) any, none any) func(a *AcquireArgs) any {
	return func(a *AcquireArgs) any {
		if a.Tick == nil {
			return none
		}
		return value(a.Tick)
	}
}

var acquireParams = parameters[*AcquireArgs]{
	{name: "owner", value: func(a *AcquireArgs) any { return a.Owner }},
	{name: "slots", value: func(a *AcquireArgs) any { return a.Slots }},
	{name: "lease", value: func(a *AcquireArgs) any { return a.Lease.Microseconds() }},
	{name: "trigger", value: func(a *AcquireArgs) any { return a.Trigger }},
	{name: "memo", value: func(a *AcquireArgs) any { return a.Memo }},
	{name: "abstain", value: func(a *AcquireArgs) any { return flag(a.Abstain) }},
	{name: "orphan", value: func(a *AcquireArgs) any { return a.Adopt }},
	{name: "strict", value: func(a *AcquireArgs) any { return flag(!a.AnyLimit) }},
	{name: "tick", value: ofTick(func(t *lease.Tick) any { return t.At.Unix() }, ""), needed: (*AcquireArgs).tickOrDelay},
	{name: "previous", value: ofTick(func(t *lease.Tick) any { return max(t.Previous.Unix(), 0) }, 0)},
	{name: "not_before", value: ofTick(func(t *lease.Tick) any { return lease.ToMicros(t.NotBefore) }, 0)},
	{name: "deadline", value: ofTick(func(t *lease.Tick) any { return lease.ToMicros(t.Deadline) }, 0)},
	{name: "per_tick", value: ofTick(func(t *lease.Tick) any { return t.PerTick }, 0)},
	{name: "schedule", value: ofTick(func(t *lease.Tick) any { return t.Schedule }, "")},
	{name: "if_held", value: ofTick(func(t *lease.Tick) any { return t.IfHeld }, "")},
	{name: "if_late", value: ofTick(func(t *lease.Tick) any { return t.IfLate }, "")},
	{name: "channel", value: func(a *AcquireArgs) any { return a.Channel }, needed: func(a *AcquireArgs) bool { return a.mayWait() || a.keepsState() }},
	{name: "patience", value: func(a *AcquireArgs) any { return a.Patience.Microseconds() }},
	{name: "delay", value: func(a *AcquireArgs) any { return a.Delay.Microseconds() }},
	{name: "keep_first", value: ofTick(func(t *lease.Tick) any { return flag(t.KeepFirst) }, flag(false)), needed: (*AcquireArgs).keepsState},
	{name: "keep_outcome", value: ofTick(func(t *lease.Tick) any { return flag(t.KeepOutcome) }, flag(false))},
	{name: "behind", value: ofTick(func(t *lease.Tick) any { return t.Behind() }, 0), needed: (*AcquireArgs).isNamed},
}

// Encode returns the script's ARGV.
func (a AcquireArgs) Encode() []any { return acquireParams.encode(&a) }

// RenewArgs has the arguments of renew.lua.
type RenewArgs struct {
	Owner         string
	Slot          int
	Lease         time.Duration
	Trigger, Memo string
	Token         lease.Token
	Tick          int64 // 0 for none
	Attempt       int64
	Delay         time.Duration
	Slots         int
	Orphan        string
}

var renewParams = parameters[*RenewArgs]{
	{name: "owner", value: func(r *RenewArgs) any { return r.Owner }},
	{name: "slot", value: func(r *RenewArgs) any { return r.Slot }},
	{name: "lease", value: func(r *RenewArgs) any { return r.Lease.Microseconds() }},
	{name: "trigger", value: func(r *RenewArgs) any { return r.Trigger }},
	{name: "memo", value: func(r *RenewArgs) any { return r.Memo }},
	{name: "token", value: func(r *RenewArgs) any { return int64(r.Token) }},
	{name: "tick", value: func(r *RenewArgs) any { return numberOrNothing(r.Tick) }},
	{name: "attempt", value: func(r *RenewArgs) any { return r.Attempt }},
	{name: "delay", value: func(r *RenewArgs) any { return r.Delay.Microseconds() }},
	{name: "slots", value: func(r *RenewArgs) any { return r.Slots }},
	{name: "orphan", value: func(r *RenewArgs) any { return r.Orphan }},
}

// Encode returns the script's ARGV.
func (r RenewArgs) Encode() []any { return renewParams.encode(&r) }

func numberOrNothing(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// A ReleaseMode is the way in which a lease ends.
type ReleaseMode string

// The release modes.
const (
	ReleaseEnd      ReleaseMode = "0" // the work is over
	ReleaseUndo     ReleaseMode = "1" // the work never began: the tick is open again
	ReleaseHandOver ReleaseMode = "2" // another client continues the work: the run is an orphan
)

// The outcomes of a tick that a release keeps for followers.
const (
	OutcomeFailed    = "0"
	OutcomeSucceeded = "1"
)

// OutcomeOf encodes whether a run succeeded.
func OutcomeOf(succeeded bool) string { return flag(succeeded) }

// ReleaseArgs has the arguments of release.lua.
type ReleaseArgs struct {
	TombstoneLife int64 // in microseconds
	Mode          ReleaseMode
	Previous      int64
	PerTick       int
	Attempt       int    // for ReleaseHandOver: the last attempt that has begun
	Outcome       string // the outcome for followers; "" for none
	Zone          string // for ReleaseUndo: the time zone of the tick, see [lease.ZoneOf]
}

var releaseParams = parameters[*ReleaseArgs]{
	{name: "tombstone_life", value: func(r *ReleaseArgs) any { return r.TombstoneLife }},
	{name: "mode", value: func(r *ReleaseArgs) any { return string(r.Mode) }, needed: func(r *ReleaseArgs) bool { return r.Mode != ReleaseEnd }},
	{name: "previous", value: func(r *ReleaseArgs) any { return r.Previous }},
	{name: "per_tick", value: func(r *ReleaseArgs) any { return r.PerTick }},
	{name: "attempt", value: func(r *ReleaseArgs) any { return r.Attempt }, needed: func(r *ReleaseArgs) bool { return r.Mode == ReleaseHandOver }},
	{name: "outcome", value: func(r *ReleaseArgs) any { return r.Outcome }, needed: func(r *ReleaseArgs) bool { return r.Outcome != "" }},
	{name: "zone", value: func(r *ReleaseArgs) any { return r.Zone }, needed: func(r *ReleaseArgs) bool { return r.Mode == ReleaseUndo }},
}

// Encode returns the script's ARGV.
func (r ReleaseArgs) Encode() []any { return releaseParams.encode(&r) }

// InspectArgs has the arguments of inspect.lua.
type InspectArgs lease.InspectRequest

func (i *InspectArgs) hasAcked() bool {
	return len(i.Acked) > 0 || i.SettleOutcome != "" || i.hasAbandon()
}

func (i *InspectArgs) hasAbandon() bool { return len(i.Abandon) > 0 }

func (i *InspectArgs) settleThrough() string {
	if i.SettleThrough.IsZero() {
		return ""
	}
	return strconv.FormatInt(i.SettleThrough.Unix(), 10)
}

func (i *InspectArgs) ackedTicks() (ticks string) {
	for _, tick := range i.Acked {
		ticks += strconv.FormatInt(tick.Unix(), 10) + ";"
	}
	return ticks
}

var inspectParams = parameters[*InspectArgs]{
	{name: "schedule", value: func(i *InspectArgs) any { return i.Schedule }},
	{name: "settle_through", value: func(i *InspectArgs) any { return i.settleThrough() }},
	{name: "settle_deadline", value: func(i *InspectArgs) any { return lease.ToMicros(i.SettleDeadline) }},
	{name: "follower", value: func(i *InspectArgs) any { return i.Follower }, needed: func(i *InspectArgs) bool { return i.Follower != "" }},
	{name: "used", value: func(i *InspectArgs) any { return max(i.Used.Unix(), 0) }},
	{name: "recorded", value: func(i *InspectArgs) any { return i.ackedTicks() }, needed: (*InspectArgs).hasAcked},
	{name: "settlement", value: func(i *InspectArgs) any { return lease.InspectRequest(*i).SettleRecord() }},
	{name: "abandon", value: func(i *InspectArgs) any { return strings.Join(i.Abandon, ";") }, needed: (*InspectArgs).hasAbandon},
	{name: "behind", value: func(i *InspectArgs) any { return i.Behind }, needed: func(i *InspectArgs) bool { return i.Behind != 0 || i.ZoneRules != "" }},
	{name: "rules", value: func(i *InspectArgs) any { return i.ZoneRules }},
}

// Encode returns the script's ARGV.
func (i InspectArgs) Encode() []any { return inspectParams.encode(&i) }

// StopArgs has the arguments of stop.lua.
type StopArgs struct {
	lease.StopRequest
	Channel string
}

var stopParams = parameters[*StopArgs]{
	{name: "reason", value: func(s *StopArgs) any { return s.Reason }},
	{name: "channel", value: func(s *StopArgs) any { return s.Channel }},
	{name: "slots", value: func(s *StopArgs) any { return s.Slots }},
	{name: "tick", value: func(s *StopArgs) any { return max(s.Tick.Unix(), 0) }},
	{name: "from", value: func(s *StopArgs) any { return lease.ToMicros(s.From) }},
}

// Encode returns the script's ARGV.
func (s StopArgs) Encode() []any { return stopParams.encode(&s) }

// MarkSucceededArgs has the arguments of mark_succeeded.lua.
type MarkSucceededArgs struct {
	PerTick  int
	Followed bool
}

var markSucceededParams = parameters[*MarkSucceededArgs]{
	{name: "per_tick", value: func(m *MarkSucceededArgs) any { return m.PerTick }},
	{name: "followed", value: func(m *MarkSucceededArgs) any { return flag(m.Followed) }},
}

// Encode returns the script's ARGV.
func (m MarkSucceededArgs) Encode() []any { return markSucceededParams.encode(&m) }

// PauseArgs has the arguments of pause.lua.
type PauseArgs lease.PauseRequest

var pauseParams = parameters[*PauseArgs]{
	{name: "end", value: func(p *PauseArgs) any { return flag(p.End) }},
	{name: "length", value: func(p *PauseArgs) any { return p.For.Microseconds() }},
	{name: "outcome", value: func(p *PauseArgs) any { return p.Outcome }},
	{name: "reason", value: func(p *PauseArgs) any { return lease.PauseNote(p.Reason, p.By) }},
}

// Encode returns the script's ARGV.
func (p PauseArgs) Encode() []any { return pauseParams.encode(&p) }

// RemoveArgs has the arguments of remove.lua.
type RemoveArgs struct{ UnusedSince time.Time }

var removeParams = parameters[*RemoveArgs]{
	{name: "unused_since", value: func(r *RemoveArgs) any { return lease.ToMicros(r.UnusedSince) }},
}

// Encode returns the script's ARGV.
func (r RemoveArgs) Encode() []any { return removeParams.encode(&r) }

// FenceArgs has the arguments of fence.lua.
type FenceArgs struct{ Token lease.Token }

var fenceParams = parameters[*FenceArgs]{
	{name: "token", value: func(f *FenceArgs) any { return int64(f.Token) }},
}

// Encode returns the script's ARGV.
func (f FenceArgs) Encode() []any { return fenceParams.encode(&f) }

// AcquireCompactArgs has the arguments of acquire_compact.lua for one request.
type AcquireCompactArgs struct {
	Floor      int64  // the greatest token that the client has observed
	Free, Held string // the lock's value after the token: before the request, and while the request holds the lock
	Life       int64  // in milliseconds
}

var acquireCompactParams = parameters[AcquireCompactArgs]{
	{name: "not_after", value: func(AcquireCompactArgs) any { return "" }},
	{name: "floor", value: func(a AcquireCompactArgs) any { return digits(a.Floor) }},
	{name: "free", value: func(a AcquireCompactArgs) any { return a.Free }},
	{name: "held", value: func(a AcquireCompactArgs) any { return a.Held }},
	{name: "life", value: func(a AcquireCompactArgs) any { return a.Life }},
}

// Append appends the script's ARGV to the words of a command.
func (a AcquireCompactArgs) Append(words []any) []any { return acquireCompactParams.append(words, a) }

// digits pads a token or an instant to 16 digits, because the scripts for compact locks compare numbers as strings. It returns a number with 16
// digits unchanged.
func digits(micros int64) any {
	if micros >= 1e15 {
		return micros
	}
	return fmt.Sprintf("%016d", micros)
}

// ReleaseCompactArgs has the arguments of release_compact.lua for one request.
type ReleaseCompactArgs struct{ Held, Free string }

var releaseCompactParams = parameters[ReleaseCompactArgs]{
	{name: "held", value: func(r ReleaseCompactArgs) any { return r.Held }},
	{name: "free", value: func(r ReleaseCompactArgs) any { return r.Free }},
}

// Append appends the script's ARGV to the words of a command.
func (r ReleaseCompactArgs) Append(words []any) []any { return releaseCompactParams.append(words, r) }
