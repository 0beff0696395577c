package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// MaxNotifications is the maximum number of notifications that wait for a target, and KeepNotifications the time for which they wait.
	MaxNotifications  = 10_000
	KeepNotifications = 24 * time.Hour
	// maxDeliveries is the number of deliveries that the log of a target keeps, for keepDeliveries. While no replica leads, the other keys of the target and the
	// outboxes last as long, so that the next leader counts what is too old.
	maxDeliveries  = 1000
	keepDeliveries = 30 * 24 * time.Hour
	// maxNotifyIDs is the number of ids that are remembered. It is greater than MaxNotifications, so that an event that is queued again after it was sent is recognized.
	maxNotifyIDs = 4 * MaxNotifications
	maxIDLength  = 64
	// maxUnsure is the maximum length of TargetState.Unsure. Notifications beyond it are not counted as repeated.
	maxUnsure = 1000
	// maxAgain is the maximum length of TargetState.Again. Messages beyond it may be repeated in other groups, and so with other ids.
	maxAgain = 100
	// forgetFault is the time after the last failed attempt after which a fault is forgotten if nothing waits for the target.
	forgetFault = time.Hour
	// keepTargets is the time for which a target is listed that is no longer configured. At most maxTargets are listed.
	keepTargets = KeepNotifications + time.Hour
	maxTargets  = 1000
)

var (
	// ErrSuperseded means that a later leader has changed the state of a target.
	ErrSuperseded = errors.New("a later leader sends the notifications")
	// ErrNotWaiting means that a notification has left the queue since it was read.
	ErrNotWaiting = errors.New("the notification does not wait any more")
)

type notifications struct{ *namespace }

// A Notification is an event that waits to be sent to a target.
type Notification struct {
	// ID identifies the event. An event whose ID was queued before is not queued again.
	ID string `json:"id"`
	// Job is the job of the event; "" for an event of the cluster.
	Job string `json:"job,omitempty"`
	// Event is the event in the form of package notify.
	Event json.RawMessage `json:"event"`
	// At is the time of the event. One that is older than KeepNotifications is dropped instead of queued; zero for an event that is never too old.
	At time.Time `json:"-"`
	// Opens is the job that has failed, or the problem that has begun with the event, and OpensAt the time; "" for none.
	Opens   string    `json:"-"`
	OpensAt time.Time `json:"-"`

	text  string
	score float64 // its place in the queue
}

func (n *Notification) findFault() string {
	switch {
	case n.ID == "" || len(n.ID) > maxIDLength:
		return fmt.Sprintf("id %.40q", n.ID)
	case n.Job != "" && !IsJobName(n.Job):
		return fmt.Sprintf("job %.40q", n.Job)
	}
	return ""
}

