package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// top gathers what the files' top levels hold. Defaults and jobs are kept until all files are read, since a job in the
// first file may rest on what the last one says.
type top struct {
	Config
	calendars calendars
	heartbeat value // the first of its tables
	server    value // the same
	defaults  []value
	jobs      []value
	links     []link // between jobs
}

func topKeys() section[top] {
	return section[top]{
		keys:  append(clusterKeys(), tables()...),
		later: []string{"notify"},
	}
}

// clusterKeys are the single keys of the top level.
func clusterKeys() []key[top] {
	return []key[top]{
		{
			name: "namespace", kind: kindString, allowed: "a [name](#names)", standard: func(t *top) any { return t.Namespace },
			doc: "Replicas with the same Redis and the same namespace form one cluster.",
			read: func(r *reader, v value, t *top) {
				if name, ok := parsed(r, v, "a string", validName); ok && r.first(v, "key") {
					t.Namespace = name
				}
			},
		},
		{
			name: "timezone", kind: kindString, allowed: "an IANA name, such as `\"Europe/Berlin\"`", standard: func(t *top) any { return t.Timezone.String() },
			doc: "The time zone of jobs that name none. It is never the machine's.",
			read: func(r *reader, v value, t *top) {
				if zone, ok := parsed(r, v, "a string", parseZone); ok && r.first(v, "key") {
					t.Timezone = zone
				}
			},
		},
		{
			name: "include", kind: kindStrings, allowed: "paths and patterns, such as `\"jobs.d/*.toml\"`",
			doc:  "More files of this configuration, relative to the file that names them. A pattern without a match is fine.",
			read: func(*reader, value, *top) {}, // see load
		},
	}
}

// tables are those of the top level.
func tables() []key[top] {
	table := func(name, doc string, read func(*reader, value, *top)) key[top] {
		return key[top]{name: name, kind: kindTable, doc: doc, read: read}
	}
	return []key[top]{
		table("redis", "Where Redis is.", func(r *reader, v value, t *top) { read(r, v, redisKeys(), &t.Redis) }),
		table("replica", "How much a replica takes on, and how it stops.", func(r *reader, v value, t *top) { read(r, v, replicaKeys(), &t.Replica) }),
		table("history", "What Redis keeps for each job.", func(r *reader, v value, t *top) { read(r, v, historyKeys(), &t.History) }),
		table("server", "Where a replica answers HTTP requests.", readServer),
		table("heartbeat", "What the leader requests, so that a service notices when the cluster is gone.", readHeartbeat),
		table("pools", "Semaphores that jobs share, each a table with a name.", readPools),
		table("calendars", "Lists of days that jobs may except, each a table with a name.", readCalendars),
		table("defaults", "Keys of all jobs.", func(_ *reader, v value, t *top) { t.defaults = append(t.defaults, v) }),
		table("jobs", "The jobs, each a table with a name.", readJobs),
	}
}

func replicaKeys() section[Replica] {
	return section[Replica]{
		once: true,
		keys: []key[Replica]{
			durationKey("drain_timeout", 0, anyLength, func(to *Replica) *time.Duration { return &to.DrainTimeout },
				"How long SIGTERM waits for running jobs, their `kill_grace` included. Runs that are left then are stopped."),
			integerKey("max_running", 1, 100_000, func(to *Replica) *int { return &to.MaxRunning }, "How many runs a replica has at once. A full one leaves its ticks to the others."),
			{
				name: "labels", kind: "table of strings", doc: "What jobs ask for by `where`, such as `{ zone = \"a\" }`.",
				read: func(r *reader, v value, to *Replica) { assign(&to.Labels)(r.labels(v)) },
			},
		},
	}
}

func historyKeys() section[History] {
	return section[History]{
		once: true,
		keys: []key[History]{
			integerKey("runs", 1, 100_000, func(to *History) *int { return &to.Runs }, "How many runs and settled ticks are kept for each job."),
			durationKey("max_age", time.Second, anyLength, func(to *History) *time.Duration { return &to.MaxAge }, "How long they are kept."),
			{
				name: "max_bytes", kind: kindSize, standard: func(of *History) any { return bytes(of.MaxBytes) }, doc: "How much output of a job's runs is kept together.",
				read: func(r *reader, v value, to *History) { assign(&to.MaxBytes)(r.size(v, 0)) },
			},
		},
	}
}

