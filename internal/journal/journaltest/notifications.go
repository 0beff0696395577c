package journaltest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

// posted checks that the outboxes have exactly the records in want, each as "ID OUTCOME", and returns them.
func (s *suite) posted(j *journal.Journal, want ...string) []journal.Posted {
	s.Helper()
	all, more, err := j.Outbox(s.ctx)
	if err != nil || more {
		s.Fatalf("%v, more %v", err, more)
	}
	var records []journal.Record
	for _, p := range all {
		records = append(records, p.Record)
	}
	if got := describe(records); !slices.Equal(got, want) {
		s.Errorf("posted %q, want %q", got, want)
	}
	return all
}

// outboxes checks that a record waits in the outbox of its job until it is cleared, however often and by whom it was written.
func outboxes(s *suite) {
	isPosted := func(r *journal.Record) []string {
		if r.Job == "silent" || r.Outcome == journal.OutcomeRunning {
			return nil
		}
		return []string{"ops", "team"}
	}
	j, other := s.journal(journal.Config{Posts: isPosted}), s.journal(journal.Config{Posts: isPosted})
	tried := s.ended("a", "1.1", journal.OutcomeFailed, 20)
	tried.Retried = true
	batch := []journal.Record{s.ended("a", "2", journal.OutcomeOK, 10), s.ended("a", "1", journal.OutcomeFailed, 20), tried,
		s.running("a", "3", 5), s.ended("silent", "4", journal.OutcomeFailed, 5)}
	s.record(j, batch...)
	s.record(j, batch...)
	s.record(other, batch...)
	all := s.posted(j, "1 failed", "2 ok")
	if !slices.Equal(all[0].Targets, []string{"ops", "team"}) {
		s.Errorf("targets %q", all[0].Targets)
	}
	s.record(other, s.ended("a", "3", journal.OutcomeLost, 5)) // between the reading and the clearing
	if err := j.ClearOutbox(s.ctx, all); err != nil {
		s.Fatal(err)
	}
	s.posted(j, "3 lost")
	s.client.ZRem(s.ctx, "cronclave:"+s.namespace+":outboxes", "a") // as if the replica had died between its two writes to a Redis Cluster
	s.posted(j)
	if found, err := j.FindOutboxes(s.ctx, []string{"silent", "a", "unknown"}); err != nil || !slices.Equal(found, []string{"a"}) {
		s.Fatal(found, err)
	}
	s.posted(j, "3 lost")
}

// longOutboxes checks the limit of an outbox, and that a damaged entry harms nothing else.
func longOutboxes(s *suite) {
	j := s.journal(journal.Config{Posts: func(*journal.Record) []string { return []string{"ops"} }})
	for part := range 3 {
		var batch []journal.Record
		for n := range 400 {
			batch = append(batch, s.ended("a", fmt.Sprint(part*400+n), journal.OutcomeFailed, 2000-part*400-n))
		}
		s.record(j, batch...)
	}
	s.client.ZAdd(s.ctx, s.key("a", "outbox"), redis.Z{Score: 1, Member: "junk"})
	if _, _, err := j.Outbox(s.ctx); !errors.Is(err, journal.ErrCorrupt) {
		s.Errorf("with damage: %v", err)
	}
	var ids []string
	for {
		all, more, err := j.Outbox(s.ctx)
		if err != nil {
			s.Fatal(err)
		}
		for _, p := range all {
			ids = append(ids, p.RunID)
		}
		if err := j.ClearOutbox(s.ctx, all); err != nil {
			s.Fatal(err)
		}
		if !more {
			break
		}
	}
	if len(ids) != 1000 || ids[0] != "200" || ids[999] != "1199" {
		s.Errorf("%d records, from %v to %v", len(ids), ids[0], ids[len(ids)-1])
	}
}

