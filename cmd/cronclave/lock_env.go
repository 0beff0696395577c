package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// lockVariable describes an environment variable for the command of lock.
type lockVariable struct {
	name, doc string
	value     func(*lockJob, *engine.Lease) string
}

func lockVariables() []lockVariable {
	return []lockVariable{
		{"CRONCLAVE_LOCK", "the name of the lock, or of the pool", func(j *lockJob, _ *engine.Lease) string { return j.name }},
		{"CRONCLAVE_FENCING_TOKEN", "a number that grows with every holder, for the resource to refuse stale ones", func(_ *lockJob, lease *engine.Lease) string {
			return strconv.FormatInt(int64(lease.Token()), 10)
		}},
		{"CRONCLAVE_SLOT", "the slot that is held, from 0", func(_ *lockJob, lease *engine.Lease) string { return strconv.Itoa(lease.Slot()) }},
		{"CRONCLAVE_SLOTS", "how many slots there are", func(j *lockJob, _ *engine.Lease) string { return strconv.Itoa(j.slots) }},
		{envRunID, "the mark by which the command's processes are found", func(_ *lockJob, lease *engine.Lease) string { return lease.ID() }},
	}
}

// lockVariableHelp returns the section about the environment variables in the help of lock.
func lockVariableHelp() string {
	var b strings.Builder
	for _, v := range lockVariables() {
		fmt.Fprintf(&b, "  %-25s %s\n", v.name, v.doc)
	}
	return b.String()
}
