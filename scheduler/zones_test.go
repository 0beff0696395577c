package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler"
)

// zoneBy is a zone by data that have one offset for it from 1999 on.
func zoneBy(t *testing.T, name string, hours int) *time.Location {
	t.Helper()
	block := func(wide int) (b []byte) {
		b = append(append(b, "TZif2"...), make([]byte, 15)...)
		for _, n := range []int{0, 0, 0, 1, 2, 8} {
			b = append(b, 0, 0, byte(n>>8), byte(n))
		}
		change := int64(915_148_800) // 1999-01-01
		for shift := 8 * (wide - 1); shift >= 0; shift -= 8 {
			b = append(b, byte(change>>shift))
		}
		b = append(b, 1)
		for i, offset := range []int{0, 3600 * hours} {
			b = append(b, byte(offset>>24), byte(offset>>16), byte(offset>>8), byte(offset), 0, byte(4*i))
		}
		return append(b, "AAA\x00BBB\x00"...)
	}
	zone, err := time.LoadLocationFromTZData(name, append(append(block(4), block(8)...), "\n\n"...))
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// law is a local time, 09:00, and when it is by new zone data and by old ones, in hours of a UTC day.
type law struct {
	name             string
	newer, older     *time.Location
	byNewer, byOlder time.Duration
}

func bothLaws(t *testing.T) []law {
	return []law{
		{"Edmonton", zoneBy(t, "America/Edmonton", -6), zoneBy(t, "America/Edmonton", -7), 15 * time.Hour, 16 * time.Hour},
		{"Casablanca", zoneBy(t, "Africa/Casablanca", 0), zoneBy(t, "Africa/Casablanca", 1), 9 * time.Hour, 8 * time.Hour},
	}
}

const dayLong = 24 * time.Hour

func in(zone *time.Location) edit { return func(j *scheduler.Job) { j.Location = zone } }

func (c *cluster) nine(zone *time.Location, edits ...func(*scheduler.Job)) []scheduler.Job {
	return []scheduler.Job{c.job("j", "0 9 * * *", time.Second, slices.Insert(edits, 0, func(j *scheduler.Job) { j.Location = zone })...)}
}

// ranAt checks how long after the start of the test the job has begun.
func (c *cluster) ranAt(what string, want ...time.Duration) {
	c.t.Helper()
	var got []time.Duration
	for _, r := range c.runs("j") {
		got = append(got, r.from.Sub(c.start).Truncate(time.Second))
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("%s: ran at %v, want %v; outcomes %v", what, got, want, c.told("j"))
	}
}

// eachLaw runs a test in a bubble for both laws. It begins two hours before the first of the two instants.
func eachLaw(t *testing.T, test func(c *cluster, l law)) {
	t.Helper()
	for _, l := range bothLaws(t) {
		t.Run(l.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.at(min(l.byNewer, l.byOlder) - 2*time.Hour)
				test(c, l)
			})
		})
	}
}

// TestReplicasWithOtherZoneDataRunATickOnce has replicas whose data differ share a cluster: whichever comes first runs the local time, and that is all.
// Promise: P1
func TestReplicasWithOtherZoneDataRunATickOnce(t *testing.T) {
	testtier.Slow(t)
	eachLaw(t, func(c *cluster, l law) {
		c.join("new", c.nine(l.newer))
		c.join("old", c.nine(l.older))
		first, second := min(l.byNewer, l.byOlder), max(l.byNewer, l.byOlder)
		c.at(dayLong + second + time.Minute)
		c.ranAt(l.name, first, first+dayLong)
		for _, r := range c.runs("j") {
			if r.Local.Hour() != 9 || !r.Tick.Equal(r.from.Truncate(time.Second)) {
				t.Errorf("the tick of %v is the local time %v", r.Tick, r.Local)
			}
		}
	})
}

