package journal

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestLeaseMargins checks that a margin is low by its fraction of the lease, whatever the length of the lease.
func TestLeaseMargins(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		margin LeaseMargin
		text   string
		low    bool
	}{
		{LeaseMargin{"", 19_700, 30_000}, "19.7s of 30s", false},
		{LeaseMargin{"", 15_000, 30_000}, "15.0s of 30s", false},
		{LeaseMargin{"", 14_999, 30_000}, "15.0s of 30s", true},
		{LeaseMargin{"", 0, 1500}, "0.0s of 1.5s", true},
		{LeaseMargin{"", 86_400_000, 86_400_000}, "86400.0s of 86400s", false},
	} {
		if tc.margin.String() != tc.text || tc.margin.Low() != tc.low {
			t.Errorf("%v is low: %v; want %s, %v", tc.margin, tc.margin.Low(), tc.text, tc.low)
		}
	}
	if short, long := (LeaseMargin{"", 700, 1000}), (LeaseMargin{"", 15_000, 30_000}); short.Below(long) || !long.Below(short) || long.Below(long) {
		t.Error("a short lease with a greater part left is closer to its end")
	}
}

// TestImpossibleLoadIsDamage checks that foreign values are reported as damage and not shown.
func TestImpossibleLoadIsDamage(t *testing.T) {
	t.Parallel()
	for text, damaged := range map[string]bool{
		`"running":3`: false,
		`"running":3,"max_running":8,"lease_margin":{"left_ms":20000,"lease_ms":30000}`: false,
		`"running":3,"max_running":-1`:                                                      true,
		`"running":3,"max_running":1000001`:                                                 true,
		`"lease_margin":{"left_ms":-1,"lease_ms":30000}`:                                    true,
		`"lease_margin":{"left_ms":30001,"lease_ms":30000}`:                                 true,
		`"lease_margin":{"left_ms":0,"lease_ms":0}`:                                         true,
		`"lease_margin":{"of":"job a","left_ms":0,"lease_ms":9}`:                            false,
		`"lease_margin":{"of":"` + strings.Repeat("x", 301) + `","left_ms":0,"lease_ms":9}`: true,
		`"lease_margin":{"left_ms":0,"lease_ms":864000000000}`:                              true,
	} {
		var r Replica
		if err := decodeEntry(`{"id":"a",`+text+`}`, &r, &r.ID, "a"); errors.Is(err, ErrCorrupt) != damaged {
			t.Errorf("%s: %v", text, err)
		}
	}
	old, err := json.Marshal(Replica{ID: "a", Seen: time.Unix(0, 0)})
	var r Replica
	if err != nil || decodeEntry(string(old), &r, &r.ID, "a") != nil || r.LeaseMargin != nil || r.MaxRunning != 0 {
		t.Errorf("%s: %+v, %v", old, r, err)
	}
}

