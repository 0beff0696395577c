package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/internal/units"
)

// TestReference compares the lists of docs/configuration.md with the keys of each section. -update writes the lists.
func TestReference(t *testing.T) {
	tables := map[string][][]string{}
	for _, s := range referenced() {
		for _, row := range s.rows {
			if row[1] == "" || row[3] == "" {
				t.Errorf("%s: %s has no kind, or no doc", s.name, row[0])
			}
		}
		if table, inner, nested := strings.Cut(s.name, "."); nested {
			tables[table] = withInner(tables[table], inner, s.rows)
		} else {
			tables[table] = append(tables[table], s.rows...)
		}
	}
	parts := map[string]string{"tables": strings.Join(tableLinks(), ", ") + ".\n"}
	for name, rows := range tables {
		parts[name] = keyList(rows)
	}
	testtier.SyncPage(t, "configuration.md", "config", parts, *update)
}

// withInner returns rows with the rows of an inner table after the row of its key.
func withInner(rows [][]string, key string, inner [][]string) [][]string {
	at := slices.IndexFunc(rows, func(row []string) bool { return row[0] == "`"+key+"`" })
	for _, row := range inner {
		row[0] = "`" + key + "." + strings.TrimPrefix(row[0], "`")
	}
	return slices.Insert(rows, at+1, inner...)
}

// keyList returns keys as a list in Markdown. A table of four columns would break its cells into lines of a few words.
func keyList(rows [][]string) string {
	var list strings.Builder
	for _, row := range rows {
		standard := ""
		if row[2] != none {
			standard = "; default " + row[2]
		}
		fmt.Fprintf(&list, "- %s (%s%s): %s\n", row[0], row[1], standard, row[3])
	}
	return list.String()
}

func TestReferenceHasEachJobKey(t *testing.T) {
	n := 0
	for _, s := range referenced() {
		if s.ofJob() {
			n += len(s.rows)
		}
	}
	if n != len(jobKeys().Keys) {
		t.Errorf("%d keys of jobs are in the reference, and there are %d", n, len(jobKeys().Keys))
	}
}

// TestReferenceDefaults sets each key to the default that the reference shows. The configuration must equal one without the key.
func TestReferenceDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, s := range referenced() {
		for _, row := range s.rows {
			if !strings.HasPrefix(row[2], "`") { // there is none, or prose
				continue
			}
			line := strings.ReplaceAll(row[0]+" = "+row[2], "`", "") + "\n"
			with, without := s.file(t, line), s.file(t, "")
			if !reflect.DeepEqual(with, without) {
				t.Errorf("[%s] %s is not the default:\n%+v\n%+v", s.table, line, with, without)
			}
		}
	}
}

