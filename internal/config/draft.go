package config

import (
	"maps"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// draft is an unfinished job: [defaults], changed by the keys of the job's own table that were read so far.
type draft struct {
	Job
	at    map[string]document.Value // the value of each key, from the job's table or from [defaults]; keys of an inner table are "table.key"
	wrong map[string]bool           // keys with a fault, which later checks ignore
	named map[string]bool           // variables in this table's own env
	filed map[string]document.Value // the value of each variable in env_from_file

	exprs  []expression
	except []expression
	before []expression // the jobs in `after`
	pool   schema.Expansion
	argv   []string // command, if it is a list
	script string   // command, if it is a string
	shell  []string
	hidden hidden
	zones  *cronspec.Zones // for the job's time zone
}

// hidden has the text that a digest uses in place of values that differ between machines or are secret. It is the text of the file, before variables
// and relative paths are resolved.
type hidden struct {
	env   map[string]string // by variable name
	files map[string]string // by key
	zone  string            // only if it contains a variable; for the settings only, because a digest uses the resolved zone
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

// newDraft returns a job with nothing but defaults.
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

// deriveJob returns a copy of the draft. It shares no map that a job changes.
func (d *draft) deriveJob() draft {
	c := *d
	c.Env, c.EnvFromFile = maps.Clone(d.Env), maps.Clone(d.EnvFromFile)
	c.at, c.wrong, c.filed = maps.Clone(d.at), maps.Clone(d.wrong), maps.Clone(d.filed)
	c.hidden.env, c.hidden.files = maps.Clone(d.hidden.env), maps.Clone(d.hidden.files)
	c.EnvTaken, c.named = make(map[string]bool), make(map[string]bool)
	return c
}

// notingKey returns a key whose reader also records the key's value, and whether it has a fault.
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

// nearestPlace returns the place of the first of the keys that the job's own table sets. If it sets none, it returns the place of the first key.
func (d *draft) nearestPlace(keys ...string) document.Value {
	for _, key := range keys {
		if v, set := d.at[key]; set && strings.HasPrefix(v.Path, "jobs.") {
			return v
		}
	}
	return d.at[keys[0]]
}

// pathKey returns a key for a path. For the digest, its reader records the path as it is written.
func pathKey(name string, field func(*draft) *string, doc string) schema.Key[draft] {
	key := schema.Path(name, field, doc)
	read := key.Read
	key.Read = func(r *schema.Reader, v document.Value, d *draft) {
		read(r, v, d)
		d.hidden.files[v.Name], _ = v.Raw.(string)
	}
	return key.ValueOf(func(d *draft) any { return d.hidden.files[name] })
}

// requireKey reports a missing key, unless the alternative key is set (even if it is not supported yet), or an unknown key that may mean one of the two.
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
