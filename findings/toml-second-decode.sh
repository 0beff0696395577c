#!/bin/sh
# BurntSushi/toml v1.6.0: a second Decode into the same struct replaces a map of
# tables but mixes an array of tables, by position, with what was there.
#
# One would guess: [[job]] in the second file replaces the slice, as it has its
# own entries.
# Guess before the run: the same, with a suspicion that old elements shine through.
# The guess missed, the suspicion held.
#
# What happens: element 0 of the second file is decoded over element 0 of the
# first. Keys that the second file leaves out keep the values of another job, and
# the element's own map holds the keys of both. The same tables under [jobs.NAME]
# start from zero.
#
# Why it matters: a reload that decodes into the live configuration, or a list of
# defaults that a file overrides, gives the first job the timeout and environment
# of a job that no longer exists. Decode into a new value each time.
#
# Output seen:
#   array of tables: {Name:report Timeout:5m Env:map[NEW:1 OLD:1]}
#   map of tables:   {Name:report Timeout: Env:map[NEW:1]}
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/BurntSushi/toml"
)

type job struct {
	Name, Timeout string
	Env           map[string]string
}

func main() {
	var list struct{ Job []job }
	var named struct{ Jobs map[string]job }
	for _, body := range []string{
		"name = 'backup'\ntimeout = '5m'\nenv = { OLD = '1' }",
		"name = 'report'\nenv = { NEW = '1' }",
	} {
		if _, err := toml.Decode("[[job]]\n"+body, &list); err != nil {
			panic(err)
		}
		if _, err := toml.Decode("[jobs.x]\n"+body, &named); err != nil {
			panic(err)
		}
	}
	mixed, clean := list.Job[0], named.Jobs["x"]
	fmt.Printf("array of tables: %+v\nmap of tables:   %+v\n", mixed, clean)
	if len(list.Job) != 1 || mixed.Timeout != "5m" || len(mixed.Env) != 2 || clean.Timeout != "" || len(clean.Env) != 1 {
		fmt.Println("changed: arrays and maps of tables now begin alike, or in another way")
		os.Exit(1)
	}
}
GO
go mod init finding
go get github.com/BurntSushi/toml@v1.6.0
go run .
