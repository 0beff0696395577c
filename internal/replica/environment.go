package replica

import (
	"strconv"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

// A Variable is an environment variable that cronclave sets for a job's command.
type Variable struct {
	Name, Doc string
	value     func(*commandRunner, *scheduler.Run) (value string, set bool)
}

// Variables returns all variables that cronclave sets for a job's command. Package config refuses jobs that set them.
func Variables() []Variable {
	always := func(name, doc string, of func(*commandRunner, *scheduler.Run) string) Variable {
		return Variable{name, doc, func(r *commandRunner, run *scheduler.Run) (string, bool) { return of(r, run), true }}
	}
	ofTick := func(name, doc string, of func(time.Time) string) Variable {
		return Variable{name, doc, func(_ *commandRunner, run *scheduler.Run) (string, bool) { return of(run.Tick), !run.Tick.IsZero() }}
	}
	return []Variable{
		always("CRONCLAVE_JOB", "The job's name.", func(_ *commandRunner, run *scheduler.Run) string { return run.Job }),
		always("CRONCLAVE_NAMESPACE", "The cluster's namespace.", func(r *commandRunner, _ *scheduler.Run) string { return r.namespace }),
		always("CRONCLAVE_REPLICA", "The name of the replica.", func(_ *commandRunner, run *scheduler.Run) string { return run.Replica }),
		always("CRONCLAVE_RUN_ID", "The run's id, which the history shows. Tries of `retry` share it.", func(_ *commandRunner, run *scheduler.Run) string { return run.ID }),
		ofTick("CRONCLAVE_TICK", "The tick in RFC 3339, UTC. Not set outside the schedule.", func(tick time.Time) string { return tick.UTC().Format(time.RFC3339) }),
		ofTick("CRONCLAVE_TICK_UNIX", "The tick in seconds since 1970. Not set outside the schedule.", func(tick time.Time) string { return strconv.FormatInt(tick.Unix(), 10) }),
		always("CRONCLAVE_ATTEMPT", "1 for the first try of the tick, 2 for the second, and so on. Numbers can have gaps.",
			func(_ *commandRunner, run *scheduler.Run) string { return strconv.Itoa(run.Attempt) }),
		{"CRONCLAVE_FENCING_TOKEN", "The fencing token: a decimal number below 2^53. Not set without a lock.", func(_ *commandRunner, run *scheduler.Run) (string, bool) {
			return strconv.FormatInt(run.Token, 10), run.Token != 0
		}},
		always("CRONCLAVE_SLOT", "The slot of the run, from 0.", func(_ *commandRunner, run *scheduler.Run) string { return strconv.Itoa(run.Slot) }),
		always("CRONCLAVE_SLOTS", "How many slots the job has (`parallel`).", func(_ *commandRunner, run *scheduler.Run) string { return strconv.Itoa(run.Slots) }),
		always("CRONCLAVE_TRIGGER", "What caused the run: `schedule`, `manual`, `catch_up` or `recovery`.", func(_ *commandRunner, run *scheduler.Run) string { return run.Trigger }),
	}
}
