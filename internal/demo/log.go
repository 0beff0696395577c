package demo

import (
	"encoding/json"
	"time"
)

// run is one execution of a job, as the job itself or a replica's log reports it.
type run struct {
	ID, Job, Replica string
	Tick             time.Time
	Slot             int
	Token            int64
	Started, Ended   time.Time // Ended is zero while it is not known to have ended
}

// logLine holds the fields of a replica's log line that the demo reads. A line that is no JSON is all Message, without a Level.
type logLine struct {
	Level   string    `json:"level"`
	Message string    `json:"msg"`
	At      time.Time `json:"time"`
	Stream  string    `json:"stream"` // set where Message is a line that a job printed
	Job     string    `json:"job"`
	RunID   string    `json:"run_id"`
	Tick    time.Time `json:"tick"`
	Slot    int       `json:"slot"`
	Token   int64     `json:"token"`
	Outcome string    `json:"outcome"`
	Reason  string    `json:"reason"`
	Took    string    `json:"duration"`
	Lost    string    `json:"replica_lost"`
	Error   string    `json:"error"`

	from  *process // whose log it is
	ended bool     // not a line: the replica's process has ended, with Error as the reason
}

// The messages of a replica's log about ticks and runs.
const (
	saidStarted   = "started"
	saidFinished  = "finished"
	saidNotRun    = "tick not run"
	saidAbandoned = "run abandoned: its holder is gone"
)

func parseLog(line []byte) logLine {
	var l logLine
	// Other lines may have other types at the same keys: the readable fields count.
	if err := json.Unmarshal(line, &l); err != nil && l.Message == "" {
		return logLine{Message: string(line), At: time.Now()}
	}
	return l
}

// run is the run that the line is about.
func (l *logLine) run() run {
	return run{ID: l.RunID, Job: l.Job, Replica: l.from.name, Tick: l.Tick, Slot: l.Slot, Token: l.Token, Started: l.At}
}
