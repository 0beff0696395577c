package scheduler_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
)

// away takes the server from all replicas between two instants of the test.
func (c *cluster) away(from, to time.Duration, how func(*wire)) {
	c.at(from)
	for _, r := range c.replicas {
		how(&r.wire)
	}
	c.at(to)
	for _, r := range c.replicas {
		if !r.dead {
			r.wire.restore()
		}
	}
}

var waysToBeAway = map[string]func(*wire){"silent": (*wire).silence, "refused": (*wire).refuse}

// TestTicksWaitForTheServer: a server that is back within the start deadline finds every tick, the oldest first.
// Promise: P5
func TestTicksWaitForTheServer(t *testing.T) {
	for name, how := range waysToBeAway {
		for _, n := range []int{1, 3} {
			for _, length := range []time.Duration{time.Millisecond, 300 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s, %d replicas, runs of %v", name, n, length), func(t *testing.T) {
					inCluster(t, func(c *cluster) {
						c.joinAll(n, []scheduler.Job{c.job("j", "* * * * * *", length, startDeadline(30*time.Second))})
						c.away(10500*time.Millisecond, 16500*time.Millisecond, how)
						c.at(60*time.Second + 900*time.Millisecond)
						checkBacklog(t, c, 16)
					})
				})
			}
		}
	}
}

// TestSecondTickOfASilence: the server is back just when the second tick has come due, and before the claim of the first was
// given up. That tick waited too, and does not skip.
// Promise: P5
func TestSecondTickOfASilence(t *testing.T) {
	testtier.Slow(t)
	for _, after := range []time.Duration{1, 5, 20, 60} {
		t.Run(fmt.Sprintf("back %d ms after the tick", after), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.joinAll(20, []scheduler.Job{c.job("j", "* * * * * *", 300*time.Millisecond, startDeadline(30*time.Second))}, c.ranked)
				c.away(10900*time.Millisecond, 12*time.Second+after*time.Millisecond, (*wire).silence)
				c.at(60*time.Second + 900*time.Millisecond)
				checkBacklog(t, c, 12)
			})
		})
	}
}

// checkBacklog holds that all ticks that waited ran, in order, and the backlog came to an end. A tick that came due behind it, when
// the server answered again, may have been skipped, since a run that was late held the slot.
func checkBacklog(t *testing.T, c *cluster, waited int) {
	t.Helper()
	ticks, runs := c.ticks("j"), c.runs("j")
	var skipped []int
	for s, told := range c.told("j") {
		at := c.start.Add(time.Duration(s) * time.Second)
		behind := slices.ContainsFunc(runs, func(r ran) bool {
			return r.from.Sub(r.Tick) > 100*time.Millisecond && r.Tick.Before(at) && !r.to.Before(at)
		})
		if s > waited && behind && told[0] == "skipped overlap" {
			skipped = append(skipped, s)
		}
	}
	expected := slices.DeleteFunc(seconds(1, 60, 1), func(s int) bool { return slices.Contains(skipped, s) })
	want(t, "ticks in the order of their starts", ticks, expected)
	c.checkRuns("j", 1, 1)
	if last := runs[len(runs)-1]; last.from.Sub(last.Tick) > 100*time.Millisecond {
		t.Errorf("the backlog is still there: the last tick began %v late", last.from.Sub(last.Tick))
	}
}

// TestOneReplicaWithoutServer: others take the ticks meanwhile, and it makes no trouble when it is back.
func TestOneReplicaWithoutServer(t *testing.T) {
	inCluster(t, func(c *cluster) {
		replicas := c.joinAll(3, []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(30*time.Second))})
		c.at(10500 * time.Millisecond)
		replicas[0].wire.silence()
		c.at(20500 * time.Millisecond)
		replicas[0].wire.restore()
		c.at(60*time.Second + 900*time.Millisecond)
		c.checkRuns("j", 1, 1)
		told := c.told("j")
		for s := 1; s <= 60; s++ { // one may be in the hands of the silent one at the moment
			if len(told[s]) != 1 || told[s][0] != "ok" && s != 11 {
				t.Errorf("tick %d: %v", s, told[s])
			}
		}
	})
}

