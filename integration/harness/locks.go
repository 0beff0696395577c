package harness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// FreezeAfterRenewal freezes masters of a quorum between two renewals of a lock's lease of six seconds, and returns the lease's end. Renewals are due every two
// seconds; where the machine was so slow that the next one may have been under way, the masters go on and it tries again.
func (c *Cluster) FreezeAfterRenewal(t *testing.T, servers, victims []*RedisServer, name string) (end time.Time) {
	t.Helper()
	const between, late = 1500 * time.Millisecond, 500 * time.Millisecond // late votes of the claim move the end a little, too
	Eventually(t, StartTimeout, "renewal that was seen in time", func() bool {
		unseen, before := time.Now(), c.majorityEnd(t, servers, name) // the renewal is after unseen
		Eventually(t, Soon, "renewal", func() bool {
			now := time.Now()
			if end = c.majorityEnd(t, servers, name); end.After(before.Add(late)) {
				return true
			}
			unseen = now
			return false
		})
		for _, s := range victims {
			s.Pause()
		}
		if time.Since(unseen) < between {
			return true
		}
		for _, s := range victims {
			s.Unpause()
		}
		return false
	})
	return end
}

// majorityEnd is when the lease of a lock's slot ends on so many masters that no majority is left.
func (c *Cluster) majorityEnd(t *testing.T, servers []*RedisServer, name string) time.Time {
	t.Helper()
	var ends []int64
	for _, s := range servers {
		row := strings.Split(s.Client.HGet(t.Context(), c.LockKey(name), "r0").Val(), "\n") // id, token, end ...
		if len(row) > 2 {
			ends = append(ends, Must1(strconv.ParseInt(row[2], 10, 64))(t))
		}
	}
	slices.Sort(ends)
	slices.Reverse(ends)
	if majority := len(servers)/2 + 1; len(ends) >= majority {
		return time.UnixMicro(ends[majority-1])
	}
	return time.Time{}
}

// The commands under a lock are scribes: the lock's name is their job, and a name of the test's their replica. Both
// are handed on to them by the environment, as to the command of a job that takes a lock itself.

// Lock starts `cronclave lock` with a scribe as its command, and returns at once.
func (c *Cluster) Lock(t *testing.T, who, name string, flags []string, scribe ...string) *Replica {
	t.Helper()
	args := slices.Concat([]string{"lock"}, flags, []string{"--namespace", c.Namespace})
	if !slices.Contains(flags, "--pool") {
		args = append(args, name)
	}
	args = slices.Concat(args, []string{"--", Absolute(t, Program(t, ScribeProgram))}, scribe)
	return StartObserved(t, who, "", []string{
		"CRONCLAVE_REDIS=" + c.URL, "CRONCLAVE_CONFIG=" + c.Path, QuickExit,
		"SCRIBE_FILE=" + c.Chronicle.Path, "SCRIBE_REDIS=" + c.Client.Options().Addr,
		"CRONCLAVE_JOB=" + name, "CRONCLAVE_REPLICA=" + who, "CRONCLAVE_TICK_UNIX=0", "CRONCLAVE_ATTEMPT=1",
	}, Program(t, CronclaveProgram), args...)
}

// AwaitHolder waits until the command of one that asked for a lock has started.
func (c *Cluster) AwaitHolder(t *testing.T, who, name string) Line {
	t.Helper()
	return c.Await(t, Soon, name, "start by "+who, func(l Line) bool { return l.Event == "start" && l.Replica == who })
}

// LockEnd is when the lease of a lock's slot ends, as Redis has it.
func (c *Cluster) LockEnd(t *testing.T, name string) time.Time {
	t.Helper()
	micros, err := c.Client.HGet(t.Context(), c.LockKey(name), "e0").Int64()
	if err != nil {
		t.Fatalf("lock %s: %v", name, err)
	}
	return time.UnixMicro(micros)
}

func (c *Cluster) LockKey(name string) string {
	return fmt.Sprintf("cronclave:%s:{%s}:lock", c.Namespace, name)
}
