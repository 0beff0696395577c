// Package sdnotify reports the state of this process to systemd, by the protocol of sd_notify(3).
package sdnotify

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// sendTimeout limits the time that a message waits for a service manager which reads nothing.
const sendTimeout = time.Second

// A Notifier sends the state of this process to its service manager. The zero value sends nothing.
type Notifier struct {
	socket   string
	watchdog time.Duration
}

// New returns the notifier for the environment of the process pid. getenv is os.Getenv, except in tests.
func New(getenv func(string) string, pid int) Notifier {
	n := Notifier{socket: getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseUint(getenv("WATCHDOG_USEC"), 10, 53)
	if n.socket == "" || err != nil {
		return n
	}
	if of := getenv("WATCHDOG_PID"); of == "" || of == strconv.Itoa(pid) { // otherwise the variables were meant for a parent of this process
		n.watchdog = time.Duration(usec) * time.Microsecond
	}
	return n
}

// Enabled reports whether a service manager waits for messages.
func (n Notifier) Enabled() bool { return n.socket != "" }

// Watchdog returns the time within which the service manager expects [Watchdog], and 0 if it has no watchdog for this process.
func (n Notifier) Watchdog() time.Duration { return n.watchdog }

// Messages without a value.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	Watchdog = "WATCHDOG=1"
)

// Status returns the assignment of a line for `systemctl status`.
func Status(text string) string { return "STATUS=" + strings.ReplaceAll(text, "\n", " ") }

// Reloading returns the assignments that begin a reload. [Ready] ends it. Units with Type=notify-reload require the time.
func Reloading() []string {
	return []string{"RELOADING=1", "MONOTONIC_USEC=" + strconv.FormatInt(monotonicTime().Microseconds(), 10)}
}

// ExtendTimeout returns the assignment that gives the current state, such as stopping, at least this time from now on.
func ExtendTimeout(d time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
}

// Send sends assignments in one message. It takes at most two seconds.
func (n Notifier) Send(assignments ...string) error {
	if !n.Enabled() {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: sendTimeout}).Dial("unixgram", n.socket)
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout)) // it fails only on a closed connection, and then Write fails
	if _, err = conn.Write([]byte(strings.Join(assignments, "\n"))); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
