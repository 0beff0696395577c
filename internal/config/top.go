package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
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
}

func newTop() *top {
	return &top{Config: defaultConfig(), calendars: calendars{}, tables: map[string]document.Value{}}
}

func topKeys() schema.Section[top] {
	return schema.Section[top]{
		Keys:  append(clusterKeys(), tableKeys()...),
		Later: []string{"notify"},
	}
}

// clusterKeys returns the keys of the top level that are not tables.
func clusterKeys() []schema.Key[top] {
	return []schema.Key[top]{
		schema.Field("namespace", schema.KindString, func(t *top) *string { return &t.Namespace }, readOnce(readNamespace),
			"Replicas with the same Redis and the same namespace form one cluster.").
			Allow("a [name](#names)").DefaultOf(func(t *top) any { return t.Namespace }),
		zoneKey("timezone", func(t *top) **time.Location { return &t.Timezone }, func(t *top) *cronspec.Zones { return t.Zones }, readOnce[*time.Location],
			"The time zone of jobs that name none. It is never the machine's.").
			Allow("an IANA name, such as `\"Europe/Berlin\"`").DefaultOf(func(t *top) any { return t.Timezone.String() }),
		zoneDataKey(),
		{
			Name: "include", Kind: schema.KindStrings, Allowed: "paths and patterns, such as `\"jobs.d/*.toml\"`",
			Doc:  "More files of this configuration, relative to the file that names them. A pattern without a match is fine.",
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

// tableKeys returns the tables of the top level.
func tableKeys() []schema.Key[top] {
	table := func(name, doc string, read func(*schema.Reader, document.Value, *top)) schema.Key[top] {
		return schema.Key[top]{Name: name, Kind: schema.KindTable, Doc: doc, Read: func(r *schema.Reader, v document.Value, t *top) {
			if _, again := t.tables[name]; !again {
				t.tables[name] = v
			}
			read(r, v, t)
		}}
	}
	return []schema.Key[top]{
		table("redis", "Where Redis is.", func(r *schema.Reader, v document.Value, t *top) { redisKeys().Read(r, v, &t.Redis) }),
		table("replica", "How much a replica takes on, and how it stops.", func(r *schema.Reader, v document.Value, t *top) { replicaKeys().Read(r, v, &t.Replica) }),
		table("cluster", "What the replicas are together.", func(r *schema.Reader, v document.Value, t *top) { clusterSection().Read(r, v, &t.Cluster) }),
		table("history", "What Redis keeps for each job.", func(r *schema.Reader, v document.Value, t *top) { historyKeys().Read(r, v, &t.History) }),
		table("server", "Where a replica answers HTTP requests.", func(r *schema.Reader, v document.Value, t *top) { serverKeys().Read(r, v, &t.Server) }),
		table("heartbeat", "What the leader requests, so that a service notices when the cluster is gone.",
			func(r *schema.Reader, v document.Value, t *top) { heartbeatKeys().Read(r, v, &t.Heartbeat) }),
		table("pools", "Semaphores that jobs share, each a table with a name.", func(r *schema.Reader, v document.Value, t *top) { readPools(r, v, t.Pools) }),
		table("calendars", "Lists of days that jobs may except, each a table with a name.", func(r *schema.Reader, v document.Value, t *top) { readCalendars(r, v, t.calendars) }),
		table("defaults", "Keys of all jobs.", func(_ *schema.Reader, v document.Value, t *top) { t.defaults = append(t.defaults, v) }),
		table("jobs", "The jobs, each a table with a name.", func(r *schema.Reader, v document.Value, t *top) {
			eachNamed(r, v, "job", func(job document.Value) { t.jobs = append(t.jobs, job) })
		}),
	}
}

func replicaKeys() schema.Section[Replica] {
	return schema.Section[Replica]{
		Once: true,
		Keys: []schema.Key[Replica]{
			schema.Duration("drain_timeout", 0, schema.AnyLength, func(to *Replica) *time.Duration { return &to.DrainTimeout },
				"How long SIGTERM waits for running jobs, their `kill_grace` included. Runs that are left then are stopped."),
			schema.Integer("max_running", 1, 100_000, func(to *Replica) *int { return &to.MaxRunning }, "How many runs a replica has at once. A full one leaves its ticks to the others."),
			schema.Field("labels", "table of strings", func(to *Replica) *map[string]string { return &to.Labels }, readLabels, "What jobs ask for by `where`, such as `{ zone = \"a\" }`."),
		},
	}
}

// mostReplicas is the maximum of [cluster].replicas.
const mostReplicas = 1000

func clusterSection() schema.Section[ClusterSettings] {
	return schema.Section[ClusterSettings]{
		Once: true,
		Keys: []schema.Key[ClusterSettings]{
			schema.Integer("replicas", 1, mostReplicas, func(to *ClusterSettings) *int { return &to.Replicas },
				"The number of replicas that should be up. Fewer for a minute is a warning. While this many are up, a lost replica is only advice.").Optional(),
		},
	}
}

// mostRuns is the maximum number of records that the history keeps for a job.
const mostRuns = 100_000

func historyKeys() schema.Section[History] {
	return schema.Section[History]{
		Once: true,
		Keys: []schema.Key[History]{
			schema.Integer("runs", 1, mostRuns, func(to *History) *int { return &to.Runs }, "How many runs and settled ticks are kept for each job."),
			schema.Duration("max_age", time.Second, schema.AnyLength, func(to *History) *time.Duration { return &to.MaxAge }, "How long they are kept."),
			schema.Size("max_bytes", 0, func(to *History) *int64 { return &to.MaxBytes }, "How much output of a job's runs is kept together."),
		},
	}
}

// WholeHistory returns limits for a reader that does not have the [history] of the cluster. They include everything that a replica can keep.
func WholeHistory() History { return History{Runs: mostRuns, MaxAge: schema.AnyLength} }

// defaultConfig returns the configuration that results from an empty file.
func defaultConfig() Config {
	return Config{
		Namespace: DefaultNamespace,
		Timezone:  time.UTC,
		Redis:     Redis{AckTimeout: 100 * time.Millisecond},
		Replica:   Replica{DrainTimeout: 25 * time.Second, MaxRunning: 100},
		History:   History{Runs: 50, MaxAge: 30 * 24 * time.Hour, MaxBytes: 1 << 20},
		Heartbeat: Heartbeat{Every: time.Minute},
		Pools:     map[string]Pool{},
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
	"max_runtime": "timeout", "log": "output", "on_failure": "notify", "notifications": "notify",
}

// knownTable returns the place of the table that contains a key, or "". It is called for a key that is unknown in another table. A common mistake is a key of
// the top level that is written below the header of a table, because TOML assigns it to that table.
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
		{"in [pools.NAME]", poolKeys().Names()},
		{"in [calendars.NAME]", calendarKeys().Names()},
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
	checkHeartbeat(r, t.tables["heartbeat"])
	checkServer(r, t.tables["server"], t.Server)
	files.ofReplica(r, &t.Redis, &t.Server)
	jobs := jobReader{Reader: r, keys: jobKeys(), base: newDraft(t.Timezone, t.Zones), calendars: t.calendars, pools: t.Pools, mostOutput: t.History.MaxBytes, files: files, machine: machineChecks{files, t.Replica.Labels}, now: o.Now}
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
	if len(roots) > 0 {
		t.checkZones(r, roots[0], o)
	}
	if len(t.jobs)+r.Failures() == 0 {
		r.Warn(roots[0], "no jobs: nothing will run")
	}
	return &t.Config
}
