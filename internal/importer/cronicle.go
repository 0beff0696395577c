package importer

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// readCronicle reads the export of Cronicle (control.sh export), an answer of its API, or a file of xyOps.
func readCronicle(c *conversion, files []File) {
	for _, f := range files {
		text, err := gunzip(f.Text)
		if err != nil {
			c.refuseFile(f.Name, "%v", err)
			continue
		}
		if all, err := readJSON(text); err == nil {
			c.readCronicleJSON(f.Name, all)
			continue
		}
		records, err := readExport(text)
		if err != nil {
			c.refuseFile(f.Name, "%v", err)
			continue
		}
		c.readExportedEvents(f.Name, records)
	}
}

const mostUnpacked = 64 << 20

func gunzip(text string) (string, error) {
	if !strings.HasPrefix(text, "\x1f\x8b") {
		return text, nil
	}
	r, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, mostUnpacked); err == nil || !errors.Is(err, io.EOF) {
		return "", errors.New("unpack: too long, or damaged")
	}
	return b.String(), nil
}

// readExport returns the records of an export: lines of a key, " - " and JSON. Users and API keys are never looked at.
func readExport(text string) (map[string]tree, error) {
	records := map[string]tree{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, " - ")
		if !ok {
			return nil, errors.New("neither JSON, nor an export of Cronicle with lines of a key and JSON")
		}
		if !strings.HasPrefix(key, "global/schedule") && !strings.HasPrefix(key, "global/categories") && !strings.HasPrefix(key, "global/plugins") {
			continue
		}
		record, err := readJSON(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shorten(key), err)
		}
		records[key] = record
	}
	return records, nil
}

// pagedList returns the items of a list in the order of its pages, whose numbers may be negative.
func pagedList(records map[string]tree, key string) (items []tree) {
	first, last := 0, -1
	fmt.Sscan(records[key].get("first_page").text(), &first) //nolint:errcheck // without a number there is no page
	fmt.Sscan(records[key].get("last_page").text(), &last)   //nolint:errcheck // without a number there is no page
	const mostPages = 100_000
	for page := first; page <= last && page < first+mostPages; page++ {
		items = append(items, records[fmt.Sprintf("%s/%d", key, page)].get("items").list()...)
	}
	return items
}

// A cronicleContext has what events refer to.
type cronicleContext struct {
	disabled map[string]bool   // categories and plugins that are off
	children map[string]int    // max_children of categories
	names    map[string]string // names here by ids of events
}

func (c *conversion) readExportedEvents(file string, records map[string]tree) {
	x := cronicleContext{disabled: map[string]bool{}, children: map[string]int{}}
	for _, list := range []string{"global/categories", "global/plugins"} {
		for _, item := range pagedList(records, list) {
			id := item.get("id").text()
			x.disabled[id] = item.get("enabled").set() && !item.get("enabled").isTrue()
			if n, ok := item.get("max_children").number(); ok && list == "global/categories" {
				x.children[id] = n
			}
		}
	}
	c.readEvents(file, pagedList(records, "global/schedule"), x)
}

func (c *conversion) readCronicleJSON(file string, all tree) {
	var events []tree
	switch {
	case all.get("type").text() == "xypdf":
		for _, item := range all.get("items").list() {
			if item.get("type").text() == "event" {
				c.readXyopsEvent(file, item.get("data"))
			}
		}
		return
	case all.get("rows").set():
		events = all.get("rows").list()
	default:
		events = all.list()
	}
	c.readEvents(file, events, cronicleContext{disabled: map[string]bool{}, children: map[string]int{}})
}

func (c *conversion) readEvents(file string, events []tree, x cronicleContext) {
	x.names = map[string]string{}
	for _, ev := range events {
		x.names[ev.get("id").text()] = c.names.unique(cmp.Or(ev.get("title").text(), ev.get("id").text()))
	}
	before := map[string][]string{} // names of events, by the event that they start
	for _, ev := range events {
		if next := ev.get("chain").text(); next != "" {
			before[next] = append(before[next], x.names[ev.get("id").text()])
		}
	}
	for _, ev := range events {
		c.readEvent(file, ev, x, before[ev.get("id").text()])
	}
}

