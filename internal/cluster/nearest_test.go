package cluster

import "testing"

func TestNearestName(t *testing.T) {
	t.Parallel()
	names := []string{"backup", "nightly-backup", "report", "b"}
	for typed, want := range map[string]string{
		"bakcup": "backup", "Backup": "backup", "nightly": "nightly-backup", "nihgtly-backup": "nightly-backup",
		"reprot": "report", "re": "report", "x": "b", "vacuum": "", "c2": "", "nosuch": "",
	} {
		if got := Nearest(typed, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", typed, got, want)
		}
	}
	if got := Nearest("x", nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}
