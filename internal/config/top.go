package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/zonedata"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// top collects the top levels of all files. Defaults and jobs are read after all files, because a job in the first file may refer to a table in the last
// file.
type top struct {
	Config
	calendars calendars
	tables    map[string]document.Value // the first table of each name; several files may contain the same table
	defaults  []document.Value
	jobs      []document.Value
	targets   []document.Value // the tables [notify.NAME]
}

func newTop() *top {
	return &top{Config: defaultConfig(), calendars: calendars{}, tables: map[string]document.Value{}}
}

func topKeys() schema.Section[top] {
	return schema.Section[top]{Keys: append(clusterKeys(), tableKeys()...)}
}

// clusterKeys returns the keys of the top level that are not tables.
func clusterKeys() []schema.Key[top] {
	return []schema.Key[top]{
		schema.Field("namespace", schema.KindString, func(t *top) *string { return &t.Namespace }, readOnce(readNamespace),
			"Replicas with the same Redis and namespace form one cluster.").
			Allow("a [name](#names)").DefaultOf(func(t *top) any { return t.Namespace }),
		zoneKey("timezone", func(t *top) **time.Location { return &t.Timezone }, func(t *top) *cronspec.Zones { return t.Zones }, readOnce[*time.Location],
			"Time zone of jobs without their own, never the machine's.").
			Allow("an IANA name, such as `\"Europe/Berlin\"`").DefaultOf(func(t *top) any { return t.Timezone.String() }),
		zoneDataKey(),
		{
			Name: "include", Kind: schema.KindStrings, Allowed: "paths and patterns, such as `\"jobs.d/*.toml\"`",
			Doc:  "More files. A pattern may match nothing.",
			Read: func(*schema.Reader, document.Value, *top) {}, // the loader reads this key
		},
	}
}

func readNamespace(r *schema.Reader, v document.Value) (string, bool) {
	return schema.Parsed(r, v, "a string", validName)
}

// readOnce returns a reader for a key that may be set only once in the whole configuration.
func readOnce[T any](read func(*schema.Reader, document.Value) (T, bool)) func(*schema.Reader, document.Value) (T, bool) {
	return func(r *schema.Reader, v document.Value) (T, bool) {
		value, ok := read(r, v)
		return value, ok && r.First(v, "key")
	}
}

func tableKeys() []schema.Key[top] {
	table := func(name string, read func(*schema.Reader, document.Value, *top)) schema.Key[top] {
		return schema.Key[top]{Name: name, Kind: schema.KindTable, Read: func(r *schema.Reader, v document.Value, t *top) {
			if _, again := t.tables[name]; !again {
				t.tables[name] = v
			}
			read(r, v, t)
		}}
	}
	return []schema.Key[top]{
		table("redis", func(r *schema.Reader, v document.Value, t *top) { redisKeys().Read(r, v, &t.Redis) }),
		table("replica", func(r *schema.Reader, v document.Value, t *top) { replicaKeys().Read(r, v, &t.Replica) }),
		table("cluster", func(r *schema.Reader, v document.Value, t *top) { clusterSection().Read(r, v, &t.Cluster) }),
		table("history", func(r *schema.Reader, v document.Value, t *top) { historyKeys().Read(r, v, &t.History) }),
		table("server", func(r *schema.Reader, v document.Value, t *top) { serverKeys().Read(r, v, &t.Server) }),
		table("heartbeat", func(r *schema.Reader, v document.Value, t *top) { heartbeatKeys().Read(r, v, &t.Heartbeat) }),
		table("traces", func(r *schema.Reader, v document.Value, t *top) { tracesKeys().Read(r, v, &t.Traces) }),
		table("pools", func(r *schema.Reader, v document.Value, t *top) { readPools(r, v, t.Pools) }),
		table("calendars", func(r *schema.Reader, v document.Value, t *top) { readCalendars(r, v, t.calendars) }),
		table("notify", func(r *schema.Reader, v document.Value, t *top) { readNotify(r, v, t) }),
		table("defaults", func(_ *schema.Reader, v document.Value, t *top) { t.defaults = append(t.defaults, v) }),
		table("jobs", func(r *schema.Reader, v document.Value, t *top) {
			eachNamed(r, v, "job", func(job document.Value) { t.jobs = append(t.jobs, job) })
		}),
	}
}

