package cronspec

import (
	"strings"
	"testing"
	"time"
)

// change is the behaviour of a schedule around a change of a zone's clock, worked
// out by hand from the rule that is named above the table.
type change struct {
	name  string
	exprs string // separated by "; "
	after string
	want  string // separated by blanks, in the zone's own time
}

func checkChanges(t *testing.T, zone string, changes []change) {
	t.Helper()
	for _, c := range changes {
		t.Run(c.name+" "+c.exprs, func(t *testing.T) {
			s := mustParse(t, zone, strings.Split(c.exprs, "; ")...)
			location, err := LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			after, err := time.Parse(time.RFC3339, c.after)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(c.want)
			at := after
			for i := range want {
				at = s.Next(at)
				if got := at.In(location).Format(time.RFC3339); got != want[i] {
					t.Fatalf("tick %d is %s, want %s", i, got, want[i])
				}
			}
			for i := len(want) - 2; i >= 0; i-- {
				at = s.Prev(at)
				if got := at.In(location).Format(time.RFC3339); got != want[i] {
					t.Fatalf("backwards, tick %d is %s, want %s", i, got, want[i])
				}
			}
		})
	}
}

// America/New_York, IANA tz database file northamerica, Rule US: from 2007 on
// "Mar Sun>=8 2:00" forward and "Nov Sun>=1 2:00" back. In 2026: on 8 March
// 02:00 EST (-05:00) becomes 03:00 EDT (-04:00); on 1 November 02:00 EDT becomes
// 01:00 EST.
func TestNewYork(t *testing.T) {
	const spring, autumn = "2026-03-08T00:00:00-05:00", "2026-11-01T00:00:00-04:00"
	checkChanges(t, "America/New_York", []change{
		{"fixed time, spring", "30 2 * * *", spring,
			"2026-03-08T03:00:00-04:00 2026-03-09T02:30:00-04:00"},
		{"several skipped become one, spring", "0,30 2 * * *", spring,
			"2026-03-08T03:00:00-04:00 2026-03-09T02:00:00-04:00 2026-03-09T02:30:00-04:00"},
		{"the one meets another, spring", "0 2,3 * * *", spring,
			"2026-03-08T03:00:00-04:00 2026-03-09T02:00:00-04:00 2026-03-09T03:00:00-04:00"},
		{"fixed time with wildcard seconds, spring", "*/20 30 2 * * *", spring,
			"2026-03-08T03:00:00-04:00 2026-03-09T02:30:00-04:00 2026-03-09T02:30:20-04:00"},
		{"fixed time by a range of hours, spring", "30 0-23 * * *", spring,
			"2026-03-08T00:30:00-05:00 2026-03-08T01:30:00-05:00 2026-03-08T03:00:00-04:00 2026-03-08T03:30:00-04:00"},
		{"wildcard minute, spring", "*/30 1,2 * * *", spring,
			"2026-03-08T01:00:00-05:00 2026-03-08T01:30:00-05:00 2026-03-09T01:00:00-04:00 2026-03-09T01:30:00-04:00 2026-03-09T02:00:00-04:00"},
		{"wildcard hour, spring", "30 * * * *", "2026-03-08T01:00:00-05:00",
			"2026-03-08T01:30:00-05:00 2026-03-08T03:30:00-04:00 2026-03-08T04:30:00-04:00"},
		{"stepped wildcard hour, spring", "15 */2 * * *", spring,
			"2026-03-08T00:15:00-05:00 2026-03-08T04:15:00-04:00"},
		{"list, spring", "30 2 * * *; 30 * * * *", "2026-03-08T01:00:00-05:00",
			"2026-03-08T01:30:00-05:00 2026-03-08T03:00:00-04:00 2026-03-08T03:30:00-04:00"},
		{"hourly, spring", "@hourly", spring,
			"2026-03-08T01:00:00-05:00 2026-03-08T03:00:00-04:00"},
		{"daily, spring", "@daily", spring,
			"2026-03-09T00:00:00-04:00"},
		{"interval, spring", "@every 30m", "2026-03-08T01:15:00-05:00",
			"2026-03-08T01:30:00-05:00 2026-03-08T03:00:00-04:00 2026-03-08T03:30:00-04:00"},

		{"fixed time, autumn", "30 1 * * *", autumn,
			"2026-11-01T01:30:00-04:00 2026-11-02T01:30:00-05:00"},
		{"fixed time, asked between the two, autumn", "30 1 * * *", "2026-11-01T01:00:00-05:00",
			"2026-11-02T01:30:00-05:00"},
		{"fixed time after the repeated hour, autumn", "0 2 * * *", autumn,
			"2026-11-01T02:00:00-05:00 2026-11-02T02:00:00-05:00"},
		{"fixed time by a range of hours, autumn", "30 0-23 * * *", autumn,
			"2026-11-01T00:30:00-04:00 2026-11-01T01:30:00-04:00 2026-11-01T02:30:00-05:00"},
		{"wildcard minute, autumn", "*/30 1 * * *", autumn,
			"2026-11-01T01:00:00-04:00 2026-11-01T01:30:00-04:00 2026-11-01T01:00:00-05:00 2026-11-01T01:30:00-05:00 2026-11-02T01:00:00-05:00"},
		{"wildcard hour, autumn", "30 * * * *", autumn,
			"2026-11-01T00:30:00-04:00 2026-11-01T01:30:00-04:00 2026-11-01T01:30:00-05:00 2026-11-01T02:30:00-05:00"},
		{"list, autumn", "15 1 * * *; 45 * * * *", "2026-11-01T00:50:00-04:00",
			"2026-11-01T01:15:00-04:00 2026-11-01T01:45:00-04:00 2026-11-01T01:45:00-05:00 2026-11-01T02:45:00-05:00"},
		{"interval, autumn", "@every 30m", "2026-11-01T01:15:00-04:00",
			"2026-11-01T01:30:00-04:00 2026-11-01T01:00:00-05:00 2026-11-01T01:30:00-05:00 2026-11-01T02:00:00-05:00"},
	})
}

