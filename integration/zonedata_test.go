package integration

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
	must(t, os.Mkdir(filepath.Join(folder, "America"), 0o700))
	must(t, os.WriteFile(filepath.Join(folder, "America", "Edmonton"), append(zone, "\n\n"...), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "+VERSION"), []byte(version+"\n"), 0o600))
	return folder
}

// New zone data come by a rolling update, and go again. By these each local time comes nine seconds earlier, and one comes every three seconds. Replicas are
// drained, killed, and frozen until the others have the other data. Each local time runs once.
// Promise: P1, P5
func TestRollOutOfZoneDataRunsEachLocalTimeOnce(t *testing.T) {
	slow(t)
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
	c := newCluster(t, configs["older"])
	localTime := func(l line) int64 {
		data, _, _ := strings.Cut(l.Replica, ".")
		return l.Tick + offsets[data]
	}
	awaitTwo := func() {
		from := redisTime(t, c.Client).Unix()
		after := c.awaitTick(t, soon+earlier*2, "fixed", from).Tick
		c.awaitTick(t, soon, "fixed", after+every)
	}
	started := 0
	start := func(data string) *replica {
		started++
		c.edit(t, configs[data])
		r := c.start(t, fmt.Sprintf("%s.%d", data, started))
		r.WaitLog(t, soon, "announcement", announced)
		return r
	}
	replicas := []*replica{start("older"), start("older"), start("older")}
	awaitTwo()
	for _, data := range []string{"newer", "older"} {
		frozen := replicas[0]
		frozen.Stop(t)
		for i, r := range replicas[1:] {
			if i == 0 {
				r.Kill(t)
			} else {
				r.Term(t)
				r.wantDrained(t)
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
	stopAll(t, replicas)

	ran := map[int64][]line{}
	for _, l := range starts(c.lines(t, "fixed")) {
		ran[localTime(l)] = append(ran[localTime(l)], l)
	}
	var times []int64
	for at, runs := range ran {
		times = append(times, at)
		if len(runs) > 1 {
			t.Errorf("a local time ran %d times:\n%s", len(runs), text(runs))
		}
	}
	first, last := slices.Min(times), slices.Max(times)
	for at := first; at <= last; at += every {
		if len(ran[at]) == 0 {
			t.Errorf("local time %d never ran, of %d to %d", at, first, last)
		}
	}
	checkNotEarly(t, starts(c.lines(t, "fixed")))
	for _, r := range c.history(t, "fixed") {
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
	slow(t)
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
	old := fmt.Sprintf("zone_data = %q\n", absolute(t, "../internal/zonedata/testdata/2025c.zip"))
	c := newCluster(t, old+jobs)
	replicas := []*replica{c.start(t, "old")}
	replicas[0].WaitLog(t, soon, "election", message("leadership won"))
	c.edit(t, jobs)
	replicas = append(replicas, c.start(t, "new"))

	differ := func() string { return strings.Join(c.warnings(t, "zone_data_differs"), "\n") }
	eventually(t, soon, "a warning of both versions", func() bool {
		return strings.Contains(differ(), "(old: 2025c; new: 2026f)") && strings.Contains(differ(), "ticks of vancouver (America/Vancouver) differ")
	})
	if all := c.warnings(t, "config_differs"); len(all) > 0 {
		t.Errorf("their configurations agree: %q", all)
	}
	c.command(t, "status", "--check").want(t, 1, "replicas have different zone data (old: 2025c; new: 2026f)")
	c.command(t, "status", "-o", "wide").want(t, 0, "ZONE DATA")
	for _, r := range c.status(t).Replicas {
		if want := map[string]string{"old": "2025c", "new": "2026f"}[r.Name]; r.ZoneData != want {
			t.Errorf("zone data of replica %s: %q, want %q", r.Name, r.ZoneData, want)
		}
	}

	c.edit(t, jobs, replicas[0]) // no release is needed
	replicas[0].WaitLog(t, soon, "word of the reload", message("configuration reloaded"))
	eventually(t, soon, "replicas that agree", func() bool { return differ() == "" })
	stopAll(t, replicas)
}

// A reload whose zone data is faulty changes nothing: the last good one stays, and status says so.
func TestFaultyZoneDataIsRefused(t *testing.T) {
	slow(t)
	t.Parallel()
	const jobs = "[jobs.vancouver]\nschedule = \"0 9 * * *\"\ntimezone = \"America/Vancouver\"\ncommand = \"true\"\n"
	c := newCluster(t, jobs)
	r := c.start(t, "a")
	r.WaitLog(t, soon, "election", message("leadership won"))
	folder := t.TempDir()
	c.edit(t, fmt.Sprintf("zone_data = %q\n", folder)+jobs, r)
	r.WaitLog(t, soon, "word of the refusal", message("configuration refused"))
	eventually(t, soon, "a warning with place and remedy", func() bool {
		all := strings.Join(c.warnings(t, "config_refused"), "\n")
		return strings.Contains(all, ":1:13: zone_data cannot be used: "+folder+" states no version: write it")
	})
	c.edit(t, jobs, r)
	r.WaitLog(t, soon, "word of the reload", message("configuration reloaded"))
	stopAll(t, []*replica{r})
}
