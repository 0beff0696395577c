package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/demo"
	"github.com/cronclave/cronclave/internal/testtier"
)

func startDemo(t *testing.T, args ...string) *program {
	t.Helper()
	return startProcess(t, []string{"CRONCLAVE_REDIS=redis://127.0.0.1:1/0", "CRONCLAVE_CLOCK_OFFSET=-7s"},
		append([]string{"cronclave", "demo"}, args...)...)
}

// lateMargin is the time within which a quiet machine starts a process. A tick of beat is missed if no replica claims it for 2s, four times as long.
const lateMargin = 500 * time.Millisecond

// TestDemoTranscript runs the demo that the README shows. It is not parallel, because each line is a process that starts in time, and the demo
// lasts as long as it needs on this machine. A missed tick is a fault unless the machine itself was late meanwhile.
func TestDemoTranscript(t *testing.T) {
	testtier.Slow(t)
	began := time.Now()
	startProcess(t, nil, "cronclave", "version").end(t, 0)
	slack := 20 * time.Since(began) // three replicas, and the jobs of ten ticks until one is killed
	slowestStart := measureStarts(t)
	d := startDemo(t, "--for", min(demo.Needs+time.Second+slack, 2*time.Minute).String())
	text := d.end(t, 0)
	d.nothingLeft(t)
	slowest := slowestStart()
	golden, err := os.ReadFile("testdata/demo.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range compareTranscript(string(golden), text, slowest > lateMargin) {
		t.Error(fault)
	}
	if sum := regexp.MustCompile(`(\d+) ticks due  (\d+) settled`).FindStringSubmatch(text); len(sum) != 3 || sum[1] != sum[2] {
		t.Errorf("not all that was due is settled: %v", sum)
	}
	if t.Failed() {
		t.Logf("the slowest start of a process took %v\n%s%s", slowest, text, &d.stderr)
	}
}

// measureStarts starts a process five times a second until the returned function is called, which returns the longest time that one took.
func measureStarts(t *testing.T) (slowest func() time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	longest := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				longest <- most
				return
			case due := <-tick.C:
				if err := exec.Command("/bin/sh", "-c", ":").Run(); err != nil {
					t.Errorf("start a process: %v", err)
				}
				most = max(most, time.Since(due))
			}
		}
	}()
	slowest = sync.OnceValue(func() time.Duration {
		stop()
		return <-longest
	})
	t.Cleanup(func() { slowest() })
	return slowest
}

// compareTranscript compares the output of a demo with a masked transcript: see testdata/demo.golden.
func compareTranscript(golden, text string, late bool) (faults []string) {
	var order, optional []string
	missing := map[string]bool{}
	for line := range strings.Lines(golden) {
		switch kind, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); kind {
		case "=":
			order = append(order, want)
		case "+":
			missing[want] = true
			optional = append(optional, want)
		case "?":
			optional = append(optional, want)
		case "~":
			if late {
				optional = append(optional, want)
			}
		}
	}
	for line := range strings.Lines(text) {
		got := mask(strings.TrimSuffix(line, "\n"))
		delete(missing, got)
		switch {
		case len(order) > 0 && got == order[0]:
			order = order[1:]
		case !allowed(optional, got):
			faults = append(faults, "unexpected, or out of order: "+line)
		}
	}
	for _, line := range order {
		faults = append(faults, "not there, or out of order: "+line)
	}
	for line := range missing {
		faults = append(faults, "not there: "+line)
	}
	return faults
}

func allowed(lines []string, got string) bool {
	for _, line := range lines {
		prefix, open := strings.CutSuffix(line, "...")
		if got == line || open && strings.HasPrefix(got, prefix) {
			return true
		}
	}
	return false
}

// mask replaces the parts of a line that differ each time.
func mask(line string) string {
	for _, m := range []struct{ pattern, mask string }{
		{`\d\d:\d\d:\d\d`, "HH:MM:SS"},
		{`\d{16}`, "TTTTTTTTTTTTTTTT"},
		{`pid \d+`, "pid N"},
		{`\br[123]\b`, "rN"},
		{`ok  [0-9.]+[mµ]?s$`, "ok  D"},
		{`take-over [0-9.]+s`, "take-over D"},
		{`\d+ ticks due  \d+ settled`, "N ticks due  N settled"},
		{`rN \d+`, "rN N"},
	} {
		line = regexp.MustCompile(m.pattern).ReplaceAllString(line, m.mask)
	}
	return line
}

