package redis

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// table is what Go knows of the arguments of a script, from a place on.
type table struct {
	first int
	names []string
}

// tables are all scripts that have arguments of their own.
var tables = map[string]table{
	"state":           {1, commonParams.argNames()},
	"acquire":         {9, acquireParams.argNames()},
	"renew":           {9, renewParams.argNames()},
	"release":         {9, releaseParams.argNames()},
	"inspect":         {9, inspectParams.argNames()},
	"stop":            {9, stopParams.argNames()},
	"mark_succeeded":  {9, markSucceededParams.argNames()},
	"pause":           {9, pauseParams.argNames()},
	"remove":          {9, removeParams.argNames()},
	"fence":           {9, fenceParams.argNames()},
	"acquire_compact": {1, acquireCompactNames},
	"release_compact": {1, releaseCompactNames},
	"quorum":          {1, nodeCommonNames},
	"quorum_claim":    {4, quorumClaimParams.argNames()},
	"quorum_accept":   {4, quorumAcceptParams.argNames()},
	"quorum_renew":    {4, quorumRenewParams.argNames()},
	"quorum_release":  {4, quorumReleaseNames},
	"quorum_stop":     {4, quorumStopNames},
	"quorum_enrol":    {1, []string{"epoch"}},
	"quorum_admit":    {1, quorumAdmitNames},
	"quorum_found":    {1, quorumFoundNames},
}

// without are the files that have none, and why.
var without = map[string]string{
	"check": "a part of others", "queue": "a part of others", "chain": "a part of others", "readonly": "a part of others",
	"acquire_fast": "those of acquire", "release_fast": "those of release",
	"quorum_claim_fast": "those of quorum_claim", "quorum_release_fast": "those of quorum_release",
	"acquire_set": "those of acquire and release, for each lock", "batch": "those of several requests of one script",
}

// argument is a line of a header: its place, its name, and what it is.
var argument = regexp.MustCompile(`^-- (?:KEYS|ARGV|    )\s+(\d+) ([a-z_]+)(?:\s|$)`)

// header are the keys or the arguments of a file, by its comment at the top.
func header(text, label string) (first int, names []string) {
	in := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		if m := regexp.MustCompile(`^-- ([A-Z][A-Za-z]*)\b`).FindStringSubmatch(line); m != nil {
			in = m[1] == label
		}
		m := argument.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if !in || m == nil {
			continue
		}
		place, _ := strconv.Atoi(m[1])
		if len(names) == 0 {
			first = place
		}
		if place == first+len(names) {
			names = append(names, m[2])
		}
	}
	return first, names
}

func texts(t *testing.T) map[string]string {
	t.Helper()
	entries, err := files.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		name := strings.TrimSuffix(path.Base(e.Name()), ".lua")
		all[name] = sourceOf(name)
	}
	return all
}

func TestHeadersNameTheArguments(t *testing.T) {
	all := texts(t)
	for name, text := range all {
		if !strings.HasPrefix(text, "-- "+name+".lua: ") {
			t.Errorf("%s.lua does not begin with its name", name)
		}
		want, has := tables[name]
		if _, none := without[name]; none == has {
			t.Errorf("%s.lua has both, or neither, a table of arguments and a reason to have none", name)
		}
		if !has {
			continue
		}
		if first, names := header(text, "ARGV"); first != want.first || !slices.Equal(names, want.names) {
			t.Errorf("%s.lua says that ARGV is %q from %d on, its table %q from %d on", name, names, first, want.names, want.first)
		}
	}
	for name := range maps.Keys(tables) {
		if all[name] == "" {
			t.Errorf("there is no %s.lua", name)
		}
	}
}

func TestHeadersNameTheKeys(t *testing.T) {
	for name, want := range map[string][]string{"state": lockKeys, "queue": lineKeys, "quorum": nodeKeys} {
		if _, names := header(sourceOf(name), "KEYS"); !slices.Equal(names, want) {
			t.Errorf("%s.lua has the keys %q, want %q", name, names, want)
		}
	}
	if n := len(LockKeys("lock", "id")); n != len(lockKeys) {
		t.Errorf("%d keys of a lock", n)
	}
	if n := len(LineKeys("lock")); n != len(lineKeys) {
		t.Errorf("%d keys of a queue", n)
	}
	if n := len(NodeKeys("p:", "lock", "id")); n != len(nodeKeys)-1 { // the index is for a script that writes a register
		t.Errorf("%d keys of a node", n)
	}
}

