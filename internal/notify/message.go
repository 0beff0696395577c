// Package notify sends notifications about jobs and the cluster to the targets of `[notify.NAME]`: chat services, pagers, mail servers, ping services,
// webhooks and commands. It sends one message at a time and keeps no queue: the leader of the cluster decides what is sent when, and sends it again.
package notify

import (
	"time"

	"github.com/cronclave/cronclave/scheduler/run"
)

// An Event is something that happened to a job, or to the cluster.
type Event struct {
	// ID has 32 hexadecimal digits. It is the same in each attempt to send the event, so that a receiver can recognize a repetition.
	ID string `json:"id"`
	// Name is the outcome of a run or tick, [Fixed], or the name of a problem, as in the key `on`.
	Name string `json:"name"`
	// Problem identifies the problem that the event begins or ends, such as "replica_lost b"; "" for the end of a run. Two problems of a job have different ones.
	// The end of failures has "failure JOB".
	Problem string `json:"problem,omitempty"`
	// Job is "" for an event of the cluster.
	Job string `json:"job,omitempty"`
	// At is the time of the event.
	At time.Time `json:"at"`
	// Since is the time of the first failure in a row, or of the start of a problem; zero if unknown.
	Since time.Time `json:"since,omitzero"`
	// Text describes the event in one line, without the name of the job.
	Text string `json:"text"`
	// Run is the record of the run or tick, without its output; nil for events without one.
	Run *run.Record `json:"run,omitempty"`
}

// Names of events that are no outcomes.
const (
	Fixed         = "fixed"          // the job ended `ok` after a failure that was sent, or a problem is over
	Started       = "running"        // a run started
	Slow          = "slow"           // a run takes longer than usual
	Stale         = "stale"          // the job has not ended `ok` for too long
	Overdue       = "overdue"        // the job has not ended `ok` by the local time at which it must have
	ReplicaLost   = "replica_lost"   // a replica is gone without having said so
	ConfigDiffers = "config_differs" // replicas run different configurations
	PoolFull      = "pool_full"      // a pool is full while runs wait for a slot
	Redis         = "redis"          // Redis was away, or has lost its data
	Test          = "test"           // `cronclave notify test` was called
)

// A Message is what is sent at once.
type Message struct {
	Namespace string
	// Events has at least one event. It has several events if they came within group_wait.
	Events []Event
	// Link is the address of the page of the job, or of the cluster; "" without `[server].url`.
	Link string
}

// A Verdict says what a target made of a message.
type Verdict int

const (
	// Done means that the target has taken the message.
	Done Verdict = iota
	// Never means that the target has refused the message and would refuse it again.
	Never
	// Later means that the target has not taken the message, and that it may do so later.
	Later
	// Unknown means that the target may have taken the message: there was no answer after the message was sent. The message is sent again with the same ID.
	Unknown
	// Expired means that the target has not taken the message, and that it would say nothing later: a start is sent only once.
	Expired
)

// A Result is the answer of a target.
type Result struct {
	Verdict Verdict
	// RetryAfter is the pause that the target demands; 0 if it demands none.
	RetryAfter time.Duration
	// Answer describes what came back in one line, such as "200 OK". It has no part of the target's address and no secret.
	Answer string
	// Gone is set if the target itself does not exist or refuses everything: a wrong token, a removed webhook.
	Gone bool
}
