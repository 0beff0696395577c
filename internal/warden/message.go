package warden

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// verb is the kind of a message.
type verb string

const (
	// From the replica to its helper.
	hello   verb = "hello"   // the first message; PID is the PID of the replica
	inherit verb = "inherit" // Cgroup must be removed after the replica has exited
	watch   verb = "watch"   // a run is about to start; a new helper gets this message with the current state
	started verb = "started" // PID is the leader of the run's process group, Start its start time
	extend  verb = "extend"  // Deadline is the new deadline; the extension was known at At
	told    verb = "told"    // the replica has sent SIGTERM itself
	reap    verb = "reap"    // the leader's PID is about to be freed and must not be signalled any more
	release verb = "release" // the run is over
	ping    verb = "ping"

	// From the helper.
	ack     verb = "ack"     // all messages up to Seq were acted on
	stopped verb = "stopped" // the run got SIGTERM at At, because its deadline is near
	killed  verb = "killed"  // the run was killed at At, because it was late
)

// message is one line of JSON on a pipe, in either direction. Times are on CLOCK_BOOTTIME.
type message struct {
	Verb     verb          `json:"verb"`
	Seq      uint64        `json:"seq,omitempty"`
	Run      uint64        `json:"run,omitempty"`  // number of the run in the warden
	Name     string        `json:"name,omitempty"` // id of the run, for the log
	Job      string        `json:"job,omitempty"`
	ID       string        `json:"id,omitempty"`
	Cgroup   string        `json:"cgroup,omitempty"`
	PID      int           `json:"pid,omitempty"`
	Start    uint64        `json:"start,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"`
	At       time.Duration `json:"at,omitempty"`
	Lease    time.Duration `json:"lease,omitempty"`
	Grace    time.Duration `json:"grace,omitempty"`
	Told     bool          `json:"told,omitempty"`
}

// encodeLine returns the message as one line of JSON.
func (m message) encodeLine() []byte {
	text, _ := json.Marshal(m) // can't fail for strings and numbers
	return append(text, '\n')
}

// longestLine exceeds the length of any message: a path has at most 4 KiB, and JSON encodes a byte in at most six bytes.
const longestLine = 64 << 10

// lines splits the input from a pipe into messages.
type lines struct{ rest []byte }

// add adds input and returns the messages that are complete.
func (l *lines) add(piece []byte) ([]message, error) {
	l.rest = append(l.rest, piece...)
	var all []message
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte{'\n'})
		if !ok {
			break
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return all, fmt.Errorf("message %.80q: %w", line, err)
		}
		all = append(all, m)
		l.rest = rest
	}
	if len(l.rest) > longestLine {
		return all, fmt.Errorf("message %.80q has no end", l.rest)
	}
	l.rest = append([]byte(nil), l.rest...) // copied to release the memory of the earlier input
	return all, nil
}
