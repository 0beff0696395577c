package cronspec

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		expr    string
		zone    string
		offset  int
		message string
		hint    string
	}{
		{expr: "", offset: 0, message: "empty expression", hint: "0 3 * * *"},
		{expr: "  \t", offset: 3, message: "empty expression"},
		{expr: "0 3 * *", offset: 7, message: "5 or 6 fields are needed, not 4", hint: "minute, hour"},
		{expr: "0 0 3 * * * 2030", offset: 12, message: "5 or 6 fields are needed, not 7", hint: "no year"},
		{expr: "0 3 * * * root /bin/true", offset: 15, message: "5 or 6 fields are needed, not 7", hint: "command"},

		{expr: "30 2 30 2 *", offset: 5, message: "never comes", hint: "no month"},
		{expr: "0 0 31 2,4,6,9,11 *", offset: 4, message: "never comes"},
		// New York skips the hour from 2:00 on the second Sunday in March.
		{expr: "*/5 2 8-14 3 */7", zone: "America/New_York", offset: 4, message: "never comes", hint: "America/New_York always skips"},

		{expr: "TZ=UTC", offset: 0, message: "TZ= is not", hint: `timezone = "UTC"`},
		{expr: "TZ=", offset: 0, message: "TZ= is not", hint: "timezone"},
		{expr: "CRON_TZ=Asia/Tokyo 0 3 * * *", offset: 0, message: "CRON_TZ= is not", hint: `timezone = "Asia/Tokyo"`},
		{expr: " TZ=UTC 0 3 * * *", offset: 1, message: "TZ= is not", hint: "timezone"},

		{expr: "0 0 L * *", offset: 4, message: `unexpected "L" in the day of month`, hint: "last day"},
		{expr: "0 0 L-3 * *", offset: 4, message: `unexpected "L"`, hint: "last day"},
		{expr: "0 0 * * 5L", offset: 9, message: `unexpected "L" in the day of week`, hint: "last day"},
		{expr: "0 0 * * FRIL", offset: 8, message: `unexpected "FRIL"`, hint: "last day"},
		{expr: "0 0 15W * *", offset: 6, message: `unexpected "W"`, hint: "nearest weekday"},
		{expr: "0 0 LW * *", offset: 4, message: `unexpected "LW"`, hint: "nearest weekday"},
		{expr: "0 0 * * FRI#2", offset: 11, message: `unexpected "#2"`, hint: "n-th weekday"},
		{expr: "0 0 ? * MON", offset: 4, message: `unexpected "?"`, hint: `write "*"`},
		{expr: "h 3 * * *", offset: 0, message: `unexpected "h"`, hint: `capital "H"`},

		{expr: "@reboot", offset: 0, message: "@reboot is not supported", hint: "cluster"},
		{expr: "@Daily", offset: 0, message: `unknown schedule "@Daily"`, hint: "@daily"},
		{expr: "@daily 5", offset: 7, message: `"5" after @daily`, hint: "alone"},
		{expr: "@every", offset: 6, message: "without a duration", hint: "@every 90s"},
		{expr: "@every 5 minutes", offset: 7, message: `"5 minutes" is not a duration`, hint: "1h30m"},
		{expr: "@every 500ms", offset: 7, message: "too short", hint: "at least 1s"},
		{expr: "@every -5s", offset: 7, message: "too short", hint: "at least 1s"},
		{expr: "@every 0", offset: 7, message: "too short"},
		{expr: "@every  1500ms", offset: 8, message: "not a whole number of seconds", hint: "2s"},
		{expr: "@every 99999999999d", offset: 7, message: "not a duration"},
		{expr: "@every 1d-5h", offset: 7, message: "not a duration"},

		{expr: "60 * * * *", offset: 0, message: `minute "60" is out of range 0-59`, hint: "full hour is 0"},
		{expr: "60 * * * * *", offset: 0, message: `second "60" is out of range 0-59`},
		{expr: "0 24 * * *", offset: 2, message: `hour "24" is out of range 0-23`, hint: "midnight is 0"},
		{expr: "0 0 0 * *", offset: 4, message: `day of month "0" is out of range 1-31`},
		{expr: "0 0 1,32 * *", offset: 6, message: `day of month "32"`},
		{expr: "0 0 * 13 *", offset: 6, message: `month "13" is out of range 1-12`, hint: "January is 1"},
		{expr: "0 0 * * 1-8", offset: 10, message: `day of week "8" is out of range 0-7`, hint: "Sunday is 0 or 7"},
		{expr: "99999999999999999999 * * * *", offset: 0, message: "out of range"},
		{expr: "0 22-2 * * *", offset: 2, message: "range 22-2 goes backwards", hint: "22-23,0-2"},
		{expr: "*/90 * * * *", offset: 2, message: `step "90" is out of range 1-60`, hint: "@every D"},
		{expr: "*/0 * * * *", offset: 2, message: `step "0"`},
		{expr: "10-20/30 * * * *", offset: 6, message: `step "30" is out of range 1-11`},

		{expr: "0 0 * APRIL *", offset: 6, message: `unexpected "APRIL" in the month`, hint: "three letters: APR"},
		{expr: "0 0 * * monday", offset: 8, message: `unexpected "monday" in the day of week`, hint: "three letters: MON"},
		{expr: "0 MON * * *", offset: 2, message: `unexpected "MON" in the hour`, hint: "values are 0-23"},
		{expr: "1,,2 * * * *", offset: 2, message: `unexpected ",2" in the minute`, hint: "values are 0-59"},
		{expr: "1, * * * *", offset: 2, message: "minute ends too early"},
		{expr: "1- * * * *", offset: 2, message: "minute ends too early"},
		{expr: "*/ * * * *", offset: 2, message: "minute ends too early"},
		{expr: "*/x * * * *", offset: 2, message: `unexpected "x"`},
		{expr: "*5 * * * *", offset: 1, message: `unexpected "5"`},
		{expr: "*-5 * * * *", offset: 1, message: `unexpected "-5"`},
		{expr: "1-5/2/3 * * * *", offset: 5, message: `unexpected "/3"`},
		{expr: "1-2-3 * * * *", offset: 3, message: `unexpected "-3"`},
		{expr: "-5 * * * *", offset: 0, message: `unexpected "-5"`},
		{expr: "+5 * * * *", offset: 0, message: `unexpected "+5"`},
		{expr: "1.5 * * * *", offset: 1, message: `unexpected ".5"`},
		{expr: "0 3 * * *\n", offset: 9, message: `unexpected "\n"`},
		{expr: "\xff\x00 3 * * *", offset: 0, message: `unexpected "\xff\x00"`},
		{expr: strings.Repeat("9-", 1000) + " * * * *", offset: 3, message: "unexpected"},

		{expr: "H( * * * *", offset: 2, message: "minute ends too early"},
		{expr: "H(5) * * * *", offset: 3, message: `unexpected ")"`},
		{expr: "H(0-29 * * * *", offset: 6, message: "minute ends too early"},
		{expr: "H(0-99) * * * *", offset: 4, message: `minute "99"`},
		{expr: "H(9-3) * * * *", offset: 2, message: "goes backwards"},
		{expr: "H/61 * * * *", offset: 2, message: `step "61" is out of range 1-60`},
		{expr: "H(0-9)/20 * * * *", offset: 7, message: `step "20" is out of range 1-10`},
		{expr: "H5 * * * *", offset: 1, message: `unexpected "5"`},
		{expr: "H-5 * * * *", offset: 1, message: `unexpected "-5"`},
	} {
		t.Run(c.expr[:min(len(c.expr), 30)], func(t *testing.T) {
			zone, err := LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse([]string{c.expr}, Options{Location: zone})
			var fault *ParseError
			if !errors.As(err, &fault) {
				t.Fatalf("Parse = %v, %v; want a *ParseError", s, err)
			}
			if fault.Offset != c.offset || !strings.Contains(fault.Message, c.message) || !strings.Contains(fault.Hint, c.hint) {
				t.Errorf("got %v", err)
			}
			if len(fault.Error()) > 400 {
				t.Errorf("a message of %d bytes", len(fault.Error()))
			}
		})
	}
}

