package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

const (
	// CodeZoneDataDiffers is the code of the warning that replicas have different zone data, by which the ticks of a job differ.
	CodeZoneDataDiffers = "zone_data_differs"
	// CodeZoneDataOlder is the code of the advice that some replicas have older zone data, which does not affect coming ticks.
	CodeZoneDataOlder = "zone_data_older"
	// comparedMonths is the number of coming months for which the clocks of zones are compared. Before a later change, replicas will have newer zone data.
	comparedMonths = 13
	// maxHashedZones is the maximum number of zones that a replica registers, by name.
	maxHashedZones = 100
)

// HashZones returns a hash of the coming clock changes for each zone, by name. A hash begins with its first month, so that hashes of different months are not
// compared.
func HashZones(zones []*time.Location, now time.Time) map[string]string {
	byName := map[string]*time.Location{}
	for _, zone := range zones {
		if zone != time.UTC {
			byName[zone.String()] = zone
		}
	}
	names := slices.Sorted(maps.Keys(byName))
	from := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	hashes := map[string]string{}
	for _, name := range names[:min(len(names), maxHashedZones)] {
		hashes[name] = from.Format("2006-01 ") + cronspec.HashZone(byName[name], from, from.AddDate(0, comparedMonths, 0))
	}
	return hashes
}

// warnOfZones warns about replicas whose zone data gives jobs different ticks, and about replicas with older data.
func (r *statusReader) warnOfZones() {
	versions := map[string][]string{}
	for _, e := range r.replicas {
		version := FirstLine(e.ZoneData, longestDigest)
		versions[version] = append(versions[version], e.Name)
	}
	if len(versions) < 2 {
		return
	}
	known := zoneVersions(versions)
	if jobs := r.jobsOfDifferingZones(); len(jobs) > 0 {
		const named = 10
		list := strings.Join(jobs[:min(len(jobs), named)], ", ")
		if more := len(jobs) - named; more > 0 {
			list += fmt.Sprintf(" and %d more", more)
		}
		r.warnOf(r.replicas, CodeZoneDataDiffers, "replicas have different zone data (%s), by which coming ticks of %s differ: a tick runs once, when the first replica takes it as due; "+
			"give all replicas the newest, by zone_data or the same release", known, list)
		return
	}
	newest := slices.Max(slices.Collect(maps.Keys(versions)))
	older := slices.DeleteFunc(slices.Clone(r.replicas), func(e journal.Replica) bool { return e.ZoneData == newest })
	r.warnOf(older, CodeZoneDataOlder, "replicas have different zone data (%s); no coming tick of their jobs differs by it", known)
}

// zoneVersions lists the versions of zone data from old to new, each with its replicas.
func zoneVersions(versions map[string][]string) string {
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		names := versions[version]
		slices.Sort(names)
		if version == "" {
			version = "not said, as by an older version of cronclave"
		}
		parts = append(parts, strings.Join(names, ", ")+": "+version)
	}
	return strings.Join(parts, "; ")
}

// jobsOfDifferingZones returns the enabled jobs whose coming ticks depend on a zone that differs between replicas, each with its zone.
func (r *statusReader) jobsOfDifferingZones() (jobs []string) {
	differs := differingZones(r.replicas)
	for _, info := range r.jobs {
		if differs[info.Timezone] && info.Enabled && len(info.After) == 0 && dependsOnOffset(info, r.status.Now) {
			jobs = append(jobs, fmt.Sprintf("%s (%s)", info.Name, info.Timezone))
		}
	}
	return jobs
}

// differingZones returns the zones for which replicas have registered different hashes of the same month.
func differingZones(replicas []journal.Replica) map[string]bool {
	type month struct{ zone, month string }
	hashes, differs := map[month]string{}, map[string]bool{}
	for _, e := range replicas {
		for zone, hash := range e.Zones {
			from, _, _ := strings.Cut(hash, " ")
			key := month{zone, from}
			if other, known := hashes[key]; known && other != hash {
				differs[zone] = true
			}
			hashes[key] = hash
		}
	}
	return differs
}

// dependsOnOffset reports whether a job has other ticks if the clock of its zone is an hour ahead. A job that runs every five minutes has the same ticks.
func dependsOnOffset(info journal.JobInfo, now time.Time) bool {
	const compared = 100
	ticks := func(offset int) (list []time.Time) {
		spec, err := cronspec.Parse(info.Schedule, cronspec.Options{Name: info.Name, Location: time.FixedZone("", offset)})
		for at := now; err == nil && len(list) < compared; {
			if at = spec.Next(at); at.IsZero() {
				break
			}
			list = append(list, at)
		}
		return list
	}
	const hour = 3600
	return !slices.Equal(ticks(0), ticks(hour))
}