func TestTranscriptFaultsAreSeen(t *testing.T) {
	const golden = "# a remark\n= TIME\n+ ok  D\n= kill -9 rN\n? skipped...\n~ missed overload\n= N ticks due  N settled  0 doubled\n"
	const good = "TIME\nok  12ms\nskipped overlap\nkill -9 r2\nok  1.5s\n7 ticks due  7 settled  0 doubled\n"
	if faults := compareTranscript(golden, good, false); faults != nil {
		t.Errorf("of a good one: %q", faults)
	}
	missed := strings.Replace(good, "kill -9 r2\n", "missed overload\nkill -9 r2\n", 1)
	if faults := compareTranscript(golden, missed, true); faults != nil {
		t.Errorf("of a good one on a machine that was late: %q", faults)
	}
	for name, text := range map[string]string{
		"a line is missing":        strings.Replace(good, "kill -9 r2\n", "", 1),
		"a line is there twice":    strings.Replace(good, "kill -9 r2\n", "kill -9 r2\nkill -9 r3\n", 1),
		"the order is wrong":       strings.Replace(strings.Replace(good, "TIME", "kill -9 r1", 1), "kill -9 r2", "TIME", 1),
		"a line that nobody knows": good + "panic\n",
		"no ok line":               strings.ReplaceAll(strings.ReplaceAll(good, "ok  12ms\n", ""), "ok  1.5s\n", ""),
		"a tick is missed in time": missed,
		"something doubled":        strings.Replace(good, "0 doubled", "1 doubled", 1),
	} {
		if faults := compareTranscript(golden, text, false); faults == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

// TestDemoEnds shows the ways in which a demo may end before its time. They follow one another: each is three replicas.
func TestDemoEnds(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	t.Run("with a summary at Ctrl-C", func(t *testing.T) {
		d := startDemo(t)
		d.read(t, "beat .* ok  ")
		d.signal(t, syscall.SIGINT)
		text := d.end(t, 0)
		if !regexp.MustCompile(`3 jobs  \d+ ticks? due  \d+ settled  0 doubled  0 early    r`).MatchString(text) ||
			!strings.Contains(text, "no replica was killed: it ended before") {
			t.Errorf("no summary:\n%s", text)
		}
		d.nothingLeft(t)
	})
	t.Run("with its replicas when it is killed", func(t *testing.T) {
		d := startDemo(t)
		d.read(t, "beat .* ok  ")
		if len(d.processes(t)) < 1+3 {
			t.Fatal("it has no replicas, so this test shows nothing")
		}
		if err := d.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = d.Wait()
		d.awaitNone(t)
	})
	t.Run("badly when a replica ends by itself", func(t *testing.T) {
		d := startDemo(t)
		d.read(t, "beat .* ok  ")
		killChild(t, d.Process.Pid)
		d.read(t, "-- .* has ended by itself: signal: killed")
		d.signal(t, syscall.SIGTERM)
		if text := d.end(t, 1); !strings.Contains(text, "1 replica ended by itself") {
			t.Errorf("not told:\n%s", text)
		}
		d.nothingLeft(t)
	})
}

// TestDemoOfAFile runs a file whose Redis is somewhere else, and whose job leaves a process behind that no replica lives to end.
func TestDemoOfAFile(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	dir := t.TempDir()
	file, truth := filepath.Join(dir, "jobs.toml"), filepath.Join(dir, "runs")
	const text = `
[redis]
url           = "rediss://10.255.255.1:6379/3"
password_file = "/nowhere/password"
tls           = { ca_file = "/nowhere/ca.pem" }
[defaults]
lease = "1s"
[jobs.tick]
schedule = "* * * * * *"
command  = 'echo started; echo "$CRONCLAVE_TICK" >> "$RUNS"'
env      = { RUNS = "RUNS_FILE" }
[jobs.long]
schedule = "*/2 * * * * *"
command  = ["sleep", "600"]
timeout  = "1500ms"
`
	if err := os.WriteFile(file, []byte(strings.Replace(text, "RUNS_FILE", truth, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDemo(t, file, "--yes", "--for", "12s")
	out := d.end(t, 0)
	for _, want := range []string{
		`tick +\S+ +r[123] +0 +\d{16}  ok  `,
		`long +\S+ +r[123] +0 +\d{16}  timeout  `,
		`-- +kill -9 r[123] \(pid \d+\), which runs `,
		`2 jobs  \d+ ticks due  \d+ settled  0 doubled  0 early    r1 \d+  r2 \d+  r3 \d+`,
		`tokens grew with every grant    `,
		`counted from the replicas' logs and the history`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no line with %s", want)
		}
	}
	if strings.Contains(out, " started\n") {
		t.Error("what a job prints is taken for what a replica says")
	}
	ran, err := os.ReadFile(truth)
	if err != nil || len(ran) == 0 {
		t.Errorf("what really ran: %q, %v", ran, err)
	}
	d.nothingLeft(t)
	if t.Failed() {
		t.Logf("%s%s", out, &d.stderr)
	}
}
