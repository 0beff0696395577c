package scheduler_test

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

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
						if a.Tick.Equal(c.start.Add(180 * time.Second)) {
							want(t, "the tick before the 180th second", c.second(a.Previous), 110)
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