func replicaKeys() schema.Section[Replica] {
	return schema.Section[Replica]{
		Once: true,
		Keys: []schema.Key[Replica]{
			schema.Duration("drain_timeout", 0, schema.AnyLength, func(to *Replica) *time.Duration { return &to.DrainTimeout },
				"Time for runs to end after SIGTERM, including `kill_grace`. The rest are stopped."),
			schema.Integer("max_running", 1, 100_000, func(to *Replica) *int { return &to.MaxRunning }, "Concurrent runs of a replica. A full replica leaves ticks to others."),
			schema.Field("labels", "table of strings", func(to *Replica) *map[string]string { return &to.Labels }, readLabels, "Matched by `where` of jobs, such as `{ zone = \"a\" }`."),
		},
	}
}

const mostReplicas = 1000

func clusterSection() schema.Section[ClusterSettings] {
	return schema.Section[ClusterSettings]{
		Once: true,
		Keys: []schema.Key[ClusterSettings]{
			schema.Integer("replicas", 1, mostReplicas, func(to *ClusterSettings) *int { return &to.Replicas },
				"Expected replicas. Fewer for a minute is a warning; with this many up, a lost replica is only advice.").Optional(),
		},
	}
}

const mostRuns = 100_000

func historyKeys() schema.Section[History] {
	return schema.Section[History]{
		Once: true,
		Keys: []schema.Key[History]{
			schema.Integer("runs", 1, mostRuns, func(to *History) *int { return &to.Runs }, "Runs and settled ticks kept per job."),
			schema.Duration("max_age", time.Second, schema.AnyLength, func(to *History) *time.Duration { return &to.MaxAge }, "How long they are kept."),
			schema.Size("max_bytes", 0, func(to *History) *int64 { return &to.MaxBytes }, "Total output kept per job."),
		},
	}
}

// WholeHistory returns limits for a reader that does not have the [history] of the cluster. The limits cover everything that a replica can keep.
func WholeHistory() History { return History{Runs: mostRuns, MaxAge: schema.AnyLength} }

func defaultConfig() Config {
	return Config{
		Namespace: DefaultNamespace,
		Timezone:  time.UTC,
		Redis:     Redis{AckTimeout: 100 * time.Millisecond},
		Replica:   Replica{DrainTimeout: 25 * time.Second, MaxRunning: 100},
		History:   History{Runs: 50, MaxAge: 30 * 24 * time.Hour, MaxBytes: 1 << 20},
		Heartbeat: Heartbeat{Every: time.Minute},
		Traces:    Traces{HeaderTable: newHeaderTable(), Timeout: 10 * time.Second},
		Pools:     map[string]Pool{},
		Notify:    map[string]Notify{},
	}
}

// synonyms maps the names of keys in other schedulers to the keys of cronclave.
var synonyms = map[string]string{
	"args": "command", "cmd": "command", "exec": "command", "run": "command", "script": "command",
	"at": "schedule", "cron": "schedule", "interval": "schedule", "when": "schedule",
	"tz": "timezone", "time_zone": "timezone", "zone": "timezone", "location": "timezone",
	"depends_on": "after", "needs": "after", "dependencies": "after", "parent": "after",
	"concurrency": "overlap", "concurrency_policy": "overlap", "max_parallel": "parallel", "replicas": "parallel",
	"retries": "retry", "max_retries": "retry", "backoff": "retry",
	"environment": "env", "environment_file": "env_file", "cwd": "dir", "workdir": "dir", "working_directory": "dir",
	"run_as": "user", "deadline": "start_deadline", "starting_deadline": "start_deadline",
	"max_runtime": "timeout", "webhook": "http", "request": "http", "log": "output", "on_failure": "notify", "notifications": "notify",
}

