package scheduler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/logging"
	"github.com/cronclave/cronclave/scheduler"
)

// jsonLog is the log of replicas in the format that users have.
type jsonLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes lines.
func (l *jsonLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// ends are the lines about ends of runs, tries and ticks: level, message, outcome, failed tries.
func (l *jsonLog) ends(t *testing.T) (all []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		var e struct {
			Level, Msg, Outcome, Reason, Job string
			Tries                            int `json:"failed_tries"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if message, _, _ := strings.Cut(e.Msg, ":"); slices.Contains([]string{"finished", "try failed", "tick not run", "ticks missed", "not started",
			"lease lost; the run goes on"}, message) {
			tries := ""
			if e.Tries > 0 {
				tries = fmt.Sprint(" tries ", e.Tries)
			}
			all = append(all, strings.TrimSpace(e.Level+" "+message+" "+e.Outcome)+tries)
		}
	}
	return all
}

func outlives(j *scheduler.Job) { j.OutlivesLease = true }

// A run that failed for good is logged as ERROR, a run or tick that was lost or missed and may yet be made good as WARN, and an outcome that was decided
// so, or is tried again, as INFO.
func TestLevels(t *testing.T) {
	const at30 = "30 0 0 * * *"
	for _, tc := range []struct {
		name  string
		job   func(c *cluster) scheduler.Job
		act   func(c *cluster, r *replica) // at 32 s, when the run of 30 s has been on for 2 s
		until time.Duration
		want  []string
	}{
		{"ok", func(c *cluster) scheduler.Job { return c.job("j", at30, time.Second) }, nil, 40 * time.Second, []string{"info finished ok"}},
		{"failed", func(c *cluster) scheduler.Job { return c.job("j", at30, 0, c.failing(9, time.Second, false)) }, nil, 40 * time.Second, []string{"error finished failed"}},
		{"timeout", func(c *cluster) scheduler.Job {
			return c.job("j", at30, time.Hour, func(j *scheduler.Job) { j.Timeout = 3 * time.Second })
		}, nil, 40 * time.Second, []string{"error finished timeout"}},
		{"a try that is followed by a good one", func(c *cluster) scheduler.Job {
			return c.job("j", at30, 0, c.failing(2, time.Second, false), retry(3, time.Second, time.Second))
		}, nil, 40 * time.Second, []string{"info try failed failed", "info try failed failed", "info finished ok tries 2"}},
		{"the last try", func(c *cluster) scheduler.Job {
			return c.job("j", at30, 0, c.failing(9, time.Second, false), retry(1, time.Second, time.Second))
		}, nil, 40 * time.Second, []string{"info try failed failed", "error finished failed tries 1"}},
		{"canceled", func(c *cluster) scheduler.Job { return c.job("j", at30, time.Hour) },
			func(_ *cluster, r *replica) { r.cancel("j", "") }, 60 * time.Second, []string{"info finished canceled"}},
		{"drained", func(c *cluster) scheduler.Job { return c.job("j", at30, time.Hour) },
			func(_ *cluster, r *replica) { r.stop() }, 80 * time.Second, []string{"warn finished canceled"}},
		{"drained, and run again", func(c *cluster) scheduler.Job { return c.job("j", at30, time.Hour, recovers(1)) },
			func(_ *cluster, r *replica) { r.stop() }, 80 * time.Second, []string{"info finished canceled"}},
		{"lost", func(c *cluster) scheduler.Job { return c.job("j", at30, time.Hour, lease(6*time.Second)) },
			func(_ *cluster, r *replica) { r.wire.silence() }, 60 * time.Second, []string{"error finished lost"}},
		{"lost, and run again", func(c *cluster) scheduler.Job {
			return c.job("j", at30, time.Hour, recovers(1), lease(6*time.Second))
		}, func(_ *cluster, r *replica) { r.wire.silence() }, 60 * time.Second, []string{"warn finished lost"}},
		{"a lease that its run outlives", func(c *cluster) scheduler.Job {
			return c.job("j", at30, 20*time.Second, outlives, lease(6*time.Second))
		},
			func(_ *cluster, r *replica) { r.wire.silence() }, 45 * time.Second, []string{"warn lease lost; the run goes on"}},
		{"skipped", func(c *cluster) scheduler.Job { return c.job("j", "*/30 * * * * *", 25*time.Second+30*time.Second) }, nil, 61 * time.Second,
			[]string{"info tick not run skipped overlap"}},
		{"missed", func(c *cluster) scheduler.Job {
			return c.job("j", "*/30 * * * * *", 50*time.Second, startDeadline(5*time.Second), func(j *scheduler.Job) { j.Overlap = scheduler.OverlapQueue })
		}, nil, 70 * time.Second, []string{"warn tick not run missed slots"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				log := &jsonLog{}
				logger, writer := logging.New(log, logging.Options{Level: hclog.Info, JSON: true})
				defer writer.Close(context.Background())
				r := c.join("r", []scheduler.Job{tc.job(c)}, func(cfg *scheduler.Config) { cfg.Logger = logger })
				c.at(32 * time.Second)
				if tc.act != nil {
					tc.act(c, r)
				}
				c.at(tc.until)
				want(t, "logged", log.ends(t), tc.want)
			})
		})
	}
}

// TestFailedRunHasItsStreak: the log line of a run that failed has the failures before it, as they are when the run is recorded; any other line asks for none.
func TestFailedRunHasItsStreak(t *testing.T) {
	inCluster(t, func(c *cluster) {
		log := &jsonLog{}
		logger, writer := logging.New(log, logging.Options{Level: hclog.Info, JSON: true})
		defer writer.Close(context.Background())
		jobs := []scheduler.Job{c.job("bad", "30 0 0 * * *", 0, c.failing(9, time.Second, false)), c.job("good", "30 0 0 * * *", time.Second)}
		var asked []string
		c.join("r", jobs, func(cfg *scheduler.Config) {
			cfg.Logger = logger
			cfg.Streak = func(_ context.Context, job string) []any {
				c.mu.Lock()
				defer c.mu.Unlock()
				recorded := slices.ContainsFunc(c.records, func(rec scheduler.Record) bool { return rec.Job == job && rec.Outcome == scheduler.Failed })
				asked = append(asked, fmt.Sprint(job, " ", recorded))
				return []any{"failures", 3, "failing_since", "2026-11-27T20:00:00Z"}
			}
		})
		c.at(40 * time.Second)
		want(t, "asked", asked, []string{"bad true"})
		log.mu.Lock()
		defer log.mu.Unlock()
		var found []string
		for line := range strings.Lines(log.text.String()) {
			var e struct {
				Msg, Job string
				Failures int
				Since    string `json:"failing_since"`
			}
			if err := json.Unmarshal([]byte(line), &e); err == nil && e.Msg == "finished" {
				found = append(found, fmt.Sprint(e.Job, " ", e.Failures, " ", e.Since))
			}
		}
		slices.Sort(found)
		want(t, "logged", found, []string{"bad 3 2026-11-27T20:00:00Z", "good 0 "})
	})
}

// TestAbandonedRunsSayWhetherTheyAreRecovered has a replica die that runs a job, and reads what another records.
func TestAbandonedRunsSayWhetherTheyAreRecovered(t *testing.T) {
	for recoveries, again := range map[int]bool{0: false, 1: true} {
		t.Run(fmt.Sprint(recoveries), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "30 0 0 * * *", time.Hour, recovers(recoveries), lease(6*time.Second))
				holder := c.join("holder", []scheduler.Job{job})
				c.at(32 * time.Second)
				c.join("other", []scheduler.Job{job})
				c.at(33 * time.Second)
				holder.die()
				c.at(55 * time.Second)
				var said []bool
				for _, r := range c.words("j") {
					if r.Outcome == scheduler.Abandoned {
						said = append(said, r.Recovers)
					}
				}
				want(t, "recovers", said, []bool{again})
			})
		})
	}
}
