package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/cronclave/cronclave/internal/units"
)

// duration is the value of a flag that is written as in the configuration: 90s, 1h30m or 30d.
type duration time.Duration

// durationFlag adds such a flag. Its default is the value of d.
func durationFlag(flags *pflag.FlagSet, d *time.Duration, name, usage string) {
	flags.Var((*duration)(d), name, usage)
}

func (d *duration) Type() string { return "duration" }

// String is empty for a default of 0, which is then left out of the help.
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