// knownTable returns the place where a key belongs, or "" if no table has the key. The key is unknown in table. A common mistake is a key of the top level that
// is written below the header of a table: TOML assigns the key to that table.
func knownTable(key, table string) string {
	homes := []struct {
		where string
		keys  []string
	}{
		{"at the top level, above the first [table]", topKeys().Names()},
		{"in [jobs.NAME] or [defaults]", jobKeys().Names()},
		{"in [redis]", redisKeys().Names()},
		{"in [replica]", replicaKeys().Names()},
		{"in [cluster]", clusterSection().Names()},
		{"in [history]", historyKeys().Names()},
		{"in [heartbeat]", heartbeatKeys().Names()},
		{"in [traces]", tracesKeys().Names()},
		{"in [server]", serverKeys().Names()},
		{"in [pools.NAME]", poolKeys().Names()},
		{"in [calendars.NAME]", calendarKeys().Names()},
		{"in [notify.NAME]", notifyKeys().Names()},
	}
	if table == "" {
		homes = homes[1:]
	}
	for _, h := range homes {
		if slices.Contains(h.keys, key) {
			return h.where
		}
	}
	return ""
}

// assembleConfig builds the configuration from the top levels of all files. If a fault was found, the configuration is incomplete.
func assembleConfig(r *schema.Reader, roots []document.Value, files *fileChecks, o Options) *Config {
	t := newTop()
	t.readZones(r, roots, o)
	for _, root := range roots {
		topKeys().Read(r, root, t)
	}
	checkRedis(r, &t.Redis)
	checkURL(r, "heartbeat", t.tables["heartbeat"])
	checkURL(r, "traces", t.tables["traces"])
	t.Traces.named = nil
	checkServer(r, t.tables["server"], t.Server)
	files.ofReplica(r, &t.Redis, &t.Server)
	files.ofTraces(r, &t.Traces)
	jobs := jobReader{Reader: r, keys: jobKeys(), base: newDraft(t.Timezone, t.Zones), calendars: t.calendars, pools: t.Pools, notify: t.Notify, mostOutput: t.History.MaxBytes, files: files, machine: machineChecks{files, t.Replica.Labels}, now: o.Now}
	if v, set := r.Set("timezone"); set {
		jobs.base.hidden.zone = writtenZone(v)
	}
	for _, v := range t.defaults {
		defaultKeys().Read(r, v, &jobs.base)
	}
	jobs.defaults = defaultTexts(jobs.keys)
	jobs.settings = Settings{Common: jobs.base.jobSettings(jobs.keys, jobs.defaults), Own: map[string]map[string]string{}}
	var all []link
	for _, v := range t.jobs {
		if r.Full() { // the configuration is refused anyway, and each job takes a few KiB of memory
			break
		}
		job, links := jobs.readJob(v)
		t.Jobs, all = append(t.Jobs, job), append(all, links...)
	}
	t.Settings = jobs.settings
	slices.SortFunc(t.Jobs, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	checkChains(r.Report, t.Jobs, all)
	t.checkTargets(r, files)
	if len(roots) > 0 {
		t.checkZones(r, roots[0], o)
	}
	if len(t.jobs)+r.Failures() == 0 {
		r.Warn(roots[0], "no jobs: nothing will run")
	}
	return &t.Config
}

type jobReader struct {
	*schema.Reader
	keys       schema.Section[draft]
	base       draft // the job that results from [defaults]
	calendars  calendars
	pools      map[string]Pool
	notify     map[string]Notify
	mostOutput int64 // the value of [history].max_bytes
	files      *fileChecks
	machine    machineChecks
	now        func() time.Time
	defaults   map[string]string // default values by key, for the settings
	settings   Settings
}

// readJob reads the table of a job on top of the defaults, and checks the job as a whole. It also returns the links in the job's `after`.
func (r *jobReader) readJob(v document.Value) (Job, []link) {
	d := r.base.deriveJob()
	d.Name, d.File, d.Line = v.Name, v.File(), v.Line()
	r.keys.Read(r.Reader, v, &d)
	finishCommand(r.Reader, v, &d)
	finishHTTP(r.Reader, v, &d)
	finishUser(r.Reader, &d)
	finishAfter(r.Reader, v, &d)
	finishSchedule(r.Reader, v, &d, r.calendars, r.now)
	finishEverywhere(r.Reader, v, &d)
	checkSlots(r.Reader, &d)
	finishPool(r.Reader, &d, r.pools)
	finishRetry(r.Reader, &d)
	finishCatchUp(r.Reader, v, &d)
	finishRecover(r.Reader, &d)
	finishNotify(r.Reader, &d, r.notify, r.now())
	r.files.ofJob(&d)
	r.machine.ofJob(&d)
	if keep, set := d.at["output"]; set && d.Output.Keep > r.mostOutput {
		r.Warn(keep.AtKey(), "output.keep is more than [history].max_bytes, which bounds the output of all runs of the job")
	}
	d.Digest = d.jobDigest()
	r.settings.addJob(d.Name, d.jobSettings(r.keys, r.defaults))
	var links []link
	for _, e := range d.before {
		links = append(links, link{d.Name, e})
	}
	return d.Job, links
}

func jobKeys() schema.Section[draft] {
	s := schema.Section[draft]{
		Keys: slices.Concat(tickKeys(), commandKeys(), environmentKeys(), machineKeys(), slotKeys(), attemptKeys(), stopKeys(), expectedKeys(), aboutKeys()),
	}
	for i := range s.Keys {
		s.Keys[i] = notingKey(s.Keys[i])
	}
	return s
}

// defaultKeys returns the keys of [defaults]: the keys of a job, but each may be set only once in the configuration.
func defaultKeys() schema.Section[draft] {
	s := jobKeys()
	s.Once = true
	return s
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// NameRule describes valid names, for use in messages.
const NameRule = "a letter or a digit, then up to 127 letters, digits, '_' and '-'"

// ValidName reports whether a name is valid for a job, a lock or a namespace: see [NameRule].
func ValidName(name string) bool { return namePattern.MatchString(name) }

func eachNamed(r *schema.Reader, v document.Value, kind string, each func(document.Value)) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		r.Mistyped(v, fmt.Sprintf("a table with a table for each %s: [%s.NAME]", kind, v.Name))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		one, _ := v.Get(name)
		switch {
		case !one.IsTable():
			r.Fault(one.AtKey(), "%q is not a %s; a %s is a table with a name: [%s.NAME]", name, kind, kind, v.Name)
		case r.First(one, kind):
			if _, err := validName(name); err != nil {
				r.Fault(one.AtKey(), "%s %q %v", kind, name, err)
			}
			each(one) // called even for an invalid name, to report the other faults in the table
		}
	}
}

