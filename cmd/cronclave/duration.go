package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/cronclave/cronclave/internal/units"
)

// duration is the value of a flag, in the syntax of the configuration: 90s, 1h30m or 30d.
type duration time.Duration

// durationFlag adds a flag for a duration. The current value of *d is the default.
func durationFlag(flags *pflag.FlagSet, d *time.Duration, name, usage string) {
	flags.Var((*duration)(d), name, usage)
}

func (d *duration) Type() string { return "duration" }

// String returns "" for 0, so that the help shows no default.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (d *duration) Set(s string) error {
	v, err := units.ParseDuration(s)
	*d = duration(v)
	return err //nolint:wrapcheck // pflag names the flag and the value
}
