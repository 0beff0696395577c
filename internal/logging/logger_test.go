package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

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