// suggestName returns the end of a message about an unknown name: a suggestion of a known name, or the remedy. It makes no suggestion for a name with values
// from the environment, because the suggestion might reveal them.
func suggestName(name schema.Expansion, known []string, remedy string) string {
	if near := schema.Nearest(name.Text, known); near != "" && len(name.Names) == 0 {
		return "; did you mean \"" + near + "\"?"
	}
	return "; " + remedy
}

func validName(s string) (string, error) {
	if !ValidName(s) {
		return s, errors.New("is not a name; write " + NameRule)
	}
	return s, nil
}

type zoneReader = func(*schema.Reader, document.Value) (*time.Location, bool)

// zoneKey returns a key for a time zone. The zone is looked up in the zone data that zones returns. wrap may add a check to the reader.
func zoneKey[T any](name string, field func(*T) **time.Location, zones func(*T) *cronspec.Zones, wrap func(zoneReader) zoneReader, doc string) schema.Key[T] {
	key := schema.Field(name, schema.KindString, field, nil, doc)
	key.Read = func(r *schema.Reader, v document.Value, to *T) {
		read := wrap(func(r *schema.Reader, v document.Value) (*time.Location, bool) {
			return schema.Parsed(r, v, "a string", func(name string) (*time.Location, error) { return parseZone(zones(to), name) })
		})
		if zone, ok := read(r, v); ok {
			*field(to) = zone
		}
	}
	return key
}

