package console

import (
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// Lines of several runs stand behind their times, replicas and jobs, aligned; a gap stands where it is.
func TestFollowedLinesHavePrefixes(t *testing.T) {
	t.Parallel()
	slot := 1
	first, second := journal.Record{RunID: "a1", Job: "backup", Replica: "r1"}, journal.Record{RunID: "b2", Job: "load", Replica: "r2", Slot: &slot}
	show := func(viewer func(Logs) cluster.Viewer) (out, err string) {
		var stdout, stderr strings.Builder
		v := viewer(Logs{Out: &stdout, Err: &stderr})
		if v.Begin != nil {
			v.Begin(first)
			v.Begin(second)
		}
		v.Line(cluster.OutputLine{RunID: "a1", Stream: "stdout", Line: "one", Job: "backup", Replica: "r1", Time: now})
		v.Line(cluster.OutputLine{RunID: "b2", Stream: "stderr", Line: "two", Job: "load", Replica: "r2", Slot: 1, Time: now.Add(time.Second)})
		v.Line(cluster.OutputLine{RunID: "a1", Stream: "stdout", Line: "three", Job: "backup", Replica: "r1"})
		v.Note("b2", "… 12 kB left out …")
		v.Note("other", "gone")
		return stdout.String(), stderr.String()
	}
	for name, tc := range map[string]struct {
		viewer   func(Logs) cluster.Viewer
		out, err string
	}{
		"of several jobs": {func(l Logs) cluster.Viewer { return l.Prefixed(true) }, "12:00:00 r1 backup | one\n--:--:-- r1 backup | three\n",
			"==> run a1 of job backup on r1\n==> run b2 of job load on r2/1\n12:00:01 r2/1 load | two\n--:--:-- r2/1 load | … 12 kB left out …\ncronclave: run other: gone\n"},
		"of one job": {func(l Logs) cluster.Viewer { return l.Prefixed(false) }, "12:00:00 r1 | one\n--:--:-- r1   | three\n",
			"==> run a1 on r1\n==> run b2 on r2/1\n12:00:01 r2/1 | two\n--:--:-- r2/1 | … 12 kB left out …\ncronclave: run other: gone\n"},
		"plain": {Logs.Headed, "one\nthree\n", "==> run a1\n==> run b2\ntwo\n==> run a1\ncronclave: run b2: … 12 kB left out …\ncronclave: run other: gone\n"},
		"bare":  {Logs.Bare, "one\nthree\n", "two\ncronclave: run b2: … 12 kB left out …\ncronclave: run other: gone\n"},
	} {
		if out, err := show(tc.viewer); out != tc.out || err != tc.err {
			t.Errorf("%s:\n%s---\n%s", name, out, err)
		}
	}
}
