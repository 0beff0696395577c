package model

// recovering is the setup that the cases of recovery change: a holder that dies or drains leaves its tick to a
// recovery.
func recovering(change func(*Setup)) func(*Setup) {
	return func(s *Setup) {
		s.Recover = 1
		change(s)
	}
}

// carryingOn has the rules of recovery: an orphan is recovered once, not beside its holder, not without end; and it
// is not lost.
var carryingOn = []regression{
	{"a recovered orphan stays one", func(r *Rules) { r.AdoptionConsumes = false },
		recovering(func(s *Setup) { s.Leaves, s.Horizon = true, 2 }), brokenAttempt},
	{"a recovery has the attempt of its orphan", func(r *Rules) { r.AdoptionCounts = false },
		recovering(func(s *Setup) { s.Leaves, s.Horizon = true, 2 }), brokenAttempt},
	{"an orphan whose attempts are used up is recovered", func(r *Rules) { r.RecoveryEnds = false },
		recovering(func(s *Setup) { s.Leaves, s.Faults = true, Faults{Deaths: 1} }), brokenMax},
	{"a recovery that is given back takes the orphan with it", func(r *Rules) { r.AdoptionGoesBack = false },
		recovering(func(s *Setup) { s.Leaves, s.Horizon, s.Faults = true, 2, Faults{Silences: 1, GiveUps: 1} }), brokenRecovery},
	{"a recovery whose lease has ended opens the tick", func(r *Rules) { r.RecoveryOpensNoTick = false },
		recovering(func(s *Setup) { s.Leaves, s.Faults = true, Faults{Silences: 1, GiveUps: 1} }), brokenRecovery},
	{"a holder releases the run of a lease that it has lost", func(r *Rules) { r.LostIsHandedOver = false },
		recovering(func(*Setup) {}), brokenRecovery},
	{"a late holder takes its orphan with it", func(r *Rules) { r.HandedOverStaysOrphan = false },
		recovering(func(*Setup) {}), brokenRecovery},
	{"the orphan of a recovery that was put back is recovered once more", func(r *Rules) { r.PutBackTakesOrphan = false },
		recovering(func(s *Setup) { s.Leaves, s.Horizon, s.InFlight, s.Faults = true, 4, 1, Faults{Saves: 1, Failovers: 1} }), brokenAttempt},
	{"a run is left before its processes are dead", func(r *Rules) { r.ReleaseAfterDead = false },
		recovering(func(s *Setup) { s.Leaves, s.Slots, s.Horizon = true, 2, 1 }), brokenBeside},
	{"a recovery beside the processes of a frozen replica", func(r *Rules) { r.Warden = false },
		recovering(func(s *Setup) { s.Slots, s.Faults = 2, Faults{Freezes: 1} }), brokenBeside},
	{"a recovery beside the processes of a killed replica", func(r *Rules) { r.Warden = false },
		recovering(func(s *Setup) { s.Slots, s.Faults = 2, Faults{Deaths: 1} }), brokenBeside},
}

// pausing has the rules of the pause: each replica that claims a tick of a paused lock settles it, and nothing
// remains for catch-up.
var pausing = []regression{
	{"a paused lock grants a tick", func(r *Rules) { r.PauseSettles = false },
		func(s *Setup) { s.Horizon, s.Faults = 2, Faults{Pauses: 1} }, brokenPause},
	{"ticks of paused time are caught up", func(r *Rules) { r.PausedTimeStays = false },
		func(s *Setup) { s.StartWithin, s.Faults = 2, Faults{Pauses: 1, Resumes: 1} }, brokenPause},
	{"ticks of a pause that has ended by itself are caught up", func(r *Rules) { r.PausedTimeStays = false },
		func(s *Setup) { s.StartWithin, s.PauseFor, s.Faults = 2, 1, Faults{Pauses: 1} }, brokenPause},
	{"a tick of paused time is missed", func(r *Rules) { r.PausedNotLate = false },
		func(s *Setup) { s.Faults = Faults{Pauses: 1} }, brokenPause},
	{"a tick that was too late before the pause is settled by it", func(r *Rules) { r.LateBeforePaused = false },
		func(s *Setup) { s.Faults = Faults{Pauses: 1} }, brokenPause},
	{"no client restores a pause that a server has forgotten", func(r *Rules) { r.PauseIsCarried = false },
		func(s *Setup) { s.Horizon, s.Faults = 2, Faults{Pauses: 1, Failovers: 1} }, brokenPause},
	{"an earlier statement about the pause replaces a later one", func(r *Rules) { r.LaterStatementCounts = false },
		func(s *Setup) { s.Faults = Faults{Pauses: 1, Resumes: 1} }, brokenPause},
	{"a pause that was ended comes back", func(r *Rules) { r.EndIsKept = false },
		func(s *Setup) { s.Faults = Faults{Pauses: 1, Resumes: 1} }, brokenPause},
}
