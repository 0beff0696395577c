package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Job is one job with its defaults filled in. Relative paths are resolved against the folder of the file that contains them. Do not reorder the fields, or the
// fields of embedded structs, because the digest depends on their order.
type Job struct {
	Name        string
	File        string // the file that defines the job
	Line        int
	Description string
	Tags        []string
	Enabled     bool
	Ticks
	Program
	Slots
	Times
	Output Output
	// Retry limits the attempts after a failed run. The zero value permits none.
	Retry Retry `json:",omitzero"`
	// Recover is the maximum number of attempts, after the first one, for a tick whose run was interrupted. 0 permits none.
	Recover int `json:",omitempty"`
	// Notify has the names of the targets of the job's notifications, sorted.
	Notify []string `json:",omitempty"`
	Expected

	// Of and On are set in an instance of a job with Everywhere: the name of that job, and the name of the only replica that runs the instance.
	Of, On string `json:"-"`

	// Digest is a hash of the job's settings: see [Config.Digest].
	Digest string
}

// Ticks defines the instants at which a job runs.
type Ticks struct {
	// After lists the jobs after which this job runs, sorted by name. Such a job has no Schedule, and its Spec is nil.
	After []string `json:",omitempty"`
	// Schedule has the cron expressions with their variables replaced. Spec is their parsed form in the zone Location.
	Schedule []string
	Spec     *cronspec.Schedule
	Location *time.Location
	// Except has the expressions of `except`, and ExceptDates the days of its calendars, sorted. The job does not run at these instants. StartsAt and
	// ExpiresAt bound the ticks; they are zero if not set. The digest covers these four fields through Spec.
	Except      []string  `json:"-"`
	ExceptDates []string  `json:"-"`
	StartsAt    time.Time `json:"-"`
	ExpiresAt   time.Time `json:"-"`
}

// Program defines the command of a run, with its user, limits and environment, or its request.
type Program struct {
	// Command is a program with its arguments. If Shell is true, it is the shell with its arguments, followed by the script.
	Command []string
	Shell   bool
	// Dir is the working directory; "" means the replica's.
	Dir string
	Environment
	User, Group string
	// NoNewPrivs is nil if not set: see [Program.KeepsPrivileges].
	NoNewPrivs *bool `json:",omitempty"`
	// Umask is the file mode creation mask; nil means the replica's.
	Umask       *uint32
	OKExitCodes []int
	// Nice is the scheduling priority; nil means the replica's. It is left out of the digest if it is nil, so that old configurations keep their digests.
	Nice   *int   `json:",omitempty"`
	Limits Limits `json:",omitzero"`
	// HTTP is the request that a run sends instead of a command, or nil. The other fields then have their defaults, without a command.
	HTTP *HTTP `json:",omitempty"`
}

// Environment defines the environment of a command.
type Environment struct {
	// Env maps variables to values, and EnvFromFile maps variables to files that contain the value. No variable is in both.
	Env         map[string]string
	EnvFile     string
	EnvFromFile map[string]string
	InheritEnv  bool
	// EnvTaken is the set of environment variables that the job's own `env` uses.
	EnvTaken map[string]bool
}

// Slots limits the number of concurrent runs of a job, and the replicas that may run it.
type Slots struct {
	// Where has the labels that a replica needs for this job. If it is empty, any replica may run the job.
	Where map[string]string `json:",omitempty"`

	Parallel, PerTick, PerReplica int
	// Pool is the name of the pool in which each run needs a slot, or "". PoolSlots is the total number of slots in the pool.
	Pool      string `json:",omitempty"`
	PoolSlots int    `json:",omitempty"`
	// Overlap is "" (skip), "queue" or "replace".
	Overlap string `json:",omitempty"`
	// Everywhere is true for `per_tick = "all"`: see [Config.ForReplicas].
	Everywhere bool `json:",omitempty"`
}

// Times bounds the start of a tick, the duration of its run, and the duration of its lease.
type Times struct {
	// CatchUp is "" (none), "latest" or "all". CatchUpWindow is the maximum age of a tick that is caught up. It is zero if CatchUp is "".
	CatchUp       string        `json:",omitempty"`
	CatchUpWindow time.Duration `json:",omitempty"`
	// StartDeadline is the delay after which a tick is missed. 0 means "auto": the time until the job's next tick, but at most 1h; for a job with overlap
	// "queue", 1h.
	StartDeadline time.Duration
	// Timeout is the maximum duration of a run. 0 means "none".
	Timeout                  time.Duration
	KillGrace, Lease, Jitter time.Duration
	// OutlivesLease is true for `on_lease_lost = "continue"`. It is left out of the digest if it is false, so that old configurations keep their digests.
	OutlivesLease bool `json:",omitempty"`
}