// FuzzDecode decodes foreign data. The decoders must return a valid value or ErrCorrupt, and a valid record can be written again.
func FuzzDecode(f *testing.F) {
	f.Add(`{"run_id":"1","job":"a","outcome":"ok","tick":"2026-03-01T03:00:00Z","slot":0,"exit_code":3,"newer":{"x":[1]}}`)
	f.Add(`{"id":"1","name":"n","seen":"2026-03-01T03:00:00Z"}`)
	f.Add(`{"name":"a","schedule":["* * * * *"],"parallel":-1}`)
	f.Add(`{"run_id":"1","job":"a","outcome":"ok","tick":"9999-12-31T23:59:59.999999999+23:59"}`)
	f.Add(`{"run_id":"1","job":"a","outcome":"ok","tick":"9999-12-31T23:59:59-23:59"}`)
	f.Add(`{"run_id":"1","job":"a","outcome":"ok","slot":-1,"attempt":-1,"duration_ms":9223372036854775807}`)
	f.Add(`{"id":"1","name":"n","running":-9}`)
	f.Add(`{"id":"1","name":"n","running":3,"max_running":8,"lease_margin":{"left_ms":31000,"lease_ms":30000}}`)
	f.Add(`{"run_id":"1","job":"a","outcome":"ok","token":1e400}`)
	f.Add(`{"jobs":1,"settings":[{"key":"a","value":"b"},{"key":"a"}]}`)
	f.Add(`{"a":"c","b":""}`)
	for _, s := range []string{"", "null", "[]", "{", "\xff", `""`, "7", `{"run_id":{}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := decodeRecord("a", "1", text)
		if err == nil {
			if r.Job != "a" || r.RunID != "1" || r.Outcome == "" {
				t.Fatalf("accepted %+v", r)
			}
			if b, err := json.Marshal(r); err != nil {
				t.Fatalf("accepted what can't be shown: %v", err)
			} else if _, err := decodeRecord("a", "1", string(b)); err != nil {
				t.Fatalf("shown as %s, which is refused: %v", b, err)
			}
			scoreOf(&r)
		} else if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("error without ErrCorrupt: %v", err)
		}
		var replica Replica
		if err := decodeEntry(text, &replica, &replica.ID, "1"); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		for _, fields := range [][2]string{{text, `{}`}, {`{"jobs":1,"settings":[{"key":"a","value":"b"}]}`, text}} {
			s, err := decodeSettings(fields[0], fields[1])
			if err != nil && !errors.Is(err, ErrCorrupt) || err == nil && faultOf(s) != "" {
				t.Fatalf("%+v, %v", s, err)
			}
		}
		var info JobInfo
		if err := decodeEntry(text, &info, &info.Name, "a"); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// FuzzOutput splits any output into blocks and joins them again.
func FuzzOutput(f *testing.F) {
	f.Add("some output|with bars", int64(700), 3)
	f.Fuzz(func(t *testing.T, output string, maxBytes int64, runs int) {
		if maxBytes < 1 || maxBytes > 1<<24 || runs < 1 || runs > 1<<20 {
			t.Skip()
		}
		b := blocksOf(maxBytes, runs)
		if room := int64(b.size) * int64(b.count); b.size < 1 || b.count < 1 || room > maxBytes {
			t.Fatalf("%d blocks of %d bytes for %d", b.count, b.size, maxBytes)
		}
		members := b.splitOutput("p|id|", output)
		if len(members) > b.count {
			t.Fatalf("%d blocks, %d at most", len(members), b.count)
		}
		got := joinBlocks("p|id|", members)
		if got == nil || len(*got) > len(output) || *got != output[len(output)-len(*got):] {
			t.Fatalf("%q became %v", output, got)
		}
		if len(*got) < len(output) && len(*got) < b.size*b.count {
			t.Fatalf("cut to %d bytes", len(*got))
		}
	})
}

// A job has a name. The name of an instance contains the name of its replica, which may contain dots. The run ids of its ticks fit.
func TestNamesOfInstances(t *testing.T) {
	long := strings.Repeat("x", 128)
	for name, fine := range map[string]bool{
		"tidy": true, "tidy@web-1": true, "tidy@web-1.example.org": true, long: true, "tidy@" + long: true,
		"tidy@": false, "@web": false, "tidy@a@b": false, "tidy@.a": false, "ti.dy@a": false, "tidy@a b": false, "tidy@a}": false, "tidy@a|b": false, long + "@" + long: false,
	} {
		if IsJobName(name) != fine {
			t.Errorf("%q is a name: %v", name, !fine)
		}
		if fine && !isRunID(name+".20060102T150405Z") {
			t.Errorf("ticks of %q have no run ids", name)
		}
	}
	for name, want := range map[string][2]string{"tidy": {"tidy", ""}, "tidy@web.1": {"tidy", "web.1"}} {
		if job, replica := InstanceOf(name); job != want[0] || replica != want[1] {
			t.Errorf("%s is of %s on %q", name, job, replica)
		}
	}
}
