package redis

import (
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// NodeCommon has the first arguments of every script for a node: see quorum.lua.
type NodeCommon struct {
	ID       string
	NotAfter int64 // by the node's clock, in microseconds
	Idle     int64 // in microseconds; 0 if the lock is permanent
}

var nodeCommonParams = parameters[*NodeCommon]{
	{name: "id", value: func(c *NodeCommon) any { return c.ID }},
	{name: "not_after", value: func(c *NodeCommon) any { return c.NotAfter }},
	{name: "idle", value: func(c *NodeCommon) any { return c.Idle }},
}

// Encode returns the script's ARGV.
func (c NodeCommon) Encode() []any { return nodeCommonParams.encode(&c) }

// NoSlot in place of a slot means no slot, or any slot: see the field.
const NoSlot = -1

// The promises that a claim can ask of a node. A node that promises a token accepts no register with a smaller ballot.
const (
	PromiseNothing = ""
	PromiseRow     = "row" // only if the node votes for the row of the claim
	PromiseAny     = "any" // without a vote for a row
)

// QuorumClaimArgs has the arguments of quorum_claim.lua.
type QuorumClaimArgs struct {
	Slot          int // [NoSlot] asks for no row
	Slots         int
	Lease, Delay  time.Duration
	Strict        bool
	Token         int64
	Promise       string
	Owner         string
	Moves         string
	Everyone      bool
	Shut          []string
	TombstoneLife int64
	All           bool
}

var quorumClaimParams = parameters[*QuorumClaimArgs]{
	{name: "slot", value: func(c *QuorumClaimArgs) any { return c.Slot }},
	{name: "slots", value: func(c *QuorumClaimArgs) any { return c.Slots }},
	{name: "lease", value: func(c *QuorumClaimArgs) any { return c.Lease.Microseconds() }},
	{name: "delay", value: func(c *QuorumClaimArgs) any { return c.Delay.Microseconds() }},
	{name: "strict", value: func(c *QuorumClaimArgs) any { return flag(c.Strict) }},
	{name: "token", value: func(c *QuorumClaimArgs) any { return c.Token }},
	{name: "promise", value: func(c *QuorumClaimArgs) any { return c.Promise }},
	{name: "owner", value: func(c *QuorumClaimArgs) any { return c.Owner }},
	{name: "moves", value: func(c *QuorumClaimArgs) any { return c.Moves }},
	{name: "everyone", value: func(c *QuorumClaimArgs) any { return flag(c.Everyone) }},
	{name: "shut", value: func(c *QuorumClaimArgs) any { return strings.Join(c.Shut, "\n") }},
	{name: "tombstone_life", value: func(c *QuorumClaimArgs) any { return c.TombstoneLife }},
	{name: "all", value: func(c *QuorumClaimArgs) any { return flag(c.All) }},
}

// Encode returns the script's ARGV.
func (c QuorumClaimArgs) Encode() []any { return quorumClaimParams.encode(&c) }

// QuorumAcceptArgs has the arguments of quorum_accept.lua.
type QuorumAcceptArgs struct {
	Ballot        int64
	Value         string
	Slot          int // [NoSlot] if the register grants no slot
	Lease         time.Duration
	Token         int64
	Ends          bool
	TombstoneLife int64
	Everyone      bool
}

var quorumAcceptParams = parameters[*QuorumAcceptArgs]{
	{name: "ballot", value: func(a *QuorumAcceptArgs) any { return a.Ballot }},
	{name: "value", value: func(a *QuorumAcceptArgs) any { return a.Value }},
	{name: "slot", value: func(a *QuorumAcceptArgs) any { return a.Slot }},
	{name: "lease", value: func(a *QuorumAcceptArgs) any { return a.Lease.Microseconds() }},
	{name: "token", value: func(a *QuorumAcceptArgs) any { return a.Token }},
	{name: "ends", value: func(a *QuorumAcceptArgs) any { return flag(a.Ends) }},
	{name: "tombstone_life", value: func(a *QuorumAcceptArgs) any { return a.TombstoneLife }},
	{name: "everyone", value: func(a *QuorumAcceptArgs) any { return flag(a.Everyone) }},
}

// Encode returns the script's ARGV.
func (a QuorumAcceptArgs) Encode() []any { return quorumAcceptParams.encode(&a) }

// QuorumRenewArgs has the arguments of quorum_renew.lua.
type QuorumRenewArgs struct {
	Slot  int
	Lease time.Duration
	Token lease.Token
	Owner string
	Delay time.Duration
	Slots int
}

var quorumRenewParams = parameters[*QuorumRenewArgs]{
	{name: "slot", value: func(r *QuorumRenewArgs) any { return r.Slot }},
	{name: "lease", value: func(r *QuorumRenewArgs) any { return r.Lease.Microseconds() }},
	{name: "token", value: func(r *QuorumRenewArgs) any { return int64(r.Token) }},
	{name: "owner", value: func(r *QuorumRenewArgs) any { return r.Owner }},
	{name: "delay", value: func(r *QuorumRenewArgs) any { return r.Delay.Microseconds() }},
	{name: "slots", value: func(r *QuorumRenewArgs) any { return r.Slots }},
}

// Encode returns the script's ARGV.
func (r QuorumRenewArgs) Encode() []any { return quorumRenewParams.encode(&r) }

// QuorumReleaseArgs has the arguments of quorum_release.lua.
type QuorumReleaseArgs struct {
	Slot          int   // [NoSlot] for any slot
	Token         int64 // drops the claims of the lease id up to this token; 0 releases the lease id for good
	TombstoneLife int64
	Narrow        bool // at most a majority of nodes was asked for the lease
}

var quorumReleaseParams = parameters[*QuorumReleaseArgs]{
	{name: "slot", value: func(r *QuorumReleaseArgs) any { return r.Slot }},
	{name: "token", value: func(r *QuorumReleaseArgs) any { return r.Token }},
	{name: "tombstone_life", value: func(r *QuorumReleaseArgs) any { return r.TombstoneLife }},
	{name: "narrow", value: func(r *QuorumReleaseArgs) any { return flag(r.Narrow) }},
}

// Encode returns the script's ARGV.
func (r QuorumReleaseArgs) Encode() []any { return quorumReleaseParams.encode(&r) }

// QuorumStopArgs has the arguments of quorum_stop.lua.
type QuorumStopArgs struct {
	Slot   int
	Reason string
}

var quorumStopParams = parameters[*QuorumStopArgs]{
	{name: "slot", value: func(s *QuorumStopArgs) any { return s.Slot }},
	{name: "reason", value: func(s *QuorumStopArgs) any { return s.Reason }},
}

// Encode returns the script's ARGV.
func (s QuorumStopArgs) Encode() []any { return quorumStopParams.encode(&s) }

// QuorumEnrolArgs has the arguments of quorum_enrol.lua.
type QuorumEnrolArgs struct{ Epoch string }

var quorumEnrolParams = parameters[*QuorumEnrolArgs]{
	{name: "epoch", value: func(e *QuorumEnrolArgs) any { return e.Epoch }},
}

// Encode returns the script's ARGV.
func (e QuorumEnrolArgs) Encode() []any { return quorumEnrolParams.encode(&e) }

// QuorumAdmitArgs has the arguments of quorum_admit.lua.
type QuorumAdmitArgs struct {
	Epoch         string
	Base, Longest int64
}

var quorumAdmitParams = parameters[*QuorumAdmitArgs]{
	{name: "epoch", value: func(a *QuorumAdmitArgs) any { return a.Epoch }},
	{name: "base", value: func(a *QuorumAdmitArgs) any { return a.Base }},
	{name: "longest", value: func(a *QuorumAdmitArgs) any { return a.Longest }},
}

// Encode returns the script's ARGV.
func (a QuorumAdmitArgs) Encode() []any { return quorumAdmitParams.encode(&a) }

// QuorumFoundArgs has the arguments of quorum_found.lua.
type QuorumFoundArgs struct {
	Epoch string
	Quiet int64 // in microseconds
}

var quorumFoundParams = parameters[*QuorumFoundArgs]{
	{name: "epoch", value: func(f *QuorumFoundArgs) any { return f.Epoch }},
	{name: "quiet", value: func(f *QuorumFoundArgs) any { return f.Quiet }},
}

// Encode returns the script's ARGV.
func (f QuorumFoundArgs) Encode() []any { return quorumFoundParams.encode(&f) }
