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
	Started, Ended   time.Time // Ended is zero until the run is known to have ended
}

// logLine has the fields that the demo uses of a line in a replica's log. For a line that is not JSON, Message is the line and Level is "".
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

	from  *process // process that wrote the log
	ended bool     // set if this is no line: the process has ended, and Error is its exit status
}

// Messages about ticks and runs in the log of a replica.
const (
	saidStarted   = "started"
	saidFinished  = "finished"
	saidNotRun    = "tick not run"
	saidAbandoned = "run abandoned: its holder is gone"
)

func parseLog(line []byte) logLine {
	var l logLine
	// Other lines may use the same keys with other types. The fields that could be parsed are used.
	if err := json.Unmarshal(line, &l); err != nil && l.Message == "" {
		return logLine{Message: string(line), At: time.Now()}
	}
	return l
}

// toRun returns the run that the line describes.
func (l *logLine) toRun() run {
	return run{ID: l.RunID, Job: l.Job, Replica: l.from.name, Tick: l.Tick, Slot: l.Slot, Token: l.Token, Started: l.At}
}
