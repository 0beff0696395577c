package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

// Environment variables for the jobs of the built-in configuration: the program to execute, and the file to which jobs write.
const (
	programVariable  = "DEMO_PROGRAM"
	runsFileVariable = "DEMO_RUNS_FILE"
)

// entry is a line in the file of runs. A job of the demo writes one when it starts and one when it ends.
type entry struct {
	Event   string    `json:"event"` // "start" or "end"
	Job     string    `json:"job"`
	Tick    time.Time `json:"tick"`
	Slot    int       `json:"slot"`
	Token   int64     `json:"token"`
	Replica string    `json:"replica"`
	RunID   string    `json:"run_id"`
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
}

// Work is what a job of the built-in configuration executes. It writes an entry to the file of runs, waits for length, and writes another entry. It returns
// [ErrNoDemo] if it does not run as a job of a demo.
func Work(ctx context.Context, length time.Duration) error {
	t, err := newEntry(os.Getenv)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoDemo, err)
	}
	path := os.Getenv(runsFileVariable)
	if err := t.appendTo("start", path); err != nil {
		return err
	}
	backoff.Sleep(ctx, length)
	return t.appendTo("end", path)
}

// ErrNoDemo reports that [Work] was started by hand, not as a job of a demo.
var ErrNoDemo = errors.New("demo-work runs as a job of the demo")

// newEntry returns an entry about the run that the environment describes. The replica has set these variables.
func newEntry(env func(string) string) (entry, error) {
	t := entry{Job: env("CRONCLAVE_JOB"), Replica: env("CRONCLAVE_REPLICA"), RunID: env("CRONCLAVE_RUN_ID"), PID: os.Getpid()}
	var errs [3]error
	t.Tick, errs[0] = time.Parse(time.RFC3339, env("CRONCLAVE_TICK"))
	t.Slot, errs[1] = strconv.Atoi(env("CRONCLAVE_SLOT"))
	t.Token, errs[2] = strconv.ParseInt(env("CRONCLAVE_FENCING_TOKEN"), 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return t, fmt.Errorf("its environment: %w", err)
	}
	return t, nil
}

// appendTo appends the entry to a file with a single write, so that the lines of several jobs do not mix.
func (t entry) appendTo(event, path string) error {
	t.Event, t.At = event, time.Now()
	line, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// readEntries reads the file of runs. If the file is missing, no job has run.
func readEntries(path string) ([]entry, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the jobs' records: %w", err)
	}
	var list []entry
	for line := range bytes.Lines(data) {
		var t entry
		if err := json.Unmarshal(line, &t); err != nil {
			return nil, fmt.Errorf("read the jobs' records: %w: %q", err, line)
		}
		list = append(list, t)
	}
	return list, nil
}

// runsOf returns a run for each start, in the order of the file.
func runsOf(lines []entry) []run {
	var runs []run
	for _, t := range lines {
		if t.Event == "start" {
			runs = append(runs, run{ID: t.RunID, Job: t.Job, Replica: t.Replica, Tick: t.Tick, Slot: t.Slot, Token: t.Token, Started: t.At})
			continue
		}
		for i := range runs {
			if runs[i].ID == t.RunID && runs[i].Ended.IsZero() {
				runs[i].Ended = t.At
				break
			}
		}
	}
	return runs
}
