package model

// Rules are the rules of the protocol. One that is off makes the model wrong on purpose. Most answer a schedule that
// broke a draft of the protocol: the regression cases have them by name.
type Rules struct {
	// Granting.
	NotAfter        bool // a request that arrives after its not-after is refused
	SameGrantAgain  bool // the id that holds a row is granted that row again
	NeverEarly      bool // the server compares the tick with its own clock
	LedgerOfTicks   bool // a tick that was decided is refused, whichever replica holds the lock
	LowWithoutGaps  bool // low moves only when the tick before is decided; else it is the newest tick
	SkipOnlyUnrun   bool // a tick that has a grant is not settled as skipped or missed
	SettledInScript bool // an outcome is decided by the server in one step with the grants; else each replica decides by its own clock
	HybridTokens    bool // token = max(floor + 1, the server's time); else a counter
	FirstWaits      bool // of the ticks that queue the first is not skipped: all before it are decided

	// Asking.
	SameID             bool // an unknown outcome is asked again under the same id
	WithdrawGivenUp    bool // a replica that gives up a claim whose outcome is unknown withdraws it
	WithdrawUnasked    bool // but not while it is asked for: then the grant would be started and withdrawn
	WaitingNeverSkips  bool // a tick that waited for the server is not settled as skipped
	GiveBackOnlyUnrun  bool // a run that has started is not given back
	AcknowledgedGrants bool // WAIT: a grant that no follower has acknowledged is none

	// Holding.
	DeadlineFromSend     bool // the holder's deadline counts from before the request; else from the reply
	DeadlineInSuspend    bool // by a clock that runs on in suspend
	AcknowledgedRenewals bool // WAIT: nor is a renewal
	ReleaseAfterDead     bool // the row is released when the processes are dead; else when they are told to end
	Warden               bool // kills the processes of a frozen replica at the deadline, and those of a dead one at once
	Tombstones           bool // every request in the name of a released lease is refused
	PutBackBySlot        bool // a row is put back if its slot has had no later grant; else if the lock has had none
	PutBackNeverOver     bool // and not in any case, whichever grants came since
	SlotRemembers        bool // a slot knows its newest token when its row is gone
	PutBackCloses        bool // a renewal by a holder that knows more than the server closes the lock, as a claim does

	// Forgetting.
	ObservedState      bool // requests carry the observed state
	ForgottenCloses    bool // a server that knows less than a client has observed is closed to new grants for the longest lease
	RepliesCarryLedger bool // replies carry the ledger, and not only low

	// Recovery.
	AdoptionConsumes      bool // the grant of a recovery takes the orphan away in the same step
	AdoptionCounts        bool // and is one attempt more
	RecoveryEnds          bool // an orphan whose attempts are used up is not recovered
	AdoptionGoesBack      bool // a recovery that is given back leaves the orphan to another
	RecoveryOpensNoTick   bool // also one whose lease has ended since: it is the orphan now, and its tick stays decided
	LostIsHandedOver      bool // a replica that has lost its lease, or drains, leaves its run to a recovery; else it releases it
	HandedOverStaysOrphan bool // a run whose lease had ended before stays available to recoveries
	PutBackTakesOrphan    bool // the orphan of a recovery whose row is put back is taken away once more

	// Pausing.
	PauseSettles         bool // a tick of a paused lock is settled by the replica that claims it
	PausedTimeStays      bool // a tick of paused time is so also when the pause is over; else only while it is on
	PausedNotLate        bool // also if it is past its deadline
	LateBeforePaused     bool // a tick whose deadline had passed before the pause began is not
	PauseIsCarried       bool // requests carry the pause
	LaterStatementCounts bool // of two statements about the pause the later counts; else that of the request
	EndIsKept            bool // the end of a pause is kept as its beginning is; else nothing is

	// Of the rules, those that this search has found missing.
	OwnOrphanIsUnheard     bool // a replica that claims under the id of a lease that ended unheard never started: it withdraws the claim, and the tick is open again
	OnlyClaimantReopens    bool // and no other may say so: the run may have begun; else a tick is open as soon as the lease of its run has ended
	WithdrawnIDIsDead      bool // the tick is claimed under a new id then; else under the same
	AcknowledgedWithdrawal bool // WAIT: nor is a withdrawal, before which the tick is not claimed again
	AbandonLate            bool // others record a run as abandoned only when its claimant is not up, or the tick may not start any more
	AcknowledgedState      bool // WAIT: a reply that no follower has acknowledged is not observed state
	AcknowledgedRefusal    bool // WAIT: nor is it an outcome: the tick stays open
	WithdrawDoubted        bool // a replica that gives up withdraws a claim that was never answered, however a later one was answered
	WithdrawDecided        bool // also if that answer was that the tick is decided: it may be open again when the claim without an answer arrives

	// Proposed: AllRules has them off.
	OutOfTurnIsCarried bool // a decision out of turn moves neither floor nor low: a server that lacks it has forgotten it, and a client that knows it keeps it
	ScheduleIsCarried  bool // requests carry that the schedule was known, also before its first tick is decided
}

// Proposed has all rules on, and those that are missing yet.
func Proposed() Rules {
	r := AllRules()
	r.OutOfTurnIsCarried, r.ScheduleIsCarried = true, true
	return r
}

// AllRules has all rules of the protocol on.
func AllRules() Rules {
	return Rules{
		NotAfter: true, SameGrantAgain: true, NeverEarly: true, LedgerOfTicks: true, LowWithoutGaps: true, SkipOnlyUnrun: true,
		SettledInScript: true, HybridTokens: true, FirstWaits: true,
		SameID: true, WithdrawGivenUp: true, WithdrawUnasked: true, WaitingNeverSkips: true, GiveBackOnlyUnrun: true,
		AcknowledgedGrants: true,
		DeadlineFromSend:   true, DeadlineInSuspend: true, AcknowledgedRenewals: true, ReleaseAfterDead: true, Warden: true, Tombstones: true,
		PutBackBySlot: true, PutBackNeverOver: true, SlotRemembers: true, PutBackCloses: true,
		ObservedState: true, ForgottenCloses: true, RepliesCarryLedger: true,
		AdoptionConsumes: true, AdoptionCounts: true, RecoveryEnds: true, AdoptionGoesBack: true, RecoveryOpensNoTick: true, LostIsHandedOver: true,
		HandedOverStaysOrphan: true, PutBackTakesOrphan: true,
		PauseSettles: true, PausedTimeStays: true, PausedNotLate: true, LateBeforePaused: true, PauseIsCarried: true, LaterStatementCounts: true, EndIsKept: true,
		OwnOrphanIsUnheard: true, OnlyClaimantReopens: true, WithdrawnIDIsDead: true, AcknowledgedWithdrawal: true, AbandonLate: true, AcknowledgedState: true, AcknowledgedRefusal: true, WithdrawDoubted: true, WithdrawDecided: true,
	}
}