// Expected has the limits beyond which a job is shown as late. They change no run.
type Expected struct {
	// WarnAfter is the duration beyond which a run is slow; 0 means not set. StaleAfter is the time without a success beyond which the job is stale; 0 means never.
	WarnAfter  time.Duration `json:",omitempty"`
	StaleAfter time.Duration `json:",omitempty"`
	// ExpectBy is the local time by which the last tick before it must have ended `ok`, such as "06:30"; "" means none.
	ExpectBy string `json:",omitempty"`
}

// KeepsPrivileges reports whether programs that the command executes cannot gain rights, for example through a set-user-ID bit. It returns the value of
// no_new_privs if that key is set. Otherwise it returns true if the job sets a user.
func (p *Program) KeepsPrivileges() bool {
	if p.NoNewPrivs != nil {
		return *p.NoNewPrivs
	}
	return p.User != ""
}

// Retry limits the attempts after a failed run.
type Retry struct {
	// Max is the maximum number of attempts after the first one.
	Max int
	// Delay is the pause before the second attempt. The pause doubles with each attempt, up to MaxDelay. 0 means not set.
	Delay, MaxDelay time.Duration
}

// Limits bounds the resources that all processes of a run use together.
type Limits struct {
	// Memory is in bytes; 0 means no limit.
	Memory int64 `json:",omitempty"`
	// Pids is the maximum number of processes and threads; 0 means no limit.
	Pids int `json:",omitempty"`
}

// Output configures the output of runs.
type Output struct {
	// Keep is the number of bytes at the end of the output that the history keeps. Defaults to 16 KiB.
	Keep int64
	// Log reports whether the whole output is logged, line by line. Defaults to true.
	Log bool
}

// String formats the limits for display: "1GiB of memory, 200 processes and threads".
func (l Limits) String() string {
	var list []string
	if l.Memory > 0 {
		list = append(list, units.FormatSize(l.Memory)+" of memory")
	}
	if l.Pids > 0 {
		list = append(list, fmt.Sprintf("%d processes and threads", l.Pids))
	}
	return strings.Join(list, ", ")
}

// draft is an unfinished job. It starts as a copy of [defaults]; then the keys of the job's own table are read into it.
type draft struct {
	Job
	at    map[string]document.Value // the value of each key, from the job's table or from [defaults]; a key of an inner table is "table.key"
	wrong map[string]bool           // keys with a fault, which later checks skip
	named map[string]bool           // variables in the `env` of the job's own table
	filed map[string]document.Value // the entry of each variable in env_from_file

	exprs   []expression
	except  []expression
	before  []expression // the jobs in `after`
	pool    schema.Expansion
	targets []expression // the targets in `notify`
	argv    []string     // the command, if it is a list
	script  string       // the command, if it is a string
	shell   []string
	hidden  hidden
	zones   *cronspec.Zones // the zone data in which the job's time zone is looked up
}

// hidden has the text of values that differ between machines or are secret, as it is written in the file: variables are not replaced, and relative paths are
// not resolved. A digest uses this text instead of the values.
type hidden struct {
	env   map[string]string // values of env by variable name
	files map[string]string // paths by key
	zone  string            // the time zone, or "" if its text contains no variable; used only for [Settings], because a digest uses the resolved zone
}

type expression struct {
	document.Value
	schema.Expansion
}

func textsOf(exprs []expression) []string {
	var texts []string
	for _, e := range exprs {
		texts = append(texts, e.Text)
	}
	return texts
}

// noMax is the value of an unset retry.max.
const noMax = -1

func newDraft(zone *time.Location, zones *cronspec.Zones) draft {
	return draft{
		Job: Job{
			Enabled: true,
			Ticks:   Ticks{Location: zone},
			Program: Program{OKExitCodes: []int{0},
				Environment: Environment{InheritEnv: true, Env: make(map[string]string), EnvFromFile: make(map[string]string)}},
			Slots:  Slots{Parallel: 1, PerTick: 1, PerReplica: 1},
			Times:  Times{Timeout: 24 * time.Hour, KillGrace: 10 * time.Second, Lease: 30 * time.Second, CatchUpWindow: 24 * time.Hour},
			Output: Output{Keep: 16 << 10, Log: true},
			Retry:  Retry{Max: noMax},
		},
		at:     make(map[string]document.Value),
		wrong:  make(map[string]bool),
		named:  make(map[string]bool),
		filed:  make(map[string]document.Value),
		shell:  []string{"/bin/sh", "-c"},
		hidden: hidden{env: make(map[string]string), files: make(map[string]string)},
		zones:  zones,
	}
}

// deriveJob returns a copy of the draft for one job. Reading the keys of the job into the copy changes no map of the original.
func (d *draft) deriveJob() draft {
	c := *d
	c.Env, c.EnvFromFile = maps.Clone(d.Env), maps.Clone(d.EnvFromFile)
	c.at, c.wrong, c.filed = maps.Clone(d.at), maps.Clone(d.wrong), maps.Clone(d.filed)
	c.hidden.env, c.hidden.files = maps.Clone(d.hidden.env), maps.Clone(d.hidden.files)
	c.EnvTaken, c.named = make(map[string]bool), make(map[string]bool)
	c.HTTP = d.HTTP.clone()
	return c
}

