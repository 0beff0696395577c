package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// The variables through which the jobs of the built-in configuration find the program and the file they write to.
const (
	demoProgram = "DEMO_PROGRAM"
	demoWitness = "DEMO_WITNESS"
)

// testimony is a line that a job of the demo writes itself, at its start and at its end.
type testimony struct {
	Event   string    `json:"event"` // start, end
	Job     string    `json:"job"`
	Tick    time.Time `json:"tick"`
	Slot    int       `json:"slot"`
	Token   int64     `json:"token"`
	Replica string    `json:"replica"`
	RunID   string    `json:"run_id"`
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
}

// demoWorkCommand is what the jobs of the demo run.
func (a *app) demoWorkCommand() *cobra.Command {
	var length time.Duration
	cmd := &cobra.Command{
		Use:    "demo-work",
		Short:  "A job of the demo: says when it starts and when it ends",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := testify(os.Getenv)
			if err != nil {
				return usageError("demo-work runs as a job of the demo: %w", err)
			}
			path := os.Getenv(demoWitness)
			if err := t.say("start", path); err != nil {
				return exitError{exitFailed, err}
			}
			select {
			case <-time.After(length):
			case <-cmd.Context().Done():
			}
			if err := t.say("end", path); err != nil {
				return exitError{exitFailed, err}
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&length, "for", 0, "how long it lasts")
	return cmd
}

// testify reads what a replica tells its job.
func testify(env func(string) string) (testimony, error) {
	t := testimony{Job: env("CRONCLAVE_JOB"), Replica: env("CRONCLAVE_REPLICA"), RunID: env("CRONCLAVE_RUN_ID"), PID: os.Getpid()}
	var errs [3]error
	t.Tick, errs[0] = time.Parse(time.RFC3339, env("CRONCLAVE_TICK"))
	t.Slot, errs[1] = strconv.Atoi(env("CRONCLAVE_SLOT"))
	t.Token, errs[2] = strconv.ParseInt(env("CRONCLAVE_FENCING_TOKEN"), 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return t, fmt.Errorf("its environment: %w", err)
	}
	return t, nil
}

// say appends one line in one write, so that lines of many jobs do not mix.
func (t testimony) say(event, path string) error {
	t.Event, t.At = event, time.Now()
	line, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("write testimony: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("write testimony: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write testimony: %w", err)
	}
	return nil
}

// readTestimonies reads what the jobs wrote. No file means that none has run.
func readTestimonies(path string) ([]testimony, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what the jobs wrote: %w", err)
	}
	var list []testimony
	for line := range bytes.Lines(data) {
		var t testimony
		if err := json.Unmarshal(line, &t); err != nil {
			return nil, fmt.Errorf("read what the jobs wrote: %w: %q", err, line)
		}
		list = append(list, t)
	}
	return list, nil
}

// runsOf puts the lines together: a run for each start, in the order of the file.
func runsOf(lines []testimony) []demoRun {
	var runs []demoRun
	for _, t := range lines {
		if t.Event == "start" {
			runs = append(runs, demoRun{ID: t.RunID, Job: t.Job, Replica: t.Replica, Tick: t.Tick, Slot: t.Slot, Token: t.Token, Started: t.At})
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
