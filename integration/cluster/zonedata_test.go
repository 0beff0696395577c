package cluster

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// zoneFolder makes zone data of a version that has one zone, America/Edmonton, with one offset.
func zoneFolder(t *testing.T, version string, offset int64) string {
	t.Helper()
	var zone []byte
	for range 2 { // the blocks of 32 and of 64 bits: both without a transition
		zone = append(append(zone, "TZif2"...), make([]byte, 15)...)
		for _, n := range []uint32{0, 0, 0, 0, 1, 4} {
			zone = binary.BigEndian.AppendUint32(zone, n)
		}
		zone = binary.BigEndian.AppendUint32(zone, uint32(offset))
		zone = append(zone, "\x00\x00AAA\x00"...)
	}
	folder := t.TempDir()
	harness.Must(t, os.Mkdir(filepath.Join(folder, "America"), 0o700))
	harness.Must(t, os.WriteFile(filepath.Join(folder, "America", "Edmonton"), append(zone, "\n\n"...), 0o600))
	harness.Must(t, os.WriteFile(filepath.Join(folder, "+VERSION"), []byte(version+"\n"), 0o600))
	return folder
}

// New zone data come by a rolling update, and go again. By these each local time comes nine seconds earlier, and one comes every three seconds. Replicas are
// drained, killed, and frozen until the others have the other data. Each local time runs once.
// Promise: P1, P5
func TestRollOutOfZoneDataRunsEachLocalTimeOnce(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const jobs = `
[jobs.fixed]
schedule = "*/3 0-59 0-23 * * *"
timezone = "America/Edmonton"
command  = 'exec "$SCRIBE"'
parallel = 8
per_tick = 1
per_replica = 8
lease    = "3s"
start_deadline = "1m"
`
	const west, earlier, every = -7 * 3600, 9, 3
	offsets := map[string]int64{"older": west, "newer": west + earlier}
	configs := map[string]string{}
	for data, offset := range offsets {
		version := map[string]string{"older": "2025c", "newer": "2026f"}[data]
		configs[data] = fmt.Sprintf("zone_data = %q\n", zoneFolder(t, version, offset)) + jobs
	}
	c := harness.NewCluster(t, configs["older"])
	localTime := func(l harness.Line) int64 {
		data, _, _ := strings.Cut(l.Replica, ".")
		return l.Tick + offsets[data]
	}
	awaitTwo := func() {
		from := harness.RedisTime(t, c.Client).Unix()
		after := c.AwaitTick(t, harness.Soon+earlier*2, "fixed", from).Tick
		c.AwaitTick(t, harness.Soon, "fixed", after+every)
	}
	started := 0
	start := func(data string) *harness.Replica {
		started++
		c.Edit(t, configs[data])
		r := c.Start(t, fmt.Sprintf("%s.%d", data, started))
		r.WaitLog(t, harness.Soon, "announcement", harness.Announced)
		return r
	}
	replicas := []*harness.Replica{start("older"), start("older"), start("older")}
	awaitTwo()
	for _, data := range []string{"newer", "older"} {
		frozen := replicas[0]
		frozen.Stop(t)
		for i, r := range replicas[1:] {
			if i == 0 {
				r.Kill(t)
			} else {
				r.Term(t)
				r.WantDrained(t)
			}
			replicas[1+i] = start(data)
			awaitTwo()
		}
		frozen.Cont(t) // by its data the last local times are due now, or will be
		awaitTwo()
		frozen.Kill(t)
		replicas[0] = start(data)
		awaitTwo()
	}
	harness.StopAll(t, replicas)

	ran := map[int64][]harness.Line{}
	for _, l := range harness.Starts(c.Lines(t, "fixed")) {
		ran[localTime(l)] = append(ran[localTime(l)], l)
	}
	var times []int64
	for at, runs := range ran {
		times = append(times, at)
		if len(runs) > 1 {
			t.Errorf("a local time ran %d times:\n%s", len(runs), harness.TextOf(runs))
		}
	}
	first, last := slices.Min(times), slices.Max(times)
	for at := first; at <= last; at += every {
		if len(ran[at]) == 0 {
			t.Errorf("local time %d never ran, of %d to %d", at, first, last)
		}
	}
	harness.CheckNotEarly(t, harness.Starts(c.Lines(t, "fixed")))
	for _, r := range c.History(t, "fixed") {
		if r.Outcome == "missed" || r.Outcome == "skipped" {
			t.Errorf("a tick was not run: %+v", r)
		}
	}
	t.Logf("%d local times ran", len(times))
}

