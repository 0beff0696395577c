package model

// Rules are the rules of the protocol. One that is off makes the model wrong on purpose. Most answer a schedule that broke
// a draft of the protocol: the regression cases have them by name.
type Rules struct {
	// Granting.
	NotAfter        bool // a request that arrives after its not-after is refused
	SameGrantAgain  bool // the id that holds a row is granted that row again
	NeverEarly      bool // the server compares the tick with its own clock
	LedgerOfTicks   bool // a tick that was decided is refused, whoever holds the lock
	LowWithoutGaps  bool // low moves only when the tick before is decided; else it is the newest tick
	SkipOnlyUnrun   bool // a tick that has a grant is not settled as skipped or missed
	SettledInScript bool // an outcome is decided by the server in one step with the grants; else each replica decides by its own clock
	HybridTokens    bool // token = max(floor + 1, the server's time); else a counter
	FirstWaits      bool // of the ticks that queue the first is not skipped: all before it are decided

	// Asking.
	SameID             bool // an unknown outcome is asked again under the same id
	WithdrawGivenUp    bool // who gives up a claim whose outcome is unknown withdraws it
	WithdrawUnasked    bool // but not while it is asked for: then the grant would be started and withdrawn
	WaitingNeverSkips  bool // a tick that waited for the server is not settled as skipped
	GiveBackOnlyUnrun  bool // a run that has started is not given back
	AcknowledgedGrants bool // WAIT: a grant that no follower has acknowledged is none

	// Holding.
	DeadlineFromSend     bool // the holder's deadline counts from before the request; else from the reply
	DeadlineInSuspend    bool // by a clock that runs on in suspend
	AcknowledgedRenewals bool // WAIT: nor is a renewal
	ReleaseAfterDead     bool // the row is released when the processes are dead; else when they are told to end
	Warden               bool // kills what a frozen replica runs at the deadline, and what a dead one ran at once
	Tombstones           bool // whatever arrives in the name of a released lease is refused
	LeftIsDead           bool // also the id of a run that was left to an heir
	PutBackBySlot        bool // a row is put back if its slot has had no later grant; else if the lock has had none
	PutBackNeverOver     bool // and not in any case, whatever was granted since
	SlotRemembers        bool // a slot knows its newest token when its row is gone
	PutBackCloses        bool // a renewal by one who knows more than the server closes the lock, as a claim does

	// Forgetting.
	Witnesses         bool // requests carry what was witnessed
	ForgottenCloses   bool // a server that knows less than a witness is closed to new grants for the longest lease
	RepliesTellLedger bool // replies tell the ledger, and not only low

	// Carrying on.
	AdoptionConsumes   bool // the grant to an heir takes the orphan away in the same step
	AdoptionCounts     bool // and is one attempt on
	RecoveryEnds       bool // an orphan whose attempts are used up is not adopted
	AdoptionGoesBack   bool // an adoption that is given back leaves the orphan to another heir
	HeirOpensNoTick    bool // also one whose lease has ended since: it is the orphan now, and its tick stays decided
	LostIsLeft         bool // who has lost its lease, or drains, leaves its run; else it releases it
	LeftStaysOrphan    bool // one whose lease had ended before is not taken from the heirs
	PutBackTakesOrphan bool // the orphan of an heir whose row is put back is taken away once more

	// Pausing.
	PauseSettles     bool // a tick of a paused lock is settled by whoever asks for it
	PausedTimeStays  bool // a tick of paused time is so also when the pause is over; else only while it is on
	PausedNotLate    bool // also if it is past its deadline
	LateBeforePaused bool // a tick whose deadline had passed before the pause began is not
	PauseIsWitnessed bool // requests tell the pause
	LaterWordCounts  bool // of two words on the pause the one that was said later; else that of the request
	EndIsAWord       bool // the end of a pause is kept as its beginning is; else nothing is

	// Of the rules, those that this search has found missing.
	OwnOrphanReopens    bool // who asks under the id of a lease that has ended unheard has never started: its tick is open again
	AcknowledgedWitness bool // WAIT: what no follower has acknowledged is not witnessed
	AcknowledgedRefusal bool // WAIT: nor is it an outcome: the tick stays open
	WithdrawDoubted     bool // a claim that was never answered is withdrawn by who gives up, whatever was answered to a later one

	// Proposed: AllRules has them off.
	OutOfTurnIsTold     bool // a decision out of turn moves neither floor nor low: who lacks it has forgotten all the same, and who was told of it keeps it
	ScheduleIsWitnessed bool // requests tell that the schedule was known, also before its first tick is decided
}

// Proposed has all rules on, and those that are missing yet.
func Proposed() Rules {
	r := AllRules()
	r.OutOfTurnIsTold, r.ScheduleIsWitnessed = true, true
	return r
}

// AllRules has all rules of the protocol on.
func AllRules() Rules {
	return Rules{
		NotAfter: true, SameGrantAgain: true, NeverEarly: true, LedgerOfTicks: true, LowWithoutGaps: true, SkipOnlyUnrun: true,
		SettledInScript: true, HybridTokens: true, FirstWaits: true,
		SameID: true, WithdrawGivenUp: true, WithdrawUnasked: true, WaitingNeverSkips: true, GiveBackOnlyUnrun: true,
		AcknowledgedGrants: true,
		DeadlineFromSend:   true, DeadlineInSuspend: true, AcknowledgedRenewals: true, ReleaseAfterDead: true, Warden: true, Tombstones: true, LeftIsDead: true,
		PutBackBySlot: true, PutBackNeverOver: true, SlotRemembers: true, PutBackCloses: true,
		Witnesses: true, ForgottenCloses: true, RepliesTellLedger: true,
		AdoptionConsumes: true, AdoptionCounts: true, RecoveryEnds: true, AdoptionGoesBack: true, HeirOpensNoTick: true, LostIsLeft: true,
		LeftStaysOrphan: true, PutBackTakesOrphan: true,
		PauseSettles: true, PausedTimeStays: true, PausedNotLate: true, LateBeforePaused: true, PauseIsWitnessed: true, LaterWordCounts: true, EndIsAWord: true,
		OwnOrphanReopens: true, AcknowledgedWitness: true, AcknowledgedRefusal: true, WithdrawDoubted: true,
	}
}
