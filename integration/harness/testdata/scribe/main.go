// Scribe is the job that the integration tests let cronclave run: it appends the events of its run to a file, one
// line of JSON each, with its run's variables and the instant by the clock of Redis. The file is the tests' truth: it
// is independent of the replicas.
//
//	start  when it starts
//	beat   again and again while it lives
//	term   when it gets SIGTERM
//	end    when it ends by itself
//
// SCRIBE_FILE is the file, which must be there: a scribe whose file has gone ends, so that nothing outlives its test.
// SCRIBE_REDIS is host:port of the Redis; where it does not answer, the instant is 0. Beside it stands the machine's
// monotonic clock, which answers always, and which cannot be set.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	length := flag.Duration("for", 0, "how long it lives; 0 says that it starts, and ends")
	beat := flag.Duration("beat", 50*time.Millisecond, "pause between beats")
	stubborn := flag.Bool("ignore-term", false, "go on after SIGTERM")
	child := flag.Bool("child", false, "have a child that does the same")
	far := flag.Bool("far", false, "have one in a session of its own, whose parent is gone, too")
	flag.Parse()
	if err := run(*length, *beat, *stubborn, *child, *far); err != nil {
		fmt.Fprintln(os.Stderr, "scribe:", err)
		os.Exit(1)
	}
}

func run(length, beat time.Duration, stubborn, child, far bool) error {
	terms := make(chan os.Signal, 8)
	signal.Notify(terms, syscall.SIGTERM)
	s, err := newScribe(os.Getenv)
	if err != nil {
		return err
	}
	if child {
		if err := bear(length, beat, stubborn); err != nil {
			return err
		}
	}
	if far {
		if err := bearFar(length, beat, stubborn); err != nil {
			return err
		}
	}
	if err := s.say("start"); err != nil || length == 0 {
		return err
	}
	end := time.After(length)
	beats := time.NewTicker(beat)
	for {
		select {
		case <-end:
			return s.say("end")
		case <-beats.C:
			err = s.say("beat")
		case <-terms:
			err = s.say("term")
			if !stubborn {
				os.Exit(128 + int(syscall.SIGTERM))
			}
		}
		if err != nil {
			return err
		}
	}
}

// bear starts a child, which is not waited for.
func bear(length, beat time.Duration, stubborn bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return exec.Command(self, "-for", length.String(), "-beat", beat.String(), fmt.Sprintf("-ignore-term=%v", stubborn)).Start()
}

// bearFar starts a child that leads a session, and which loses its parent: one that bears it and ends.
func bearFar(length, beat time.Duration, stubborn bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	far := exec.Command("/bin/sh", "-c", `"$@" &`, "sh", self, "-for", length.String(), "-beat", beat.String(), fmt.Sprintf("-ignore-term=%v", stubborn))
	far.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return far.Run()
}

// scribe knows what it was told, and where to write.
type scribe struct {
	path, redis string
	conn        net.Conn // nil while there is none
	line        line
}

// line is written for each event.
type line struct {
	Event   string `json:"event"`
	Job     string `json:"job"`
	Tick    int64  `json:"tick"` // Unix seconds
	Token   int64  `json:"token"`
	Slot    int64  `json:"slot"`
	Slots   int64  `json:"slots"`
	Attempt int64  `json:"attempt"`
	Trigger string `json:"trigger,omitempty"`
	Replica string `json:"replica"`
	RunID   string `json:"run_id"`
	PID     int    `json:"pid"`
	At      int64  `json:"at"`   // microseconds since 1970 by the clock of Redis; 0 if it does not answer
	Mono    int64  `json:"mono"` // microseconds by CLOCK_MONOTONIC, taken after it
}

func newScribe(env func(string) string) (*scribe, error) {
	s := &scribe{path: env("SCRIBE_FILE"), redis: env("SCRIBE_REDIS")}
	s.line = line{Job: env("CRONCLAVE_JOB"), Replica: env("CRONCLAVE_REPLICA"), RunID: env("CRONCLAVE_RUN_ID"), Trigger: env("CRONCLAVE_TRIGGER"), PID: os.Getpid()}
	var faults []error
	for name, to := range map[string]*int64{
		"CRONCLAVE_TICK_UNIX": &s.line.Tick, "CRONCLAVE_FENCING_TOKEN": &s.line.Token, "CRONCLAVE_SLOT": &s.line.Slot,
		"CRONCLAVE_SLOTS": &s.line.Slots, "CRONCLAVE_ATTEMPT": &s.line.Attempt,
	} {
		n, err := strconv.ParseInt(env(name), 10, 64)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
		*to = n
	}
	return s, errors.Join(faults...)
}

// say asks for the time and appends one line, in one write, so that the lines of many scribes do not mix.
func (s *scribe) say(event string) error {
	s.line.Event, s.line.At = event, 0
	if at, err := s.clock(); err == nil {
		s.line.At = at
	} else if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
	var mono unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono); err != nil {
		return err
	}
	s.line.Mono = mono.Nano() / 1000
	text, err := json.Marshal(s.line)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}

// clock asks Redis for the time, in microseconds since 1970.
func (s *scribe) clock() (int64, error) {
	const patience = time.Second
	if s.conn == nil {
		conn, err := net.DialTimeout("tcp", s.redis, patience)
		if err != nil {
			return 0, err
		}
		s.conn = conn
	}
	if err := s.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprint(s.conn, "TIME\r\n"); err != nil {
		return 0, err
	}
	var parts [5]string // *2, $10, seconds, $6, microseconds
	r := bufio.NewReader(s.conn)
	for i := range parts {
		text, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		parts[i] = strings.TrimSpace(text)
	}
	seconds, err1 := strconv.ParseInt(parts[2], 10, 64)
	micros, err2 := strconv.ParseInt(parts[4], 10, 64)
	return seconds*1e6 + micros, errors.Join(err1, err2)
}
