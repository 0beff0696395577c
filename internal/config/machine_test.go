package config

import (
	"reflect"
	"testing"
)

// TestWhatAJobAsksOfItsMachine: of limits a job's own are put on top of those of [defaults], and its `where` takes their place.
func TestWhatAJobAsksOfItsMachine(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, `
replica.labels = { zone = "${ZONE}", disk = "ssd" }
[defaults]
schedule = "@daily"
command = "true"
nice = 10
limits = { memory = "1GiB", pids = 200 }
where = { zone = "a" }
[jobs.a]
[jobs.b]
nice = -5
limits = { pids = 4194304 }
where = { disk = "ssd", rack = "7" }
[jobs.c]
nice = 0
limits = { memory = "1MiB" }
where = {}
`, Options{Env: environment("ZONE=b")})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"zone": "b", "disk": "ssd"}; !reflect.DeepEqual(c.Replica.Labels, want) {
		t.Errorf("labels %v, want %v", c.Replica.Labels, want)
	}
	for i, want := range []struct {
		nice   int
		limits Limits
		where  map[string]string
	}{
		{10, Limits{1 << 30, 200}, map[string]string{"zone": "a"}},
		{-5, Limits{1 << 30, 4 << 20}, map[string]string{"disk": "ssd", "rack": "7"}},
		{0, Limits{1 << 20, 200}, map[string]string{}},
	} {
		j := c.Jobs[i]
		if j.Nice == nil || *j.Nice != want.nice || j.Limits != want.limits || !reflect.DeepEqual(j.Where, want.where) {
			t.Errorf("%s: nice %v, limits %v, where %v; want %+v", j.Name, j.Nice, j.Limits, j.Where, want)
		}
	}
	if c, err = loadConfig(t, "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\n", Options{}); err != nil {
		t.Fatal(err)
	}
	// A replica of the version before there were these keys must not seem to have another configuration.
	if j := c.Jobs[0]; j.Nice != nil || j.Limits != (Limits{}) || j.Where != nil || j.Digest != "b007810ad6ecf9fb" {
		t.Errorf("what is not set: %+v", j)
	}
}
