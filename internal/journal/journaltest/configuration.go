package journaltest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

func configID(digest string) journal.ConfigID { return journal.ConfigID{Digest: digest, Version: "v1"} }

func (s *suite) keep(j *journal.Journal, digest string, c journal.Configuration, ttl time.Duration) {
	s.Helper()
	must(s, j.KeepConfiguration(s.ctx, configID(digest), ttl, func() journal.Configuration { return c }))
}

func (s *suite) settingsKey(digest string) string {
	return "cronclave:" + s.namespace + ":settings:" + digest + ":v1"
}

func common() []journal.Setting {
	return []journal.Setting{{Key: "schedule", Value: "–"}, {Key: "timeout", Value: `"24h"`}, {Key: "retry.max", Value: "–"}}
}

// settings returns the settings of a job in the configurations. It fails if data is damaged.
func (s *suite) settings(j *journal.Journal, job string, digests ...string) map[string][]journal.Setting {
	s.Helper()
	var ids []journal.ConfigID
	for _, digest := range digests {
		ids = append(ids, configID(digest))
	}
	found, err := j.Settings(s.ctx, job, ids)
	must(s, err)
	settings := map[string][]journal.Setting{}
	for id, of := range found {
		settings[id.Digest] = of
	}
	return settings
}

// configurations checks that replicas share one copy of a configuration, which expires with the last of them.
func configurations(s *suite) {
	j := s.journal(journal.Config{})
	one := journal.Configuration{Common: common(), Jobs: map[string]journal.JobConfig{
		"a": {Digest: "1", Own: map[string]string{"schedule": `"<@daily>"`, "retry.max": "3"}}, "b": {Digest: "2"},
	}}
	other := journal.Configuration{Common: common(), Jobs: map[string]journal.JobConfig{"a": {Digest: "1b"}}}
	s.keep(j, "one", one, hour)
	for _, key := range []string{"cronclave:" + s.namespace + ":digests:one", s.settingsKey("one")} {
		if ttl, err := s.client.PTTL(s.ctx, key).Result(); err != nil || ttl <= 0 {
			s.Errorf("%s stays for ever: %v, %v", key, ttl, err)
		}
	}
	must(s, j.KeepConfiguration(s.ctx, configID("one"), hour, func() journal.Configuration {
		s.Error("it is written again")
		return other
	}))
	s.keep(j, "other", other, hour)
	digests, err := j.Digests(s.ctx, []string{"one", "none", "other"})
	if want := map[string]map[string]string{"one": {"a": "1", "b": "2"}, "other": {"a": "1b"}}; err != nil || !reflect.DeepEqual(digests, want) {
		s.Errorf("%v, %v", digests, err)
	}
	set := common()
	set[0].Value, set[2].Value = `"<@daily>"`, "3"
	if got, want := s.settings(j, "a", "one", "none", "other"), map[string][]journal.Setting{"one": set, "other": common()}; !reflect.DeepEqual(got, want) {
		s.Errorf("%v, want %v", got, want)
	}
	if got, want := s.settings(j, "b", "one", "other"), map[string][]journal.Setting{"one": common()}; !reflect.DeepEqual(got, want) {
		s.Errorf("%v, want %v", got, want)
	}
	if text, err := s.client.HGet(s.ctx, s.settingsKey("one"), "a").Result(); err != nil || text != `{"retry.max":"3","schedule":"\"<@daily>\""}` {
		s.Errorf("%s, %v", text, err)
	}
	s.keep(j, "one", one, 50*time.Millisecond)
	s.eventually("configurations end with those that have them", func() bool {
		digests, err := j.Digests(s.ctx, []string{"one", "other"})
		return err == nil && len(digests) == 1 && len(s.settings(j, "a", "one", "other")) == 1
	})
}

