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

// Setting is a key of a job and its effective value, as TOML or as a description. A key in an inner table is "table.key".
type Setting struct{ Key, Value string }

// Settings has all keys of all jobs, for display on any machine. It contains no arguments of commands and no values of variables. Paths, and values that use
// the environment, are shown as they are written in the file.
type Settings struct {
	// Common has all keys in the order of the reference, with the values of a job that sets no key itself.
	Common []Setting
	// Own has the values that differ from Common, by job and key.
	Own map[string]map[string]string
}

// Of returns all settings of a job.
func (s Settings) Of(job string) []Setting {
	all := slices.Clone(s.Common)
	for i := range all {
		if value, own := s.Own[job][all[i].Key]; own {
			all[i].Value = value
		}
	}
	return all
}

func (s Settings) addJob(job string, all []Setting) {
	own := map[string]string{}
	for i, setting := range all {
		if setting.Value != s.Common[i].Value {
			own[setting.Key] = setting.Value
		}
	}
	s.Own[job] = own
}

// jobSettings returns the settings of the draft. A value that is written with "${" is shown as written, unless the value in effect is the built-in default:
// then what is written may have no effect, such as a catch_up_window on a job without catch_up.
func (d *draft) jobSettings(keys schema.Section[draft], defaults map[string]string) []Setting {
	entries := keys.Entries(d)
	all := make([]Setting, 0, len(entries))
	for _, e := range entries {
		text := settingText(e.Value)
		_, inWords := e.Value.(described)
		if at, set := d.at[e.Key]; set && !inWords && text != defaults[e.Key] && hasDollar(at.Raw) {
			text = rawText(at.Raw)
		}
		all = append(all, Setting{e.Key, shortenText(text)})
	}
	return all
}

func defaultTexts(keys schema.Section[draft]) map[string]string {
	empty, texts := newDraft(time.UTC, nil), map[string]string{}
	for _, e := range keys.Entries(&empty) {
		texts[e.Key] = settingText(e.Value)
	}
	return texts
}

// hasDollar reports whether a raw value contains "${". The escape sequence "$${" counts too.
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

// described is a text that is shown instead of a value with secrets.
type described string

// programOf describes a program and the number of its arguments. The arguments may be secrets and must not leave the machine.
func programOf(argv []string) any {
	if len(argv) < 2 {
		return described(strings.Join(quotedAll(argv), ""))
	}
	return described(strconv.Quote(argv[0]) + " and " + units.Count(len(argv)-1, "argument"))
}

func commandOf(d *draft) any {
	if d.script != "" {
		return described("a shell command of " + units.Count(utf8.RuneCountInString(d.script), "character"))
	}
	return programOf(d.argv)
}

var bareName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func keyName(name string) string {
	if bareName.MatchString(name) {
		return name
	}
	return strconv.Quote(name)
}

// variablesOf describes the variables of `env` by their names. It marks variables whose values use the environment.
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

func filedOf(d *draft) any {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.EnvFromFile)) {
		names = append(names, keyName(name)+" from a file")
	}
	return described(strings.Join(names, ", "))
}

// notSet is shown for a key that has no value and no default.
const notSet = "–"

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

// rawText returns a value of a TOML file, or a default, as TOML.
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
	case []any: // jobSettings passes only lists with a variable, whose items are strings
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

// mostOfASetting caps the bytes of a setting's text, because Redis stores the settings of all jobs.
const mostOfASetting = 1000

// shortenText shortens a long text. It adds a digest of the whole text, so that texts that differ only in the cut part look different.
func shortenText(text string) string {
	if len(text) <= mostOfASetting {
		return text
	}
	n := mostOfASetting
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%s… (%d bytes, SHA-256 %.4x…)", text[:n], len(text), sha256.Sum256([]byte(text)))
}
