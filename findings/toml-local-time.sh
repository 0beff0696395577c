#!/bin/sh
# BurntSushi/toml v1.6.0: a local datetime gets the UTC offset of today, not the
# offset of its own date.
#
# One would guess: a TOML datetime without an offset is the wall clock of
# time.Local, so it equals time.Date(..., time.Local) in January and in July.
# Guess before the run: the same, with a suspicion that one season is wrong.
# The guess missed and the suspicion held.
#
# What happens: the library reads the machine's offset once, when the process
# starts, and gives it to every local datetime, date and time. In Berlin one half
# of the year is an hour off. Which half depends on the day of the start.
#
# Why it matters: "not before 2026-07-15T12:00:00" means another instant after a
# restart in summer than after one in winter. If the process starts in summer time,
# a winter date without a time is, in the zone, 23:00 of the day before (Sydney
# below). Times need an offset in the file, or a string that the program parses in
# its zone.
#
# Output seen (run in November, when Sydney has summer time):
#   Europe/Berlin    2026-01-15T00:00:00  toml 2026-01-15 00:00 +0100  in time.Local 2026-01-15 00:00 +0100
#   Europe/Berlin    2026-07-15T00:00:00  toml 2026-07-15 00:00 +0100  in time.Local 2026-07-15 01:00 +0200
#   Australia/Sydney 2026-01-15T00:00:00  toml 2026-01-15 00:00 +1100  in time.Local 2026-01-15 00:00 +1100
#   Australia/Sydney 2026-07-15T00:00:00  toml 2026-07-15 00:00 +1100  in time.Local 2026-07-14 23:00 +1000
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/BurntSushi/toml"
)

func main() {
	wrong := 0
	for _, month := range []time.Month{time.January, time.July} {
		want := time.Date(2026, month, 15, 0, 0, 0, 0, time.Local)
		text := want.Format("2006-01-02T15:04:05")
		var file struct{ At time.Time }
		if _, err := toml.Decode("at = "+text, &file); err != nil {
			panic(err)
		}
		const layout = "2006-01-02 15:04 -0700"
		fmt.Printf("%-16s %s  toml %s  in time.Local %s\n", os.Getenv("TZ"), text, file.At.Format(layout), file.At.In(time.Local).Format(layout))
		if !file.At.Equal(want) {
			wrong++
		}
	}
	if wrong != 1 {
		fmt.Println("changed:", wrong, "of the two seasons are wrong, not one")
		os.Exit(1)
	}
}
GO
go mod init finding
go get github.com/BurntSushi/toml@v1.6.0
go build -o finding .
TZ=Europe/Berlin ./finding
TZ=Australia/Sydney ./finding