func (c *conversion) readEvent(file string, ev tree, x cronicleContext, before []string) {
	title, id := ev.get("title").text(), ev.get("id").text()
	e := c.newEntry(file, fmt.Sprintf("event %q (%s)", title, id))
	e.name, e.description = x.names[id], title
	e.disabled = !ev.get("enabled").isTrue() || x.disabled[ev.get("category").text()] || x.disabled[ev.get("plugin").text()]
	timing := ev.get("timing")
	if _, hasTiming := timing.value.(map[string]any); hasTiming {
		if len(before) > 0 {
			e.note("it also runs after %s there, and here at its own times alone", strings.Join(before, ", "))
		}
		t, err := timingTime(timing)
		if err != nil {
			e.refuse("%v", err)
		}
		e.setTime(t, c.useZone(e, ev.get("timezone").text()))
	} else if len(before) == 1 {
		e.after = before
	} else {
		e.refuse("it runs on request, or after several events")
	}
	e.setEventPolicies(ev)
	if n := x.children[ev.get("category").text()]; n > 0 {
		e.pool = namer{}.unique(ev.get("category").text())
		c.pools[e.pool] = min(n, 1000)
	}
	e.setPlugin(ev.get("plugin").text(), ev.get("params"))
}

// timingTime returns the time for arrays of values. A missing or an empty array means all values, and all arrays must match.
func timingTime(timing tree) (t calendarTime, err error) {
	m := moment{both: true}
	m.fields[second] = field{set: 1, text: "0"}
	if err := m.readValues(timing, map[int]string{minute: "minutes", hour: "hours", dayOfMonth: "days", month: "months", dayOfWeek: "weekdays"}); err != nil {
		return t, err
	}
	if years := timing.get("years").list(); len(years) > 0 {
		var list []int
		for _, y := range years {
			n, _ := y.number()
			list = append(list, n)
		}
		slices.Sort(list)
		if list[0] < 1970 || list[len(list)-1]-list[0] != len(slices.Compact(list))-1 {
			return t, errors.New("years with gaps between them")
		}
		m.years = yearRange{list[0], list[len(list)-1]}
	}
	return m.express()
}

// readValues sets fields from arrays of numbers, by the keys of the arrays.
func (m *moment) readValues(from tree, keys map[int]string) error {
	for index, key := range keys {
		s, set := spans[index], uint64(0)
		for _, v := range from.get(key).list() {
			n, ok := v.number()
			if !ok || n < s.low || n > s.high {
				return fmt.Errorf("%s has the value %s", key, shorten(fmt.Sprint(v.value)))
			}
			set |= 1 << n
		}
		set = cmp.Or(set, s.all())
		m.fields[index] = field{set: set, text: s.format(set, index)}
	}
	return nil
}

func (e *entry) setEventPolicies(ev tree) {
	seconds := func(key string) string {
		if n, ok := ev.get(key).number(); ok && n > 0 {
			return fmt.Sprintf("%ds", n)
		}
		return ""
	}
	e.timeout = cmp.Or(seconds("timeout"), "none")
	if n, ok := ev.get("retries").number(); ok && n > 0 {
		e.retry = &retry{max: min(n, 100), delay: cmp.Or(seconds("retry_delay"), "1s")}
		e.retry.maxDelay = e.retry.delay
	}
	if ev.get("catch_up").isTrue() {
		e.catchUp, e.catchUpWindow = "all", "30d"
	}
	if ev.get("queue").isTrue() {
		e.overlap = "queue"
	}
	if n, ok := ev.get("max_children").number(); ok && n > 1 {
		e.parallel, e.perTick = min(n, 1000), 1
	}
	if n, ok := ev.get("memory_limit").number(); ok && n > 0 {
		e.memory = fmt.Sprintf("%dB", n)
	}
	if ev.get("multiplex").isTrue() {
		e.note("multiplex: there it runs on every server of the group, here on one of them; per_tick = \"all\" is every replica that where allows")
	}
	if ev.get("target").text() != "" {
		e.note("it ran on %q: see where", ev.get("target").text())
	}
	if ev.get("chain_error").text() != "" {
		e.note("chain_error is left out")
	}
	for _, key := range []string{"notify_success", "notify_fail", "web_hook"} {
		if ev.get(key).text() != "" {
			e.note("%s is left out; see [notify.NAME]", key)
		}
	}
}

// setPlugin sets the command of the shell plugin. Other plugins want their job as JSON on the standard input.
func (e *entry) setPlugin(plugin string, params tree) {
	if plugin != "shellplug" {
		e.refuse("the plugin %q: only the shell plugin has an equivalent", plugin)
		return
	}
	e.setScript(params.get("script").text())
	if params.get("json").isTrue() {
		e.note("lines of JSON in the output have no meaning here: the exit code alone decides")
	}
}

