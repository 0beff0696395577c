package operator

import (
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// wallClock is how an instant may be written by the clock of a job's zone.
var wallClock = []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"}

// readInstant reads RFC 3339, or a date and a time by the clock of a zone. remark says how the clock was set near such a time; "" if it was not. A time
// that the clock skips is the instant right after the gap, as it is for jobs of a fixed time, and of one that it shows twice it is the first.
func readInstant(text string, zone *time.Location) (at time.Time, remark string, err error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.In(zone), "", nil
	}
	for _, layout := range wallClock {
		face, err := time.Parse(layout, text)
		if err == nil {
			at, remark = onClock(face, zone)
			return at, remark, nil
		}
	}
	return at, "", refuse(ErrInvalid, "%q is neither RFC 3339, as 2026-11-01T03:00:00Z, nor a date and a time in the job's zone, as '2026-11-01 03:00'", text)
}

// onClock is the first instant at which the clock of a zone shows a face or a later one.
func onClock(face time.Time, zone *time.Location) (at time.Time, remark string) {
	const mostShift = 48 * time.Hour // some zones have skipped a day
	from, until := face.Add(-mostShift), face.Add(mostShift)
	shows := func(t time.Time) time.Time { // as a face
		_, offset := t.In(zone).Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second)
	}
	for at = from; at.Before(until); { // from one change of the clock to the next
		_, end := at.In(zone).ZoneBounds()
		candidate := at.Add(face.Sub(shows(at)))
		if !candidate.Before(at) && (end.IsZero() || candidate.Before(end)) {
			at = candidate.In(zone)
			return at, repeated(face, at, shows)
		}
		if end.IsZero() {
			break
		}
		if before, after := shows(end.Add(-time.Second)), shows(end); face.After(before) && face.Before(after) {
			return end.In(zone), fmt.Sprintf("the clock of %s never showed %s: it was put forward from %s to %s", zone, face.Format("2006-01-02 15:04:05"),
				before.Add(time.Second).Format("15:04:05"), after.Format("15:04:05"))
		}
		at = end
	}
	return face.In(zone), ""
}

// repeated says when the clock shows the same face again, if it does within two days.
func repeated(face, at time.Time, shows func(time.Time) time.Time) string {
	_, end := at.ZoneBounds()
	if end.IsZero() {
		return ""
	}
	again := end.Add(face.Sub(shows(end)))
	if again.Before(end) || again.Sub(at) > 48*time.Hour {
		return ""
	}
	return fmt.Sprintf("the clock of %s shows %s twice, since it is put back; this is the first time, the second is %s", at.Location(), face.Format("2006-01-02 15:04:05"),
		again.In(at.Location()).Format(time.RFC3339))
}

// noTick says why an instant is no tick of a job by its own schedule; "" if it is one.
func noTick(info journal.JobInfo, at time.Time) (string, error) {
	spec, zone, err := scheduleOf(info)
	if err != nil {
		return "", fmt.Errorf("job %s: its schedule, as replicas describe it, can't be read: %w", info.Name, err)
	}
	if isTick(spec, at) {
		return "", nil
	}
	plain, err := cronspec.Parse(info.Schedule, cronspec.Options{Name: info.Name, Location: zone})
	if err != nil {
		return "", fmt.Errorf("job %s: its schedule, as replicas describe it, can't be read: %w", info.Name, err)
	}
	if !isTick(plain, at) {
		return "its schedule does not name it", nil
	}
	switch {
	case at.Before(info.StartsAt):
		return "it is before starts_at, " + info.StartsAt.In(zone).Format(time.RFC3339), nil
	case !info.ExpiresAt.IsZero() && !at.Before(info.ExpiresAt):
		return "it is not before expires_at, " + info.ExpiresAt.In(zone).Format(time.RFC3339), nil
	case slices.Contains(info.ExceptDates, at.In(zone).Format(time.DateOnly)):
		return "a calendar of the job's except has this day", nil
	}
	for _, expression := range info.Except {
		except, err := cronspec.Parse([]string{expression}, cronspec.Options{Name: info.Name, Location: zone})
		if err == nil && isTick(except, at) {
			return fmt.Sprintf("except = %q takes it out", expression), nil
		}
	}
	return "except takes it out", nil
}

func isTick(spec *cronspec.Schedule, at time.Time) bool {
	return spec.Prev(at.Add(time.Nanosecond)).Equal(at)
}
