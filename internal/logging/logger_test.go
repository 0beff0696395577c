package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/internal/testtier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJSONHasTheKeysThatUsersKnow also with values that look like keys.
func TestJSONHasTheKeysThatUsersKnow(t *testing.T) {
	var text bytes.Buffer
	log, w := New(&text, Options{Level: hclog.Info, JSON: true})
	const odd = `,"@timestamp":"x","@message":,"@module":{"@level":`
	log.Named("exec").With("replica", "r1").Warn(odd, "error", errors.New(odd), "tick", odd)
	log.Debug("not logged")
	if !closeWithin(t, w, time.Minute) {
		t.Fatal("not all was written")
	}
	var line map[string]any
	if err := json.Unmarshal(text.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, &text)
	}
	at, _ := line["time"].(string)
	if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
		t.Error(err)
	}
	delete(line, "time")
	want := map[string]any{"level": "warn", "msg": odd, "module": "exec", "replica": "r1", "error": odd, "tick": odd}
	for key, value := range want {
		if line[key] != value {
			t.Errorf("%s is %v, want %v", key, line[key], value)
		}
	}
	if len(line) != len(want) {
		t.Errorf("more keys than wanted: %v", line)
	}
}

func TestTextHasTheDate(t *testing.T) {
	var text bytes.Buffer
	log, w := New(&text, Options{Level: hclog.Info})
	log.Info("started", "job", "backup")
	closeWithin(t, w, time.Minute)
	today := time.Now().Format(time.DateOnly)
	if !regexp.MustCompile(`^` + today + `T\d\d:\d\d:\d\d\.\d\d\d(Z|[+-]\d\d:\d\d) \[INFO\]  started: job=backup\n$`).MatchString(text.String()) {
		t.Errorf("the line is %q", &text)
	}
}

// TestDroppedLinesAreCountedAtAnyLevel and as the rest of the log.
func TestDroppedLinesAreCountedAtAnyLevel(t *testing.T) {
	out := &reader{stopped: make(chan struct{})}
	log, w := New(out, Options{Level: hclog.Error, JSON: true})
	for w.Dropped() == 0 {
		log.Error(strings.Repeat("x", 1000))
	}
	out.goOn()
	if !closeWithin(t, w, time.Minute) {
		t.Fatal("not all was written")
	}
	lines := out.lines()
	var last map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last["msg"] != "log lines dropped" || last["lines"] != 1.0 || last["level"] != "warn" {
		t.Errorf("%v: the last line is %s", err, lines[len(lines)-1])
	}
}

// TestJSONLinesFitContainerRuntimes logs output, and errors, of characters that JSON writes with one to six bytes: each line stays below 16 KiB, and is cut between
// characters.
func TestJSONLinesFitContainerRuntimes(t *testing.T) {
	testtier.Slow(t)
	for name, text := range map[string]string{
		"ASCII": "x", "umlauts": "ä", "four bytes": "😀", "quotation marks": `"`, "tabs": "\t", "separators": "\u2028", "replacement": "\ufffd", "control": "\x01y", "bytes": "\xffy",
		"HTML": "<&>", "backslashes": `\`,
	} {
		for _, shift := range []string{"", "a", "ab", "abc"} {
			long := shift + strings.Repeat(text, 64<<10)
			entries, size := logged(t, func(log hclog.Logger) {
				o := NewOutput(log.Named("replica").With("job", strings.Repeat("j", 128), "run_id", strings.Repeat("r", 200), "token", 1, "tick", "2026-11-27T00:00:00Z"))
				o.Line("stdout", []byte(long))
			})
			if name != "replacement" { // a row of these becomes one character
				fits(t, name+", output", entries, size)
			}
			entries, size = logged(t, func(log hclog.Logger) { log.Warn("failed", "error", long, "stack", long) })
			fits(t, name+", error", entries, size)
			if last := entries[0]["error"].(string); !strings.HasSuffix(last, "…") {
				t.Errorf("%s: the cut is not shown", name)
			}
		}
	}
}

// fits demands one line that is shorter than 16 KiB, not by much, and whole characters.
func fits(t *testing.T, name string, entries []entry, size int) {
	t.Helper()
	if len(entries) != 1 || size >= 16<<10 || size < 4<<10 {
		t.Errorf("%s: %d lines of %d bytes", name, len(entries), size)
	}
	for _, e := range entries {
		for key, value := range e {
			text, _ := value.(string)
			if !utf8.ValidString(text) || strings.Contains(text, "\ufffd") && !strings.Contains(name, "replacement") && !strings.Contains(name, "control") && !strings.Contains(name, "bytes") {
				t.Errorf("%s: %s is cut within a character", name, key)
			}
		}
	}
}

// TestFittingIsWhatJSONTakes compares with the encoder.
func TestFittingIsWhatJSONTakes(t *testing.T) {
	const text = "a\"\\\t\n\r\x00\x1f\x7fä€😀\u2028\u2029\ufffd<&>"
	for most := range 80 {
		n := fittingLength(text, most)
		encoded, err := json.Marshal(text[:n])
		if err != nil || !utf8.ValidString(text[:n]) {
			t.Fatal(err)
		}
		if got := len(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(encoded))) - 2; got > most {
			t.Errorf("%d bytes are to fit, and %q takes %d", most, text[:n], got)
		}
	}
}

func TestRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Rarely
		for i, want := range []int64{1, 0, 0} {
			if n, due := r.Due(); n != want || due != (want > 0) {
				t.Errorf("event %d: %d, %t", i, n, due)
			}
		}
		time.Sleep(time.Minute) // fake time
		if n, due := r.Due(); n != 3 || !due {
			t.Errorf("a minute later: %d, %t", n, due)
		}
	})
}

// TestRarelyWhenTheClockIsSetBack: the last line in the log has an instant with a monotonic reading, by which [time.Since] goes: a clock that is set back
// changes nothing. A bubble has no such readings.
func TestRarelyWhenTheClockIsSetBack(t *testing.T) {
	var r Rarely
	r.Due()
	if instant := r.logged.String(); !strings.Contains(instant, " m=") {
		t.Errorf("%s goes by the wall clock alone", instant)
	}
}