// TestTicksPastTheirDeadlineAreMissed: exactly those, each once, with the reason; the others run.
func TestTicksPastTheirDeadlineAreMissed(t *testing.T) {
	for name, how := range waysToBeAway {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.joinAll(3, []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(5*time.Second))})
				const from, to = 20, 60 // half a second later
				c.away(from*time.Second+500*time.Millisecond, to*time.Second+500*time.Millisecond, how)
				c.at(80*time.Second + 900*time.Millisecond)
				c.checkRuns("j", 1, 1)
				told := c.told("j")
				for s := 1; s <= 80; s++ {
					expected := "ok"
					if s > from && s <= to-5 {
						expected = "missed redis"
					}
					if s > to-5 && s <= to-2 { // it takes up to two seconds until the server is asked again
						expected = fmt.Sprint(told[s])[1 : len(fmt.Sprint(told[s]))-1]
					}
					want(t, fmt.Sprint("outcomes of ", s), told[s], []string{expected})
				}
				c.checkOutage(t, from, to)
			})
		})
	}
}

// checkOutage demands that the records of the ticks that were missed say from when to when Redis did not answer: from two time-outs after the
// outage at the latest, until claims are answered again. A replica that sees how another one has settled a tick knows the reason alone, and may be the first to
// record it: so a few may lack that.
func (c *cluster) checkOutage(t *testing.T, from, to int) {
	t.Helper()
	said := regexp.MustCompile(`^Redis did not answer replica \w+ from (\S+) to (\S+)$`)
	missed, bare := 0, 0
	for _, r := range c.words("j") {
		if verdict(r) != "missed redis" {
			continue
		}
		if missed++; r.Detail == "" {
			bare++
			continue
		}
		m := said.FindStringSubmatch(r.Detail)
		if m == nil {
			t.Errorf("tick %d: %q", c.second(r.Tick), r.Detail)
			continue
		}
		begin, _ := time.Parse(time.RFC3339, m[1])
		end, _ := time.Parse(time.RFC3339, m[2])
		if b, e := c.second(begin), c.second(end); b < from || b > from+5 || e < to || e > to+5 {
			t.Errorf("tick %d: %s", c.second(r.Tick), r.Detail)
		}
	}
	if bare > missed/4 {
		t.Errorf("%d of %d records say no more than the reason", bare, missed)
	}
}

// The record of a tick that an outage has missed has that outage: not the one after a short return, and not that Redis came back without its data.
func TestRecordsHaveTheOutageThatMissedTheTick(t *testing.T) {
	outage := regexp.MustCompile(`^(Redis did not answer replica \w+ from 2000-01-01T00:00:30Z to 2000-01-01T00:(00:5[5-8]|01:1[5-9])Z)?$`) // a replica may not have asked between two outages
	for name, happens := range map[string]func(*cluster){
		"a second outage": func(c *cluster) {
			c.away(25500*time.Millisecond, 55300*time.Millisecond, (*wire).silence)
			c.away(55900*time.Millisecond, 75*time.Second, (*wire).silence)
		},
		"the data is gone": func(c *cluster) {
			c.away(25500*time.Millisecond, 55*time.Second, (*wire).silence)
			operator{c}.forget()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.joinAll(3, []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, startDeadline(4*time.Second)), c.job("other", "* * * * * *", time.Millisecond, startDeadline(time.Second))})
				happens(c)
				c.at(120 * time.Second)
				missed := 0
				for _, r := range c.words("j") {
					if s := c.second(r.Tick); s >= 30 && s <= 50 && verdict(r) == "missed redis" {
						missed++
						if !outage.MatchString(r.Detail) {
							t.Errorf("tick %d: %q", s, r.Detail)
						}
					}
				}
				want(t, "ticks that were missed", missed, 3)
			})
		})
	}
}

// The newest thousand open ticks wait; older ones are settled together when the server is back.
// Promise: P9
func TestTooManyOpenTicks(t *testing.T) {
	testtier.Slow(t)
	inCluster(t, func(c *cluster) {
		c.quiet = true
		replicas := c.joinAll(2, []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(2*time.Hour))})
		c.away(10500*time.Millisecond, 1510500*time.Millisecond, (*wire).refuse)
		c.at(1600*time.Second + 500*time.Millisecond)
		ticks := c.ticks("j")
		if n := len(ticks); n < 1095 || n > 1110 {
			t.Errorf("%d ticks ran", n)
		}
		want(t, "newest that is decided", c.second(replicas[0].state("j").Decided), 1600)
		missed := c.outcomes("j")["missed redis"]
		if missed < 20 || missed > 30 { // twenty singly, and the others together
			t.Errorf("%d ticks were told as missed", missed)
		}
		told := c.told("j")
		var odd []string
		for s := 511; s <= 1600; s++ {
			if len(told[s]) != 1 {
				odd = append(odd, fmt.Sprint(s, told[s]))
			}
		}
		want(t, "ticks that were not told of once", odd, nil)
		c.checkRuns("j", 1, 1)
	})
}

