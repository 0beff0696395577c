package integration

import (
	"fmt"
	"strings"
	"testing"
)

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