// parseZone returns the zone with a name. It refuses "Local", which means different zones on different machines.
func parseZone(zones *cronspec.Zones, name string) (*time.Location, error) {
	if name == "Local" || name == "" {
		return nil, errors.New(`is not a time zone that is the same on every machine; write a name such as "Europe/Berlin" or "UTC"`)
	}
	zone, err := zones.Location(name)
	if err != nil {
		if near := nearestZone(zones, name); near != "" {
			return nil, fmt.Errorf("is not a time zone; did you mean %q?", near)
		}
		if zones != nil {
			return nil, fmt.Errorf("is not a time zone in the zone data %s of zone_data", zones.Version())
		}
		return nil, errors.New(`is not a time zone; write a name such as "Europe/Berlin" or "UTC"`)
	}
	return zone, nil
}

// nearestZone returns the known zone that is at most two edits away from a name, or "". It only suggests zones of places. Abbreviations are easily confused
// with each other, and Etc/GMT+5 is behind UTC, which surprises users.
func nearestZone(zones *cronspec.Zones, name string) string {
	const enough = 3
	best, least := "", enough
	for _, zone := range zones.Names() {
		apart := len(zone) - len(name)
		if !strings.Contains(zone, "/") || strings.HasPrefix(zone, "Etc/") || apart >= enough || apart <= -enough {
			continue
		}
		if d := schema.Edits(strings.ToLower(name), strings.ToLower(zone)); d < least {
			best, least = zone, d
		}
	}
	return best
}

// zoneDataKey returns the key zone_data. [top.readZones] reads its value before all other keys, because some of them name zones.
func zoneDataKey() schema.Key[top] {
	key := schema.Path("zone_data", func(t *top) *string { return &t.ZoneData },
		"Time zones for this replica instead of the [built-in ones](jobs.md#zone-data).").
		Allow("folder or zip archive with a version, such as `\"/usr/share/zoneinfo\"`").By("the built-in data")
	key.Read = func(*schema.Reader, document.Value, *top) {}
	return key
}

// readZones reads the time zones of zone_data, which replace the built-in ones. After a fault, jobs are checked with the built-in zones.
func (t *top) readZones(r *schema.Reader, roots []document.Value, o Options) {
	for _, root := range roots {
		v, set := root.Get("zone_data")
		if !set {
			continue
		}
		path, ok := readOnce((*schema.Reader).Path)(r, v)
		if !ok {
			continue
		}
		zones, err := zonedata.Read(context.Background(), path, o.Trust)
		var untrusted *safefile.UntrustedError
		switch {
		case errors.As(err, &untrusted):
			r.Fault(v, "%v", untrusted)
		case errors.Is(err, fs.ErrNotExist) && o.KeepUnset:
			r.Warn(v, "zone_data: %s is not on this machine; the times of jobs are checked with the built-in data", path)
		case err != nil:
			r.Fault(v, "zone_data cannot be used: %s", document.OneLine(err.Error()))
		default:
			t.ZoneData, t.Zones = path, zones
		}
	}
}

// checkZones warns if the machine has newer zone data than the data in use. It does not warn if all jobs are in UTC.
func (t *top) checkZones(r *schema.Reader, root document.Value, o Options) {
	inUTC := true
	for i := range t.Jobs {
		inUTC = inUTC && (t.Jobs[i].Location == time.UTC || len(t.Jobs[i].After) > 0)
	}
	if !o.Machine || inUTC {
		return
	}
	folder := cmp.Or(o.SystemZones, zonedata.SystemFolder)
	newest, used := zonedata.MachineVersion(context.Background(), folder), t.Zones.Version()
	if newest <= used {
		return
	}
	at, set := r.Set("zone_data")
	if !set {
		at = root
	}
	r.Warn(at, "%s has the zone data %s, newer than %s in use: ticks in zones with new rules are off; set zone_data = %q", folder, newest, used, folder)
}
