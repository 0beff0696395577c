package cluster

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

// ranAtNoon is the record of a run of noon in a slot.
func ranAtNoon(slot, attempt int, trigger, outcome string) journal.Record {
	r := journal.Record{RunID: trigger + outcome, Job: "j", Replica: "r1", Outcome: outcome, Trigger: trigger, Tick: noon, Started: noon, Token: 7, Attempt: attempt, Slot: &slot}
	if outcome != journal.OutcomeRunning {
		r.Finished = noon.Add(time.Minute)
	}
	return r
}

// A user may run a tick again that has an outcome. Such a run counts its attempts from the first.
func TestWhyOfARerun(t *testing.T) {
	t.Parallel()
	tried, failed, again := ranAtNoon(0, 1, "schedule", "failed"), ranAtNoon(0, 3, "schedule", "failed"), ranAtNoon(0, 1, "manual", "running")
	tried.RunID, tried.Retried = "x.1", true
	held := election.State{Decided: noon, Running: []election.Run{{ID: again.RunID, Holder: "r1"}}} // a run that a user asked for holds its slot without a tick
	explained(t, held, again, failed, tried).wants(t, "a re-run that goes on", Running, "runs on r1 with token 7, since", "a user asked for it", "attempt 3: failed")
	explained(t, election.State{Decided: noon}, again, failed, tried).wants(t, "a re-run that died", Unknown, "its lease has ended, and no replica has recorded how the run ended")
	explained(t, election.State{Decided: noon}, ranAtNoon(0, 1, "manual", "ok"), failed, tried).wants(t, "a re-run that ended", Over)
	once, twice := ranAtNoon(0, 1, "manual", "running"), ranAtNoon(0, 2, "manual", "failed")
	twice.Token, twice.RunID = 6, "y"
	explained(t, election.State{Decided: noon}, once, twice, failed).wants(t, "a re-run that died, after one with a retry", Unknown, "its lease has ended, and no replica has recorded how the run ended")

	recovery := ranAtNoon(0, 4, "recovery", "ok")
	explained(t, held, again, recovery, ranAtNoon(1, 3, "schedule", "abandoned")).wants(t, "a re-run after a recovery", Running, "take-over from r1, whose run was abandoned")
	manual := ranAtNoon(2, 2, "manual", "lost")
	manual.Replica = "r9"
	explained(t, election.State{Decided: noon}, ranAtNoon(0, 3, "recovery", "ok"), manual, ranAtNoon(1, 1, "schedule", "abandoned")).wants(t, "a recovery and a re-run", Over, "take-over from r1, whose run was abandoned")
}

// A recovery in another slot than the run that it follows is the last run of the tick.
func TestWhyOfARecoveryInAnotherSlot(t *testing.T) {
	t.Parallel()
	explained(t, election.State{Decided: noon}, ranAtNoon(0, 2, "recovery", "ok"), ranAtNoon(1, 1, "schedule", "running")).wants(t, "a recovery that ended", Over)
	explained(t, election.State{Decided: noon}, ranAtNoon(0, 2, "schedule", "ok"), ranAtNoon(1, 1, "schedule", "running")).wants(t, "another run of a fan-out", Unknown)
}