// A TargetState is the state of a target of notifications. Only the leader changes it.
type TargetState struct {
	// Token is the fencing token of the leadership that made the last change. A leader with a smaller token is refused.
	Token int64 `json:"token"`
	// Sent, Refused and Dropped count events since the first one. A dropped event waited for too long, or too many came after it. Repeated counts
	// sent events that had an attempt with an unknown result, so the target may have them twice.
	Sent     int64 `json:"sent"`
	Refused  int64 `json:"refused"`
	Dropped  int64 `json:"dropped"`
	Repeated int64 `json:"repeated"`
	// Attempt has the ids of the notifications that are being sent; nil between two attempts. If the leader dies meanwhile, the result is unknown.
	Attempt []string `json:"attempt,omitempty"`
	// Unsure has the ids of waiting notifications that the target may have, because the result of an attempt was unknown.
	Unsure []string `json:"unsure,omitempty"`
	// Again has the ids of messages with an unknown result. Each of them is sent again with exactly the same notifications, so that it has the same id.
	Again [][]string `json:"again,omitempty"`
	Pace
	// Tries counts the failed attempts from Since to Last. Fault is the answer to the last one; "" if it succeeded.
	Tries int       `json:"tries,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	Fault string    `json:"fault,omitempty"`
	// Newest is the score of the newest notification in the queue.
	Newest int64 `json:"newest,omitempty"`

	// Waiting is the number of notifications in the queue, and Oldest the time at which the first of them was queued; zero for an empty queue.
	Waiting int       `json:"-"`
	Oldest  time.Time `json:"-"`
}

// A Pace is what an attempt leaves of the budget of a target, by the clock of Redis.
type Pace struct {
	// Next is the earliest time of the next attempt.
	Next time.Time `json:"next,omitzero"`
	// Jobs has the earliest time of the next event of a job, for a target in which each job has an address or a check of its own.
	Jobs map[string]time.Time `json:"jobs,omitempty"`
}

func (s *TargetState) findFault() string {
	for _, next := range s.Jobs {
		if !isSound(next) {
			return "a time beyond the calendar"
		}
	}
	if !isSound(s.Next) || !isSound(s.Since) || !isSound(s.Last) || s.Newest < 0 || s.Newest >= runningScore {
		return "a time beyond the calendar"
	}
	return ""
}

// The results of deliveries.
const (
	DeliverySent    = "sent"
	DeliveryRefused = "refused"
	DeliveryDropped = "dropped"
	DeliveryExpired = "expired" // the start of a run, which nobody needs to know any more; not counted
)

// A Delivery is the end of the sending of a message: it was sent, refused or dropped, or has expired. Its JSON is part of the contract with users.
type Delivery struct {
	At     time.Time `json:"at"`
	Target string    `json:"target"`
	// Events names the first events of the message, as "EVENT JOB", and Count is the number of all of them.
	Events []string `json:"events"`
	Count  int      `json:"count"`
	Result string   `json:"result"`
	// Answer describes what came back, or why the events were dropped.
	Answer string `json:"answer,omitempty"`
	Tries  int    `json:"tries,omitempty"`
	// Repeated is true if an earlier attempt had an unknown result, so the target may have the message twice.
	Repeated bool   `json:"repeated,omitempty"`
	Replica  string `json:"replica,omitempty"`
	ID       string `json:"id,omitempty"` // of the first event
}

func (d *Delivery) findFault() string {
	if !isSound(d.At) || d.Count < len(d.Events) {
		return "a time beyond the calendar, or a wrong count"
	}
	return ""
}

// A QueueRequest adds notifications to the queue of a target.
type QueueRequest struct {
	Target string
	Token  int64     // of the leader
	Now    time.Time // by the clock of Redis
	Add    []Notification
	// Closed has the jobs and problems whose end is in Add.
	Closed []string
	// Lost is the number of events that were lost before they could be added.
	Lost int
}

// QueueNotifications adds notifications to the queue of a target, in their order, except those that were queued before. It drops those that are too old, and the
// oldest ones if there are too many. It returns the number of dropped notifications.
func (n notifications) QueueNotifications(ctx context.Context, r QueueRequest) (dropped int, err error) {
	err = n.changeTarget(ctx, r.Target, r.Token, func(ctx context.Context, tx *redis.Tx, s *TargetState) (func(redis.Pipeliner), error) {
		fresh, stale, err := n.freshNotifications(ctx, tx, r)
		if err != nil {
			return nil, err
		}
		queue, ids := n.jobKey(r.Target, "notify-queue"), n.jobKey(r.Target, "notify-ids")
		waiting, old := tx.ZCard(ctx, queue), tx.ZCount(ctx, queue, "-inf", "("+formatNumber(r.Now.Add(-KeepNotifications).UnixMicro()))
		if err := errors.Join(waiting.Err(), old.Err()); err != nil {
			return nil, err
		}
		excess := max(int(old.Val()), int(waiting.Val())+len(fresh)-MaxNotifications, 0)
		dropped = excess + len(stale)
		d := Delivery{At: r.Now, Target: r.Target, Events: []string{}, Count: dropped + r.Lost, Result: DeliveryDropped, Answer: "waited for too long, or too many came after it"}
		s.countDelivery(d)
		if waiting.Val() == 0 && len(fresh) == 0 && r.Now.Sub(s.Last) > forgetFault { // nothing will show that the target takes notifications again
			s.clearFault()
		}
		if waiting.Val() == 0 { // a time beyond now, from before the clock was set back, does not last
			s.Newest = 0
		}
		return func(p redis.Pipeliner) {
			for _, one := range fresh {
				s.Newest = max(r.Now.UnixMicro(), s.Newest+1)
				p.ZAdd(ctx, queue, redis.Z{Score: float64(s.Newest), Member: one.text})
				p.ZAdd(ctx, ids, redis.Z{Score: float64(s.Newest), Member: one.ID})
			}
			for _, one := range stale {
				p.ZAdd(ctx, ids, redis.Z{Score: float64(r.Now.UnixMicro()), Member: one.ID}) // so that it is counted once
			}
			if d.Count > 0 {
				n.queueDelivery(ctx, p, d)
			}
			if excess > 0 {
				p.ZRemRangeByRank(ctx, queue, 0, int64(excess-1))
			}
			p.ZRemRangeByRank(ctx, ids, 0, -1-maxNotifyIDs)
			n.queueOpen(ctx, p, r, fresh)
			p.PExpire(ctx, queue, keepDeliveries)
			p.PExpire(ctx, ids, keepDeliveries)
		}, nil
	})
	return dropped, wrapIf("queue notifications for "+r.Target, err)
}

// freshNotifications returns the notifications of a request that were not queued before, with their texts. Those that are too old are in stale.
func (n notifications) freshNotifications(ctx context.Context, tx *redis.Tx, r QueueRequest) (fresh, stale []Notification, err error) {
	cmds, err := tx.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, one := range r.Add {
			p.ZScore(ctx, n.jobKey(r.Target, "notify-ids"), one.ID)
		}
		return nil
	})
	if err := allErrors(ctx, cmds, err); err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for i, one := range r.Add {
		if cmds[i].Err() == nil || seen[one.ID] { // a missing id is an error
			continue
		}
		seen[one.ID] = true
		text, err := json.Marshal(one)
		if fault := one.findFault(); err != nil || fault != "" {
			return nil, nil, fmt.Errorf("%w: %w: %s", ErrInvalid, err, fault)
		}
		if one.text = string(text); !one.At.IsZero() && r.Now.Sub(one.At) > KeepNotifications {
			stale = append(stale, one)
		} else {
			fresh = append(fresh, one)
		}
	}
	return fresh, stale, nil
}

// queueOpen closes problems, and then opens the problems of new notifications. An open problem keeps the time of its first failure. An event
// that was queued before opens nothing: its end may have been queued, too.
func (n notifications) queueOpen(ctx context.Context, p redis.Pipeliner, r QueueRequest, fresh []Notification) {
	open := n.jobKey(r.Target, "notify-open")
	if len(r.Closed) > 0 {
		p.HDel(ctx, open, r.Closed...)
	}
	for _, one := range fresh {
		if one.Opens != "" {
			p.HSetNX(ctx, open, one.Opens, one.OpensAt.UnixMicro())
		}
	}
	p.PExpire(ctx, open, keepDeliveries)
}

// changeTarget changes the state of a target, and with it its other keys, in one transaction. It fails with ErrSuperseded if a later leader has changed the
// state. change reads what it needs, changes the state, and returns the function that queues the further commands.
func (n notifications) changeTarget(ctx context.Context, target string, token int64, change func(context.Context, *redis.Tx, *TargetState) (func(redis.Pipeliner), error)) error {
	key := n.jobKey(target, "notify-state")
	return changeKey(ctx, n.namespace, key, func(ctx context.Context, tx *redis.Tx) error {
		s, err := decodeState(tx.Get(ctx, key))
		if err != nil && !errors.Is(err, ErrCorrupt) { // a damaged state is replaced
			return err
		}
		if s.Token > token {
			return ErrSuperseded
		}
		s.Token = token
		queue, err := change(ctx, tx, &s)
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			queue(p)
			text, err := json.Marshal(s)
			p.Set(ctx, key, text, keepDeliveries)
			return err //nolint:wrapcheck // wrapped by the caller
		})
		return err //nolint:wrapcheck // wrapped by the caller
	})
}

func decodeState(get *redis.StringCmd) (s TargetState, err error) {
	switch {
	case errors.Is(get.Err(), redis.Nil):
		return TargetState{}, nil
	case get.Err() != nil:
		return TargetState{}, commandError(get)
	}
	if err = json.Unmarshal([]byte(get.Val()), &s); err == nil {
		if fault := s.findFault(); fault != "" {
			err = errors.New(fault)
		}
	}
	if err != nil {
		return TargetState{}, fmt.Errorf("%w: the state of a target: %w", ErrCorrupt, err)
	}
	return s, nil
}

// A targetReply has the replies about a target, with the first entry of its queue.
type targetReply struct {
	state *redis.StringCmd
	count *redis.IntCmd
	first *redis.ZSliceCmd
}

func queueTarget(ctx context.Context, n *namespace, p redis.Pipeliner, target string) targetReply {
	queue := n.jobKey(target, "notify-queue")
	return targetReply{p.Get(ctx, n.jobKey(target, "notify-state")), p.ZCard(ctx, queue), p.ZRangeWithScores(ctx, queue, 0, 0)}
}

// decode returns the state of the target. A damaged state counts as a new one, because the next change replaces it.
func (r targetReply) decode() (s TargetState, err error) {
	if s, err = decodeState(r.state); err != nil && !errors.Is(err, ErrCorrupt) {
		return s, err
	}
	s.Waiting = int(r.count.Val())
	if first := r.first.Val(); len(first) > 0 && isScore(first[0].Score) {
		s.Oldest = scoreMoment(first[0].Score).UTC()
	}
	return s, nil
}

// Notifications returns the state of a target, and at most most notifications in its queue: those after a notification, or the first ones after the zero
// Notification. So what leaves the queue between two calls hides nothing. Damaged entries of the queue are removed.
func (n notifications) Notifications(ctx context.Context, target string, after Notification, most int) (s TargetState, waiting []Notification, err error) {
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	var reply targetReply
	var found *redis.ZSliceCmd
	queue, page := n.jobKey(target, "notify-queue"), redis.ZRangeBy{Min: "-inf", Max: "+inf", Count: int64(most)}
	if after.score > 0 {
		page.Min = "(" + formatNumber(int64(after.score))
	}
	cmds, err := n.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		reply = queueTarget(ctx, n.namespace, p, target)
		found = p.ZRangeByScoreWithScores(ctx, queue, &page)
		return nil
	})
	if err = allErrors(ctx, cmds, err); err == nil {
		s, err = reply.decode()
	}
	if err != nil {
		return s, nil, fmt.Errorf("read the notifications for %s: %w", target, err)
	}
	for _, z := range found.Val() {
		one := Notification{text: memberOf(z), score: z.Score}
		if json.Unmarshal([]byte(one.text), &one) == nil && one.findFault() == "" {
			waiting = append(waiting, one)
		} else {
			n.redis.ZRem(ctx, queue, one.text) // the next reading tries it again
		}
	}
	return s, waiting, nil
}

// BeginAttempt records that some notifications are about to be sent. If the leader dies before EndAttempt, a later leader takes the result for unknown. pace
// bounds the attempts after this one. It fails with ErrNotWaiting if one of the notifications has left the queue, because the leader before has
// recorded a late result.
func (n notifications) BeginAttempt(ctx context.Context, target string, token int64, chosen []Notification, pace Pace) error {
	err := n.changeTarget(ctx, target, token, func(ctx context.Context, tx *redis.Tx, s *TargetState) (func(redis.Pipeliner), error) {
		cmds, err := tx.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, one := range chosen {
				p.ZScore(ctx, n.jobKey(target, "notify-queue"), one.text)
			}
			return nil
		})
		if errors.Is(err, redis.Nil) {
			return nil, ErrNotWaiting
		}
		if err := allErrors(ctx, cmds, err); err != nil {
			return nil, err
		}
		if len(s.Attempt) > 0 {
			s.noteUnknown(s.Attempt, true)
		}
		s.Attempt, s.Pace = idsOf(chosen), pace
		return func(redis.Pipeliner) {}, nil
	})
	return wrapIf("begin to send to "+target, err)
}

// noteUnknown records that the target may have some notifications. If again is set, they are sent again together.
func (s *TargetState) noteUnknown(ids []string, again bool) {
	for _, id := range ids {
		if !slices.Contains(s.Unsure, id) {
			s.Unsure = append(s.Unsure, id)
		}
	}
	s.Unsure = s.Unsure[max(0, len(s.Unsure)-maxUnsure):]
	s.forgetAgain(ids)
	if again {
		s.Again = append(s.Again, ids)
		s.Again = s.Again[max(0, len(s.Again)-maxAgain):]
	}
}

// forgetAgain removes the messages with one of the ids from Again.
func (s *TargetState) forgetAgain(ids []string) {
	s.Again = slices.DeleteFunc(s.Again, func(message []string) bool { return shareID(message, ids) })
}

func shareID(a, b []string) bool {
	return slices.ContainsFunc(a, func(id string) bool { return slices.Contains(b, id) })
}

// An Attempt is the end of an attempt to send some notifications in one message.
type Attempt struct {
	// Delivery describes the attempt. If it has a Result, the notifications leave the queue. Otherwise, they stay there.
	Delivery
	Notifications []Notification
	// Unsure means that the target may have the notifications. Again means that the next message with one of them must have exactly these notifications.
	Unsure, Again bool
	Pace
}

// EndAttempt records the end of an attempt.
func (n notifications) EndAttempt(ctx context.Context, token int64, a Attempt) error {
	d, ids := a.Delivery, idsOf(a.Notifications)
	err := n.changeTarget(ctx, d.Target, token, func(ctx context.Context, _ *redis.Tx, s *TargetState) (func(redis.Pipeliner), error) {
		if len(s.Attempt) > 0 && !slices.Equal(s.Attempt, ids) { // the leader before has died, and this event ended without an attempt
			s.noteUnknown(s.Attempt, true)
		}
		s.Attempt, s.Pace, d.Tries = nil, a.Pace, s.Tries+1
		s.noteAnswer(d)
		if a.Unsure {
			s.noteUnknown(ids, a.Again)
		} else if !a.Again {
			s.forgetAgain(ids)
		}
		if d.Result == "" {
			return func(redis.Pipeliner) {}, nil
		}
		d.Repeated = shareID(s.Unsure, ids)
		s.Unsure = slices.DeleteFunc(s.Unsure, func(id string) bool { return slices.Contains(ids, id) })
		s.forgetAgain(ids)
		s.countDelivery(d)
		return func(p redis.Pipeliner) {
			p.ZRem(ctx, n.jobKey(d.Target, "notify-queue"), textsOf(a.Notifications)...)
			n.queueDelivery(ctx, p, d)
		}, nil
	})
	return wrapIf("end to send to "+d.Target, err)
}

// noteAnswer updates the number and the cause of failed attempts.
func (s *TargetState) noteAnswer(d Delivery) {
	switch d.Result {
	case DeliverySent:
		s.clearFault()
	case DeliveryDropped, DeliveryExpired:
	default:
		s.Tries, s.Last, s.Fault = s.Tries+1, d.At, cutText(d.Answer)
		if s.Since.IsZero() {
			s.Since = d.At
		}
	}
}

func (s *TargetState) clearFault() {
	s.Tries, s.Since, s.Last, s.Fault = 0, time.Time{}, time.Time{}, ""
}

func idsOf(list []Notification) (ids []string) {
	for _, one := range list {
		ids = append(ids, one.ID)
	}
	return ids
}

func textsOf(list []Notification) (texts []any) {
	for _, one := range list {
		texts = append(texts, one.text)
	}
	return texts
}

func (s *TargetState) countDelivery(d Delivery) {
	switch d.Result {
	case DeliverySent:
		s.Sent += int64(d.Count)
	case DeliveryRefused:
		s.Refused += int64(d.Count)
	case DeliveryDropped:
		s.Dropped += int64(d.Count)
	}
	if d.Repeated {
		s.Repeated += int64(d.Count)
	}
}

func (n notifications) queueDelivery(ctx context.Context, p redis.Pipeliner, d Delivery) {
	d.Answer = cutText(d.Answer)
	text, err := json.Marshal(d)
	if err != nil {
		return // not reached: a Delivery has only texts, numbers and times
	}
	key := n.jobKey(d.Target, "notify-log")
	p.ZAdd(ctx, key, redis.Z{Score: float64(d.At.UnixMicro()), Member: text})
	p.ZRemRangeByRank(ctx, key, 0, -1-maxDeliveries)
	p.PExpire(ctx, key, keepDeliveries)
}

// TargetStates returns the states of targets, without the contents of their queues.
func (n notifications) TargetStates(ctx context.Context, targets []string) (map[string]TargetState, error) {
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	states, replies := make(map[string]TargetState, len(targets)), make([]targetReply, len(targets))
	cmds, err := n.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, target := range targets {
			replies[i] = queueTarget(ctx, n.namespace, p, target)
		}
		return nil
	})
	err = allErrors(ctx, cmds, err)
	for i := 0; err == nil && i < len(targets); i++ {
		states[targets[i]], err = replies[i].decode()
	}
	if err != nil {
		return nil, fmt.Errorf("read the states of the targets of notifications: %w", err)
	}
	return states, nil
}

// OpenProblems returns the jobs and problems whose failure was queued for a target, and whose end was not, with the time of the failure.
func (n notifications) OpenProblems(ctx context.Context, target string) (map[string]time.Time, error) {
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	found := n.redis.HGetAll(ctx, n.jobKey(target, "notify-open"))
	if err := errorOf(ctx, found); err != nil {
		return nil, fmt.Errorf("read the open problems of %s: %w", target, err)
	}
	open := make(map[string]time.Time, len(found.Val()))
	for name, text := range found.Val() {
		if us, err := strconv.ParseInt(text, 10, 64); err == nil && isScore(float64(us)) {
			open[name] = time.UnixMicro(us).UTC()
		}
	}
	return open, nil
}

// Deliveries returns the newest deliveries to some targets, from new to old, at most most of them. Damaged entries are left out with an error that wraps
// ErrCorrupt.
func (n notifications) Deliveries(ctx context.Context, targets []string, most int) ([]Delivery, error) {
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	all := []Delivery{}
	damaged, err := pipelineEach(ctx, n.namespace, targets, maxBatch, func(p redis.Pipeliner, target string) *redis.StringSliceCmd {
		return p.ZRevRange(ctx, n.jobKey(target, "notify-log"), 0, int64(min(most, maxDeliveries)-1))
	}, func(_ string, found *redis.StringSliceCmd) error {
		list, err := decodeAll[Delivery]("read the log of notifications", found.Val())
		all = append(all, list...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the log of notifications: %w", err)
	}
	slices.SortStableFunc(all, func(a, b Delivery) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Target, b.Target)) })
	return all[:min(len(all), most)], damaged
}

const notifyTargets = "notify-targets"

// NoteTargets records the names of the configured targets, so that a reader finds them without a configuration.
func (n notifications) NoteTargets(ctx context.Context, targets []string, now time.Time) error {
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	cmds, err := n.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, target := range targets {
			p.ZAdd(ctx, n.key(notifyTargets), redis.Z{Score: float64(now.UnixMicro()), Member: target})
		}
		p.PExpire(ctx, n.key(notifyTargets), keepDeliveries)
		return nil
	})
	return wrapIf("note the targets of notifications", allErrors(ctx, cmds, err))
}

// ForgetTargets removes the names of targets that were last configured more than 25 hours ago. The caller has dropped what waited for them.
func (n notifications) ForgetTargets(ctx context.Context, now time.Time) error {
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	old := n.redis.ZRemRangeByScore(ctx, n.key(notifyTargets), "-inf", formatNumber(now.Add(-keepTargets).UnixMicro()))
	return wrapIf("forget removed targets of notifications", errorOf(ctx, old))
}

// Targets returns the names of the targets that were configured until 25 hours ago, or until the last leader has gone, in alphabetical order.
func (n notifications) Targets(ctx context.Context) ([]string, error) {
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	found := n.redis.ZRange(ctx, n.key(notifyTargets), 0, maxTargets-1)
	if err := errorOf(ctx, found); err != nil {
		return nil, fmt.Errorf("list the targets of notifications: %w", err)
	}
	targets := slices.DeleteFunc(found.Val(), func(name string) bool { return !isName(name) })
	slices.Sort(targets)
	return targets, nil
}