// file loads a configuration with a job a and a line in the table.
func (k keyTable) file(t *testing.T, line string) *Config {
	t.Helper()
	text := k.needs + line
	program := "command = 'true'\n"
	if k.table == "jobs.a.http" {
		program = k.needs
	}
	if name, ofJob := strings.CutPrefix(k.table, "jobs.a"); ofJob {
		text = strings.TrimPrefix(text, program)
		if line != "" && name != "" {
			text = strings.TrimPrefix(name, ".") + "." + line
		}
		text = "[jobs.a]\nschedule = '@daily'\n" + program + text
	} else {
		if line != "" && k.table != "" {
			text = k.needs + k.table + "." + line
		}
		text += "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\n"
	}
	c, err := loadConfig(t, text, Options{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	c.Warnings, c.Jobs[0].Line = nil, 0
	return c
}

const none = "–"

// keyTable has the keys of one table of the configuration.
type keyTable struct {
	name  string // name of the generated part, which several may share; for an inner table "part.key"
	table string // path of the table in a configuration with a job a
	needs string // other lines that the file requires
	rows  [][]string
}

// ofJob reports whether the keys stand in the table of a job itself. Keys of a table inside it do not count.
func (k keyTable) ofJob() bool {
	return strings.HasPrefix(k.name, "job ") && !strings.Contains(k.name, ".")
}

// minimalOIDC has the required keys of [server.oidc].
const minimalOIDC = `server.listen = "127.0.0.1:0"
server.oidc.issuer = "https://id.example"
server.oidc.client_id = "cron"
server.oidc.client_secret_file = "secret"
server.oidc.redirect_url = "https://cron.example/login/oidc/callback"
server.oidc.viewers = ["staff"]
`

// referenced returns all tables of the reference.
func referenced() []keyTable {
	top, job := newTop(), newDraft(time.UTC, nil)
	return []keyTable{
		{"top level", "", "", rowsOf(clusterKeys(), top)},
		{"redis", "redis", "", rowsOf(redisKeys().Keys, &top.Redis)},
		{"redis.tls", "redis.tls", "", rowsOf(tlsKeys().Keys, &TLS{})},
		{"redis.sentinel", "redis.sentinel", "", rowsOf(sentinelKeys().Keys, &SentinelAccess{})},
		{"replica", "replica", "", rowsOf(replicaKeys().Keys, &top.Replica)},
		{"cluster", "cluster", "", rowsOf(clusterSection().Keys, &top.Cluster)},
		{"history", "history", "", rowsOf(historyKeys().Keys, &top.History)},
		{"server", "server", "", rowsOf(serverKeys().Keys, &top.Server)},
		{"server.tls", "server.tls", "", rowsOf(serverTLSKeys().Keys, &top.Server)},
		{"oidc", "server.oidc", minimalOIDC, rowsOf(oidcKeys().Keys, newOIDC())},
		{"heartbeat", "heartbeat", "heartbeat.url = 'https://hc.example/a'\n", rowsOf(heartbeatKeys().Keys, &top.Heartbeat)},
		{"traces", "traces", "traces.url = 'http://127.0.0.1:4318/v1/traces'\n", rowsOf(tracesKeys().Keys, &top.Traces)},
		{"pools", "pools.a", "", rowsOf(poolKeys().Keys, &Pool{})},
		{"calendars", "calendars.a", "", rowsOf(calendarKeys().Keys, new([]string))},
		{"notify", "notify.a", "notify.a.kind = 'slack'\nnotify.a.url = 'https://h/x'\n", rowsOf(notifyKeys().Keys, new(newNotify()))},
		{"notify.template", "notify.a.template", "notify.a.kind = 'slack'\nnotify.a.url = 'https://h/x'\n", rowsOf(templateKeys().Keys, new(newNotify()))},
		{"job tick", "jobs.a", "", rowsOf(tickKeys(), &job)},
		{"job command", "jobs.a", "", rowsOf(commandKeys(), &job)},
		{"http", "jobs.a.http", "http.url = 'https://hc.example/a'\n", rowsOf(httpKeys().Keys, newHTTP())},
		{"job command", "jobs.a", "", rowsOf(environmentKeys(), &job)},
		{"job machine", "jobs.a", "", rowsOf(machineKeys(), &job)},
		{"job machine.limits", "jobs.a.limits", "", rowsOf(limitsKeys().Keys, &job.Limits)},
		{"job slot", "jobs.a", "", rowsOf(slotKeys(), &job)},
		{"job attempt", "jobs.a", "", rowsOf(attemptKeys(), &job)},
		{"job attempt.retry", "jobs.a.retry", "", rowsOf(retryKeys().Keys, &job.Retry)},
		{"job attempt.recover", "jobs.a.recover", "recover = {}\n", rowsOf(recoverKeys().Keys, new(int))},
		{"job attempt", "jobs.a", "", rowsOf(stopKeys(), &job)},
		{"job expected", "jobs.a", "", rowsOf(expectedKeys(), &job)},
		{"job about", "jobs.a", "", rowsOf(aboutKeys(), &job)},
		{"job about.output", "jobs.a.output", "", rowsOf(outputKeys().Keys, &job.Output)},
	}
}

// tableLinks returns the tables of the top level, with links to their sections.
func tableLinks() (links []string) {
	for _, k := range tableKeys() {
		header, anchor := k.Name, k.Name
		switch k.Name {
		case "pools", "calendars", "notify", "jobs":
			header += ".NAME"
		}
		switch k.Name {
		case "jobs", "defaults":
			anchor = "jobsname-and-defaults"
		case "pools", "calendars", "notify":
			anchor += "name"
		}
		links = append(links, fmt.Sprintf("[`[%s]`](#%s)", header, anchor))
	}
	return links
}

// rowsOf returns the rows of keys, with the defaults of an empty file.
func rowsOf[T any](keys []schema.Key[T], empty *T) (rows [][]string) {
	for _, k := range keys {
		value, standard := k.Kind, none
		if k.Allowed != "" {
			value += ": " + k.Allowed
		}
		if k.Default != nil {
			standard = inTOML(k.Default(empty))
		}
		rows = append(rows, []string{"`" + k.Name + "`", value, standard, k.Doc})
	}
	return rows
}

// inTOML returns a default as TOML.
func inTOML(v any) string {
	switch v := v.(type) {
	case schema.Prose:
		return string(v)
	case time.Duration:
		return "`" + strconv.Quote(units.FormatDuration(v)) + "`"
	case schema.Bytes:
		return "`" + strconv.Quote(units.FormatSize(int64(v))) + "`"
	case string:
		return "`" + strconv.Quote(v) + "`"
	case []string:
		var all []string
		for _, s := range v {
			all = append(all, strconv.Quote(s))
		}
		return "`[" + strings.Join(all, ", ") + "]`"
	}
	return "`" + strings.ReplaceAll(fmt.Sprint(v), " ", ", ") + "`"
}

// TestSynonymsMeanKeys checks that each synonym stands for a known key and is not a key itself.
func TestSynonymsMeanKeys(t *testing.T) {
	t.Parallel()
	known := jobKeys().Names()
	for name, key := range synonyms {
		if !slices.Contains(known, key) || slices.Contains(known, name) {
			t.Errorf("%s for %s", name, key)
		}
	}
}
