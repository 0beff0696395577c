package redis

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// parameters describes the arguments of a script, with the order and the names in the script's header. T is the type of the request that has the
// arguments.
type parameters[T any] []parameter[T]

// A parameter describes one argument. value returns the argument from a request. If value is nil, the caller of encode passes the argument. A group
// of parameters begins where needed is set. encode omits the last groups, as long as needed reports that the request does not need them.
type parameter[T any] struct {
	name   string
	value  func(T) any
	needed func(T) bool
}

// encode returns the script's ARGV, without the last parameters that the request does not need. given has the arguments of the parameters whose function value is nil, in
// their order.
func (p parameters[T]) encode(request T, given ...any) []any {
	n := len(p)
	for i := n - 1; i >= 0; i-- {
		if p[i].needed == nil {
			continue
		}
		if p[i].needed(request) {
			break
		}
		n = i
	}
	args := make([]any, n)
	for i := range args {
		if p[i].value != nil {
			args[i] = p[i].value(request)
			continue
		}
		args[i], given = given[0], given[1:]
	}
	return args
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// notAfterArg is the index of the argument with the instant of Redis's clock after which the script refuses to run. The argument is set when the call
// is sent.
const notAfterArg = 1

// syncArg is the index of the argument that is syncOn if WAIT follows the script.
const (
	syncArg = 7
	syncOn  = "1"
)

// commonParams describes the first arguments of every script for a lock: see state.lua.
var commonParams = parameters[*lease.Observed]{
	{name: "id"},
	{name: "not_after", value: func(*lease.Observed) any { return 0 }},
	{name: "idle"}, // in microseconds; 0 if the lock is permanent
	{name: "floor", value: func(o *lease.Observed) any { return o.Floor }},
	{name: "longest", value: func(o *lease.Observed) any { return o.Longest }},
	{name: "low", value: func(o *lease.Observed) any { return o.Low }},
	{name: "pause_and_ledger", value: func(o *lease.Observed) any { return lease.JoinPause(o.Paused, o.Ledger) }},
	{name: "sync"},
}

func mayWait(r *lease.Request) bool { return r.Channel != "" || r.Delay > 0 }
func keepsState(r *lease.Request) bool {
	return r.Tick != nil && (r.Tick.KeepFirst || r.Tick.KeepOutcome)
}

// ofTick returns a function that returns a value of the tick of a request, or none if the request has no tick.
func ofTick(value func(t *lease.Tick) any, none any) func(r *lease.Request) any {
	return func(r *lease.Request) any {
		if r.Tick == nil {
			return none
		}
		return value(r.Tick)
	}
}

// PatienceInLine is the time for which a waiter keeps its place in the queue without another request. It must be less than an hour, and less than the
// client's Idle. A waiter repeats its request after a third of PatienceInLine, or after a tenth without a subscription: see nextTry. The third must
// be less than ASKS_AGAIN in acquire.lua. The tenth must be less than CONFIRM in queue.lua and release_fast.lua.
const PatienceInLine = 5 * time.Second

var acquireParams = parameters[*lease.Request]{
	{name: "owner"},
	{name: "slots", value: func(r *lease.Request) any { return r.Slots }},
	{name: "lease", value: func(r *lease.Request) any { return r.Lease.Microseconds() }},
	{name: "trigger", value: func(r *lease.Request) any { return r.Trigger }},
	{name: "memo", value: func(r *lease.Request) any { return r.Memo }},
	{name: "abstain", value: func(r *lease.Request) any { return flag(r.Abstain) }},
	{name: "orphan", value: func(r *lease.Request) any { return r.Adopt }},
	{name: "strict", value: func(r *lease.Request) any { return flag(!r.AnyLimit) }},
	{name: "tick", value: ofTick(func(t *lease.Tick) any { return t.At.Unix() }, ""), needed: func(r *lease.Request) bool { return r.Tick != nil || mayWait(r) }},
	{name: "previous", value: ofTick(func(t *lease.Tick) any { return max(t.Previous.Unix(), 0) }, 0)},
	{name: "not_before", value: ofTick(func(t *lease.Tick) any { return lease.ToMicros(t.NotBefore) }, 0)},
	{name: "deadline", value: ofTick(func(t *lease.Tick) any { return lease.ToMicros(t.Deadline) }, 0)},
	{name: "per_tick", value: ofTick(func(t *lease.Tick) any { return t.PerTick }, 0)},
	{name: "schedule", value: ofTick(func(t *lease.Tick) any { return t.Schedule }, "")},
	{name: "if_held", value: ofTick(func(t *lease.Tick) any { return t.IfHeld }, "")},
	{name: "if_late", value: ofTick(func(t *lease.Tick) any { return t.IfLate }, "")},
	{name: "channel", value: func(r *lease.Request) any { return r.Channel }, needed: func(r *lease.Request) bool { return mayWait(r) || keepsState(r) }},
	{name: "patience", value: func(*lease.Request) any { return PatienceInLine.Microseconds() }},
	{name: "delay", value: func(r *lease.Request) any { return r.Delay.Microseconds() }},
	{name: "keep_first", value: ofTick(func(t *lease.Tick) any { return flag(t.KeepFirst) }, flag(false)), needed: keepsState},
	{name: "keep_outcome", value: ofTick(func(t *lease.Tick) any { return flag(t.KeepOutcome) }, flag(false))},
	{name: "behind", value: ofTick(func(t *lease.Tick) any { return t.Behind() }, 0), needed: func(r *lease.Request) bool { return r.Tick.Behind() != 0 }},
}

var renewParams = parameters[*lease.Renewal]{
	{name: "owner"},
	{name: "slot", value: func(r *lease.Renewal) any { return r.Row.Grant.Slot }},
	{name: "lease", value: func(r *lease.Renewal) any { return r.Row.Request.Lease.Microseconds() }},
	{name: "trigger", value: func(r *lease.Renewal) any { return r.Row.Request.Trigger }},
	{name: "memo", value: func(r *lease.Renewal) any { return r.Row.Request.Memo }},
	{name: "token", value: func(r *lease.Renewal) any { return int64(r.Row.Grant.Token) }},
	{name: "tick", value: func(r *lease.Renewal) any { return numberOrNothing(r.Row.Grant.Tick) }},
	{name: "attempt", value: func(r *lease.Renewal) any { return r.Attempt }},
	{name: "delay", value: func(r *lease.Renewal) any { return r.Row.Request.Delay.Microseconds() }},
	{name: "slots", value: func(r *lease.Renewal) any { return r.Row.Request.Slots }},
	{name: "orphan", value: func(r *lease.Renewal) any { return r.Row.Request.Adopt }},
}

func numberOrNothing(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// ofTicks returns a function that returns a value of the request for the lease, or none for a plain release and a handover, which do not need the
// value.
func ofTicks(value func(r *lease.Request) any, none any) func(r *lease.ReleaseRequest) any {
	return func(r *lease.ReleaseRequest) any {
		if r.Mode == lease.ReleaseHandOver || r.Mode == lease.ReleaseEnd && r.Outcome == "" {
			return none
		}
		return value(&r.Row.Request)
	}
}

var releaseParams = parameters[*lease.ReleaseRequest]{
	{name: "tombstone_life"}, // in microseconds
	{name: "mode", value: func(r *lease.ReleaseRequest) any { return strconv.Itoa(int(r.Mode)) }, needed: func(r *lease.ReleaseRequest) bool { return r.Mode != lease.ReleaseEnd }},
	{name: "previous", value: ofTicks(func(r *lease.Request) any { return r.Previous() }, int64(0))},
	{name: "per_tick", value: ofTicks(func(r *lease.Request) any { return r.PerTick() }, 0)},
	{name: "attempt", value: func(r *lease.ReleaseRequest) any { return r.Attempt }, needed: func(r *lease.ReleaseRequest) bool { return r.Mode == lease.ReleaseHandOver }},
	{name: "outcome", value: func(r *lease.ReleaseRequest) any { return r.Outcome }, needed: func(r *lease.ReleaseRequest) bool { return r.Outcome != "" }},
	{name: "zone", value: ofTicks(func(r *lease.Request) any { return r.Zone() }, ""), needed: func(r *lease.ReleaseRequest) bool { return r.Mode == lease.ReleaseUndo }},
}

func hasAcked(i *lease.InspectRequest) bool {
	return len(i.Acked) > 0 || i.SettleOutcome != "" || len(i.Abandon) > 0
}

func settleThrough(i *lease.InspectRequest) string {
	if i.SettleThrough.IsZero() {
		return ""
	}
	return strconv.FormatInt(i.SettleThrough.Unix(), 10)
}

func ackedTicks(i *lease.InspectRequest) (ticks string) {
	for _, tick := range i.Acked {
		ticks += strconv.FormatInt(tick.Unix(), 10) + ";"
	}
	return ticks
}

var inspectParams = parameters[*lease.InspectRequest]{
	{name: "schedule", value: func(i *lease.InspectRequest) any { return i.Schedule }},
	{name: "settle_through", value: func(i *lease.InspectRequest) any { return settleThrough(i) }},
	{name: "settle_deadline", value: func(i *lease.InspectRequest) any { return lease.ToMicros(i.SettleDeadline) }},
	{name: "follower", value: func(i *lease.InspectRequest) any { return i.Follower }, needed: func(i *lease.InspectRequest) bool { return i.Follower != "" }},
	{name: "used", value: func(i *lease.InspectRequest) any { return max(i.Used.Unix(), 0) }},
	{name: "recorded", value: func(i *lease.InspectRequest) any { return ackedTicks(i) }, needed: hasAcked},
	{name: "settlement", value: func(i *lease.InspectRequest) any { return i.SettleRecord() }},
	{name: "abandon", value: func(i *lease.InspectRequest) any { return strings.Join(i.Abandon, ";") }, needed: func(i *lease.InspectRequest) bool { return len(i.Abandon) > 0 }},
	{name: "behind", value: func(i *lease.InspectRequest) any { return i.Behind }, needed: func(i *lease.InspectRequest) bool { return i.Behind != 0 || i.ZoneRules != "" }},
	{name: "rules", value: func(i *lease.InspectRequest) any { return i.ZoneRules }},
}

var stopParams = parameters[*lease.StopRequest]{
	{name: "reason", value: func(s *lease.StopRequest) any { return s.Reason }},
	{name: "channel"},
	{name: "slots", value: func(s *lease.StopRequest) any { return s.Slots }},
	{name: "tick", value: func(s *lease.StopRequest) any { return max(s.Tick.Unix(), 0) }},
	{name: "from", value: func(s *lease.StopRequest) any { return lease.ToMicros(s.From) }},
}

var markSucceededParams = parameters[*lease.Request]{
	{name: "per_tick", value: func(r *lease.Request) any { return r.PerTick() }},
	{name: "followed"},
}

var pauseParams = parameters[*lease.PauseRequest]{
	{name: "end", value: func(p *lease.PauseRequest) any { return flag(p.End) }},
	{name: "length", value: func(p *lease.PauseRequest) any { return p.For.Microseconds() }},
	{name: "outcome", value: func(p *lease.PauseRequest) any { return p.Outcome }},
	{name: "reason", value: func(p *lease.PauseRequest) any { return lease.PauseNote(p.Reason, p.By) }},
}

var removeParams = parameters[time.Time]{
	{name: "unused_since", value: func(at time.Time) any { return lease.ToMicros(at) }},
}

var fenceParams = parameters[lease.Token]{
	{name: "token", value: func(t lease.Token) any { return int64(t) }},
}

// The names of the arguments of the scripts for compact locks. [sender.compactGrant] and [sender.compactRelease] encode the arguments.
var (
	acquireCompactNames = []string{"not_after", "floor", "free", "held", "life"}
	releaseCompactNames = []string{"held", "free"}
)

// digits pads a token or an instant to 16 digits, because the scripts for compact locks compare numbers as strings.
func digits(micros int64) any {
	if micros >= 1e15 {
		return micros
	}
	return fmt.Sprintf("%016d", micros)
}

// NoSlot means no slot in a [NodeClaim] or a [NodeAccept], and any slot in [NodeRelease].
const NoSlot = -1

// The promises that a claim can request from a node. The token of a claim is also its ballot, as in Paxos: a node that has promised the ballot
// accepts no register with a smaller one.
const (
	PromiseNothing = ""
	PromiseRow     = "row" // only if the node votes for the row of the claim
	PromiseAny     = "any" // without a vote for a row
)

// A NodeClaim has the arguments of quorum_claim.lua, which describes them.
type NodeClaim struct {
	Request       *lease.Request
	Slot          int // [NoSlot] asks for no row
	Token         int64
	Promise       string
	Owner         string
	Moves         string
	Everyone      bool
	Shut          []string
	TombstoneLife int64
	All           bool
}

// ofRow returns a function that returns a value of the request, or none if the claim asks for no row.
func ofRow(value func(r *lease.Request) any, none any) func(c *NodeClaim) any {
	return func(c *NodeClaim) any {
		if c.Slot == NoSlot {
			return none
		}
		return value(c.Request)
	}
}

var quorumClaimParams = parameters[*NodeClaim]{
	{name: "slot", value: func(c *NodeClaim) any { return c.Slot }},
	{name: "slots", value: func(c *NodeClaim) any { return c.Request.Slots }},
	{name: "lease", value: ofRow(func(r *lease.Request) any { return r.Lease.Microseconds() }, int64(0))},
	{name: "delay", value: ofRow(func(r *lease.Request) any { return r.Delay.Microseconds() }, int64(0))},
	{name: "strict", value: ofRow(func(r *lease.Request) any { return flag(!r.AnyLimit) }, flag(false))},
	{name: "token", value: func(c *NodeClaim) any { return c.Token }},
	{name: "promise", value: func(c *NodeClaim) any { return c.Promise }},
	{name: "owner", value: func(c *NodeClaim) any { return c.Owner }},
	{name: "moves", value: func(c *NodeClaim) any { return c.Moves }},
	{name: "everyone", value: func(c *NodeClaim) any { return flag(c.Everyone) }},
	{name: "shut", value: func(c *NodeClaim) any { return strings.Join(c.Shut, "\n") }},
	{name: "tombstone_life", value: func(c *NodeClaim) any { return c.TombstoneLife }},
	{name: "all", value: func(c *NodeClaim) any { return flag(c.All) }},
}

// Encode returns the script's ARGV.
func (c NodeClaim) Encode() []any { return quorumClaimParams.encode(&c) }

// A NodeAccept has the arguments of quorum_accept.lua, which describes them.
type NodeAccept struct {
	Ballot        int64
	Value         string
	Slot          int // [NoSlot] if the register grants no slot
	Lease         time.Duration
	Token         int64
	Ends          bool
	TombstoneLife int64
	Everyone      bool
}

var quorumAcceptParams = parameters[*NodeAccept]{
	{name: "ballot", value: func(a *NodeAccept) any { return a.Ballot }},
	{name: "value", value: func(a *NodeAccept) any { return a.Value }},
	{name: "slot", value: func(a *NodeAccept) any { return a.Slot }},
	{name: "lease", value: func(a *NodeAccept) any { return a.Lease.Microseconds() }},
	{name: "token", value: func(a *NodeAccept) any { return a.Token }},
	{name: "ends", value: func(a *NodeAccept) any { return flag(a.Ends) }},
	{name: "tombstone_life", value: func(a *NodeAccept) any { return a.TombstoneLife }},
	{name: "everyone", value: func(a *NodeAccept) any { return flag(a.Everyone) }},
}

// Encode returns the script's ARGV.
func (a NodeAccept) Encode() []any { return quorumAcceptParams.encode(&a) }

var quorumRenewParams = parameters[*lease.HeldRow]{
	{name: "slot", value: func(r *lease.HeldRow) any { return r.Grant.Slot }},
	{name: "lease", value: func(r *lease.HeldRow) any { return r.Request.Lease.Microseconds() }},
	{name: "token", value: func(r *lease.HeldRow) any { return int64(r.Grant.Token) }},
	{name: "owner"},
	{name: "delay", value: func(r *lease.HeldRow) any { return r.Request.Delay.Microseconds() }},
	{name: "slots", value: func(r *lease.HeldRow) any { return r.Request.Slots }},
}

// NodeRenew returns the ARGV of quorum_renew.lua.
func NodeRenew(r *lease.HeldRow, owner string) []any { return quorumRenewParams.encode(r, owner) }

// The names of the arguments that the functions below encode.
var (
	nodeCommonNames    = []string{"id", "not_after", "idle"}
	quorumReleaseNames = []string{"slot", "token", "tombstone_life", "narrow"}
	quorumStopNames    = []string{"slot", "reason"}
	quorumAdmitNames   = []string{"epoch", "base", "longest"}
	quorumFoundNames   = []string{"epoch", "quiet"}
)

// NodeCommon returns the first arguments of every script for a node: see quorum.lua. notAfter is an instant of the node's clock, in microseconds.
// idle is in microseconds, or 0 for a permanent lock.
func NodeCommon(id string, notAfter, idle int64) []any { return []any{id, notAfter, idle} }

// NodeRelease returns the ARGV of quorum_release.lua. The script takes back the votes for the lease id up to token. With token 0 it releases the
// lease id for good. With slot [NoSlot] it looks in all slots. narrow is true if only a majority of the nodes, or fewer, was asked for the lease.
func NodeRelease(slot int, token, tombstoneLife int64, narrow bool) []any {
	return []any{slot, token, tombstoneLife, flag(narrow)}
}

// NodeStop returns the ARGV of quorum_stop.lua.
func NodeStop(slot int, reason string) []any { return []any{slot, reason} }

// NodeAdmit returns the ARGV of quorum_admit.lua.
func NodeAdmit(epoch string, base, longest int64) []any { return []any{epoch, base, longest} }

// NodeFound returns the ARGV of quorum_found.lua. quiet is the minimum age of the node's marker, in microseconds.
func NodeFound(epoch string, quiet int64) []any { return []any{epoch, quiet} }
