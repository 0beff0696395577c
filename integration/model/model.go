// Package model searches all short schedules of the protocol of granting, holding, recovery, pausing and loss of
// memory for one that breaks a promise.
//
// It writes the protocol a second time, as a machine of small steps: one lock of K rows with its ledger on a server,
// two or three replicas that claim ticks, hold leases and remember the replies, and a network in which every request
// and every reply is a message that arrives, is lost, or arrives much later. [Explore] starts from an empty lock and
// takes every step that is possible in every state, breadth first, within the bounds of a [Setup]: how many ticks,
// how long, how many faults of each kind. The first state that breaks a promise ends the search. The result has the
// shortest way to it, one step a line.
//
// [Rules] has a switch for each rule. With one of them off, the search must find the schedule that the rule was made
// for; within the same bounds it must find none with all of them on. The regression cases of this package demand
// both. A rule that is off makes the model wrong on purpose; nothing else in the program reads it.
//
// Wider bounds find schedules that break a promise with all rules on. TestGaps has them, each with a rule that would
// close it, and TestFullModel searches on with those rules.
//
// # What holds here
//
//   - Time is a whole number of units. A lease lasts some of them, a round trip less than one or as long as it
//     takes. All clocks run at the same rate, so the 1 % of the holder's margin is missing; the server's clock
//     may be set back.
//   - The scripts are written line by line, and TestModelAgreesWithScripts compares them with the Lua. The
//     clients follow their packages: a time-out leaves a claim unsure, the replica asks again under the same id,
//     and a replica that gives up withdraws its claim. Of two replies with the same floor and low, either may be
//     taken for the newer.
//   - A replica claims at any time, also too early: its wall clock decides nothing. It sees an orphan in the
//     moment in which it first claims it; that claim may arrive late, or be repeated later, so the inspection may
//     be long ago.
//   - The command that pauses a lock is gone afterwards. The message of the pause reaches all replicas, or none.
//   - After a loss of memory the search goes on as long as every claimant that is granted something had observed
//     the essential facts, or another such claimant had been there before: docs/guarantees.md promises no more.
//     Where a claimant had not, the search still checks that its knowledge is kept, and the schedule ends there.
//
// # Left out
//
// Quorum and chains, which have models of their own; the waiting queue, retries under a lease, orphans that are
// deleted (they are abandoned at most); a second schedule of the same lock, plain locks that expire when idle, ledgers and clocks that are ahead
// by more than a minute; different limits in a roll-out. WAIT has one follower. Processes die at once when they are
// killed.
package model

// Units and sizes. The arrays of a [State] have them, so that states can be compared.
const (
	maxReplicas = 3
	works       = 3 // pieces of work: 0 is a manual trigger, then come the ticks
	maxTicks    = works - 1
	maxSlots    = 2
	maxMessages = 5
	masters     = 2 // the second is the follower of the first, or its saved state
	perUnit     = 4 // tokens of one unit of time: microseconds, as it were
	generations = 2 // lease ids that a replica may use for one tick
)

// Setup bounds a search. Lengths and instants are units of time.
type Setup struct {
	Replicas    int // at most 3
	Ticks       int // at most 2
	Slots       int // of the lock: its parallel; at most 2
	PerTick     int
	At          [works]uint8 // the instant of each tick; that of the manual trigger does not count
	Lease       uint8
	Timeout     uint8 // of a round trip: then the client gives up waiting
	Tombstone   uint8 // how long a released id is remembered
	StartWithin uint8 // how late a tick may start
	Horizon     uint8 // when the search ends
	Early       uint8 // how much too early a replica may ask
	InFlight    int   // messages at once; at most 5
	Manual      bool  // each replica may start one run without a tick
	Queue       bool  // overlap: the first tick whose slots are all held stays open; else it is skipped
	Leaves      bool  // a drain may leave runs to a recovery
	Abandons    bool  // replicas record orphans as abandoned that no recovery may carry on
	Recover     uint8 // how many attempts beyond the first a tick may have, by recovery of a dead holder's run; at most 2
	PauseFor    uint8 // how long a pause lasts; 0: until it is ended
	Acked       bool  // acked_replicas: a grant or renewal counts only when replicated
	Faults      Faults
}

// Faults is how many there may be of each kind in one schedule.
type Faults struct {
	Silences  uint8 // requests or replies that never arrive, or arrive after their sender has given up
	Strays    uint8 // of these, requests that stay in the network and may arrive at any time later
	Flushes   uint8 // the server forgets everything
	Saves     uint8 // the follower takes over the server's state
	Failovers uint8 // the server falls back to the saved state
	Renewals  bool  // and a failover may lose renewals, which no client can observe
	Splits    uint8 // the follower becomes master, and the old master serves on without one
	StepsBack uint8 // the server's clock is set back by StepBack
	StepBack  uint8
	Freezes   uint8 // a replica's process stands still; its jobs run on
	Suspends  uint8 // a replica's machine sleeps
	Deaths    uint8 // a replica is killed
	GiveUps   uint8 // a replica gives a tick up, for instance since it drains
	Pauses    uint8 // a command pauses the lock, or repeats that it is paused
	Resumes   uint8 // a command ends a pause
}
