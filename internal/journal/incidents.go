package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// keepIncidents is the time for which an incident is listed. Only the newest incidents are listed, at most mostIncidents.
	keepIncidents = 7 * 24 * time.Hour
	mostIncidents = 100
	// mostReports is the maximum number of reports per kind, so that many reports of outages do not displace a report of lost data.
	mostReports = 300
	// Incidents accepts an incident that ends up to justNow in the future, because a replica may record an incident after the caller has read the clock.
	justNow = 2 * time.Second
)

// The kinds of incidents.
const (
	Outage   = "outage"    // Redis did not answer
	DataLoss = "data_loss" // Redis lost its data
)

type incidentList struct{ *namespace }

// An Incident is an outage of Redis, or a loss of its data. Its JSON is part of the contract with users.
type Incident struct {
	Kind string `json:"kind"`
	Interval
	// Replica is the name of a replica that reported the incident.
	Replica string `json:"replica"`
}

// NoteIncident adds a replica's report to the list. Replicas may observe different intervals of one incident, and Incidents merges their reports. A second call
// with the same report changes nothing.
func (l incidentList) NoteIncident(ctx context.Context, in Incident) error {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	text, err := json.Marshal(in)
	if err != nil || in.findFault() != "" {
		return fmt.Errorf("note an incident of Redis: %w: %v, %s", ErrInvalid, err, in.findFault())
	}
	key, end := l.key("incidents"), in.To.UnixMilli()
	if err := l.redis.HSetNX(ctx, key, in.Kind+" "+formatNumber(end)+" "+in.Replica, text).Err(); err != nil {
		return fmt.Errorf("note an incident of Redis: %w", errors.Join(err, context.Cause(ctx)))
	}
	all := l.redis.HGetAll(ctx, key)
	if err := errorOf(ctx, all); err != nil {
		return fmt.Errorf("shorten the list of incidents: %w", err)
	}
	var old []string
	reports := map[string]int{} // by kind
	for _, field := range slices.SortedFunc(maps.Keys(all.Val()), func(a, b string) int { return cmp.Or(cmp.Compare(endIn(b), endIn(a)), cmp.Compare(a, b)) }) {
		kind, _, _ := strings.Cut(field, " ")
		if reports[kind]++; reports[kind] > mostReports || endIn(field) < end-keepIncidents.Milliseconds() {
			old = append(old, field)
		}
	}
	if len(old) > 0 {
		err = l.redis.HDel(ctx, key, old...).Err()
	}
	return wrapIf("shorten the list of incidents", errors.Join(err, l.redis.PExpire(ctx, key, keepIncidents).Err()))
}

// endIn returns the end of an incident from the name of its field, in milliseconds since 1970.
func endIn(field string) int64 {
	_, end, _ := strings.Cut(field, " ")
	end, _, _ = strings.Cut(end, " ")
	n, _ := strconv.ParseInt(end, 10, 64) // n is 0 for a field that no replica wrote, so this field counts as the oldest
	return n
}

// Incidents returns the incidents until now, by the clock of Redis, from new to old. Overlapping incidents of one kind are merged. An incident in the future is
// left out: either the clock was set back, or the entry is damaged. Entries with other damage are left out with an error that wraps ErrCorrupt.
func (l incidentList) Incidents(ctx context.Context, now time.Time) ([]Incident, error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	found := l.redis.HGetAll(ctx, l.key("incidents"))
	if err := errorOf(ctx, found); err != nil {
		return nil, fmt.Errorf("read the incidents of Redis: %w", err)
	}
	all, damaged := decodeAll[Incident]("read the incidents of Redis", slices.Collect(maps.Values(found.Val())))
	return mergeIncidents(slices.DeleteFunc(all, func(in Incident) bool { return in.To.After(now.Add(justNow)) })), damaged
}

func mergeIncidents(all []Incident) []Incident {
	slices.SortFunc(all, func(a, b Incident) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.From.Compare(b.From), a.To.Compare(b.To), cmp.Compare(a.Replica, b.Replica))
	})
	list := []Incident{}
	for _, in := range all {
		last := len(list) - 1
		if last < 0 || list[last].Kind != in.Kind || in.From.After(list[last].To) {
			list = append(list, in)
		} else if in.To.After(list[last].To) {
			list[last].To = in.To
		}
	}
	slices.SortStableFunc(list, func(a, b Incident) int { return b.To.Compare(a.To) })
	return list[:min(len(list), mostIncidents)]
}

func (in *Incident) findFault() string {
	switch {
	case in.Kind != Outage && in.Kind != DataLoss:
		return fmt.Sprintf("kind %.40q", in.Kind)
	case !in.isSound() || in.To.Before(in.From):
		return "a time beyond the calendar, or an end before the beginning"
	case !isRunID(in.Replica):
		return fmt.Sprintf("replica %.40q", in.Replica)
	}
	return ""
}
