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
	hello   verb = "hello"   // the first message; PID is the replica's
	inherit verb = "inherit" // Cgroup is to be removed after the end of the replica
	watch   verb = "watch"   // the run is about to start; sent again to another helper, with the present state
	started verb = "started" // PID is the leader of the run's process group, Start the time of its start
	extend  verb = "extend"  // Deadline is the new deadline, known since At
	told    verb = "told"    // the replica itself has sent SIGTERM
	reap    verb = "reap"    // the leader's PID is about to be released and must not be signalled any more
	release verb = "release" // the run is over
	ping    verb = "ping"

	// From the helper.
	ack     verb = "ack"     // all messages up to Seq are done
	stopped verb = "stopped" // the run got SIGTERM at At, because its deadline is near
	killed  verb = "killed"  // the run was killed at At, because it was late
)

// message is one line of JSON on the pipe, in either direction. Times are on CLOCK_BOOTTIME.
type message struct {
	Verb     verb          `json:"verb"`
	Seq      uint64        `json:"seq,omitempty"`
	Run      uint64        `json:"run,omitempty"`  // number of the run
	Name     string        `json:"name,omitempty"` // id of the run, for people
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

// encodeLine returns the message as it is written to the pipe.
func (m message) encodeLine() []byte {
	text, _ := json.Marshal(m) // can't fail for strings and numbers
	return append(text, '\n')
}

// longestLine is longer than any message: a path has at most 4 KiB, and JSON encodes a byte in at most six.
const longestLine = 64 << 10

// lines joins the pieces that a pipe delivers.
type lines struct{ rest []byte }

// add adds a piece of input, and returns the messages that are complete.
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
	l.rest = append([]byte(nil), l.rest...) // releases the memory of the earlier input
	return all, nil
}