// TestDeathWhileZoneDataDiffer kills the replica that ran a tick, or that would run it first.
// Promise: P1
func TestDeathWhileZoneDataDiffer(t *testing.T) {
	testtier.Slow(t)
	eachLaw(t, func(c *cluster, l law) {
		replicas := map[bool]*replica{true: c.join("new", c.nine(l.newer)), false: c.join("old", c.nine(l.older))}
		first, second := min(l.byNewer, l.byOlder), max(l.byNewer, l.byOlder)
		c.at(first + 10*time.Minute)
		replicas[l.byNewer == first].die() // the other has the same local time to come
		c.at(dayLong + second + time.Minute)
		c.ranAt(l.name, first, dayLong+second)
	})
}

// TestFrozenReplicaOfOtherZoneData freezes the replica by whose data the tick comes first until it is too late by them: the other runs it, at its
// instant, though the tick was settled as missed before; and no replica runs it again.
// Promise: P1, P5
func TestFrozenReplicaOfOtherZoneData(t *testing.T) {
	eachLaw(t, func(c *cluster, l law) {
		first, second := min(l.byNewer, l.byOlder), max(l.byNewer, l.byOlder)
		strict := func(j *scheduler.Job) { j.StartDeadline = 40 * time.Second }
		replicas := map[bool]*replica{true: c.join("new", c.nine(l.newer, strict)), false: c.join("old", c.nine(l.older, strict))}
		frozen := replicas[l.byNewer == first]
		c.at(first - time.Minute)
		frozen.wire.silence()
		c.at(first + 30*time.Minute)
		frozen.wire.restore()
		c.at(second - time.Second)
		c.ranAt("before")
		c.at(second + 3*time.Hour)
		c.ranAt(l.name, second)
	})
}

// TestZoneDataArriveBetweenTheInstants covers new data that come by a reload, or with a new replica, when the local time has passed by them and not by the
// old, or the other way round; and old data that come back.
// Promise: P1, P5
func TestZoneDataArriveBetweenTheInstants(t *testing.T) {
	testtier.Slow(t)
	for _, how := range []string{"reload", "restart"} {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, back %t", how, back), func(t *testing.T) {
				eachLaw(t, func(c *cluster, l law) {
					from, to, byFrom, byTo := l.older, l.newer, l.byOlder, l.byNewer
					if back {
						from, to, byFrom, byTo = to, from, byTo, byFrom
					}
					strict := func(j *scheduler.Job) { j.StartDeadline = 40 * time.Second }
					r := c.join("r", c.nine(from, strict))
					between := min(byFrom, byTo) + 30*time.Minute
					c.at(between)
					if how == "reload" {
						reload(t, []*replica{r}, c.nine(to, strict)...)
					} else {
						r.leave()
						c.join("s", c.nine(to, strict))
					}
					want := []time.Duration{between, dayLong + byTo} // it was undecided, and counts as due since the data came
					if byFrom < byTo {
						want[0] = byFrom // it has run
					}
					c.at(dayLong + max(byFrom, byTo) + time.Minute)
					c.ranAt(l.name, want...)
				})
			})
		}
	}
}

// TestDeadlineOfDataThatAreNotNew checks that a restart with the same data runs nothing that is too late.
func TestDeadlineOfDataThatAreNotNew(t *testing.T) {
	eachLaw(t, func(c *cluster, l law) {
		strict := func(j *scheduler.Job) { j.StartDeadline = 40 * time.Second }
		r := c.join("r", c.nine(l.newer, strict))
		c.at(l.byNewer - time.Minute)
		r.leave()
		c.at(l.byNewer + 10*time.Minute)
		c.join("s", c.nine(l.newer, strict))
		c.at(l.byNewer + time.Hour)
		c.ranAt(l.name)
		if got := c.outcomes("j"); got["missed down"] != 1 || len(got) != 1 {
			t.Errorf("outcomes %v", got)
		}
	})
}

