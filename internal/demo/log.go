package demo

import (
	"encoding/json"
	"time"
)

// run is one execution of a job, according to the job itself or to a replica's log.
type run struct {
	ID, Job, Replica string
	Tick             time.Time
	Slot             int
	Token            int64
	Started, Ended   time.Time // Ended is zero until the run is known to have ended
}

// logLine has the fields of a replica's log line that the demo uses. A line that is not JSON is a Message without a Level.
type logLine struct {
	Level   string    `json:"level"`
	Message string    `json:"msg"`
	At      time.Time `json:"time"`
	Stream  string    `json:"stream"` // set if Message is output of a job
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

	from  *process // process of the log
	ended bool     // no line: the process has ended, with Error as the reason
}

// The messages about ticks and runs in a replica's log.
const (
	saidStarted   = "started"
	saidFinished  = "finished"
	saidNotRun    = "tick not run"
	saidAbandoned = "run abandoned: its holder is gone"
)

func parseLog(line []byte) logLine {
	var l logLine
	// The keys of other lines may have other types. Use the fields that could be read.
	if err := json.Unmarshal(line, &l); err != nil && l.Message == "" {
		return logLine{Message: string(line), At: time.Now()}
	}
	return l
}

// toRun returns the run that the line is about.
func (l *logLine) toRun() run {
	return run{ID: l.RunID, Job: l.Job, Replica: l.from.name, Tick: l.Tick, Slot: l.Slot, Token: l.Token, Started: l.At}
}
