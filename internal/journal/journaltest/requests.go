package journaltest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

func (s *suite) requested(j *journal.Journal) (ids []string) {
	s.Helper()
	requests, err := j.Requests(s.ctx)
	must(s, err)
	for _, r := range requests {
		ids = append(ids, r.ID)
	}
	return ids
}

func requests(s *suite) {
	j := s.journal(journal.Config{})
	if ids := s.requested(j); len(ids) != 0 {
		s.Errorf("requested at first: %v", ids)
	}
	asked, err := j.Ask(s.ctx, journal.Request{ID: "one", Job: "report", Tick: s.now.Add(-hour), By: "me@here"}, time.Minute)
	must(s, err)
	if asked.Expires.Sub(asked.Created) != time.Minute || asked.Created.Sub(s.now).Abs() > time.Minute {
		s.Errorf("asked %+v", asked)
	}
	_, err = j.Ask(s.ctx, journal.Request{ID: "two", Job: "other"}, time.Minute)
	must(s, err)
	got, err := j.Requests(s.ctx)
	must(s, err)
	if len(got) != 2 || got[0].ID != "one" || !got[0].Tick.Equal(asked.Tick) || got[0].By != "me@here" || !got[0].Expires.Equal(asked.Expires) {
		s.Errorf("requests %+v", got)
	}
	for _, bad := range []journal.Request{{ID: "", Job: "report"}, {ID: "a|b", Job: "report"}, {ID: "x", Job: "{y}"}} {
		if _, err := j.Ask(s.ctx, bad, time.Minute); !errors.Is(err, journal.ErrInvalid) {
			s.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := j.Ask(s.ctx, journal.Request{ID: "x", Job: "report"}, hour); !errors.Is(err, journal.ErrInvalid) {
		s.Errorf("for an hour: %v", err)
	}
}

func answers(s *suite) {
	j := s.journal(journal.Config{})
	if _, ok, err := j.AnswerTo(s.ctx, "one"); ok || err != nil {
		s.Errorf("an answer to nothing, %v", err)
	}
	_, err := j.Ask(s.ctx, journal.Request{ID: "one", Job: "report"}, time.Minute)
	must(s, err)
	say := func(a journal.Answer, want journal.Answer) {
		s.Helper()
		must(s, j.Answer(s.ctx, a))
		if got, ok, err := j.AnswerTo(s.ctx, "one"); !ok || err != nil || got != want {
			s.Errorf("answered %+v, %v, want %+v", got, err, want)
		}
	}
	waits, runs := journal.Answer{Request: "one", Replica: "r1"}, journal.Answer{Request: "one", Replica: "r2", Outcome: journal.OutcomeRunning, RunID: "r"}
	say(waits, waits)
	if ids := s.requested(j); !slices.Equal(ids, []string{"one"}) {
		s.Errorf("while somebody waits: %v", ids)
	}
	say(runs, runs)
	if ids := s.requested(j); len(ids) != 0 {
		s.Errorf("after it was answered: %v", ids)
	}
	say(waits, runs) // late
}

// damagedRequests checks that the error of a damaged request names its key, so that a user can delete it.
func damagedRequests(s *suite) {
	j := s.journal(journal.Config{})
	_, err := j.AskOnce(s.ctx, "once", journal.Request{ID: "one", Job: "report"}, time.Minute)
	must(s, err)
	prefix := "cronclave:" + s.namespace + ":"
	answer, once := prefix+"request:one:answer", prefix+"request-once:once"
	for _, text := range []string{"junk", `{"request":"two"}`} {
		must(s, s.client.Set(s.ctx, answer, text, time.Minute).Err())
		if _, _, err := j.AnswerTo(s.ctx, "one"); !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), answer) {
			s.Errorf("an answer %s: %v", text, err)
		}
		must(s, s.client.Set(s.ctx, once, text, time.Minute).Err())
		if _, _, err := j.Asked(s.ctx, "once"); !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), once) {
			s.Errorf("a request %s: %v", text, err)
		}
	}
}

func requestsExpire(s *suite) {
	j := s.journal(journal.Config{})
	_, err := j.Ask(s.ctx, journal.Request{ID: "one", Job: "report"}, 50*time.Millisecond)
	must(s, err)
	deadline := time.Now().Add(time.Minute)
	for len(s.requested(j)) > 0 {
		if time.Now().After(deadline) {
			s.Fatal("it is there for ever")
		}
	}
	for _, key := range s.allKeys() {
		if ttl := s.client.PTTL(s.ctx, key).Val(); ttl < 0 {
			s.Errorf("%s has no time to live", key)
		}
	}
}