// notingKey returns a key whose reader also records the value in draft.at, and a fault of the value in draft.wrong.
func notingKey(key schema.Key[draft]) schema.Key[draft] {
	set := key.Read
	key.Read = func(r *schema.Reader, v document.Value, d *draft) {
		before := r.Failures()
		d.at[v.Name] = v
		if table, isTable := v.Raw.(map[string]any); isTable && key.Inner != nil {
			for name := range table {
				d.at[v.Name+"."+name], _ = v.Get(name)
			}
		}
		set(r, v, d)
		d.wrong[v.Name] = r.Failures() > before
	}
	return key
}

// nearestPlace returns the value at which a fault about several keys is reported: the first of them that the job's own table sets. If the table sets none, it
// returns the value of keys[0].
func (d *draft) nearestPlace(keys ...string) document.Value {
	for _, key := range keys {
		if v, set := d.at[key]; set && strings.HasPrefix(v.Path, "jobs.") {
			return v
		}
	}
	return d.at[keys[0]]
}

// pathKey returns a key for a path. It also records the path as it is written in the file, for the digest.
func pathKey(name string, field func(*draft) *string, doc string) schema.Key[draft] {
	key := schema.Path(name, field, doc)
	read := key.Read
	key.Read = func(r *schema.Reader, v document.Value, d *draft) {
		read(r, v, d)
		d.hidden.files[v.Name], _ = v.Raw.(string)
	}
	return key.ValueOf(func(d *draft) any { return d.hidden.files[name] })
}

func aboutKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Bool("enabled", func(d *draft) *bool { return &d.Enabled }, "Whether the job runs."),
		schema.String("description", func(d *draft) *string { return &d.Description }, "Purpose of the job, shown by shell completion."),
		schema.Strings("tags", func(d *draft) *[]string { return &d.Tags }, "Labels by which `pause` and `resume` select jobs."),
		schema.Field("notify", schema.KindStrings, func(d *draft) *[]expression { return &d.targets }, jobTargets,
			"Targets that [learn](notifications.md) of the job's events. An empty list removes the targets of `[defaults]`.").
			Allow("names of `[notify.NAME]`").ValueOf(func(d *draft) any { return d.Notify }),
		schema.Table("output", func(d *draft) *Output { return &d.Output }, outputKeys(), "Where the [output](jobs.md#output) of a run goes."),
	}
}

// jobTargets reads the names of a job's targets. An empty list removes the targets of [defaults].
func jobTargets(r *schema.Reader, v document.Value) ([]expression, bool) {
	const want = `a list of names such as ["oncall"]`
	if list, isList := v.Raw.([]any); isList && len(list) == 0 {
		return nil, true
	}
	return schema.List(r, v, want, func(item document.Value) (expression, bool) {
		e, ok := r.Text(item, want)
		return expression{item, e}, ok
	})
}

func outputKeys() schema.Section[Output] {
	return schema.Section[Output]{Keys: []schema.Key[Output]{
		schema.Size("keep", 64<<20, func(to *Output) *int64 { return &to.Keep }, "The history keeps this much of the end, within `[history].max_bytes`."),
		schema.Bool("log", func(to *Output) *bool { return &to.Log }, "Also writes each line to the replica's log."),
	}}
}

// requireKey reports that a job has neither key nor its alternative, the parameter or. It accepts an unknown key that may be a misspelling of
// one of the two.
func requireKey(r *schema.Reader, v document.Value, d *draft, key, or string) {
	_, set := d.at[key]
	_, instead := d.at[or]
	meant := r.Meant(v.Path+"."+key) || or != "" && r.Meant(v.Path+"."+or)
	if !set && !instead && !meant {
		r.Fault(v.AtKey(), "[%s] has no %s; set %s", v.Path, key, key)
	}
}

// jobDigest returns a hash of the job's settings. The hash does not depend on the file that defines the job, on the order of keys, or on defaults that the file
// writes out.
func (d *draft) jobDigest() string {
	j := d.Job
	meaning := j.Location.String()
	if j.Spec != nil { // Spec is nil for a job with `after`, and if [Options.KeepUnset] left a variable in the schedule
		meaning, j.Schedule = j.Spec.Key(), nil
	}
	j.File, j.Line, j.Spec, j.Location, j.EnvTaken, j.Digest = "", 0, nil, nil, nil, ""
	j.Env, j.EnvFromFile, j.EnvFile, j.Dir = d.hidden.env, nil, "", ""
	return digestOf(struct {
		Job   Job
		Ticks string
		Files map[string]string
	}{j, meaning, d.hidden.files})
}

// digestOf returns 16 hex digits of a hash of v. JSON sorts the keys of maps, so the result is the same on every replica.
func digestOf(v any) string {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(v) // can't fail for strings, numbers, lists and maps
	return hex.EncodeToString(h.Sum(nil)[:8])
}
