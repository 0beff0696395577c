package warden

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// verb is the request or report in a message.
type verb string

const (
	// Of the replica, to its helper.
	hello   verb = "hello"   // the first message: PID is the replica's
	inherit verb = "inherit" // Cgroup is to be removed once the replica is gone
	watch   verb = "watch"   // the run is about to start; again to another helper, with all that is known by then
	started verb = "started" // PID leads the run's process group; Start is when it was born
	extend  verb = "extend"  // Deadline is the new one, known since At
	told    verb = "told"    // the replica has sent SIGTERM itself
	reap    verb = "reap"    // the leader's number will be given back: it must not be signalled any more
	release verb = "release" // the run is over
	ping    verb = "ping"

	// Of the helper.
	ack     verb = "ack"     // all up to Seq are done
	stopped verb = "stopped" // the run was sent SIGTERM at At: its deadline is near
	killed  verb = "killed"  // the run was late, and was killed at At
)

// message is one line of JSON on the pipe, in either direction. Instants are by CLOCK_BOOTTIME.
type message struct {
	Verb     verb          `json:"verb"`
	Seq      uint64        `json:"seq,omitempty"`
	Run      uint64        `json:"run,omitempty"`  // numbers the run
	Name     string        `json:"name,omitempty"` // the run's, for people
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

// line is the message as it goes over the pipe.
func (m message) line() []byte {
	text, _ := json.Marshal(m) // strings and numbers: nothing that it could refuse
	return append(text, '\n')
}

// longestLine is more than any message takes: a path has at most 4 KiB, each byte of which JSON writes as six at most.
const longestLine = 64 << 10

// lines puts the pieces that a pipe delivers together again.
type lines struct{ rest []byte }

// add takes a piece of input and returns the messages that are complete by now.
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