// assign returns a function that takes the result of reading a value and keeps it if it is good.
func assign[T any](to *T) func(T, bool) {
	return func(t T, ok bool) {
		if ok {
			*to = t
		}
	}
}

// readJobs reads [jobs]: a table of named jobs.
func readJobs(r *reader, v value, t *top) {
	r.named(v, "job", func(job value) { t.jobs = append(t.jobs, job) })
}

// named reads a table of named tables of one kind: [jobs], [pools] and [calendars].
func (r *reader) named(v value, kind string, each func(value)) {
	table, ok := v.raw.(map[string]any)
	if !ok {
		r.mistyped(v, fmt.Sprintf("a table with a table for each %s: [%ss.NAME]", kind, kind))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		one, _ := v.get(name)
		switch {
		case !one.isTable():
			r.faultAt(one, one.at.key, "%q is not a %s; a %s is a table with a name: [%ss.NAME]", name, kind, kind, kind)
		case r.first(one, kind):
			if _, err := validName(name); err != nil {
				r.faultAt(one, one.at.key, "%s %q %v", kind, name, err)
			}
			each(one) // its other faults are told, too
		}
	}
}

// defaults is the configuration of an empty file.
func defaults(taken map[string]bool) Config {
	return Config{
		Namespace: DefaultNamespace,
		Timezone:  time.UTC,
		Redis:     Redis{AckTimeout: 100 * time.Millisecond},
		Replica:   Replica{DrainTimeout: 25 * time.Second, MaxRunning: 100},
		History:   History{Runs: 50, MaxAge: 30 * 24 * time.Hour, MaxBytes: 1 << 20},
		Heartbeat: Heartbeat{Every: time.Minute},
		Pools:     map[string]Pool{},
		EnvTaken:  taken,
	}
}

// config makes the configuration of all files that were read. It is complete only if no fault was found.
func (r *reader) config() *Config {
	t := top{Config: defaults(r.taken), calendars: calendars{}}
	for _, s := range r.sources {
		read(r, s.root(r.taken), topKeys(), &t)
	}
	r.checkRedis(&t.Redis)
	r.checkHeartbeat(t.heartbeat)
	r.checkServer(t.server, t.Server)
	base := newDraft(t.Timezone)
	for _, v := range t.defaults {
		read(r, v, defaultKeys(), &base)
	}
	for _, v := range t.jobs {
		if r.full() { // the configuration is refused, and a job takes some KiB
			break
		}
		t.Jobs = append(t.Jobs, r.job(v, &base, &t))
	}
	slices.SortFunc(t.Jobs, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	r.checkChains(t.Jobs, t.links)
	if faults, _ := r.faults.split(); len(t.jobs)+len(faults) == 0 {
		r.warn(r.sources[0].root(nil), 0, "no jobs: nothing will run")
	}
	return &t.Config
}

func validName(s string) (string, error) {
	if !ValidName(s) {
		return s, errors.New("is not a name; write " + NameRule)
	}
	return s, nil
}

// parseZone reads the name of a time zone. The machine's own is refused: it is not the same everywhere.
func parseZone(name string) (*time.Location, error) {
	if name == "Local" || name == "" {
		return nil, errors.New(`is not a time zone that is the same on every machine; write a name such as "Europe/Berlin" or "UTC"`)
	}
	zone, err := cronspec.LoadLocation(name)
	if err != nil {
		if near := nearestZone(name); near != "" {
			return nil, fmt.Errorf("is not a time zone; did you mean %q?", near)
		}
		return nil, errors.New(`is not a time zone; write a name such as "Europe/Berlin" or "UTC"`)
	}
	return zone, nil
}

// nearestZone returns the known zone that is at most two edits away from a name, and "" if there is none. Only places are suggested: an abbreviation
// is easily taken for another, and Etc/GMT+5 is behind UTC.
func nearestZone(name string) string {
	const enough = 3
	best, least := "", enough
	for _, zone := range cronspec.ZoneNames() {
		apart := len(zone) - len(name)
		if !strings.Contains(zone, "/") || strings.HasPrefix(zone, "Etc/") || apart >= enough || apart <= -enough {
			continue
		}
		if d := edits(strings.ToLower(name), strings.ToLower(zone)); d < least {
			best, least = zone, d
		}
	}
	return best
}
