package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/testtier"
)

// TestCalendarEvents compares the instants of calendar expressions with what systemd said: see testdata/systemd/record.sh.
func TestCalendarEvents(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	recorded, err := os.ReadFile("testdata/systemd/recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	compareEvents(t, string(recorded))
}

// lostThere has expressions that lose instants in systemd 252: if a step does not divide its field evenly, the first value of the next month (0/7:00) or year
// (01/14) is skipped. The imported job also runs at these instants.
var lostThere = map[string]bool{"*-*-01/14": true, "*-*-* 0/7:00": true}

func compareEvents(t *testing.T, recorded string) {
	t.Helper()
	compared := 0
	for line := range strings.Lines(recorded) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		text := "# /x/j.timer\n[Timer]\nOnCalendar=" + words[2] + "\n# /x/j.service\n[Service]\nExecStart=/bin/true\n"
		r, err := Convert([]File{{"stdin", text}}, Options{Source: "systemd", Timezone: "UTC"})
		if err != nil {
			t.Fatal(err)
		}
		if words[0] == "invalid" {
			if r.Carried != 0 {
				t.Errorf("%q is carried, although systemd refuses it:\n%s", words[2], r.Text)
			}
			continue
		}
		if r.Carried != 1 {
			t.Errorf("%q is not carried:\n%s", words[2], r.Text)
			continue
		}
		if got := digestOfTicks(t, r.Text); got != words[0]+" "+words[1] && !lostThere[words[2]] {
			t.Errorf("%q: %s, and systemd has %s %s:\n%s", words[2], got, words[0], words[1], r.Text)
		}
		compared++
	}
	if compared < 35 {
		t.Errorf("only %d expressions compared", compared)
	}
}

// digestOfTicks returns the number and the digest of the next ticks, as record.sh does.
func digestOfTicks(t *testing.T, text string) string {
	t.Helper()
	cfg, err := config.Parse("import", text, config.Options{})
	if err != nil || len(cfg.Warnings) > 0 {
		t.Fatal(err, cfg.Warnings, text)
	}
	h := sha256.New()
	n, at := 0, time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	for n < 1000 {
		if at = cfg.Jobs[0].Spec.Next(at); at.IsZero() || at.Year() > 2098 {
			break
		}
		fmt.Fprintln(h, at.Unix())
		n++
	}
	return fmt.Sprintf("%d %s", n, hex.EncodeToString(h.Sum(nil))[:16])
}