// configurationsOfVersions checks that versions do not replace each other's settings. A newer version may have other keys.
func configurationsOfVersions(s *suite) {
	j := s.journal(journal.Config{})
	older, newer := journal.ConfigID{Digest: "one", Version: "v1"}, journal.ConfigID{Digest: "one", Version: "v2"}
	for id, value := range map[journal.ConfigID]string{older: "x", newer: "y"} {
		must(s, j.KeepConfiguration(s.ctx, id, hour, func() journal.Configuration {
			return journal.Configuration{Common: []journal.Setting{{Key: "schedule", Value: value}}, Jobs: map[string]journal.JobConfig{"a": {Digest: "1"}}}
		}))
	}
	found, err := j.Settings(s.ctx, "a", []journal.ConfigID{older, newer, {Digest: "one"}})
	if want := map[journal.ConfigID][]journal.Setting{older: {{Key: "schedule", Value: "x"}}, newer: {{Key: "schedule", Value: "y"}}}; err != nil || !reflect.DeepEqual(found, want) {
		s.Errorf("%v, %v", found, err)
	}
}

// longConfigurations checks configurations that take several round trips. A hash with too few or too many jobs is rewritten. Jobs beyond the limit are left out.
func longConfigurations(s *suite) {
	j := s.journal(journal.Config{})
	c := journal.Configuration{Common: common(), Jobs: map[string]journal.JobConfig{}}
	for n := range 1234 {
		c.Jobs[fmt.Sprintf("job-%04d", n)] = journal.JobConfig{Digest: "d", Own: map[string]string{"schedule": strings.Repeat("x", n)}}
	}
	s.keep(j, "long", c, hour)
	key := s.settingsKey("long")
	for what, damage := range map[string]func() error{
		"a hole":        func() error { return s.client.HDel(s.ctx, key, "job-0700").Err() },
		"a foreign job": func() error { return s.client.HSet(s.ctx, key, "foreign", "{}").Err() },
		"no header":     func() error { return s.client.HDel(s.ctx, key, "*").Err() },
	} {
		must(s, damage())
		if got := s.settings(j, "job-0700", "long"); what != "a foreign job" && len(got) > 0 {
			s.Errorf("%s: a part is taken for the whole: %v", what, got)
		}
		s.keep(j, "long", c, hour)
		if got := s.settings(j, "job-0700", "long")["long"]; len(got) != 3 || len(got[0].Value) != 700 || len(s.settings(j, "foreign", "long")) > 0 {
			s.Errorf("after %s: %.200v", what, got)
		}
	}
	if ttl, err := s.client.PTTL(s.ctx, key).Result(); err != nil || ttl <= 0 {
		s.Errorf("it stays for ever: %v, %v", ttl, err)
	}
	for n := range 3500 {
		c.Jobs[fmt.Sprintf("job-%04d", n)] = journal.JobConfig{Digest: "d", Own: map[string]string{"schedule": strings.Repeat("x", 1500)}}
	}
	s.keep(j, "huge", c, hour)
	must(s, j.KeepConfiguration(s.ctx, configID("huge"), hour, func() journal.Configuration {
		s.Error("it is written again")
		return c
	}))
	if len(s.settings(j, "job-2000", "huge")) != 1 || len(s.settings(j, "job-3499", "huge")) != 0 {
		s.Errorf("%d fields of it are kept", s.client.HLen(s.ctx, s.settingsKey("huge")).Val())
	}
}

// configurationsHaveOneWriter checks that one replica writes settings at a time. The others return no error, and write if it dies.
func configurationsHaveOneWriter(s *suite) {
	j := s.journal(journal.Config{})
	c := journal.Configuration{Common: common(), Jobs: map[string]journal.JobConfig{"a": {Digest: "1"}, "b": {Digest: "2"}}}
	mark := s.settingsKey("one") + ":writer"
	s.keep(j, "one", c, hour)
	if n, err := s.client.Exists(s.ctx, mark).Result(); n != 0 || err != nil {
		s.Errorf("the mark is left: %v", err)
	}
	must(s, s.client.HDel(s.ctx, s.settingsKey("one"), "*").Err())
	must(s, s.client.Set(s.ctx, mark, "", hour).Err())
	must(s, j.KeepConfiguration(s.ctx, configID("one"), hour, func() journal.Configuration {
		s.Error("two write at the same time")
		return c
	}))
	if fields, err := s.client.HLen(s.ctx, s.settingsKey("one")).Result(); err != nil || fields != 2 {
		s.Errorf("%d fields are left of what the other has written, %v", fields, err)
	}
	must(s, s.client.PExpire(s.ctx, mark, 50*time.Millisecond).Err())
	s.eventually("another replica writes the settings", func() bool {
		s.keep(j, "one", c, hour)
		return len(s.settings(j, "a", "one")) == 1
	})
}

