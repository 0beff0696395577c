package importer

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/units"
)

// A unit is the settings of a unit file with its drop-ins, by section and key.
type unit struct {
	name     string
	place    string
	settings map[string][]setting
}

type setting struct {
	value, place string
}

func (u *unit) all(key string) (values []string) {
	for _, s := range u.settings[key] {
		values = append(values, s.value)
	}
	return values
}

// last returns the last value of a key, or "".
func (u *unit) last(key string) string {
	if list := u.settings[key]; len(list) > 0 {
		return list[len(list)-1].value
	}
	return ""
}

func (u *unit) isTrue(key string) bool {
	return slices.Contains([]string{"yes", "true", "on", "1", "y", "t"}, strings.ToLower(u.last(key)))
}

// monotonic lists the timers that OnCalendar= resets together with itself.
var monotonic = []string{"Timer.OnActiveSec", "Timer.OnBootSec", "Timer.OnStartupSec", "Timer.OnUnitActiveSec", "Timer.OnUnitInactiveSec"}

var catHeader = regexp.MustCompile(`^# (/\S+\.(timer|service|conf))$`)

// readUnits reads unit files and drop-ins, or the output of systemctl cat.
func readUnits(c *conversion, files []File) {
	found := map[string]*unit{}
	var dropIns []File
	for _, f := range files {
		for _, part := range splitCat(f) {
			name := path.Base(part.Name)
			switch {
			case strings.HasSuffix(name, ".conf"):
				dropIns = append(dropIns, part)
			case strings.HasSuffix(name, ".timer"), strings.HasSuffix(name, ".service"):
				u := &unit{name: name, place: part.Name, settings: map[string][]setting{}}
				u.read(part)
				found[name] = u
			default:
				c.refuseFile(f.Name, "it is no timer, service or drop-in, and no output of systemctl cat")
			}
		}
	}
	slices.SortStableFunc(dropIns, func(a, b File) int { return strings.Compare(path.Base(a.Name), path.Base(b.Name)) })
	for _, f := range dropIns {
		if u := found[strings.TrimSuffix(path.Base(path.Dir(f.Name)), ".d")]; u != nil {
			u.read(f)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if strings.HasSuffix(name, ".timer") {
			c.readTimer(found[name], found)
		}
	}
}

// splitCat splits the output of systemctl cat into the files in it. A File without such headers stays one.
func splitCat(f File) []File {
	var parts []File
	var b strings.Builder
	name := f.Name
	flush := func() {
		if strings.TrimSpace(b.String()) != "" {
			parts = append(parts, File{name, b.String()})
		}
		b.Reset()
	}
	for line := range strings.Lines(f.Text) {
		if m := catHeader.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			flush()
			name = m[1]
		}
		b.WriteString(line)
	}
	flush()
	return parts
}

