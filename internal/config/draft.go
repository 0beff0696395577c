package config

import (
	"maps"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// draft is an unfinished job. It starts as a copy of [defaults]; then the keys of the job's own table are read into it.
type draft struct {
	Job
	at    map[string]document.Value // the value of each key, from the job's table or from [defaults]; a key of an inner table is "table.key"
	wrong map[string]bool           // keys with a fault, which later checks skip
	named map[string]bool           // variables in the `env` of the job's own table
	filed map[string]document.Value // the entry of each variable in env_from_file

	exprs  []expression
	except []expression
	before []expression // the jobs in `after`
	pool   schema.Expansion
	argv   []string // the command, if it is a list
	script string   // the command, if it is a string
	shell  []string
	hidden hidden
	zones  *cronspec.Zones // the zone data in which the job's time zone is looked up
}

// hidden has the original text of values that differ between machines or are secret. A digest uses this text instead of the values. It is the text of the
// file, before variables are replaced and relative paths are resolved.
type hidden struct {
	env   map[string]string // values of env by variable name
	files map[string]string // paths by key
	zone  string            // the time zone; set only if it contains a variable, and used only for the settings, because a digest uses the resolved zone
}

// expression is one expression of a schedule, with its place.
type expression struct {
	document.Value
	schema.Expansion
}

// textsOf returns the texts of expressions, with variables replaced.
func textsOf(exprs []expression) []string {
	var texts []string
	for _, e := range exprs {
		texts = append(texts, e.Text)
	}
	return texts
}

// newDraft returns a job that has only the built-in defaults.
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

// deriveJob returns a copy of the draft for one job. The copy shares no map that reading a job changes.
func (d *draft) deriveJob() draft {
	c := *d
	c.Env, c.EnvFromFile = maps.Clone(d.Env), maps.Clone(d.EnvFromFile)
	c.at, c.wrong, c.filed = maps.Clone(d.at), maps.Clone(d.wrong), maps.Clone(d.filed)
	c.hidden.env, c.hidden.files = maps.Clone(d.hidden.env), maps.Clone(d.hidden.files)
	c.EnvTaken, c.named = make(map[string]bool), make(map[string]bool)
	return c
}

// notingKey returns a key that also records its value, and whether the value is faulty.
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

// nearestPlace returns the value of the first of the keys that the job's own table sets. If the table sets no such key, it returns the value of the first
// key.
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

// requireKey reports a missing key. It reports nothing if the alternative key is set, even if that key is not supported yet, or if an unknown key may mean
// one of the two.
func requireKey(r *schema.Reader, v document.Value, d *draft, key, or string) {
	_, set := d.at[key]
	_, instead := d.at[or]
	if _, unsupported := v.Get(or); unsupported {
		instead = true
	}
	meant := r.Meant(v.Path+"."+key) || or != "" && r.Meant(v.Path+"."+or)
	if !set && !instead && !meant {
		r.Fault(v.AtKey(), "[%s] has no %s; set %s", v.Path, key, key)
	}
}