// damagedConfigurations checks that each damaged configuration is reported and rewritten.
func damagedConfigurations(s *suite) {
	j := s.journal(journal.Config{})
	good := journal.Configuration{Common: common(), Jobs: map[string]journal.JobConfig{"a": {Digest: "1"}}}
	s.keep(j, "good", good, hour)
	prefix, both := "cronclave:"+s.namespace+":", []journal.ConfigID{configID("bad"), configID("good")}
	const fine = `{"jobs":1,"settings":[{"key":"schedule","value":"x"}]}`
	must(s, s.client.Set(s.ctx, prefix+"digests:bad", "not json", 0).Err())
	if got, err := j.Digests(s.ctx, []string{"bad", "good"}); !errors.Is(err, journal.ErrCorrupt) || len(got) != 1 {
		s.Errorf("beside foreign digests: %v, %v", got, err)
	}
	for _, bad := range [][2]string{
		{"not json", `{}`}, {fine, "not json"}, {fine, `{"unknown":"x"}`}, {`[]`, `{}`},
		{`{"settings":[{"key":"a","value":""},{"key":"a","value":""}]}`, `{}`}, {`{"settings":[{"key":"a\u001b","value":""}]}`, `{}`},
		{fine, `{"schedule":"` + strings.Repeat("x", 5000) + `"}`}, {`{"settings":[` + strings.Repeat(`{"key":"a","value":""},`, 300) + `{"key":"a","value":""}]}`, `{}`},
	} {
		must(s, s.client.HSet(s.ctx, s.settingsKey("bad"), "*", bad[0], "a", bad[1]).Err())
		if got, err := j.Settings(s.ctx, "a", both); !errors.Is(err, journal.ErrCorrupt) || len(got) != 1 || len(err.Error()) > 500 {
			s.Errorf("%.100q: %v, %v", bad, got, err)
		}
	}
	s.repairs(j, good, "a header that is none", func() error { return s.client.HSet(s.ctx, s.settingsKey("good"), "*", "junk").Err() })
	s.repairs(j, good, "another type", func() error {
		var faults []error
		for _, key := range []string{s.settingsKey("good"), prefix + "digests:good"} { // in a Cluster they lie on different shards
			faults = append(faults, s.client.Del(s.ctx, key).Err(), s.client.LPush(s.ctx, key, "x").Err())
		}
		return errors.Join(faults...)
	})
	if _, err := j.Settings(s.ctx, "a}b", both); !errors.Is(err, journal.ErrInvalid) {
		s.Errorf("a name that is none: %v", err)
	}
}

// repairs checks that a replica reports the damage to a configuration and rewrites it.
func (s *suite) repairs(j *journal.Journal, good journal.Configuration, what string, damage func() error) {
	s.Helper()
	must(s, damage())
	if err := j.KeepConfiguration(s.ctx, configID("good"), hour, func() journal.Configuration { return good }); !errors.Is(err, journal.ErrCorrupt) {
		s.Errorf("%s: %v", what, err)
	}
	s.keep(j, "good", good, hour)
	digests, err := j.Digests(s.ctx, []string{"good"})
	if got := s.settings(j, "a", "good")["good"]; err != nil || digests["good"]["a"] != "1" || !reflect.DeepEqual(got, common()) {
		s.Errorf("after %s: %v, %v, %v", what, got, digests, err)
	}
}