// read adds the settings of a file. An empty value resets a key, as in systemd.
func (u *unit) read(f File) {
	section, n, start, joined := "", 0, 0, ""
	for line := range strings.Lines(f.Text) {
		n++
		text := strings.TrimSpace(line)
		if joined == "" {
			start = n
		}
		if text == "" && joined == "" || strings.HasPrefix(text, "#") || strings.HasPrefix(text, ";") {
			continue
		}
		if rest, continued := strings.CutSuffix(text, `\`); continued {
			joined += rest + " "
			continue
		}
		text, joined = joined+text, ""
		if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
			section = text[1 : len(text)-1]
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			continue
		}
		u.set(section+"."+strings.TrimSpace(key), strings.TrimSpace(value), fmt.Sprintf("%s:%d", f.Name, start))
	}
}

func (u *unit) set(key, value, place string) {
	if value != "" {
		u.settings[key] = append(u.settings[key], setting{value, place})
		return
	}
	delete(u.settings, key)
	if key == "Timer.OnCalendar" || slices.Contains(monotonic, key) {
		delete(u.settings, "Timer.OnCalendar")
		for _, other := range monotonic {
			delete(u.settings, other)
		}
	}
}

// readTimer adds the entry of a timer, with the service that it starts.
func (c *conversion) readTimer(u *unit, found map[string]*unit) {
	e := c.newEntry(u.place)
	for key, list := range u.settings {
		if strings.HasPrefix(key, "Timer.") {
			for _, s := range list {
				e.source = append(e.source, strings.TrimPrefix(key, "Timer.")+"="+s.value)
			}
		}
	}
	slices.Sort(e.source)
	stem := strings.TrimSuffix(u.name, ".timer")
	e.name, e.description = c.names.unique(stem), u.last("Unit.Description")
	c.setTimes(e, u)
	started := u.last("Timer.Unit")
	if started == "" {
		started = stem + ".service"
	}
	s, instance := found[started], ""
	if s == nil {
		if prefix, rest, isInstance := strings.Cut(strings.TrimSuffix(started, ".service"), "@"); isInstance {
			s, instance = found[prefix+"@.service"], rest
		}
	}
	switch {
	case strings.HasSuffix(stem, "@"):
		e.refuse("a template without an instance: name the instances, as systemctl cat %sNAME.timer does", stem)
	case s == nil:
		e.refuse("%s is not among the files: systemctl cat %s %s prints both", started, u.name, started)
	default:
		if strings.HasSuffix(stem, "@") || instance == "" {
			_, instance, _ = strings.Cut(stem, "@")
		}
		service{unit: s, entry: e, name: started, instance: instance}.read()
	}
}

// setTimes sets the schedule and the policies of a timer.
func (c *conversion) setTimes(e *entry, u *unit) {
	events := u.all("Timer.OnCalendar")
	every := u.last("Timer.OnUnitActiveSec")
	if every == "" {
		every = u.last("Timer.OnUnitInactiveSec")
	}
	switch {
	case len(events) > 0 && every != "":
		e.refuse("OnCalendar= beside OnUnitActiveSec=: write two jobs")
	case len(events) > 0:
		c.setEvents(e, events)
	case every != "":
		c.setInterval(e, every)
	default:
		e.refuse("it starts once after the boot, or on a change of the clock: a job belongs to the cluster, which does not boot")
	}
	if delay := u.last("Timer.RandomizedDelaySec"); delay != "" {
		if d, err := timeSpan(delay); err != nil {
			e.refuse("RandomizedDelaySec=%s is no time", delay)
		} else if d > 0 {
			e.jitter = units.FormatDuration(d)
		}
	}
	if u.last("Timer.RandomizedOffsetSec") != "" {
		e.note("RandomizedOffsetSec= is left out; see jitter, and H in a schedule")
	}
	if u.isTrue("Timer.Persistent") && len(events) > 0 {
		e.catchUp, e.catchUpWindow = "latest", "366d"
	}
	if u.isTrue("Timer.WakeSystem") {
		e.note("WakeSystem= is left out: nothing here wakes a machine")
	}
}

func (c *conversion) setEvents(e *entry, events []string) {
	var times []calendarTime
	zone := ""
	for i, text := range events {
		more, z, err := calendarEvent(text)
		switch {
		case err != nil:
			e.refuse("%v", err)
		case i > 0 && z != zone:
			e.refuse("events in several time zones: write a job for each")
		}
		zone = z
		times = append(times, more...)
	}
	joined, err := joinTimes(times)
	if err != nil {
		e.refuse("%v", err)
	}
	e.setTime(joined, c.useZone(e, zone))
}

func (c *conversion) setInterval(e *entry, every string) {
	d, err := timeSpan(every)
	if err != nil || d < time.Second || d%time.Second != 0 {
		e.refuse("%q is no interval of whole seconds", every)
		return
	}
	e.schedule = []string{"@every " + units.FormatDuration(d)}
	e.note("the interval counts from the last start or end there, and from the epoch here")
}

var spanPart = regexp.MustCompile(`^\s*([0-9]+)\s*([a-zA-Zµ]*)`)

// timeSpan parses a time span of systemd, such as "1h 30min". A number without a unit is in seconds.
func timeSpan(text string) (time.Duration, error) {
	unitsOf := map[string]time.Duration{
		"": time.Second, "s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second, "ms": time.Millisecond, "msec": time.Millisecond,
		"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute, "h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour,
		"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour, "w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
	}
	var total time.Duration
	rest := strings.TrimSpace(text)
	if rest == "" {
		return 0, fmt.Errorf("%q is no time", text)
	}
	for rest != "" {
		m := spanPart.FindStringSubmatch(rest)
		if m == nil {
			return 0, fmt.Errorf("%q is no time", text)
		}
		n, err := strconv.Atoi(m[1])
		u, known := unitsOf[m[2]]
		if err != nil || !known || n > 1<<31 || time.Duration(n) > (1<<62)/u {
			return 0, fmt.Errorf("%q is no time", text)
		}
		total += time.Duration(n) * u
		rest = strings.TrimSpace(rest[len(m[0]):])
	}
	return total, nil
}