// TestRecoveryKeepsTheInstant has a replica with other data carry a run on: it has the instant of the grant.
func TestRecoveryKeepsTheInstant(t *testing.T) {
	testtier.Slow(t)
	eachLaw(t, func(c *cluster, l law) {
		first := min(l.byNewer, l.byOlder)
		long := func(j *scheduler.Job) { j.Recover.Max, j.Lease = 1, 10*time.Second }
		jobs := func(zone *time.Location) []scheduler.Job {
			return []scheduler.Job{c.job("j", "0 9 * * *", time.Minute, in(zone), long)}
		}
		replicas := map[bool]*replica{true: c.join("new", jobs(l.newer)), false: c.join("old", jobs(l.older))}
		c.at(first + 10*time.Second)
		replicas[l.byNewer == first].die()
		c.at(first + 2*time.Hour)
		runs := c.runs("j")
		if len(runs) != 2 || runs[1].Attempt != 2 || !runs[1].Tick.Equal(c.start.Add(first)) || runs[1].Local.Hour() != 9 {
			t.Errorf("%d runs, %+v", len(runs), runs)
		}
	})
}

// TestChainWithOtherZoneData has a job run after one whose ticks are local times: once for each, with the same local time.
// Promise: P1
func TestChainWithOtherZoneData(t *testing.T) {
	testtier.Slow(t)
	eachLaw(t, func(c *cluster, l law) {
		jobs := func(zone *time.Location) []scheduler.Job {
			return append(c.nine(zone), c.job("other", "0 8,9 * * *", 2*time.Second, in(zone)), c.job("child", "", time.Second, after("j", "other")))
		}
		c.join("new", jobs(l.newer))
		c.join("old", jobs(l.older))
		c.at(dayLong + max(l.byNewer, l.byOlder) + time.Minute)
		if runs := c.runs("child"); len(runs) != 2 {
			t.Fatalf("%d runs of the child: %v", len(runs), c.ticks("child"))
		}
		for n, r := range c.runs("child") {
			if want := c.start.Add(time.Duration(n)*dayLong + 9*time.Hour); !r.Local.Equal(want) {
				t.Errorf("run %d is of %v, want %v", n, r.Local, want)
			}
		}
	})
}

// TestChainOfTwoZones matches the ticks of jobs with different kinds of schedules by their instants.
func TestChainOfTwoZones(t *testing.T) {
	testtier.Slow(t)
	inCluster(t, func(c *cluster) {
		berlin := zoneBy(t, "Europe/Berlin", 1)
		c.at(7*time.Hour + 30*time.Minute)
		c.joinAll(2, []scheduler.Job{c.job("hourly", "0 * * * *", time.Second), c.job("nine", "0 9 * * *", 2*time.Second, in(berlin)), c.job("child", "", time.Second, after("hourly", "nine"))})
		c.at(33 * time.Hour)
		if got, want := c.ticks("child"), []int{8 * 3600, 32 * 3600}; !slices.Equal(got, want) {
			t.Errorf("ticks %v, want %v", got, want)
		}
	})
}

// TestZoneOfAJobIsEdited checks that a job goes on at once in another zone, whatever was decided in the one before.
// Promise: P5
func TestZoneOfAJobIsEdited(t *testing.T) {
	inCluster(t, func(c *cluster) {
		tokyo, denver := zoneBy(t, "Asia/Tokyo", 9), zoneBy(t, "America/Denver", -7)
		c.at(10 * time.Hour)
		at := func(hour int, zone *time.Location) []scheduler.Job {
			return []scheduler.Job{c.job("j", fmt.Sprintf("0 %d * * *", hour), time.Second, in(zone))}
		}
		replicas := c.joinAll(2, at(20, tokyo)) // 11:00Z
		c.at(11*time.Hour + time.Minute)
		reload(t, replicas, at(5, denver)...) // 12:00Z
		c.at(12*time.Hour + time.Minute)
		reload(t, replicas, at(13, time.UTC)...)
		c.at(13*time.Hour + time.Minute)
		reload(t, replicas, at(23, tokyo)...) // 14:00Z
		c.at(14*time.Hour + time.Minute)
		for _, r := range replicas {
			r.leave()
		}
		c.joinAll(1, at(23, tokyo))
		c.at(14*time.Hour + 30*time.Minute)
		c.ranAt("edits", 11*time.Hour, 12*time.Hour, 13*time.Hour, 14*time.Hour)
	})
}