// Each script that changes something says why it does so in one step.
func TestHeadersArgueAtomicity(t *testing.T) {
	compares := []string{"state", "quorum", "acquire_compact", "release_compact", "acquire_set", "quorum_enrol", "quorum_admit"} // parts, and those that say it otherwise
	for name := range tables {
		if !slices.Contains(compares, name) && !strings.Contains(sourceOf(name), "Why it is atomic") {
			t.Errorf("%s.lua does not say why it is atomic", name)
		}
	}
}

func TestEveryScriptHasItsParts(t *testing.T) {
	for _, s := range []*Script{NewScripts().Acquire, NewScripts().AcquireSet, NewScripts().InspectOnly, WithoutFastPaths().Release, NewNodeScripts().Claim} {
		if strings.Contains(s.Text, "\n\n\n") || len(s.Text) < 1000 {
			t.Errorf("a part is missing in %.60q", s.Text)
		}
	}
	if NewScripts().Acquire.SHA == WithoutFastPaths().Acquire.SHA {
		t.Error("acquire is the same without its fast path")
	}
}

// Empty arguments at the end are left out: most requests are short.
func TestArgumentsThatSayNothingAreLeftOut(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	tick := lease.Tick{At: at, Previous: at.Add(-time.Second)}
	keeps := tick
	keeps.KeepFirst = true
	row := &lease.HeldRow{Request: lease.Request{Tick: &lease.Tick{At: at, Schedule: "z.x"}}}
	for _, tc := range []struct {
		args []any
		n    int
		last string
	}{
		{acquireParams.encode(&lease.Request{}, "o"), 8, "1"},
		{acquireParams.encode(&lease.Request{Delay: time.Second}, "o"), 19, "1000000"},
		{acquireParams.encode(&lease.Request{Channel: "c"}, "o"), 19, "0"},
		{acquireParams.encode(&lease.Request{Tick: &tick}, "o"), 16, ""},
		{acquireParams.encode(&lease.Request{Tick: &keeps}, "o"), 21, "0"},
		{releaseParams.encode(&lease.ReleaseRequest{Row: row}, int64(7)), 1, "7"},
		{releaseParams.encode(&lease.ReleaseRequest{Row: row, Mode: lease.ReleaseUndo}, int64(7)), 7, "z"},
		{releaseParams.encode(&lease.ReleaseRequest{Row: row, Mode: lease.ReleaseHandOver, Attempt: 2}, int64(7)), 5, "2"},
		{releaseParams.encode(&lease.ReleaseRequest{Row: row, Outcome: lease.OutcomeFailed}, int64(7)), 6, "0"},
		{inspectParams.encode(&lease.InspectRequest{}), 3, "0"},
		{inspectParams.encode(&lease.InspectRequest{Follower: "f"}), 5, "0"},
		{inspectParams.encode(&lease.InspectRequest{SettleOutcome: "missed", SettleSchedule: "s"}), 7, "missed\ns"},
		{inspectParams.encode(&lease.InspectRequest{Acked: []time.Time{at}}), 7, ""},
	} {
		if last := fmt.Sprint(tc.args[len(tc.args)-1]); len(tc.args) != tc.n || last != tc.last {
			t.Errorf("%q: %d arguments, the last is %q; want %d and %q", tc.args, len(tc.args), last, tc.n, tc.last)
		}
	}
}

func TestUnknownIsMarkedOnce(t *testing.T) {
	if Unknown(nil) != nil {
		t.Error("nil became an error")
	}
	err := Unknown(Unknown(redis.Nil))
	if !errors.Is(err, lease.ErrUnknown) || !errors.Is(err, redis.Nil) || strings.Count(err.Error(), lease.ErrUnknown.Error()) != 1 {
		t.Errorf("%v", err)
	}
}

func (p parameters[T]) argNames() []string {
	names := make([]string, len(p))
	for i := range p {
		names[i] = p[i].name
	}
	return names
}
