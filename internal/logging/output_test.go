package logging

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// entry is a line of a JSON log.
type entry map[string]any

// logged collects the entries of a JSON log.
func logged(t *testing.T, log func(hclog.Logger)) (entries []entry, size int) {
	t.Helper()
	var text bytes.Buffer
	log(Options{Level: hclog.Info, JSON: true}.newLogger(&text))
	size = text.Len()
	for line := range strings.Lines(text.String()) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		entries = append(entries, e)
	}
	return entries, size
}

func TestOutputIsLogged(t *testing.T) {
	entries, _ := logged(t, func(log hclog.Logger) {
		o := NewOutput(log.With("job", "backup"))
		o.Line("stdout", []byte("all is well"))
		o.Line("stderr", []byte("<nearly> \"well\""))
		o.End()
	})
	if len(entries) != 2 {
		t.Fatalf("%d lines: %v", len(entries), entries)
	}
	for i, want := range []struct{ text, stream string }{{"all is well", "stdout"}, {`<nearly> "well"`, "stderr"}} {
		if e := entries[i]; e["msg"] != want.text || e["stream"] != want.stream || e["job"] != "backup" || e["level"] != "info" {
			t.Errorf("line %d is %v, want %v", i, e, want)
		}
	}
}

// A run that prints 300 MB of NULs and a million lines at once gets the burst and no more than the rate into the log, and one line that counts the
// rest.
func TestOutputIsLimited(t *testing.T) {
	for _, tc := range []struct {
		name  string
		line  []byte
		count int
	}{
		{"NULs without a newline", make([]byte, 64<<10), 4800},
		{"empty lines", nil, 100_000},
		{"long lines", bytes.Repeat([]byte("x"), 64<<10), 1000},
		{"quotation marks", bytes.Repeat([]byte(`"`), 1000), 10_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const seconds = 4
				entries, size := logged(t, func(log hclog.Logger) {
					o := NewOutput(log)
					for range seconds {
						for range tc.count / seconds {
							o.Line("stdout", tc.line)
						}
						time.Sleep(time.Second)
					}
					o.End()
				})
				most := OutputBurst + seconds*(OutputRate+MaxOutputLine+lineCost)
				if size > 2*most { // some characters take two
					t.Errorf("%d bytes of log, want at most %d", size, most)
				}
				last := entries[len(entries)-1]
				dropped, _ := last["lines"].(float64)
				if last["msg"] != "output dropped from the log" || last["level"] != "warn" || int(dropped)+len(entries)-1 != tc.count {
					t.Errorf("%d of %d lines are there; the last is %v", len(entries)-1, tc.count, last)
				}
			})
		})
	}
}

// TestSteadyOutputIsAllLogged prints somewhat less than the rate, for so long that the burst alone would not do.
func TestSteadyOutputIsAllLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		entries, _ := logged(t, func(log hclog.Logger) {
			o := NewOutput(log)
			for range n {
				for range OutputRate/(100+lineCost) - 1 {
					o.Line("stdout", bytes.Repeat([]byte("x"), 100))
				}
				time.Sleep(time.Second)
			}
			o.End()
		})
		if last := entries[len(entries)-1]; last["level"] != "info" {
			t.Errorf("something was dropped: %v", last)
		}
	})
}

func TestPrintable(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"", ""},
		{"plain\ttext", "plain\ttext"},
		{"Größe: 3 µm, 日本", "Größe: 3 µm, 日本"},
		{"from Windows\r", "from Windows"},
		{"\x1b[1;31mred\x1b[0m and not", "red and not"},
		{"\x1b]0;a title\a", "\ufffd]0;a title\ufffd"},
		{"\x1b[2Jgone", "\ufffd[2Jgone"},
		{"a\x00\x00\x00b\xff\xfec", "a\ufffdb\ufffdc"},
		{"10%\r20%\r30%", "10%\ufffd20%\ufffd30%"},
		{"cut \xe6\x97", "cut \ufffd"},
		{"c1 \u009b31m", "c1 \ufffd31m"},
		{"\x1b[" + strings.Repeat("1;", 40) + "m", "\ufffd[" + strings.Repeat("1;", 40) + "m"},
		{"\x1b[", "\ufffd["},
	} {
		if got := Printable([]byte(tc.line)); got != tc.want {
			t.Errorf("%q is shown as %q, want %q", tc.line, got, tc.want)
		}
	}
}