// A cluster that was down runs the ticks that are within their deadline, and records those that are not.
// Promise: P5
func TestDownAndUp(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, startDeadline(25*time.Second)),
			c.job("auto", "*/10 * * * * *", time.Millisecond)}
		first := c.join("first", jobs)
		c.at(15 * time.Second)
		first.leave()
		c.at(96 * time.Second)
		c.joinAll(2, jobs)
		c.at(115 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{10, 80, 90, 100, 110})
		want(t, "ticks of the job without a deadline of its own", c.ticks("auto"), []int{10, 90, 100, 110})
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 5, "missed down": 6})
		want(t, "outcomes", c.outcomes("auto"), map[string]int{"ok": 4, "missed down": 7})
		c.checkRuns("j", 1, 1)
	})
}

// TestNewJobDoesNotFireInRetrospect: its first tick is one that comes after the cluster has heard of it.
func TestNewJobDoesNotFireInRetrospect(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.at(95 * time.Second)
		c.joinAll(2, []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, startDeadline(time.Hour))})
		c.at(115 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{100, 110})
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 2})
	})
}

// TestTickThatRanIsNotMissed: one that was granted, though not as often as it might, when the cluster went down.
func TestTickThatRanIsNotMissed(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, parallel(3, 3, 1), startDeadline(8*time.Second))}
		first := c.join("first", jobs)
		c.at(15 * time.Second)
		first.leave()
		c.at(45 * time.Second)
		c.join("second", jobs)
		c.at(49 * time.Second)
		want(t, "told", c.told("j"), map[int][]string{10: {"ok"}, 20: {"missed down"}, 30: {"missed down"}, 40: {"ok"}})
	})
}

// TestStartWithoutServer: a replica waits for the server, and for nothing else.
func TestStartWithoutServer(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.replica("r", []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond)})
		r.wire.silence()
		r.run()
		c.at(20500 * time.Millisecond)
		r.wire.restore()
		c.at(30500 * time.Millisecond)
		if ticks := c.ticks("j"); len(ticks) < 7 || ticks[len(ticks)-1] != 30 {
			t.Errorf("ran %v", ticks)
		}
		c.checkRuns("j", 1, 1)
	})
}

// Ticks that were settled are recorded even if the first reply was lost.
func TestLostReplyAtTheStart(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond)}
		first := c.join("first", jobs)
		c.at(15 * time.Second)
		first.leave()
		c.at(55 * time.Second)
		second := c.replica("second", jobs)
		second.wire.plan(fault{}, fault{kind: noReply}) // of the announcement, and of the settlement
		second.run()
		c.at(59 * time.Second)
		want(t, "faults", second.wire.count(), 2)
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 2, "missed down": 3})
	})
}

// Of two replicas that start together one settles the ticks that were missed, and dies before it can record them.
func TestWhoeverSettlesMayDie(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond)}
		before := c.join("before", jobs)
		c.at(15 * time.Second)
		before.leave()
		observer := c.replica("observer", jobs) // which does not run
		c.at(55 * time.Second)
		dies, lives := c.replica("dies", jobs), c.replica("lives", jobs)
		dies.wire.plan(fault{lateRequest, 100 * time.Millisecond}, fault{kind: noReply})
		lives.wire.plan(fault{}, fault{lateRequest, 500 * time.Millisecond})
		dies.run()
		lives.run()
		c.at(55*time.Second + 300*time.Millisecond)
		want(t, "settled by the one that dies", c.second(observer.state("j").Decided), 40)
		dies.die()
		c.at(59 * time.Second)
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 2, "missed down": 3})
	})
}

// FLUSHALL runs no tick twice, and ticks that wait for the lock to open are run.
// Promise: P1, P5
func TestServerForgets(t *testing.T) {
	inCluster(t, func(c *cluster) {
		replicas := c.joinAll(3, []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(time.Minute), lease(5*time.Second))})
		c.at(20500 * time.Millisecond)
		if err := replicas[0].rdb.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		c.at(60*time.Second + 900*time.Millisecond)
		want(t, "ticks in the order of their starts", c.ticks("j"), seconds(1, 60, 1))
		c.checkRuns("j", 1, 1)
	})
}