// Europe/Berlin, IANA tz database file europe, Rule EU: "Mar lastSun 1:00u"
// forward and "Oct lastSun 1:00u" back. In 2026: on 29 March 02:00 CET (+01:00)
// becomes 03:00 CEST (+02:00); on 25 October 03:00 CEST becomes 02:00 CET.
func TestBerlin(t *testing.T) {
	const spring, autumn = "2026-03-29T00:00:00+01:00", "2026-10-25T00:00:00+02:00"
	checkChanges(t, "Europe/Berlin", []change{
		{"fixed time, spring", "30 2 * * *", spring,
			"2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"fixed time on a weekday, spring", "30 2 * * SUN", spring,
			"2026-03-29T03:00:00+02:00 2026-04-05T02:30:00+02:00"},
		{"wildcard minute, spring", "*/20 2,3 * * *", spring,
			"2026-03-29T03:00:00+02:00 2026-03-29T03:20:00+02:00 2026-03-29T03:40:00+02:00 2026-03-30T02:00:00+02:00"},
		{"wildcard hour, spring", "59 59 * * * *", "2026-03-29T01:00:00+01:00",
			"2026-03-29T01:59:59+01:00 2026-03-29T03:59:59+02:00"},
		{"the last second that is skipped, spring", "59 59 */2 * * *", spring,
			"2026-03-29T00:59:59+01:00 2026-03-29T04:59:59+02:00"},
		{"list, spring", "0 2 * * *; 0 */3 * * *", spring,
			"2026-03-29T03:00:00+02:00 2026-03-29T06:00:00+02:00"},

		{"fixed time, autumn", "30 2 * * *", autumn,
			"2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"fixed seconds, autumn", "*/30 59 2 * * *", autumn,
			"2026-10-25T02:59:00+02:00 2026-10-25T02:59:30+02:00 2026-10-26T02:59:00+01:00"},
		{"wildcard minute, autumn", "*/30 2 * * *", autumn,
			"2026-10-25T02:00:00+02:00 2026-10-25T02:30:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T02:30:00+01:00 2026-10-26T02:00:00+01:00"},
		{"wildcard hour, autumn", "0 * * * *", "2026-10-25T01:30:00+02:00",
			"2026-10-25T02:00:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T03:00:00+01:00"},
		{"list, autumn", "30 2 * * *; */40 2 * * *", "2026-10-25T01:30:00+02:00",
			"2026-10-25T02:00:00+02:00 2026-10-25T02:30:00+02:00 2026-10-25T02:40:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T02:40:00+01:00 2026-10-26T02:00:00+01:00"},
	})
}

