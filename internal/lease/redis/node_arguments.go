package redis

import (
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

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
