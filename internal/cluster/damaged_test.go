package cluster

import (
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/journal"
)

// A lock whose key is of another type, or has a field that no client writes, is a warning of its job. The status of all others stays.
func TestDamagedLockIsAWarningOfItsJob(t *testing.T) {
	t.Parallel()
	for damage, command := range map[string][]any{
		"another type": {"SET", "cronclave:default:{bad}:job", "garbage"},
		"a bad field":  {"HSET", "cronclave:default:{bad}:job", "low", "garbage"},
	} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.describe(t, journal.JobInfo{Name: "bad", Enabled: true}, journal.JobInfo{Name: "good", Enabled: true})
			if err := c.conn.Do(t.Context(), command...).Err(); err != nil {
				t.Fatal(err)
			}
			st, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if len(st.Jobs) != 2 {
				t.Errorf("jobs: %+v", st.Jobs)
			}
			var damaged []string
			for _, w := range st.Warnings {
				if w.Code == "corrupt_data" {
					damaged = append(damaged, w.Message)
				}
			}
			if len(damaged) != 1 || !strings.HasPrefix(damaged[0], "job bad: ") || !strings.Contains(damaged[0], "cronclave:default:{bad}:job") || !strings.Contains(damaged[0], "redis-cli DEL") {
				t.Errorf("warnings: %q", damaged)
			}
		})
	}
}