// lostRecords checks that each loss of a full outbox is counted, even if two leaders clear the same count, and that nothing of it remains.
func lostRecords(s *suite) {
	j, key := s.journal(journal.Config{Posts: func(*journal.Record) []string { return []string{"ops"} }}), "cronclave:"+s.namespace+":outbox-dropped"
	from := 0
	lose := func(count int) map[string]int {
		s.Helper()
		var batch []journal.Record
		for n := from; n < from+count; n++ {
			batch = append(batch, s.ended("a", fmt.Sprint(n), journal.OutcomeFailed, 3000-n))
		}
		from += count
		s.record(j, batch...)
		lost, err := j.DroppedRecords(s.ctx)
		if err != nil {
			s.Fatal(err)
		}
		return lost
	}
	clearDropped := func(counted map[string]int) {
		s.Helper()
		if err := j.ClearDropped(s.ctx, counted); err != nil {
			s.Fatal(err)
		}
	}
	lose(1000)
	first := lose(5)
	s.client.PExpire(s.ctx, key, time.Hour)
	clearDropped(nil)
	if ttl := s.client.PTTL(s.ctx, key).Val(); ttl > time.Hour {
		s.Errorf("expires in %v, although nothing was lost since", ttl)
	}
	second := lose(2)
	clearDropped(first)
	clearDropped(first) // by a leader that was replaced after it had counted
	third := lose(4)
	if first["a"] != 5 || second["a"] != 7 || third["a"] != 6 {
		s.Errorf("lost %v, %v and %v, want 5, 7 and 6", first, second, third)
	}
	clearDropped(third)
	clearDropped(third)
	if left := s.client.HGetAll(s.ctx, key).Val(); len(left) > 0 {
		s.Errorf("left: %v", left)
	}
}

func notification(id string) journal.Notification {
	return journal.Notification{ID: id, Job: "a", Event: []byte(`{"x":1}`)}
}

// queue adds notifications with some ids, and returns the number of dropped ones.
func (s *suite) queue(j *journal.Journal, token int64, now time.Time, ids ...string) int {
	s.Helper()
	r := journal.QueueRequest{Target: "ops", Token: token, Now: now}
	for _, id := range ids {
		r.Add = append(r.Add, notification(id))
	}
	dropped, err := j.QueueNotifications(s.ctx, r)
	if err != nil {
		s.Fatal(err)
	}
	return dropped
}

// waiting compares the ids in the queue.
func (s *suite) waiting(j *journal.Journal, want ...string) (journal.TargetState, []journal.Notification) {
	s.Helper()
	state, list, err := j.Notifications(s.ctx, "ops", journal.Notification{}, 100)
	if err != nil {
		s.Fatal(err)
	}
	var ids []string
	for _, n := range list {
		ids = append(ids, n.ID)
	}
	if !slices.Equal(ids, want) || state.Waiting != len(want) {
		s.Errorf("%d wait: %q, want %q", state.Waiting, ids, want)
	}
	return state, list
}

// attempts makes attempts to send notifications of a queue.
type attempts struct {
	s  *suite
	of *journal.Journal
}

func (a attempts) begin(which ...journal.Notification) {
	a.s.Helper()
	if err := a.of.BeginAttempt(a.s.ctx, "ops", 5, which, journal.Pace{Next: a.s.now.Add(time.Second)}); err != nil {
		a.s.Fatal(err)
	}
}

func (a attempts) end(result string, unsure bool, which ...journal.Notification) {
	a.s.Helper()
	d := journal.Delivery{At: a.s.now, Target: "ops", Events: []string{"failed a"}, Count: len(which), Result: result, Answer: "the answer", Replica: "r", ID: which[0].ID}
	if err := a.of.EndAttempt(a.s.ctx, 5, journal.Attempt{Delivery: d, Notifications: which, Unsure: unsure, Again: unsure, Pace: journal.Pace{Next: a.s.now.Add(time.Minute)}}); err != nil {
		a.s.Fatal(err)
	}
}

// again compares the ids of the messages that the next attempts must repeat.
func (a attempts) again(want ...string) {
	a.s.Helper()
	state, _, err := a.of.Notifications(a.s.ctx, "ops", journal.Notification{}, 1)
	if got := fmt.Sprint(state.Again); err != nil || got != fmt.Sprint(want) {
		a.s.Errorf("%v, again %v, want %v", err, got, want)
	}
}

