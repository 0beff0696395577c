package model

// ID is a lease id. It stands for a replica, a piece of work and a generation; 0 is none.
type ID uint8

const idsOf = 1 + maxTicks*generations // lease ids of one replica

// newID names the id under which a replica asks for a piece of work; the manual trigger has one only.
func newID(replica, work, generation int) ID {
	id := ID(1 + replica*idsOf)
	if work > 0 {
		id += ID(1 + (work-1)*generations + generation)
	}
	return id
}

func (id ID) owner() int { return int(id-1) / idsOf }
func (id ID) work() int  { return (int(id-1)%idsOf + generations - 1) / generations }
func (id ID) generation() int {
	return int(id - newID(id.owner(), id.work(), 0))
}

// IDs is a set of lease ids.
type IDs uint16

func (s IDs) has(id ID) bool { return s>>id&1 == 1 }
func setOf(id ID) IDs        { return 1 << id }

// idsFor is the set of all ids for one piece of work.
var idsFor = func() (sets [works]IDs) {
	for id := ID(1); id <= maxReplicas*idsOf; id++ {
		sets[id.work()] |= setOf(id)
	}
	return sets
}()

// State is one moment of everything.
type State struct {
	Servers  [masters]Server
	Replicas [maxReplicas]Replica
	Net      [maxMessages]Message
	Left     Faults // faults that may still happen
	Now      uint8  // real time, which is every replica's local clock
	Back     uint8  // how far the server's clock is behind it
	Split    bool   // the second server is the master, and the first serves on alone
	Lost     bool   // a server has forgotten something
	Blind    bool   // a claimant that had observed too little was granted something: the promises end here
	Broken   Fault  // the promise that is broken
	True     Truth
}

// Truth is what really happened, known or not.
type Truth struct {
	Issued   IDs // granted
	Settled  IDs // settled without a run
	Undone   IDs // granted and given back
	Started  IDs // granted and run
	Runs     [works]uint8
	Slots    [works]uint8 // in which slots each tick has run, as a set
	Outcomes [works]uint8 // recorded outcomes of a tick without a run, as a set
	Token    uint8        // the greatest so far
	Tries    [works]uint8 // attempts of each tick that have begun, as a set, and wellEnded
	Pause    Pause        // the newest statement
}

// wellEnded is in a set of attempts when one of them has ended by itself.
const wellEnded = 1

// Server has the contents of the keys of one lock. Instants are of the server's clock.
type Server struct {
	Floor     uint8 // the greatest token
	Low       uint8 // every tick up to it is decided
	Longest   uint8 // lease
	Closed    uint8 // to new grants, until then
	Since     uint8 // when the schedule was first announced to it: ticks up to then are decided
	Known     bool  // the schedule
	Rows      [maxSlots]Row
	Newest    [maxSlots]uint8 // token that was granted in this slot, also after its row is gone
	Ledger    Ledger
	Last      Settlement
	Tombs     [1 + maxReplicas*idsOf]uint8 // until when an id is remembered as released; gone marks the verdict
	Orphans   [maxSlots]IDs                // leases that ended without a release, by slot
	Abandoned IDs                          // of these, those whose tick stays decided whatever their claimants say
	Beyond    [2]IDs                       // of the orphans, how many attempts they are beyond the first: the bits of a number
	Pause     Pause
	Told      IDs // not a key: the grants and settlements that it made or learned from clients
	Released  IDs // not a key: all ids that it has released since its last loss
	Recovered IDs // not a key: orphans that have a recovery, as far as it knows
}

// gone marks the tombstone of a lease that had ended before its release.
const gone = 0x80

// Row is a lease as the server stores it.
type Row struct {
	ID            ID
	Token, Expiry uint8
	Attempt       uint8
	Adopted       ID    // the orphan that it carries on, for the case that it is given back; 0: none
	From          uint8 // the slot of that orphan
	Kept          bool  // that was abandoned
}

// Settlement is the newest decision, and the id that made it.
type Settlement struct {
	Tick uint8
	How  Outcome
	By   ID
}

// Ledger has the ticks that low does not cover. The first entry is of the manual trigger, and always empty.
type Ledger [works]Entry

// Entry is the state of a tick, its outcome if it is done, and slots if it is not.
type Entry uint8

const (
	part Entry = 1 + iota // granted in these slots, and open to others
	done                  // decided out of turn
	open                  // given back: to all slots, or only to these
)

// Outcome is the way in which a tick was decided.
type Outcome uint8

const (
	noOutcome Outcome = iota // unknown
	granted
	skipped
	missed
	paused    // skipped since the lock is paused
	abandoned // recorded for a run that did not begin
	adopted   // of a recovery: the orphan is not available
)

func newEntry(state Entry, how Outcome, slots uint8) Entry {
	return state | Entry(how)<<2 | Entry(slots)<<5
}
func (e Entry) state() Entry { return e & 3 }
func (e Entry) how() Outcome { return Outcome(e >> 2 & 7) }
func (e Entry) slots() uint8 { return uint8(e >> 5) }

