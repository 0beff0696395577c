package cronspec_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A night in spring: half past two does not exist, so the job runs once, right
// after the hour that was skipped.
func ExampleParse() {
	berlin, err := cronspec.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := cronspec.Parse([]string{"30 2 * * *"}, cronspec.Options{Location: berlin})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 3, 28, 0, 0, 0, 0, berlin)
	for range 3 {
		at = s.Next(at)
		fmt.Println(at.In(berlin).Format(time.RFC3339))
	}
	// Output:
	// 2026-03-28T02:30:00+01:00
	// 2026-03-29T03:00:00+02:00
	// 2026-03-30T02:30:00+02:00
}

// A list is one schedule; H is a minute that depends on the job's name.
func ExampleParse_list() {
	s, err := cronspec.Parse([]string{"H 9-10 * * MON-FRI", "@daily"}, cronspec.Options{Name: "backup"})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for range 4 {
		at = s.Next(at)
		fmt.Println(at.Format("Mon 15:04"))
	}
	// Output:
	// Fri 00:00
	// Fri 09:51
	// Fri 10:51
	// Sat 00:00
}

// Office hours on working days, less the holidays and the afternoons before them.
func ExampleParse_except() {
	s, err := cronspec.Parse([]string{"0 9-17/4 * * MON-FRI"}, cronspec.Options{
		ExceptDates: []string{"2026-12-25", "2027-01-01"},
		Except:      []string{"0 13-17 24,31 12 *"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 12, 23, 12, 0, 0, 0, time.UTC)
	for range 4 {
		at = s.Next(at)
		fmt.Println(at.Format("Mon 2 Jan 15:04"))
	}
	// Output:
	// Wed 23 Dec 13:00
	// Wed 23 Dec 17:00
	// Thu 24 Dec 09:00
	// Mon 28 Dec 09:00
}

// A fault names its place, and the text to write instead.
func ExampleParseError() {
	_, err := cronspec.Parse([]string{"*/90 * * * *"}, cronspec.Options{})
	var fault *cronspec.ParseError
	if errors.As(err, &fault) {
		fmt.Println(fault.Index, fault.Offset)
		fmt.Println(fault.Message)
		fmt.Println(fault.Hint)
	}
	// Output:
	// 0 2
	// step "90" is out of range 1-60
	// steps begin anew at each turn of the field; for an interval of any length use "@every D"
}

// Prev returns the tick before an instant, for example to catch up.
func ExampleSchedule_Prev() {
	s, err := cronspec.Parse([]string{"@every 90s"}, cronspec.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Prev(time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)).Format(time.RFC3339))
	// Output: 2026-01-01T00:00:00Z
}

// Each tick of each job has its own delay, the same on every replica.
func ExampleJitter() {
	s, err := cronspec.Parse([]string{"* * * * *"}, cronspec.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	tick := s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	fmt.Println(cronspec.Jitter("backup", tick, s.Next(tick), 30*time.Second))
	// Output: 10.807s
}
