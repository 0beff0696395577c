package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

const (
	// requestLease is the time after which another replica may take over the request of a replica that died before it began the run.
	requestLease = 5 * time.Second
	// maxRequests is the maximum number of requests that a replica remembers.
	maxRequests = 1000
)

// A pendingRequest is a request that this replica has received. It belongs to the loop.
type pendingRequest struct {
	Request
	task  *task
	bound bool // this replica has no free place for the job, and must not start the run

	queued agenda.Entry[*pendingRequest]
}

// A handledRequest is the result of one attempt on a request. again is the time of the next attempt, or zero if the request is decided.
type handledRequest struct {
	*pendingRequest
	again time.Time
	job   *Job
	term  *election.Term // the ended term of the run; nil if there was no run
}

// requests has the trigger requests that this replica may run.
type requests struct {
	*core
	starts     *starts
	recoveries *recoveries
	requested  chan []Request
	over       chan handledRequest        // receives the results of requestHandlers
	known      map[string]*pendingRequest // by request id, until the request has expired
	due        agenda.Queue[*pendingRequest]
}

func newRequests(c *core, s *starts, r *recoveries) *requests {
	return &requests{core: c, starts: s, recoveries: r, requested: make(chan []Request), over: make(chan handledRequest), known: map[string]*pendingRequest{}}
}

// handleRequests queues new requests. A replica with a later rank waits longer, as for ticks. Requests for jobs that this replica must not run are
// ignored.
func (q *requests) handleRequests(requests []Request) {
	now := q.now()
	for id, e := range q.known {
		if now.After(e.Expires.Add(longestPause)) { // Subscribe no longer returns the request
			q.due.Remove(&e.queued)
			delete(q.known, id)
		}
	}
	for _, r := range requests {
		t := q.tasks[r.Job]
		if t == nil || t.Elsewhere || q.known[r.ID] != nil || len(q.known) >= maxRequests {
			continue
		}
		e := &pendingRequest{Request: r, task: t}
		e.queued.Value = e
		q.known[r.ID] = e
		q.putOff(e, now.Add(q.cfg.turnDelay(t, r.Created)))
	}
}

// putOff schedules the next attempt. The last attempt is just after the request expires, so that a replica records the expiry.
func (q *requests) putOff(e *pendingRequest, at time.Time) {
	if last := e.Expires.Add(agenda.ClockSlack); at.After(last) && q.now().Before(last) {
		at = last
	}
	q.due.Set(&e.queued, at)
}

// tryRequests starts an attempt for each due request. If this replica has no free place, it postpones the request until it expires, and other
// replicas may run it.
func (q *requests) tryRequests(now time.Time) {
	for _, e := range q.due.Take(now, maxRequests) {
		t := q.tasks[e.Job]
		expired := !now.Before(e.Expires.Add(agenda.ClockSlack))
		switch {
		case t == nil || t.Elsewhere: // a reload changed the job
		case q.places.free() <= 0 && !expired:
			q.putOff(e, now.Add(heldPause))
		case t.Running >= t.PerReplica && !e.bound && !expired: // other replicas may have a free place for the job, so they go first
			e.bound = true
			q.putOff(e, now.Add(maxRankDelay))
		default:
			q.tryRequest(e, t)
		}
	}
}

// tryRequest makes an attempt on a request in a new goroutine, which occupies a place on this replica.
func (q *requests) tryRequest(e *pendingRequest, t *task) {
	e.task, e.bound = t, t.Running >= t.PerReplica
	q.places.takePlace(t)
	q.starts.active.add(t.Name, 1)
	isTick := e.Tick.IsZero() || t.mayHaveTick(e.Tick) // computed here, because only the loop may use the task
	try := requestHandler{q.exec, q.cfg.Requests, q.cfg.Claimer, q.cfg.ownIdentity(), e.Request, t.Job, isTick, e.bound}
	go func() {
		again, term := try.run()
		q.over <- handledRequest{e, again, try.job, term}
	}()
}

// settleHandled handles the result of an attempt.
func (q *requests) settleHandled(e handledRequest) {
	q.starts.active.add(e.task.Name, -1)
	q.places.releasePlace(e.task)
	now := q.now()
	if !e.again.IsZero() && !q.leaving {
		q.putOff(e.pendingRequest, e.again)
	}
	if e.term != nil {
		q.recoveries.roomFor(e.task, e.job, e.term, now)
	}
	q.wakeParked(now, e.task)
}
