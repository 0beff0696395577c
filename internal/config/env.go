package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// fromFile is the prefix of the keys in hidden.files that belong to env_from_file.
const fromFile = "env_from_file."

// ownVariables returns the variables that cronclave itself sets in a job's environment.
func ownVariables() []string {
	return []string{
		"CRONCLAVE_JOB", "CRONCLAVE_NAMESPACE", "CRONCLAVE_REPLICA", "CRONCLAVE_RUN_ID", "CRONCLAVE_TICK",
		"CRONCLAVE_TICK_UNIX", "CRONCLAVE_ATTEMPT", "CRONCLAVE_FENCING_TOKEN", "CRONCLAVE_SLOT", "CRONCLAVE_SLOTS",
		"CRONCLAVE_TRIGGER",
	}
}

// environmentKeys returns the keys for the environment of a job's command.
func environmentKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		{Name: "env", Kind: "table of strings", Read: readEnv, Value: variablesOf, Doc: "Variables of the command. A job's own are added to those of `[defaults]`."},
		pathKey("env_file", func(d *draft) *string { return &d.EnvFile },
			"A file of `NAME=VALUE` lines, read with the rights of the job's user when a run starts. `env` goes before it."),
		{Name: "env_from_file", Kind: "table of paths", Read: readEnvFromFile, Value: filedOf,
			Doc: "Variables whose values are in files, such as `{ PGPASSWORD = \"/run/secrets/pg\" }`; read when a run starts."},
		schema.Bool("inherit_env", func(d *draft) *bool { return &d.InheritEnv },
			"Whether the command gets the replica's environment, less what the configuration took from it; else `PATH`, `HOME`, `LANG` and `TZ`."),
	}
}

// readEnv reads the variables of `env`. The variables of a job's own table are added to the variables of [defaults]. They replace variables of the same name
// in `env` and `env_from_file`.
func readEnv(r *schema.Reader, v document.Value, d *draft) {
	if d.EnvTaken != nil {
		r = r.Noting(d.EnvTaken)
	}
	eachVariable(r, v, `{ LANG = "C" }`, func(item document.Value) {
		e, ok := r.Text(item, "a string")
		if !ok || !validArgument(r, item, e.Text) {
			return
		}
		if n := len(item.Name) + len("=") + len(e.Text); n > longestArgument {
			r.Fault(item, "%q has %d bytes with its name; the kernel takes at most %d: put it into a file, and name that", item.Name, n, longestArgument)
			return
		}
		d.named[item.Name] = true
		delete(d.EnvFromFile, item.Name)
		delete(d.hidden.files, fromFile+item.Name)
		d.Env[item.Name] = e.Text
		d.hidden.env[item.Name] = item.Raw.(string)
	})
}

// readEnvFromFile reads the files of `env_from_file`. It relies on `env` of the same table being read first: keys are read in alphabetical order.
func readEnvFromFile(r *schema.Reader, v document.Value, d *draft) {
	eachVariable(r, v, `{ PGPASSWORD = "/run/secrets/pg" }`, func(item document.Value) {
		if d.named[item.Name] {
			r.Fault(item.AtKey(), "%q is in env as well; remove one of them", item.Name)
			return
		}
		if path, ok := r.Path(item); ok && validArgument(r, item, path) {
			delete(d.Env, item.Name)
			delete(d.hidden.env, item.Name)
			d.EnvFromFile[item.Name], d.filed[item.Name] = path, item
			d.hidden.files[fromFile+item.Name] = item.Raw.(string)
		}
	})
}

// eachVariable calls each for the entries with a valid name in a table of environment variables.
func eachVariable(r *schema.Reader, v document.Value, example string, each func(document.Value)) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		r.Mistyped(v, "a table of strings such as "+example)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item, _ := v.Get(name)
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			r.Fault(item.AtKey(), "%q can't be the name of a variable", name)
		case slices.Contains(ownVariables(), name):
			r.Fault(item.AtKey(), "%s is set by cronclave itself; remove it", name)
		default:
			each(item)
		}
	}
}

// composedVariables returns the set of variables in `env` whose values use the environment, or nil.
func (d *draft) composedVariables() map[string]bool {
	var names map[string]bool
	for name, written := range d.hidden.env {
		if len(schema.Find(written)) == 0 {
			continue
		}
		if names == nil {
			names = map[string]bool{}
		}
		names[name] = true
	}
	return names
}