func TestFaultsOfList(t *testing.T) {
	_, err := Parse([]string{"0 3 * * *", "0 25 * * *", "@daily", "L"}, Options{})
	var fault *ParseError
	if !errors.As(err, &fault) || fault.Index != 1 || fault.Offset != 2 {
		t.Errorf("first fault: %+v", fault)
	}
	want := `expression 1, byte 2: hour "25" is out of range 0-23 (midnight is 0)` + "\n" +
		`expression 3, byte 1: 5 or 6 fields are needed, not 1 (minute, hour, day of month, month, day of week; seconds may come before them)`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err := Parse(nil, Options{}); !errors.As(err, &fault) || fault.Message != "no expression" {
		t.Errorf("empty list: %v", err)
	}
}

// Different ways to write the same schedule have the same key, and different
// schedules have different keys.
func TestKey(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"0 3 * * *", "0 0 3 * * *", true},
		{"0 3 * * *", " 00\t03 1-31 1-12 0-7 ", true},
		{"0 0 * * SUN", "0 0 * * 7", true},
		{"0 0 * * 0", "@weekly", true},
		{"0 0 * * FRI-SUN", "0 0 * * 5-7", true},
		{"0 0 * * 5-7", "0 0 * * 0,5,6", true},
		{"0 0 * jan-mar mon", "0 0 * 1,2,3 1", true},
		{"0 0 1-31 * 1", "0 0 1 * 0-6", true}, // either: every day
		{"*/15 * * * *", "0,15,30,45 * * * *", true},
		{"*/59 * * * *", "0,59 * * * *", true},
		{"@every 90s", "@every 1m30s", true},
		{"@every 36h", "@every 1d12h", true},
		{"0 0 1 * 1", "0 0 1 * *", false},
		{"0 0 */2 * 1", "0 0 1/2 * 1", false}, // both, either
		{"0 3 * * *", "1 3 * * *", false},
		{"@every 1h", "@hourly", false},
	} {
		a, b := mustParse(t, "UTC", c.a), mustParse(t, "UTC", c.b)
		if (a.Key() == b.Key()) != c.same || (a.Digest() == b.Digest()) != c.same || len(a.Digest()) != 16 {
			t.Errorf("%q has %q, %s; %q has %q, %s; same should be %t", c.a, a.Key(), a.Digest(), c.b, b.Key(), b.Digest(), c.same)
		}
	}
}