// setScript sets a script whose first line may name its interpreter.
func (e *entry) setScript(script string) {
	script = strings.ReplaceAll(script, "\r\n", "\n")
	first, rest, _ := strings.Cut(script, "\n")
	e.script = script
	if interpreter, ok := strings.CutPrefix(first, "#!"); ok {
		words := strings.Fields(interpreter)
		if len(words) == 0 || !strings.HasSuffix(words[len(words)-1], "sh") || len(words) > 2 {
			e.refuse("a script for %s: put it into a file, and name that", shorten(interpreter))
			return
		}
		if e.shell = append(words, "-c"); words[0] == "/bin/sh" && len(words) == 1 {
			e.shell = nil
		}
		e.script, e.program = rest, rest
	}
	if strings.TrimSpace(e.script) == "" {
		e.refuse("a script without a command")
	}
}

// readXyopsEvent reads an event of xyOps: its triggers are the schedule.
func (c *conversion) readXyopsEvent(file string, ev tree) {
	title := ev.get("title").text()
	e := c.newEntry(file, fmt.Sprintf("event %q (%s)", title, ev.get("id").text()))
	e.name, e.description = c.names.unique(title), title
	e.disabled = !ev.get("enabled").isTrue()
	var times []calendarTime
	zone := ""
	for _, trigger := range ev.get("triggers").list() {
		if trigger.get("enabled").set() && !trigger.get("enabled").isTrue() {
			continue
		}
		switch kind := trigger.get("type").text(); kind {
		case "manual":
		case "catchup":
			e.catchUp, e.catchUpWindow = "all", "30d"
		case "schedule":
			more, err := xyopsTimes(trigger)
			if err != nil {
				e.refuse("%v", err)
			}
			if z := trigger.get("timezone").text(); len(times) > 0 && z != zone {
				e.refuse("triggers in several time zones: write a job for each")
			} else {
				zone = z
			}
			times = append(times, more...)
		default:
			e.refuse("a trigger of the type %q has no equivalent", kind)
		}
	}
	if len(times) == 0 {
		e.refuse("it runs on request alone")
	}
	joined, err := joinTimes(times)
	if err != nil {
		e.refuse("%v", err)
	}
	e.setTime(joined, c.useZone(e, zone))
	e.setXyopsLimits(ev)
	e.setPlugin(ev.get("plugin").text(), ev.get("params"))
}

// xyopsTimes returns the times of a schedule trigger. The days -1 to -7 count from the end of the month.
func xyopsTimes(trigger tree) ([]calendarTime, error) {
	var days []any
	var fromEnd uint64
	for _, d := range trigger.get("days").list() {
		if k := strings.TrimPrefix(d.text(), "-"); k != d.text() {
			n, err := number(k)
			if err != nil || n < 1 || n > 7 {
				return nil, fmt.Errorf("the day %s", shorten(d.text()))
			}
			fromEnd |= 1 << n
			continue
		}
		days = append(days, d.value)
	}
	if fromEnd == 0 {
		t, err := timingTime(trigger)
		return []calendarTime{t}, err
	}
	if len(days) > 0 || len(trigger.get("years").list()) > 0 {
		return nil, errors.New("days from the end of the month beside other days, or years")
	}
	p := calendarParser{fromEnd: fromEnd}
	p.fields[second] = field{set: 1, text: "0"}
	if err := p.readValues(trigger, map[int]string{minute: "minutes", hour: "hours", month: "months", dayOfWeek: "weekdays"}); err != nil {
		return nil, err
	}
	return p.express()
}

func (e *entry) setXyopsLimits(ev tree) {
	e.timeout = "none"
	for _, limit := range ev.get("limits").list() {
		switch kind := limit.get("type").text(); kind {
		case "time":
			if n, ok := limit.get("duration").number(); ok && n > 0 {
				e.timeout = fmt.Sprintf("%ds", n)
			}
		case "retry":
			if n, ok := limit.get("amount").number(); ok && n > 0 {
				e.retry = &retry{max: min(n, 100)}
			}
		case "queue":
			e.overlap = "queue"
		default:
			e.note("the limit %q is left out", kind)
		}
	}
	if len(ev.get("actions").list()) > 0 {
		e.note("actions are left out; see [notify.NAME]")
	}
}
