#!/bin/sh
# Go 1.26.8: Time.ZoneBounds makes up a bound at New Year, and on the last day of
# a leap year it returns an end that is before the time asked about. Whether it
# does depends on which copy of the same zone is read.
#
# One would guess: ZoneBounds of a winter day in Berlin runs from the change in
# October to the change in March, and start <= t < end.
# Guess before the run: the same, alike for Go's own data and the system's, with a
# suspicion about New Year. The guess missed, the suspicion held; an end before t
# was not suspected (it turned up in a second run).
#
# What happens: a zone file lists changes up to some year and has a rule for all
# years after that. Beyond the list Go computes one year at a time and cuts the
# period at its edges; the year has 365 days in that computation. Debian's files
# list the changes until 2037. Those in Go's zoneinfo.zip and time/tzdata end the
# list where the rule begins to hold, in Berlin in 1996, so that every winter since
# then is cut.
#
# Why it matters: a walk from one start to the one before finds changes that change
# nothing, and a walk over the ends goes backwards on 31 December 2028. A program tested on a
# workstation behaves differently in an image without zone files.
#
# Output seen (t, start, end in UTC):
#   Go's data      2026-01-15 12:00  2026-01-01 00:00  2026-03-29 01:00
#   Go's data      2028-12-31 12:00  2028-10-29 01:00  2028-12-31 00:00
#   Debian's data  2026-01-15 12:00  2025-10-26 01:00  2026-03-29 01:00
#   Debian's data  2028-12-31 12:00  2028-10-29 01:00  2029-03-25 01:00
set -eu
export GOTOOLCHAIN=go1.26.8
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"time"
)

// The arguments are the name of the data, and "whole" if its bounds are right.
func main() {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	const layout = "2006-01-02 15:04"
	whole := true
	for _, at := range []time.Time{
		time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC),
		time.Date(2028, 12, 31, 12, 0, 0, 0, time.UTC),
	} {
		start, end := at.In(zone).ZoneBounds()
		fmt.Printf("%-14s %s  %s  %s\n", os.Args[1], at.Format(layout), start.UTC().Format(layout), end.UTC().Format(layout))
		_, before := start.Add(-time.Second).Zone()
		_, after := start.Zone()
		whole = whole && before != after && at.Before(end)
	}
	if whole != (os.Args[2] == "whole") {
		fmt.Println("changed: bounds that are real changes around t:", whole)
		os.Exit(1)
	}
}
GO
go mod init finding
go build -o finding .
ZONEINFO=$(go env GOROOT)/lib/time/zoneinfo.zip ./finding "Go's data" cut
ZONEINFO=/usr/share/zoneinfo ./finding "Debian's data" whole
