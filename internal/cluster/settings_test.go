package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// publish has replicas run a configuration with one job, as publishing replicas do.
func (c *cluster) publish(t *testing.T, config string, jobs map[string]journal.JobConfig, replicas ...string) {
	t.Helper()
	if jobs != nil {
		common := []journal.Setting{{Key: "schedule", Value: "–"}, {Key: "timeout", Value: `"24h"`}}
		err := c.journal.KeepConfiguration(t.Context(), journal.ConfigID{Digest: config, Version: "v1"}, time.Minute, func() journal.Configuration { return journal.Configuration{Common: common, Jobs: jobs} })
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range replicas {
		c.register(t, journal.Replica{Name: name, Version: "v1", ConfigDigest: config})
	}
}

func oneJob(digest, timeout string) map[string]journal.JobConfig {
	return map[string]journal.JobConfig{"backup": {Digest: digest, Own: map[string]string{"schedule": `"@daily"`, "timeout": timeout}}, "other": {Digest: "0"}}
}

// inShort is the settings in one line.
func inShort(s *JobSettings) string {
	var parts []string
	for _, f := range s.Forms {
		timeout, _ := f.Setting("timeout")
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", strings.Join(f.Replicas, "+"), f.State, timeout)))
	}
	return fmt.Sprintf("%s: %s; %v", s.Agreement, strings.Join(parts, ", "), s.Differing)
}

// TestSettingsOfReplicas compares the settings that replicas have published.
func TestSettingsOfReplicas(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		publish func(*cluster)
		want    string
	}{
		"one configuration": {func(c *cluster) { c.publish(t, "one", oneJob("a", `"1h"`), "r1", "r2") }, `agree: r1+r2 known "1h"; []`},
		"another job differs": {func(c *cluster) {
			c.publish(t, "one", oneJob("a", `"1h"`), "r1")
			jobs := oneJob("a", `"1h"`)
			jobs["other"] = journal.JobConfig{Digest: "1"}
			c.publish(t, "two", jobs, "r2")
		}, `agree: r1+r2 known "1h"; []`},
		"a key differs": {func(c *cluster) {
			c.publish(t, "one", oneJob("a", `"1h"`), "r2")
			c.publish(t, "two", oneJob("b", `"2h"`), "r1", "r3")
		}, `differ: r1+r3 known "2h", r2 known "1h"; [timeout]`},
		"one does not have it": {func(c *cluster) {
			c.publish(t, "one", oneJob("a", `"1h"`), "r1")
			c.publish(t, "two", map[string]journal.JobConfig{}, "r2")
		}, `differ: r1 known "1h", r2 absent; []`},
		"something that is not shown": {func(c *cluster) {
			c.publish(t, "one", oneJob("a", `"1h"`), "r1")
			c.publish(t, "two", oneJob("b", `"1h"`), "r2")
		}, `hidden: r1 known "1h", r2 known "1h"; []`},
		"an older version": {func(c *cluster) {
			c.publish(t, "one", oneJob("a", `"1h"`), "r1")
			c.publish(t, "two", nil, "r2")
		}, `unknown: r1 known "1h", r2 unknown; []`},
		"none known":  {func(c *cluster) { c.publish(t, "two", nil, "r2") }, `unknown: r2 unknown; []`},
		"no replica":  {func(*cluster) {}, `unknown: ; []`},
		"none has it": {func(c *cluster) { c.publish(t, "two", map[string]journal.JobConfig{}, "r2") }, `absent: r2 absent; []`},
		"an older version of the same configuration": {func(c *cluster) {
			c.publish(t, "one", oneJob("a", `"1h"`), "r1")
			c.register(t, journal.Replica{Name: "r0", Version: "v0", ConfigDigest: "one"})
		}, `agree: r0+r1 known "1h"; []`},
		"only an older version": {func(c *cluster) {
			c.publish(t, "one", oneJob("a", `"1h"`))
			c.register(t, journal.Replica{Name: "r0", Version: "v0", ConfigDigest: "one"})
		}, `unknown: r0 unknown; []`},
		"one and more": {func(c *cluster) { c.publish(t, "one", oneJob("a", `"1h"`), "r1"); c.publish(t, "two", nil, "r2", "r3") }, `unknown: r2+r3 unknown, r1 known "1h"; []`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
			tt.publish(c)
			if s := c.settings(t); inShort(s) != tt.want || s.Fault != "" {
				t.Errorf("%v, want %s", s, tt.want)
			}
		})
	}
}

// settings are those of the job that is compared.
func (c *cluster) settings(t *testing.T) *JobSettings {
	t.Helper()
	st, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{Job: "backup"})
	if err != nil {
		t.Fatal(err)
	}
	return st.Settings
}

// TestSettingsAreBounded: of many forms those of the most replicas are shown, and the others are counted. A job with one form in many configurations is
// the same everywhere.
func TestSettingsAreBounded(t *testing.T) {
	t.Parallel()
	c, same := newCluster(t), newCluster(t)
	for n := range maxForms + 3 {
		config, name := fmt.Sprintf("config%02d", n), fmt.Sprintf("r%02d", n)
		c.publish(t, config, oneJob(fmt.Sprint(n), fmt.Sprintf(`"%dh"`, n)), name)
		jobs := oneJob("a", `"1h"`)
		jobs["other"] = journal.JobConfig{Digest: fmt.Sprint(n)}
		same.publish(t, config, jobs, name)
	}
	c.publish(t, "usual", oneJob("usual", `"99h"`), "u1", "u2")
	for _, one := range []*cluster{c, same} {
		one.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
	}
	if s := c.settings(t); len(s.Forms) != maxForms || s.More != 4 || s.Forms[0].Digest != "usual" || !slices.Equal(s.Differing, []string{"timeout"}) {
		t.Errorf("%+v", s)
	}
	if s := same.settings(t); s.Agreement != SettingsAgree || len(s.Forms) != 1 || len(s.Forms[0].Replicas) != maxForms+3 {
		t.Errorf("%+v", s)
	}
}

// TestDamagedSettingsLeaveTheStatus: the status is shown, and has the fault.
func TestDamagedSettingsLeaveTheStatus(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"settings:one:v1", "digests:one"} {
		c := newCluster(t)
		c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
		c.publish(t, "one", oneJob("a", `"1h"`), "r1")
		key := "cronclave:default:" + kind
		if err := errors.Join(c.conn.Del(t.Context(), key).Err(), c.conn.LPush(t.Context(), key, "x").Err()); err != nil {
			t.Fatal(err)
		}
		if s := c.settings(t); inShort(s) != "unknown: r1 unknown; []" || !strings.Contains(s.Fault, kind) {
			t.Errorf("%s: %+v", kind, s)
		}
	}
}

// TestStatusOfOneJobHasItsSettings, and no other status has any.
func TestStatusOfOneJobHasItsSettings(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
	c.publish(t, "one", oneJob("a", `"1h"`), "r1")
	o := c.operator(t, Config{})
	st, err := o.Status(t.Context(), StatusRequest{Job: "backup"})
	if err != nil || st.Settings == nil || inShort(st.Settings) != `agree: r1 known "1h"; []` {
		t.Errorf("%+v, %v", st.Settings, err)
	}
	if st, err = o.Status(t.Context(), StatusRequest{}); err != nil || st.Settings != nil {
		t.Errorf("%+v, %v", st.Settings, err)
	}
}