// Excepted instants are neither claimed nor run nor recorded, and the ticks around them are neighbours, whether the replicas are up or were down
// meanwhile.
// Promise: P6
func TestExceptedInstantsAreNoTicks(t *testing.T) {
	for _, tc := range []struct {
		name     string
		from, to int // seconds in which no replica is up
		ticks    []int
		outcomes map[string]int
	}{
		{"up", 0, 0, append(seconds(30, 110, 10), seconds(180, 240, 10)...), map[string]int{"ok": 16}},
		{"down", 95, 195, append(seconds(30, 90, 10), seconds(190, 240, 10)...), map[string]int{"ok": 13, "missed down": 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, func(j *scheduler.Job) {
					j.Except = []string{"* 2 * * * *"}
					j.StartsAt, j.ExpiresAt = c.start.Add(25*time.Second), c.start.Add(250*time.Second)
				})}
				replicas := c.joinAll(2, jobs)
				if tc.to > 0 {
					c.at(time.Duration(tc.from) * time.Second)
					replicas[0].leave()
					replicas[1].leave()
					c.at(time.Duration(tc.to) * time.Second)
					replicas = c.joinAll(2, jobs)
				}
				c.at(255 * time.Second)
				expired := time.Now()
				c.at(time.Hour)
				want(t, "ticks that ran", c.ticks("j"), tc.ticks)
				want(t, "outcomes", c.outcomes("j"), tc.outcomes)
				for _, r := range replicas {
					want(t, "claims after the job has expired", r.claims(expired), []asked{})
					for _, a := range r.claims(c.start) {
						if a.Tick.At.Equal(c.start.Add(180 * time.Second)) {
							want(t, "the tick before the 180th second", c.second(a.Tick.Previous), 110)
						}
					}
				}
				c.checkRuns("j", 1, 1)
			})
		})
	}
}

// TestEditedExceptionDoesNotFireInRetrospect: instants that are excepted no more are ticks from now on only.
// Promise: P6
func TestEditedExceptionDoesNotFireInRetrospect(t *testing.T) {
	for name, except := range map[string]edit{
		"expression": func(j *scheduler.Job) { j.Except = []string{"* 2 * * * *"} },
		"date":       func(j *scheduler.Job) { j.ExceptDates = []string{"2000-01-01"} },
		"start":      func(j *scheduler.Job) { j.StartsAt = time.Date(2000, 1, 1, 0, 10, 0, 0, time.UTC) },
		"end":        func(j *scheduler.Job) { j.ExpiresAt = time.Date(2000, 1, 1, 0, 1, 55, 0, time.UTC) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.at(2*time.Minute - time.Second)
				before := c.join("before", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, startDeadline(time.Hour), except)})
				c.at(165 * time.Second)
				before.leave()
				c.at(175 * time.Second)
				c.join("after", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, startDeadline(time.Hour))})
				c.at(195 * time.Second)
				want(t, "ticks that ran", c.ticks("j"), []int{180, 190})
				want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 2})
			})
		})
	}
}

// TestNothingLeftIsAFault, and each kind of exception reaches the schedule.
func TestNothingLeftIsAFault(t *testing.T) {
	for name, edit := range map[string]edit{
		"expression": func(j *scheduler.Job) { j.Except = []string{"@daily"} },
		"time":       func(j *scheduler.Job) { j.StartsAt, j.ExpiresAt = time.Unix(1, 0), time.Unix(2, 0) },
		"date": func(j *scheduler.Job) {
			j.ExceptDates, j.StartsAt, j.ExpiresAt = []string{"2000-01-01"}, time.Unix(946684800, 0), time.Unix(946684801, 0)
		},
	} {
		j := scheduler.Job{Name: "j", Schedule: []string{"@daily"}, Runner: scheduler.Func(nil)}
		edit(&j)
		if _, err := scheduler.New(scheduler.Config{Jobs: []scheduler.Job{j}}); err == nil {
			t.Errorf("%s: no fault", name)
		}
	}
}
