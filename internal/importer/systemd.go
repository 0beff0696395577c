package importer

import (
	"cmp"
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
	unitFile
	name     string
	settings map[string][]string
}

// A unitFile is a unit file or a drop-in. A file that is empty, or a link to /dev/null, masks others of its name.
type unitFile struct {
	File
	twin string // another file of the same name, and no rule says which of the two counts
}

func (u *unit) all(key string) []string { return u.settings[key] }

// last returns the last value of a key, or "".
func (u *unit) last(key string) string {
	if list := u.settings[key]; len(list) > 0 {
		return list[len(list)-1]
	}
	return ""
}

func (u *unit) isTrue(key string) bool {
	return slices.Contains([]string{"yes", "true", "on", "1", "y", "t"}, strings.ToLower(u.last(key)))
}

// A unitSet is the files of an import: units by their names, and drop-ins by folder and name, such as "a.timer.d/b.conf".
type unitSet struct {
	units, dropIns map[string]unitFile
	applied        map[string]bool // drop-ins of a timer or its service
}

// readUnits reads unit files and drop-ins, or the output of systemctl cat.
func readUnits(c *conversion, files []File) {
	set := unitSet{map[string]unitFile{}, map[string]unitFile{}, map[string]bool{}}
	for _, f := range files {
		for _, part := range splitCat(f) {
			name := path.Base(part.Name)
			folder := path.Base(path.Dir(part.Name))
			switch {
			case path.Ext(name) == ".timer", path.Ext(name) == ".service":
				addUnitFile(set.units, name, part)
			case path.Ext(name) == ".conf" && path.Ext(folder) == ".d":
				addUnitFile(set.dropIns, folder+"/"+name, part)
			default:
				c.refuseFile(f.Name, "it is no timer, service or drop-in in a folder UNIT.d, and no output of systemctl cat")
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set.units)) {
		switch {
		case path.Ext(name) != ".timer":
		case set.units[name].isMasked():
			c.warn("%s is masked, and left out", name)
		default:
			c.readTimer(set.loadUnit(name), set)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(set.dropIns)) {
		if !set.applied[key] {
			c.refuseFile(set.dropIns[key].Name, "a drop-in for no timer among the files, and for no service of one")
		}
	}
}

// addUnitFile adds a file, unless a file of the same name in a folder that counts more is there.
func addUnitFile(files map[string]unitFile, key string, f File) {
	old, found := files[key]
	switch order := cmp.Compare(rankOf(f), rankOf(old.File)); {
	case !found || order < 0:
		files[key] = unitFile{File: f}
	case order == 0 && f.Text != old.Text:
		old.twin = f.Name
		files[key] = old
	}
}

// rankOf returns the rank of the folder of a file. The file of the lowest rank counts.
func rankOf(f File) int {
	roots := []string{"/etc/", "/run/", "/usr/local/lib/", "/usr/lib/", "/lib/"}
	if i := slices.IndexFunc(roots, func(root string) bool { return strings.HasPrefix(f.Name, root) }); i >= 0 {
		return i
	}
	return len(roots)
}

func (f unitFile) isMasked() bool { return strings.TrimSpace(f.Text) == "" }

// loadUnit returns a unit with its drop-ins, or nil. The unit may be an instance of a template.
func (set unitSet) loadUnit(name string) *unit {
	f, found := set.units[name]
	if template := templateOf(name); !found && template != "" {
		f, found = set.units[template]
	}
	if !found {
		return nil
	}
	u := &unit{unitFile: f, name: name, settings: map[string][]string{}}
	u.read(f.Text)
	chosen := map[string]unitFile{} // drop-ins by their names
	for _, folder := range dropInFolders(name) {
		for key, d := range set.dropIns {
			base, isOf := strings.CutPrefix(key, folder+"/")
			if !isOf {
				continue
			}
			set.applied[key] = true
			if old, ok := chosen[base]; !ok || rankOf(d.File) < rankOf(old.File) {
				chosen[base] = d
			}
		}
	}
	for _, base := range slices.Sorted(maps.Keys(chosen)) {
		u.read(chosen[base].Text)
		u.twin = cmp.Or(u.twin, chosen[base].twin)
	}
	return u
}

// templateOf returns "a@.timer" for "a@b.timer", and "" for a name without an instance.
func templateOf(name string) string {
	if prefix, _, ok := strings.Cut(name, "@"); ok {
		return prefix + "@" + path.Ext(name)
	}
	return ""
}

// dropInFolders returns the folders of the drop-ins of a unit, those for the fewest units first: a-b@c.timer.d, a-b@.timer.d, a-.timer.d and timer.d.
func dropInFolders(name string) []string {
	folders, ext := []string{name + ".d"}, path.Ext(name)
	if template := templateOf(name); template != "" && template != name {
		folders = append(folders, template+".d")
	}
	prefix, _, _ := strings.Cut(strings.TrimSuffix(name, ext), "@")
	for i := len(prefix) - 2; i > 0; i-- {
		if prefix[i] == '-' {
			folders = append(folders, prefix[:i+1]+ext+".d")
		}
	}
	return append(folders, ext[1:]+".d")
}

var (
	catHeader  = regexp.MustCompile(`^# (/\S*/(?:[^/\s]+\.(?:timer|service)|(?:[^/\s]+\.)?(?:timer|service)\.d/[^/\s]+\.conf))$`)
	userFolder = regexp.MustCompile(`/systemd/user/|/\.config/systemd/`)
)

// splitCat splits the output of systemctl cat into the files in it. A unit file, and a File without such headers, stays one.
func splitCat(f File) []File {
	if slices.Contains([]string{".timer", ".service", ".conf"}, path.Ext(f.Name)) {
		return []File{f}
	}
	parts := []File{{Name: f.Name}}
	lines := slices.Collect(strings.Lines(f.Text))
	for i, line := range lines {
		m := catHeader.FindStringSubmatch(strings.TrimSpace(line))
		if m != nil && beginsSection(lines[i+1:]) {
			parts = append(parts, File{Name: m[1]})
		}
		parts[len(parts)-1].Text += line
	}
	if strings.TrimSpace(parts[0].Text) == "" && len(parts) > 1 {
		parts = parts[1:]
	}
	return parts
}

// beginsSection reports whether the first line that is no comment begins a section, as in a unit file. Otherwise, a line like a header is a mere comment.
func beginsSection(lines []string) bool {
	for _, line := range lines {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != ';' {
			return line[0] == '['
		}
	}
	return true
}

// whyRefused returns why a unit cannot be carried, or "".
func (u *unit) whyRefused() string {
	for key, list := range u.settings {
		if strings.HasPrefix(key, "Install.") && slices.Contains(strings.Fields(strings.Join(list, " ")), "default.target") {
			return u.name + " is for default.target, as units of a user's own manager are: here it would run as root"
		}
	}
	switch {
	case u.twin != "":
		return fmt.Sprintf("%s and %s are of the same name, and it is not known which counts", u.Name, u.twin)
	case u.isMasked():
		return u.name + " is masked"
	case userFolder.MatchString(u.Name):
		return u.name + " is a unit of a user's own manager: here it would run as root"
	}
	return ""
}

// read adds the settings of a file. An empty value resets a key, as in systemd.
func (u *unit) read(text string) {
	section, joined := "", ""
	for line := range strings.Lines(text) {
		text := strings.TrimSpace(line)
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
		if key, value, ok := strings.Cut(text, "="); ok {
			u.set(section+"."+strings.TrimSpace(key), strings.TrimSpace(value))
		}
	}
}

// monotonic lists the timers that OnCalendar= resets together with itself.
var monotonic = []string{"Timer.OnActiveSec", "Timer.OnBootSec", "Timer.OnStartupSec", "Timer.OnUnitActiveSec", "Timer.OnUnitInactiveSec"}

func (u *unit) set(key, value string) {
	if value != "" {
		u.settings[key] = append(u.settings[key], value)
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
func (c *conversion) readTimer(u *unit, set unitSet) {
	e := c.newEntry(u.Name)
	for key, list := range u.settings {
		for _, value := range list {
			if name, ok := strings.CutPrefix(key, "Timer."); ok {
				e.original = append(e.original, name+"="+value)
			}
		}
	}
	slices.Sort(e.original)
	e.source = e.original
	stem := strings.TrimSuffix(u.name, ".timer")
	e.name, e.description = c.names.unique(stem), u.last("Unit.Description")
	started := cmp.Or(u.last("Timer.Unit"), stem+".service")
	s := set.loadUnit(started)
	switch {
	case u.whyRefused() != "":
		e.refuse("%s", u.whyRefused())
	case strings.HasSuffix(stem, "@"):
		e.refuse("a template without an instance, also in the output of systemctl cat: name the file of each instance %sINSTANCE.timer", stem)
	case s == nil:
		e.refuse("%s is not among the files: systemctl cat %s %s prints both", started, u.name, started)
	case s.whyRefused() != "":
		e.refuse("%s", s.whyRefused())
	}
	c.setTimes(e, u)
	if s != nil {
		_, instance, _ := strings.Cut(strings.TrimSuffix(started, ".service"), "@")
		service{unit: s, entry: e, instance: instance}.read()
	}
}

func (c *conversion) setTimes(e *entry, u *unit) {
	events := u.all("Timer.OnCalendar")
	every := cmp.Or(u.last("Timer.OnUnitActiveSec"), u.last("Timer.OnUnitInactiveSec"))
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
	e.overlap = "queue"
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