// Knowledge is the state of the lock that a reply carries and a later request repeats: see locking's observed state.
type Knowledge struct {
	Floor, Longest, Low uint8
	Schedule            bool // the server knew it
	Layers              uint8
	Ledgers             [2]Ledger // from a server before and after it forgot
	Told                IDs       // grants and settlements up to this reply
	Pause               Pause
}

// Replica is one running process with its jobs.
type Replica struct {
	Mode  Mode
	Slept uint8 // since when its machine sleeps
	Lag   uint8 // how far it thinks that the server's clock is behind its own
	Work  [works]Work
	Knows Knowledge
}

// Mode is the condition of a replica.
type Mode uint8

const (
	up Mode = iota
	frozen
	asleep
	dead
)

// Work is a piece of work on one replica.
type Work struct {
	Phase      Phase
	Generation uint8 // of the id under which it asks
	Waited     bool  // no replica could decide it in time
	Rests      bool  // it was answered: it is asked for again when time has passed
	Asked      bool  // an earlier claim was not answered
	Alive      bool  // its processes run
	Leaves     bool  // its release leaves it to a recovery
	Adopts     ID    // the orphan that it claims, or carries on; 0: its tick
	Attempt    uint8
	Slot       uint8 // and token and deadline, of a lease that it believes in
	Token      uint8
	Deadline   uint8
}

// Phase is how far a piece of work has come.
type Phase uint8

const (
	quiet     Phase = iota // open: to be asked for
	running                // granted
	ending                 // to be released
	returning              // to be given back, and asked for again
	leaving                // given up while a claim is under way
	withdrawn              // given up: to be given back
	over
)

// Message is a request, and after its execution the reply.
type Message struct {
	Kind    Kind
	Phase   Leg
	To      uint8 // the server
	ID      ID
	Sent    uint8 // local clock
	Until   uint8 // its not-after, by the server's clock
	Undo    bool  // a release: the run never started
	Leave   bool  // a release: another replica is to carry the run on
	Skip    bool  // a claim: settle the tick as skipped if all rows are held
	First   bool  // but not if all ticks before it are decided
	Waited  bool  // a claim of a tick that has waited for the server
	Adopt   ID    // a claim or a renewal: the orphan that it carries on
	Attempt uint8
	Slot    uint8
	Token   uint8
	Verdict Verdict
	How     Outcome
	Left    uint8 // of the lease
	Lag     uint8 // of the server's clock at the execution
	Acked   bool  // by the follower
	Knows   Knowledge
}

// Leg is the stage of a message.
type Leg uint8

const (
	underway Leg = iota
	stray        // underway, and no replica waits for its reply
	answered
)

// Kind of a message; 0 is none.
type Kind uint8

const (
	claim Kind = 1 + iota
	renewal
	release
)

// Verdict of a reply.
type Verdict uint8

const (
	isLate Verdict = 1 + iota
	isDead
	isEarly
	isClosed
	isSettled
	isDecided
	isHeld
	isGranted
	isRenewed
	isLost
	isReleased
	isGone
	isUnheard
)

// Fault names the promise that a state breaks; 0 is none.
type Fault uint8

const (
	brokenOnce Fault = 1 + iota
	brokenSlot
	brokenEarly
	brokenExclusive
	brokenGhost
	brokenFenced
	brokenLost
	brokenSkipped
	brokenQueue
	brokenDecider
	brokenHolder
	brokenRow
	brokenAttempt
	brokenMax
	brokenRecovery
	brokenBeside
	brokenPause
)

var faultTexts = [...]string{
	brokenOnce:      "P1: a tick has run more often than it may",
	brokenSlot:      "P1: a tick has run twice in one slot",
	brokenEarly:     "P2: a tick is granted before its instant by the server's clock",
	brokenExclusive: "P3: more runs are alive at once than the lock has slots",
	brokenGhost:     "P3: a lease that was released holds a row",
	brokenFenced:    "P4: a later grant has no greater token",
	brokenLost:      "P5: a tick counts as decided, but no replica has run or settled it and none will",
	brokenSkipped:   "P5: a tick that waited for the server is skipped",
	brokenQueue:     "P5: a tick that is to queue is skipped while none before it waits",
	brokenDecider:   "P6: a tick has two outcomes",
	brokenRow:       "P3: an earlier lease takes the row of a later grant",
	brokenAttempt:   "P1: an attempt of a tick is begun twice",
	brokenMax:       "P9: a tick has more attempts than it may have",
	brokenRecovery:  "P5: an interrupted run awaits no recovery though it may have one",
	brokenBeside:    "P3: a tick is run again beside a run of it that goes on",
	brokenPause:     "P6: a pause is known, and a tick of it is granted or settled otherwise, or one that is none of it is settled so",
	brokenHolder:    "P3: a living holder loses its lease though its slot was granted to no other",
}

func (f Fault) String() string { return faultTexts[f] }