// TestBacklogIsGrantedInOrder although many replicas ask for it, each in its own time, and runs take long.
func TestBacklogIsGrantedInOrder(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.quiet = true
		c.joinAll(5, []scheduler.Job{c.job("j", "* * * * * *", 730*time.Millisecond, startDeadline(time.Minute))})
		c.away(10500*time.Millisecond, 30500*time.Millisecond, (*wire).refuse)
		c.at(2 * time.Minute)
		ticks := c.ticks("j")
		if !slices.IsSorted(ticks) || !slices.Equal(ticks[:30], seconds(1, 30, 1)) {
			t.Errorf("ticks in the order of their starts: %v", ticks)
		}
	})
}

// TestLostReplyOfABacklog: whatever replies are lost when the server is back, each tick that was missed is told of.
func TestLostReplyOfABacklog(t *testing.T) {
	for name, faults := range map[string][]fault{
		"the first":              {{kind: noReply}},
		"the second":             {{}, {kind: noReply}},
		"one in the middle":      {{}, {}, {}, {}, {}, {}, {}, {}, {kind: cutAtReply}},
		"two, one after another": {{}, {}, {kind: cutAtReply}, {kind: noReply}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				r := c.join("r", []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(5*time.Second))})
				c.away(10500*time.Millisecond, 60500*time.Millisecond, (*wire).refuse)
				r.wire.plan(faults...)
				c.at(80*time.Second + 900*time.Millisecond)
				want(t, "faults", r.wire.count(), len(faults))
				told := c.told("j")
				for s := 1; s <= 80; s++ {
					if len(told[s]) != 1 || s <= 10 && told[s][0] != "ok" || s > 10 && s <= 55 && told[s][0] != "missed redis" {
						t.Errorf("tick %d: %v", s, told[s])
					}
				}
				c.checkRuns("j", 1, 1)
			})
		})
	}
}

// TestTickAfterALostReplyIsNotSkipped: it came due while the claim of the tick before was unanswered, so it waits behind it.
func TestTickAfterALostReplyIsNotSkipped(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r", []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(30*time.Second))})
		c.at(19500 * time.Millisecond)
		r.wire.plan(fault{kind: noReply})
		c.at(30500 * time.Millisecond)
		want(t, "faults", r.wire.count(), 1)
		want(t, "ticks in the order of their starts", c.ticks("j"), seconds(1, 30, 1))
		c.checkRuns("j", 1, 1)
	})
}

// Of the ticks that no replica was there for the newest twenty have a record each, and all before them one, with their number, whichever of several
// replicas records it.
// Promise: P6
func TestLongGapIsLoggedTogether(t *testing.T) {
	for name, tt := range map[string]struct {
		up   int // the second at which replicas are there again
		more string
	}{
		"counted":          {1000, ""},
		"beyond counting":  {20_000, "at least "},
		"not one too many": {40, "none"},
		"one":              {41, "none"},
		"two":              {42, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.quiet = true
				jobs := []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(5*time.Second))}
				first := c.join("first", jobs)
				c.at(15*time.Second + 500*time.Millisecond)
				first.leave()
				c.at(time.Duration(tt.up)*time.Second + 500*time.Millisecond)
				c.joinAll(3, jobs)
				c.at(time.Duration(tt.up)*time.Second + 900*time.Millisecond)
				checkGap(t, c, 16, tt.up-5, tt.more)
				c.checkRuns("j", 1, 1)
			})
		})
	}
}

// checkGap compares the records of the ticks from one to another, which were all missed.
func checkGap(t *testing.T, c *cluster, from, to int, more string) {
	t.Helper()
	told, singly := c.told("j"), 0
	for second := to; second > to-20; second-- {
		want(t, fmt.Sprint("told of ", second), told[second], []string{"missed down"})
		singly++
	}
	var summaries []string
	together := 0
	for _, r := range c.words("j") {
		together += r.Ticks
		if r.Output != nil {
			summaries = append(summaries, fmt.Sprint(c.second(r.Tick), " ", r.Outcome, " ", r.Reason, ": ", *r.Output))
		}
	}
	if more == "none" {
		want(t, "summaries", summaries, nil)
		want(t, "missed", c.outcomes("j")["missed down"], to-from+1)
		return
	}
	n := to - from + 1 - singly
	if more != "" {
		n = 10_000
	}
	if len(summaries) != 1 || !strings.HasPrefix(summaries[0], fmt.Sprintf("%d missed down: one record for %s%d ticks, from ", from, more, n)) {
		t.Errorf("summaries %q, want one of %s%d ticks", summaries, more, n)
	}
	want(t, "ticks of the summary", together, n)
	want(t, "missed together and singly", c.outcomes("j")["missed down"], singly+1)
}