// queues checks that an event is queued once, in order, even if it was sent before, and what the results of attempts change.
func queues(s *suite) {
	j := s.journal(journal.Config{})
	s.waiting(j)
	s.queue(j, 5, s.now, "b", "a", "b")
	s.queue(j, 5, s.now.Add(-time.Hour), "c", "a") // a clock that was set back does not change the order
	_, list := s.waiting(j, "b", "a", "c")

	if _, rest, err := j.Notifications(s.ctx, "ops", list[0], 1); err != nil || len(rest) != 1 || rest[0].ID != "a" {
		s.Errorf("%v, the second one: %+v", err, rest)
	}
	try := attempts{s, j}
	try.begin(list[0])
	try.begin(list[:2]...) // the leader before died
	try.again("[b]")
	try.end("", false, list[:2]...)
	try.again()
	if state, _ := s.waiting(j, "b", "a", "c"); state.Tries != 1 || state.Fault != "the answer" || !state.Since.Equal(s.now) || !state.Next.Equal(s.now.Add(time.Minute)) || len(state.Unsure) != 1 {
		s.Errorf("after a failure: %+v", state)
	}
	try.begin(list[0])
	try.end(journal.DeliverySent, false, list[0])
	if err := j.BeginAttempt(s.ctx, "ops", 5, list[:2], journal.Pace{Next: s.now}); !errors.Is(err, journal.ErrNotWaiting) {
		s.Errorf("an attempt with a sent notification: %v", err)
	}
	try.begin(list[1:]...)
	try.end("", true, list[1:]...)
	try.again("[a c]")
	try.begin(list[1])
	try.end(journal.DeliveryRefused, false, list[1])
	try.again()
	s.queue(j, 5, s.now, "b", "a") // as if the leader had died before it cleared the outbox
	state, _ := s.waiting(j, "c")
	if state.Sent != 1 || state.Refused != 1 || state.Repeated != 2 || len(state.Unsure) != 1 || state.Tries != 2 || state.Attempt != nil {
		s.Errorf("at the end: %+v", state)
	}
	log, err := j.Deliveries(s.ctx, []string{"ops", "unknown"}, 10)
	if err != nil || len(log) != 2 || !log[0].Repeated || !log[1].Repeated || log[0].Count != 1 {
		s.Errorf("%v, log %+v", err, log)
	}
}

// queuesKeepInterruptedAttempts checks that an event that expires without an attempt changes nothing about an attempt that a leader has begun before its death.
func queuesKeepInterruptedAttempts(s *suite) {
	j := s.journal(journal.Config{})
	s.queue(j, 5, s.now, "c", "d", "e")
	_, list := s.waiting(j, "c", "d", "e")
	try := attempts{s, j}
	try.begin(list[:2]...)
	try.end(journal.DeliveryExpired, false, list[2])
	try.again("[c d]")
}

// queuesAreReadByPlace checks that a page has what follows the page before, although something has left the queue meanwhile.
func queuesAreReadByPlace(s *suite) {
	j := s.journal(journal.Config{})
	s.queue(j, 5, s.now, "a", "b", "c")
	_, list := s.waiting(j, "a", "b", "c")
	try := attempts{s, j}
	try.begin(list[0])
	try.end(journal.DeliverySent, false, list[0])
	if _, rest, err := j.Notifications(s.ctx, "ops", list[1], 2); err != nil || len(rest) != 1 || rest[0].ID != "c" {
		s.Errorf("%v, the rest of a queue whose first one has gone: %+v", err, rest)
	}
}

// queuesHaveOneLeader checks that a leader that was replaced changes nothing.
func queuesHaveOneLeader(s *suite) {
	j := s.journal(journal.Config{})
	s.queue(j, 6, s.now, "a")
	_, list := s.waiting(j, "a")
	_, err := j.QueueNotifications(s.ctx, journal.QueueRequest{Target: "ops", Token: 5, Now: s.now, Add: []journal.Notification{notification("b")}})
	for what, err := range map[string]error{
		"queue": err, "begin": j.BeginAttempt(s.ctx, "ops", 5, list, journal.Pace{Next: s.now}),
		"end": j.EndAttempt(s.ctx, 5, journal.Attempt{Notifications: list, Delivery: journal.Delivery{Target: "ops", Result: journal.DeliverySent}}),
	} {
		if !errors.Is(err, journal.ErrSuperseded) {
			s.Errorf("%s: %v", what, err)
		}
	}
	s.waiting(j, "a")
}