func requestsAreHeard(s *suite) {
	j := s.journal(journal.Config{})
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	heard, over := make(chan []string), make(chan struct{})
	go func() {
		defer close(over)
		j.Subscribe(ctx, func(requests []journal.Request) {
			var ids []string
			for _, r := range requests {
				ids = append(ids, r.ID)
			}
			select {
			case heard <- ids:
			case <-ctx.Done():
			}
		})
	}()
	_, err := j.Ask(s.ctx, journal.Request{ID: "one", Job: "report"}, time.Minute)
	must(s, err)
	for range 2 { // again and again, until it is answered
		select {
		case ids := <-heard:
			if !slices.Equal(ids, []string{"one"}) {
				s.Errorf("heard %v", ids)
			}
		case <-ctx.Done():
			s.Error("nothing is heard")
		}
	}
	cancel()
	<-over
}

func liveOutput(s *suite) {
	j := s.journal(journal.Config{})
	if jobs, err := j.Followed(s.ctx, []string{"report", "other"}); len(jobs) != 0 || err != nil {
		s.Errorf("followed: %v, %v", jobs, err)
	}
	must(s, j.Follow(s.ctx, "report"))
	if jobs, err := j.Followed(s.ctx, []string{"other", "report"}); !slices.Equal(jobs, []string{"report"}) || err != nil {
		s.Errorf("followed: %v, %v", jobs, err)
	}
	chunks, place, err := j.Live(s.ctx, "report", "run", "")
	must(s, err)
	if len(chunks) != 0 || place != "" {
		s.Errorf("before anything is printed: %v, at %q", chunks, place)
	}
	for n := range int64(100) {
		first, err := j.Publish(s.ctx, "report", "run", journal.Chunk{Offset: 2 * n, Lines: []journal.Line{{Text: "x", Stderr: n%2 == 0}}})
		if must(s, err); first != (n == 0) {
			s.Errorf("chunk %d is the first: %t", n, first)
		}
	}
	chunks, place, err = j.Live(s.ctx, "report", "run", "")
	must(s, err)
	if len(chunks) != 64 || chunks[63].Next() != 200 || chunks[0].Offset != 72 || !chunks[0].Lines[0].Stderr {
		s.Errorf("%d chunks, from %d", len(chunks), chunks[0].Offset)
	}
	_, err = j.Publish(s.ctx, "report", "run", journal.Chunk{Attempt: 2, Offset: 7, End: true})
	must(s, err)
	chunks, place, err = j.Live(s.ctx, "report", "run", place)
	must(s, err)
	if len(chunks) != 1 || chunks[0].Offset != 7 || !chunks[0].End {
		s.Errorf("after that: %+v", chunks)
	}
	if chunks, _, err = j.Live(s.ctx, "report", "run", place); len(chunks) != 0 || err != nil {
		s.Errorf("and then: %+v, %v", chunks, err)
	}
	_, err = j.Publish(s.ctx, "report", "run", journal.Chunk{Attempt: 2}) // once more, with all that is kept
	must(s, err)
	chunks, _, err = j.Live(s.ctx, "report", "run", "")
	must(s, err)
	if n := len(chunks); n != 64 || chunks[0].Attempt != 0 || chunks[n-2].Offset != 0 || chunks[n-1].Offset != 7 {
		s.Errorf("out of order: %+v", chunks)
	}
	runs := []journal.LiveRun{{Job: "report", ID: "run"}, {Job: "report", ID: "silent"}}
	if missing, err := j.KeepLive(s.ctx, runs); err != nil || !slices.Equal(missing, runs[1:]) {
		s.Errorf("missing: %v, %v", missing, err)
	}
	for _, key := range s.allKeys() {
		if ttl := s.client.PTTL(s.ctx, key).Val(); ttl < 0 {
			s.Errorf("%s has no time to live", key)
		}
	}
}

func oneRun(s *suite) {
	j := s.journal(journal.Config{})
	r := s.ended("report", "one", journal.OutcomeOK, 5)
	r.Output = new("hello\n")
	s.record(j, r, s.running("report", "two", 1))
	got, ok, err := j.Run(s.ctx, "report", "one")
	if !ok || err != nil || got.Outcome != journal.OutcomeOK || got.Output == nil || *got.Output != "hello\n" {
		s.Errorf("%+v, %v, %v", got, ok, err)
	}
	if got, ok, err := j.Run(s.ctx, "report", "two"); !ok || err != nil || got.Outcome != journal.OutcomeRunning {
		s.Errorf("%+v, %v, %v", got, ok, err)
	}
	for _, id := range []string{"three", "", "a|b"} {
		if _, ok, err := j.Run(s.ctx, "report", id); ok || err != nil {
			s.Errorf("run %q: %v, %v", id, ok, err)
		}
	}
}
