package importer

import (
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
)

// A detail is an input, and what its result must have and must not have.
type detail struct {
	o         Options
	name      string // of the file; "" is the standard input
	text      string
	want, not string
}

// checkDetails imports each input, whose result must pass check, too.
func checkDetails(t *testing.T, details map[string]detail) {
	t.Helper()
	for name, d := range details {
		if d.name == "" {
			d.name = stdin
		}
		r, err := Convert([]File{{d.name, d.text}}, d.o)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.Text, d.want) || d.not != "" && strings.Contains(r.Text, d.not) {
			t.Errorf("%s: want %q and not %q in\n%s", name, d.want, d.not, r.Text)
		}
		if _, err := config.Parse("import", r.Text, config.Options{}); err != nil {
			t.Errorf("%s: %v in\n%s", name, err, r.Text)
		}
	}
}

// notCarried is in the result for one entry that is refused.
const notCarried = "# Carried: 0. Not carried: 1"
