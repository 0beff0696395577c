package config

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/units"
)

// Setting is a key of a job with the value that is in force, as a file would have it, or in words. Keys of a table are "table.key".
type Setting struct{ Key, Value string }

// Settings are all keys of all jobs, for people on any machine. No argument of a command and no value of a variable is among them: where the environment
// has a part in a value, it is the text of the file. As in [Config.Digest] paths are as they are written.
type Settings struct {
	// Common are all keys in the order of the reference, with the values of a job that sets none itself.
	Common []Setting
	// Own are the values that differ from those, by job and key.
	Own map[string]map[string]string
}

// Of returns the settings of one job.
func (s Settings) Of(job string) []Setting {
	all := slices.Clone(s.Common)
	for i := range all {
		if value, own := s.Own[job][all[i].Key]; own {
			all[i].Value = value
		}
	}
	return all
}

// add keeps what a job has of its own.
func (s Settings) add(job string, all []Setting) {
	own := map[string]string{}
	for i, setting := range all {
		if setting.Value != s.Common[i].Value {
			own[setting.Key] = setting.Value
		}
	}
	s.Own[job] = own
}

// settings are those of the draft as it is. defaults are the values of a draft of which nothing is set. The text of the file stands for a value with a
// "${" in it, but not where that is not in force, as a window in [defaults] for a job that catches nothing up.
func (d *draft) settings(keys schema.Section[draft], defaults map[string]string) []Setting {
	entries := keys.Entries(d)
	all := make([]Setting, 0, len(entries))
	for _, e := range entries {
		text := settingText(e.Value)
		_, inWords := e.Value.(described)
		if at, set := d.at[e.Key]; set && !inWords && text != defaults[e.Key] && hasDollar(at.Raw) {
			text = rawText(at.Raw)
		}
		all = append(all, Setting{e.Key, bounded(text)})
	}
	return all
}

// defaultTexts are the values of a job that sets nothing, by key.
func defaultTexts(keys schema.Section[draft]) map[string]string {
	empty, texts := newDraft(time.UTC, nil), map[string]string{}
	for _, e := range keys.Entries(&empty) {
		texts[e.Key] = settingText(e.Value)
	}
	return texts
}

// hasDollar returns whether a value of a file has a variable in it, or a "$${".
func hasDollar(raw any) bool {
	switch raw := raw.(type) {
	case string:
		return strings.Contains(raw, "${")
	case []any:
		return slices.ContainsFunc(raw, hasDollar)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(raw)), hasDollar)
	}
	return false
}

// described is a value in words, in place of one that is not shown.
type described string

// programOf describes a list of a program and its arguments. Arguments may be secrets, so that they leave the machine in no form.
func programOf(argv []string) any {
	if len(argv) < 2 {
		return described(strings.Join(quotedAll(argv), ""))
	}
	return described(strconv.Quote(argv[0]) + " and " + count(len(argv)-1, "argument"))
}

// commandOf describes the command.
func commandOf(d *draft) any {
	if d.script != "" {
		return described("a shell command of " + count(utf8.RuneCountInString(d.script), "character"))
	}
	return programOf(d.argv)
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

var bareName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// keyName is a name as a file would have it.
func keyName(name string) string {
	if bareName.MatchString(name) {
		return name
	}
	return strconv.Quote(name)
}

// variablesOf are the names of the variables of `env`.
func variablesOf(d *draft) any {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.hidden.env)) {
		source := ""
		if len(schema.Find(d.hidden.env[name])) > 0 {
			source = " from the environment"
		}
		names = append(names, keyName(name)+source)
	}
	return described(strings.Join(names, ", "))
}

// filedOf are the names of the variables of `env_from_file`.
func filedOf(d *draft) any {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.EnvFromFile)) {
		names = append(names, keyName(name)+" from a file")
	}
	return described(strings.Join(names, ", "))
}

// notSet stands where a key has no value, and no default.
const notSet = "–"

// settingText is a value as a file would have it, or in words.
func settingText(v any) string {
	switch v := v.(type) {
	case nil:
		return notSet
	case schema.Prose:
		return strings.ReplaceAll(string(v), "`", "")
	case described:
		return cmp.Or(string(v), notSet)
	case []expression:
		if len(v) == 1 {
			return strconv.Quote(v[0].Text)
		}
		return listText(textsOf(v))
	case []string:
		return listText(v)
	case map[string]string:
		return tableText(v, strconv.Quote)
	case time.Time:
		return v.Format(time.RFC3339)
	case *time.Location:
		return strconv.Quote(v.String())
	case *int:
		return strconv.Itoa(*v)
	}
	return rawText(v)
}

// rawText is a value as the parser or a default has it.
func rawText(v any) string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return notSet
		}
		return strconv.Quote(v)
	case time.Duration:
		return strconv.Quote(units.FormatDuration(v))
	case schema.Bytes:
		return strconv.Quote(units.FormatSize(int64(v)))
	case []int:
		return "[" + strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ", "), "[]") + "]"
	case []any: // with a variable in it, as all lists with variables are of strings
		var texts []string
		for _, item := range v {
			texts = append(texts, fmt.Sprint(item))
		}
		return listText(texts)
	case map[string]any:
		return tableText(v, rawText)
	}
	return fmt.Sprint(v)
}

func quotedAll(texts []string) []string {
	quoted := make([]string, len(texts))
	for i, s := range texts {
		quoted[i] = strconv.Quote(s)
	}
	return quoted
}

func listText(texts []string) string {
	if len(texts) == 0 {
		return notSet
	}
	return "[" + strings.Join(quotedAll(texts), ", ") + "]"
}

func tableText[V any](table map[string]V, text func(V) string) string {
	var items []string
	for _, name := range slices.Sorted(maps.Keys(table)) {
		items = append(items, keyName(name)+" = "+text(table[name]))
	}
	if items == nil {
		return notSet
	}
	return "{ " + strings.Join(items, ", ") + " }"
}

// mostOfASetting is how many bytes of a value are kept: Redis has those of all jobs.
const mostOfASetting = 1000

// bounded cuts a long text. A digest stands for the rest, so that two texts that differ there do not look equal.
func bounded(text string) string {
	if len(text) <= mostOfASetting {
		return text
	}
	n := mostOfASetting
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%s… (%d bytes, SHA-256 %.4x…)", text[:n], len(text), sha256.Sum256([]byte(text)))
}