// queuesAreBounded checks the limits of a queue by number and by age. What is dropped is counted and logged.
func queuesAreBounded(s *suite) {
	j := s.journal(journal.Config{})
	r := journal.QueueRequest{Target: "ops", Token: 1, Now: s.now}
	for n := range journal.MaxNotifications {
		r.Add = append(r.Add, notification(fmt.Sprint(n)))
	}
	if dropped, err := j.QueueNotifications(s.ctx, r); err != nil || dropped != 0 {
		s.Fatal(dropped, err)
	}
	if dropped := s.queue(j, 1, s.now.Add(time.Hour), "x", "y"); dropped != 2 {
		s.Errorf("%d dropped", dropped)
	}
	state, list, err := j.Notifications(s.ctx, "ops", journal.Notification{}, 1)
	if err != nil || list[0].ID != "2" || state.Waiting != journal.MaxNotifications || state.Dropped != 2 {
		s.Errorf("%v, %+v, %+v", err, state, list)
	}
	if dropped := s.queue(j, 1, s.now.Add(journal.KeepNotifications+time.Minute)); dropped != journal.MaxNotifications-2 {
		s.Errorf("%d too old", dropped)
	}
	s.waiting(j, "x", "y")
	old := notification("old")
	old.At = s.now.Add(-time.Second)
	for _, want := range []int{1, 0} { // again as if the leader had died before it cleared the outbox
		dropped, err := j.QueueNotifications(s.ctx, journal.QueueRequest{Target: "ops", Token: 1, Now: s.now.Add(journal.KeepNotifications), Add: []journal.Notification{old}})
		if err != nil || dropped != want {
			s.Errorf("%v, %d dropped, want %d", err, dropped, want)
		}
	}
	s.waiting(j, "x", "y")
	log, err := j.Deliveries(s.ctx, []string{"ops"}, 10)
	if err != nil || len(log) != 3 || log[2].Count != 2 || log[2].Result != journal.DeliveryDropped {
		s.Errorf("%v, log %+v", err, log)
	}
}

// openProblems checks the list of problems whose end is still to be sent, and damage of a target's keys.
func openProblems(s *suite) {
	j := s.journal(journal.Config{})
	change := func(opened map[string]time.Time, closed ...string) {
		s.Helper()
		r := journal.QueueRequest{Target: "ops", Token: 1, Now: s.now, Closed: closed}
		for key, at := range opened {
			r.Add = append(r.Add, journal.Notification{ID: fmt.Sprint(key, at.Unix()), Event: []byte(`{}`), Opens: key, OpensAt: at})
		}
		if _, err := j.QueueNotifications(s.ctx, r); err != nil {
			s.Fatal(err)
		}
	}
	change(map[string]time.Time{"failure a": s.now, "replica_lost b": s.now})
	change(map[string]time.Time{"replica_lost b": s.now.Add(time.Minute)}) // the first time counts
	change(nil, "failure a")
	change(map[string]time.Time{"failure a": s.now}) // a late writer
	s.client.Del(s.ctx, s.key("ops", "notify-queue"))
	s.client.HSet(s.ctx, s.key("ops", "notify-open"), "junk", "x")
	if open, err := j.OpenProblems(s.ctx, "ops"); err != nil || len(open) != 1 || !open["replica_lost b"].Equal(s.now) {
		s.Errorf("%v, %v", err, open)
	}
	s.queue(j, 1, s.now, "a")
	s.client.ZAdd(s.ctx, s.key("ops", "notify-queue"), redis.Z{Score: 1, Member: "junk"})
	s.client.Set(s.ctx, s.key("ops", "notify-state"), "junk", 0)
	if _, list, err := j.Notifications(s.ctx, "ops", journal.Notification{}, 10); err != nil || len(list) != 1 {
		s.Errorf("with damage: %v, %v", err, list)
	}
	s.queue(j, 1, s.now, "b")
	s.waiting(j, "a", "b")
	s.client.Set(s.ctx, s.key("ops", "notify-queue"), "junk", 0)
	if _, _, err := j.Notifications(s.ctx, "ops", journal.Notification{}, 10); !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), "ops") {
		s.Errorf("a foreign key: %v", err)
	}
}