// While replicas have zone data of different versions, status names them and the jobs whose ticks differ, and nothing else. The key zone_data changes the
// data of a running replica.
// Promise: P1
func TestReplicasWithDifferentZoneDataAreNamed(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const jobs = `
[jobs.vancouver]
schedule = "0 9 * * *"
timezone = "America/Vancouver"
command  = "true"

[jobs.often]
schedule = "*/5 * * * *"
timezone = "America/Vancouver"
command  = "true"

[jobs.berlin]
schedule = "0 9 * * *"
timezone = "Europe/Berlin"
command  = "true"
`
	old := fmt.Sprintf("zone_data = %q\n", harness.Absolute(t, harness.Root+"/internal/zonedata/testdata/2025c.zip"))
	c := harness.NewCluster(t, old+jobs)
	replicas := []*harness.Replica{c.Start(t, "old")}
	replicas[0].WaitLog(t, harness.Soon, "election", harness.MessageHas("leadership won"))
	c.Edit(t, jobs)
	replicas = append(replicas, c.Start(t, "new"))

	differ := func() string { return strings.Join(c.Warnings(t, "zone_data_differs"), "\n") }
	harness.Eventually(t, harness.Soon, "a warning of both versions", func() bool {
		return strings.Contains(differ(), "(old: 2025c; new: 2026f)") && strings.Contains(differ(), "ticks of vancouver (America/Vancouver) differ")
	})
	if all := c.Warnings(t, "config_differs"); len(all) > 0 {
		t.Errorf("their configurations agree: %q", all)
	}
	c.Command(t, "status", "--check").Want(t, 1, "replicas have different zone data (old: 2025c; new: 2026f)")
	c.Command(t, "status", "-o", "wide").Want(t, 0, "ZONE DATA")
	for _, r := range c.Status(t).Replicas {
		if want := map[string]string{"old": "2025c", "new": "2026f"}[r.Name]; r.ZoneData != want {
			t.Errorf("zone data of replica %s: %q, want %q", r.Name, r.ZoneData, want)
		}
	}

	c.Edit(t, jobs, replicas[0]) // no release is needed
	replicas[0].WaitLog(t, harness.Soon, "word of the reload", harness.MessageHas("configuration reloaded"))
	harness.Eventually(t, harness.Soon, "replicas that agree", func() bool { return differ() == "" })
	harness.StopAll(t, replicas)
}

// A reload whose zone data is faulty changes nothing: the last good one stays, and status says so.
func TestFaultyZoneDataIsRefused(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const jobs = "[jobs.vancouver]\nschedule = \"0 9 * * *\"\ntimezone = \"America/Vancouver\"\ncommand = \"true\"\n"
	c := harness.NewCluster(t, jobs)
	r := c.Start(t, "a")
	r.WaitLog(t, harness.Soon, "election", harness.MessageHas("leadership won"))
	folder := t.TempDir()
	c.Edit(t, fmt.Sprintf("zone_data = %q\n", folder)+jobs, r)
	r.WaitLog(t, harness.Soon, "word of the refusal", harness.MessageHas("configuration refused"))
	harness.Eventually(t, harness.Soon, "a warning with place and remedy", func() bool {
		all := strings.Join(c.Warnings(t, "config_refused"), "\n")
		return strings.Contains(all, ":1:13: zone_data cannot be used: "+folder+" states no version: write it")
	})
	c.Edit(t, jobs, r)
	r.WaitLog(t, harness.Soon, "word of the reload", harness.MessageHas("configuration reloaded"))
	harness.StopAll(t, []*harness.Replica{r})
}