// Australia/Lord_Howe, IANA tz database file australasia, Rule LH: from 2008 on
// "Apr Sun>=1 2:00" back and "Oct Sun>=1 2:00" forward, by half an hour. In
// 2026: on 5 April 02:00 (+11:00) becomes 01:30 (+10:30); on 4 October 02:00
// (+10:30) becomes 02:30 (+11:00).
func TestLordHowe(t *testing.T) {
	const autumn, spring = "2026-04-05T01:20:00+11:00", "2026-10-04T01:20:00+10:30"
	checkChanges(t, "Australia/Lord_Howe", []change{
		{"fixed time, spring", "15 2 * * *", spring,
			"2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		{"fixed time in the half that stays, spring", "45 2 * * *", spring,
			"2026-10-04T02:45:00+11:00 2026-10-05T02:45:00+11:00"},
		{"fixed time by a range of hours, spring", "15,45 1-3 * * *", spring,
			"2026-10-04T01:45:00+10:30 2026-10-04T02:30:00+11:00 2026-10-04T02:45:00+11:00 2026-10-04T03:15:00+11:00"},
		{"wildcard minute, spring", "*/15 2 * * *", spring,
			"2026-10-04T02:30:00+11:00 2026-10-04T02:45:00+11:00 2026-10-05T02:00:00+11:00"},
		{"wildcard hour, spring", "15,45 * * * *", spring,
			"2026-10-04T01:45:00+10:30 2026-10-04T02:45:00+11:00 2026-10-04T03:15:00+11:00"},
		{"list, spring", "15 2 * * *; 0 * * * *", spring,
			"2026-10-04T02:30:00+11:00 2026-10-04T03:00:00+11:00"},

		{"fixed time, autumn", "45 1 * * *", autumn,
			"2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
		{"fixed time by a range of hours, autumn", "15,45 1-3 * * *", autumn,
			"2026-04-05T01:45:00+11:00 2026-04-05T02:15:00+10:30 2026-04-05T02:45:00+10:30"},
		{"wildcard minute, autumn", "*/15 1 * * *", autumn,
			"2026-04-05T01:30:00+11:00 2026-04-05T01:45:00+11:00 2026-04-05T01:30:00+10:30 2026-04-05T01:45:00+10:30 2026-04-06T01:00:00+10:30"},
		{"wildcard hour, autumn", "15,45 * * * *", autumn,
			"2026-04-05T01:45:00+11:00 2026-04-05T01:45:00+10:30 2026-04-05T02:15:00+10:30"},
		{"list, autumn", "45 1 * * *; 50 * * * *", autumn,
			"2026-04-05T01:45:00+11:00 2026-04-05T01:50:00+11:00 2026-04-05T01:50:00+10:30 2026-04-05T02:50:00+10:30"},
	})
}

// Pacific/Apia, IANA tz database file australasia: Zone Pacific/Apia goes from
// -11:00 to +13:00 at "2011 Dec 29 24:00", in daylight time from -10:00 to
// +14:00, so 30 December 2011, a Friday, is skipped.
func TestApiaSkippedDay(t *testing.T) {
	const eve = "2011-12-29T08:00:00-10:00"
	checkChanges(t, "Pacific/Apia", []change{
		{"fixed time", "0 9 * * *", eve,
			"2011-12-29T09:00:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T09:00:00+14:00"},
		{"many fixed times become one", "0 9-17 * * *", "2011-12-29T16:00:00-10:00",
			"2011-12-29T17:00:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T09:00:00+14:00"},
		{"the one meets another", "@daily", eve,
			"2011-12-31T00:00:00+14:00 2012-01-01T00:00:00+14:00"},
		{"only on that date", "0 9 30 12 *", eve,
			"2011-12-31T00:00:00+14:00 2012-12-30T09:00:00+14:00"},
		{"only on that weekday", "0 9 * * FRI", eve,
			"2011-12-31T00:00:00+14:00 2012-01-06T09:00:00+14:00"},
		{"wildcard minute", "*/30 9 * * *", "2011-12-29T09:15:00-10:00",
			"2011-12-29T09:30:00-10:00 2011-12-31T09:00:00+14:00"},
		{"wildcard minute on that date", "*/30 9 30 12 *", eve,
			"2012-12-30T09:00:00+14:00"},
		{"wildcard hour", "30 * * * *", "2011-12-29T23:00:00-10:00",
			"2011-12-29T23:30:00-10:00 2011-12-31T00:30:00+14:00"},
		{"list", "0 9 * * *; 30 * * * *", "2011-12-29T23:00:00-10:00",
			"2011-12-29T23:30:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T00:30:00+14:00"},
		{"interval", "@every 12h", eve,
			"2011-12-29T14:00:00-10:00 2011-12-31T02:00:00+14:00"},
	})
}

// Pacific/Apia, IANA tz database file australasia, Rule WS:
//
//	2010      Sep lastSun 0:00 forward    2011      Apr Sat>=1  4:00 back
//	2011      Sep lastSat 3:00 forward    2012-2021 Apr Sun>=1  4:00 back
//	2012-2020 Sep lastSun 3:00 forward
//
// with -11:00 and -10:00 until the skipped day, +13:00 and +14:00 after it.
func TestApiaDaylightSaving(t *testing.T) {
	checkChanges(t, "Pacific/Apia", []change{
		{"fixed time, September 2010", "30 0 * * *", "2010-09-25T12:00:00-11:00",
			"2010-09-26T01:00:00-10:00 2010-09-27T00:30:00-10:00"},
		{"no midnight, September 2010", "@daily", "2010-09-25T12:00:00-11:00",
			"2010-09-26T01:00:00-10:00 2010-09-27T00:00:00-10:00"},
		{"wildcard minute, no midnight, September 2010", "*/30 0 * * *", "2010-09-25T12:00:00-11:00",
			"2010-09-27T00:00:00-10:00 2010-09-27T00:30:00-10:00"},
		{"fixed time, April 2011", "30 3 * * *", "2011-04-01T12:00:00-10:00",
			"2011-04-02T03:30:00-10:00 2011-04-03T03:30:00-11:00"},
		{"wildcard hour, April 2011", "30 * * * *", "2011-04-02T03:00:00-10:00",
			"2011-04-02T03:30:00-10:00 2011-04-02T03:30:00-11:00 2011-04-02T04:30:00-11:00"},
		{"fixed time, September 2011", "30 3 * * *", "2011-09-23T12:00:00-11:00",
			"2011-09-24T04:00:00-10:00 2011-09-25T03:30:00-10:00"},
		{"wildcard minute, April 2012", "*/30 3 * * *", "2012-04-01T02:00:00+14:00",
			"2012-04-01T03:00:00+14:00 2012-04-01T03:30:00+14:00 2012-04-01T03:00:00+13:00 2012-04-01T03:30:00+13:00 2012-04-02T03:00:00+13:00"},
		{"list, September 2012", "15 3 * * *; 15 * * * *", "2012-09-30T02:00:00+13:00",
			"2012-09-30T02:15:00+13:00 2012-09-30T04:00:00+14:00 2012-09-30T04:15:00+14:00"},
		{"fixed time, September 2020", "30 3 * * *", "2020-09-26T12:00:00+13:00",
			"2020-09-27T04:00:00+14:00 2020-09-28T03:30:00+14:00"},
		{"fixed time, April 2021", "30 3 * * *", "2021-04-03T12:00:00+14:00",
			"2021-04-04T03:30:00+14:00 2021-04-05T03:30:00+13:00"},
		{"abolished, September 2021", "30 3 * * *", "2021-09-25T12:00:00+13:00",
			"2021-09-26T03:30:00+13:00 2021-09-27T03:30:00+13:00"},
	})
}
