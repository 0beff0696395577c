//go:build !linux && !darwin

package demo

import (
	"errors"
	"os/exec"
)

func tieToDemo(*exec.Cmd) {}

// adoptOrphans returns an error, because replicas do not run on this platform.
func adoptOrphans() error {
	return errors.New("the demo runs replicas, which this platform does not support")
}

func endOrphans() int { return 0 }
