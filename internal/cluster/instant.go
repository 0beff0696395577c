package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// wallClock lists the layouts of an instant without a zone. Such an instant is a local time in the job's zone.
var wallClock = []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"}

type instant struct {
	at     time.Time
	face   time.Time // requested local time, as a time in UTC, if the zone's clock skips it, so that at is the end of the gap; otherwise zero
	remark string    // describes a change of the clock at the instant; "" if there is none
}

// readInstant parses RFC 3339, or a date and a local time in the zone. If the zone's clock shows that local time twice, readInstant returns the first instant.
func readInstant(text string, zone *time.Location) (instant, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return instant{at: at.In(zone)}, nil
	}
	for _, layout := range wallClock {
		if face, err := time.Parse(layout, text); err == nil {
			return onClock(face, zone), nil
		}
	}
	return instant{}, refusalError(ErrInvalid, "%q is neither RFC 3339, as 2026-11-01T03:00:00Z, nor a time in the job's zone, as '2026-11-01 03:00' or 03:00, nor now or -5m", text)
}

// readRecent parses an instant that depends on the present: a local time without a date, now, or a duration before now, such as -5m. A local time is the newest one
// that is not in the future. Of now and a duration, it returns the newest tick until then, because hardly any such instant is a tick itself. spec is nil if the
// ticks are unknown.
func readRecent(text string, zone *time.Location, now time.Time, spec *cronspec.Schedule) (i instant, ok bool) {
	for _, layout := range []string{"15:04:05", "15:04"} {
		face, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		today := faceOf(now, zone)
		for day := 0; !ok; day-- {
			i = onClock(time.Date(today.Year(), today.Month(), today.Day()+day, face.Hour(), face.Minute(), face.Second(), 0, time.UTC), zone)
			ok = !i.at.After(now)
		}
		return i, true
	}
	at := now
	if ago, before := strings.CutPrefix(text, "-"); before {
		d, err := units.ParseDuration(ago)
		if err != nil || d < 0 {
			return i, false
		}
		at = now.Add(-d)
	} else if text != "now" {
		return i, false
	}
	if spec != nil {
		if tick := spec.Prev(at.Add(time.Nanosecond)); !tick.IsZero() {
			at = tick
		}
	}
	return instant{at: at.In(zone)}, true
}

// faceOf returns the local time in a zone at an instant, as a time in UTC.
func faceOf(at time.Time, zone *time.Location) time.Time {
	_, offset := at.In(zone).Zone()
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

// onClock returns the first instant at which a zone's clock shows the local time face or a later time. face is a time in UTC.
func onClock(face time.Time, zone *time.Location) instant {
	const mostShift = 48 * time.Hour                                      // the clock of some zones has skipped a whole day
	for from := face.Add(-mostShift); from.Before(face.Add(mostShift)); { // each step goes to the next change of the clock
		end := cronspec.PeriodEnd(zone, from)
		at := from.Add(face.Sub(faceOf(from, zone)))
		if !at.Before(from) && (end.IsZero() || at.Before(end)) {
			return instant{at: at.In(zone), remark: repeatedText(face, at, zone)}
		}
		if end.IsZero() {
			break
		}
		if last, next := faceOf(end.Add(-time.Second), zone).Add(time.Second), faceOf(end, zone); !face.Before(last) && face.Before(next) {
			return instant{end.In(zone), face, fmt.Sprintf("the clock of %s jumps from %s to %s", zone, last.Format("2006-01-02 15:04:05"), next.Format("2006-01-02 15:04:05"))}
		}
		from = end
	}
	return instant{at: face.In(zone)}
}

// repeatedText returns a remark if the zone's clock, after it is put back, shows the local time face again within two days of at. Otherwise, it returns "".
func repeatedText(face, at time.Time, zone *time.Location) string {
	end := cronspec.PeriodEnd(zone, at)
	if end.IsZero() {
		return ""
	}
	again := end.Add(face.Sub(faceOf(end, zone)))
	if again.Before(end) || again.Sub(at) > 48*time.Hour {
		return ""
	}
	return fmt.Sprintf("the clock of %s is put back, and shows %s twice; this is the first time, the second is %s", zone, face.Format("2006-01-02 15:04:05"),
		again.In(zone).Format(time.RFC3339))
}

// noTick returns the reason why an instant is not a tick of a job by its present schedule; "" if it is a tick.
func noTick(zones *cronspec.Zones, info journal.JobInfo, i instant) (string, error) {
	spec, zone, err := scheduleOf(zones, info)
	if err != nil {
		return "", fmt.Errorf("job %s: its schedule, as replicas describe it, can't be read: %w", info.Name, err)
	}
	skipped := !i.face.IsZero()
	switch plain, named := matchesAt(info, i.at, zone), namesFace(info, faceOf(i.at, zone)); {
	case skipped && !movedTo(info, i, zone):
		return i.remark, nil
	case isTick(spec, i.at):
		return "", nil
	case !plain && named:
		return "the clock was put back, and shows this time twice: the first time was the tick", nil
	case !plain:
		return "its schedule does not name it", nil
	}
	return exceptionText(info, i.at, zone), nil
}

func exceptionText(info journal.JobInfo, at time.Time, zone *time.Location) string {
	switch {
	case at.Before(info.StartsAt):
		return "it is before starts_at, " + info.StartsAt.In(zone).Format(time.RFC3339)
	case !info.ExpiresAt.IsZero() && !at.Before(info.ExpiresAt):
		return "it is not before expires_at, " + info.ExpiresAt.In(zone).Format(time.RFC3339)
	case slices.Contains(info.ExceptDates, at.In(zone).Format(time.DateOnly)):
		return "a calendar of the job's except has this day"
	}
	for _, expression := range info.Except {
		if firesBy(info.Name, expression, at, zone) {
			return fmt.Sprintf("except = %q takes it out", expression)
		}
	}
	return "except takes it out"
}

// matchesAt reports whether a job's expressions match an instant. It ignores except, starts_at and expires_at.
func matchesAt(info journal.JobInfo, at time.Time, zone *time.Location) bool {
	return slices.ContainsFunc(info.Schedule, func(expression string) bool { return firesBy(info.Name, expression, at, zone) })
}

func firesBy(job, expression string, at time.Time, zone *time.Location) bool {
	spec, err := cronspec.Parse([]string{expression}, cronspec.Options{Name: job, Location: zone})
	return err == nil && isTick(spec, at)
}

// namesFace reports whether an expression matches the local time face. If the zone's clock changes at that time, the instant may still not be a tick.
func namesFace(info journal.JobInfo, face time.Time) bool {
	return slices.ContainsFunc(info.Schedule, func(expression string) bool {
		return !strings.HasPrefix(expression, "@every") && firesBy(info.Name, expression, face, time.UTC)
	})
}

// movedTo reports whether the job has a tick at i.at, the end of a gap, in place of i.face, the local time that the clock skipped: ticks of "@daily" move, ticks of
// "*/30 * * * *" are left out. See package cronspec.
func movedTo(info journal.JobInfo, i instant, zone *time.Location) bool {
	return slices.ContainsFunc(info.Schedule, func(expression string) bool {
		spec, err := cronspec.Parse([]string{expression}, cronspec.Options{Name: info.Name, Location: zone})
		return err == nil && spec.Nominal() && isTick(spec, i.at) && firesBy(info.Name, expression, i.face, time.UTC)
	})
}

func isTick(spec *cronspec.Schedule, at time.Time) bool {
	return spec.Prev(at.Add(time.Nanosecond)).Equal(at)
}