func TestKeyDiffersByZone(t *testing.T) {
	parse := func(zone *time.Location, expr string) *Schedule {
		s, err := Parse([]string{expr}, Options{Location: zone})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	east, west := time.FixedZone("", 3600), time.FixedZone("", -3600)
	if parse(east, "0 3 * * *").Key() == parse(west, "0 3 * * *").Key() {
		t.Error("two fixed zones without a name have the same key")
	}
	newer, older := time.FixedZone("America/Edmonton", -6*3600), time.FixedZone("America/Edmonton", -7*3600) // as of data that begin late
	if parse(newer, "0 3 * * *").Digest() != parse(older, "0 3 * * *").Digest() {
		t.Error("the same zone by other data has another digest")
	}
	if parse(east, "@every 1h").Key() != parse(west, "@every 1h").Key() {
		t.Error("@every depends on the zone")
	}
	if mustParse(t, "UTC", "0 3 * * *").Key() == mustParse(t, "Europe/London", "0 3 * * *").Key() {
		t.Error("UTC and London have the same key")
	}
	// Twice in a repeated hour, or once: that is the text's difference here.
	if mustParse(t, "Europe/London", "*/30 1 * * *").Key() == mustParse(t, "Europe/London", "0,30 1 * * *").Key() {
		t.Error("a wildcard and a fixed-time job have the same key")
	}
}

// FuzzParse looks for input that panics, takes for ever, or gives a fault without a
// usable place. An accepted schedule must keep its promises.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"0 3 * * *", "*/15 * * * * *", "0 0 1-7 * */2", "@daily", "@every 90s", "@every 1d12h", "H H(0-7) * * *",
		"H/15 * * * *", "0 0 * JAN-MAR FRI-SUN", "30 2 30 2 *", "TZ=UTC", "CRON_TZ= 0 3 * * *", "0 0 L * 5#3", "0 0 ? * *",
		"@reboot", "@every", "H(", "1-", "*/", ",", "0 0 29 2 */7", "\x00", "@every 9223372036s", "0 0 31 2-12/2 *", "5/0 * * * *",
	} {
		f.Add(seed, "job", uint8(0), int64(1_767_225_600))
	}
	zones := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"}
	f.Fuzz(func(t *testing.T, expr, job string, zone uint8, at int64) {
		location, err := LoadLocation(zones[int(zone)%len(zones)])
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse([]string{expr}, Options{Location: location, Name: job})
		if err != nil {
			var fault *ParseError
			if !errors.As(err, &fault) || fault.Offset < 0 || fault.Offset > len(expr) || fault.Message == "" {
				t.Fatalf("fault %#v of %q", err, expr)
			}
			return
		}
		after := time.Unix(at%lastInstant, 0)
		next := s.Next(after)
		if next.IsZero() {
			return
		}
		if !next.After(after) {
			t.Fatalf("%q: Next(%v) = %v", expr, after, next)
		}
		if next.Unix() < 0 {
			return
		}
		if prev := s.Prev(next.Add(1)); prev != next {
			t.Fatalf("%q: Prev(%v) = %v", expr, next.Add(1), prev)
		}
		if prev := s.Prev(next); prev.After(after) {
			t.Fatalf("%q: %v lies between %v and %v", expr, prev, after, next)
		}
	})
}

// A job that each replica runs has the same ticks on all of them.
func TestPlaceByNameLeavesOutTheReplica(t *testing.T) {
	at := func(name string) time.Time {
		s, err := Parse([]string{"H H * * *"}, Options{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return s.Next(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	}
	if a, b, other := at("tidy@r1"), at("tidy"), at("tidy-r1"); !a.Equal(b) || a.Equal(other) {
		t.Errorf("%v, %v and %v", a, b, other)
	}
}
