package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/zonedata"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// TestDisagreementsNameJobsAndReplicas names each job that differs between replicas, with the replicas of each version.
// Promise: P8
func TestDisagreementsNameJobsAndReplicas(t *testing.T) {
	replicas := []journal.Replica{{Name: "r2", ConfigDigest: "one"}, {Name: "r1", ConfigDigest: "one"}, {Name: "r3", ConfigDigest: "two"}, {Name: "r4", ConfigDigest: "three"}}
	same := map[string]string{"a": "aaaa", "b": "bbbb"}
	many := func(form string) map[string]string {
		jobs := map[string]string{}
		for n := range 30 {
			jobs[fmt.Sprintf("j%02d", n)] = form
		}
		return jobs
	}
	for name, tt := range map[string]struct {
		digests map[string]map[string]string
		want    []string
	}{
		"job": {map[string]map[string]string{"one": same, "two": {"a": "aaaa", "b": "other", "c": "cccc"}, "three": same},
			[]string{"job b: r1, r2, r4 (bbbb); r3 (other)", "job c: r1, r2, r4 (no such job); r3 (cccc)"}},
		"one of before": {map[string]map[string]string{"one": same, "three": {"a": "aaaa"}}, []string{"job b: r1, r2 (bbbb); r4 (no such job)"}},
		"none but one":  {map[string]map[string]string{"one": same}, nil},
		"no job":        {map[string]map[string]string{"one": same, "two": same, "three": same}, []string{"only [history]"}},
		"without jobs":  {map[string]map[string]string{"one": {}, "two": {"a": "aaaa"}}, []string{"job a: r1, r2 (no such job); r3 (aaaa)"}},
	} {
		if got := GroupByConfig(replicas).compareDigests(tt.digests); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	got := GroupByConfig(replicas[1:3]).compareDigests(map[string]map[string]string{"one": many("x"), "two": many("y")})
	if len(got) != maxDifferences+1 || got[maxDifferences] != "10 more jobs" || !strings.HasPrefix(got[0], "job j00: r1 (x); r3 (y)") {
		t.Errorf("of many: %q", got)
	}
}

// zonesOf returns hashes of zones by the old data, or by the built-in data for nil.
func zonesOf(t *testing.T, data *cronspec.Zones, now time.Time, names ...string) map[string]string {
	t.Helper()
	var zones []*time.Location
	for _, name := range names {
		zone, err := data.Location(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	return HashZones(zones, now)
}

func oldZones(t *testing.T) *cronspec.Zones {
	t.Helper()
	zones, err := zonedata.Read(t.Context(), "../zonedata/testdata/2025c.zip", safefile.Everybody)
	if err != nil {
		t.Fatal(err)
	}
	return zones
}

func TestHashZonesComparesTheComingYear(t *testing.T) {
	old, now := oldZones(t), time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for zone, same := range map[string]bool{"America/Vancouver": false, "Africa/Casablanca": false, "Europe/Berlin": true, "America/New_York": true} {
		if a, b := zonesOf(t, old, now, zone)[zone], zonesOf(t, nil, now, zone)[zone]; a == "" || (a == b) != same {
			t.Errorf("%s: %s and %s, the same: want %v", zone, a, b, same)
		}
	}
	if got := zonesOf(t, nil, now, "UTC", "Europe/Berlin", "Europe/Berlin"); len(got) != 1 {
		t.Errorf("%v, want Berlin alone: UTC has no data", got)
	}
	if a, b := zonesOf(t, nil, now, "Europe/Berlin"), zonesOf(t, nil, now.AddDate(0, 0, 3), "Europe/Berlin"); a["Europe/Berlin"] != b["Europe/Berlin"] {
		t.Errorf("replicas that register at different times of a month disagree: %v, %v", a, b)
	}
	if got := differingZones([]journal.Replica{{Zones: map[string]string{"Z": "2026-11 a"}}, {Zones: map[string]string{"Z": "2026-12 b"}}, {}}); len(got) > 0 {
		t.Errorf("hashes of different months are compared: %v", got)
	}
}

// TestOlderZoneDataNamesItsReplica: the version of the newest data is longer than is shown.
func TestOlderZoneDataNamesItsReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.register(t, journal.Replica{Name: "a", ZoneData: "2025c"})
	c.register(t, journal.Replica{Name: "b", ZoneData: "2026f, " + strings.Repeat("x", longestDigest)})
	st, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(st.Problems, func(p Problem) bool { return p.Code == CodeZoneDataOlder && p.Replica == "a" }) {
		t.Errorf("problems %+v", st.Problems)
	}
}

func TestStatusWarnsOfDifferentZoneData(t *testing.T) {
	t.Parallel()
	old, now := oldZones(t), time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	const vancouver, berlin = "America/Vancouver", "Europe/Berlin"
	job := func(name, schedule, zone string) journal.JobInfo {
		return journal.JobInfo{Name: name, Schedule: []string{schedule}, Timezone: zone, Enabled: true, Parallel: 1, PerTick: 1, Seen: time.Now()}
	}
	replica := func(name, version string, zones map[string]string) journal.Replica {
		return journal.Replica{Name: name, ZoneData: version, Zones: zones}
	}
	fresh := replica("b", "2026f", zonesOf(t, nil, now, vancouver, berlin))
	for name, tc := range map[string]struct {
		jobs []journal.JobInfo
		a    journal.Replica
		code string
		has  []string
		lack string
	}{
		"jobs whose ticks differ": {
			[]journal.JobInfo{job("daily", "0 9 * * *", vancouver), job("often", "*/5 * * * *", vancouver), job("berlin", "0 9 * * *", berlin)},
			replica("a", "2025c", zonesOf(t, old, now, vancouver, berlin)), CodeZoneDataDiffers,
			[]string{"a: 2025c", "b: 2026f", "daily (America/Vancouver)", "zone_data"}, "often",
		},
		"no job whose ticks differ": {[]journal.JobInfo{job("berlin", "0 9 * * *", berlin), job("often", "*/5 * * * *", vancouver)},
			replica("a", "2025c", zonesOf(t, old, now, vancouver, berlin)), CodeZoneDataOlder, []string{"a: 2025c", "b: 2026f", "no coming tick"}, "daily"},
		"an older cronclave": {[]journal.JobInfo{job("daily", "0 9 * * *", vancouver)}, replica("a", "", nil), CodeZoneDataOlder, []string{"a: not said", "b: 2026f"}, "daily"},
		"the same data":      {[]journal.JobInfo{job("daily", "0 9 * * *", vancouver)}, replica("a", "2026f", fresh.Zones), "", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			if err := c.journal.DescribeJobs(t.Context(), tc.jobs); err != nil {
				t.Fatal(err)
			}
			c.register(t, tc.a)
			c.register(t, fresh)
			st, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, w := range st.Warnings {
				if strings.HasPrefix(w.Code, "zone_data") {
					found = append(found, w.Code+": "+w.Message)
				}
			}
			all := strings.Join(found, "\n")
			if want := min(1, len(tc.code)); len(found) != want || !strings.HasPrefix(all, tc.code) || tc.lack != "" && strings.Contains(all, tc.lack) {
				t.Errorf("warnings %q; want one of %q without %q", found, tc.code, tc.lack)
			}
			for _, text := range tc.has {
				if !strings.Contains(all, text) {
					t.Errorf("warnings %q lack %q", found, text)
				}
			}
			for _, p := range st.Problems {
				if warns := p.Level != LevelAdvice; strings.HasPrefix(p.Code, "zone_data") && warns != (tc.code == CodeZoneDataDiffers) {
					t.Errorf("problem %v", p)
				}
			}
			if st.Replicas[1].ZoneData != "2026f" {
				t.Errorf("replicas %v", st.Replicas)
			}
		})
	}
}
