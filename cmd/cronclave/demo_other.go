//go:build !linux && !darwin

package main

import (
	"errors"
	"os/exec"
)

func leash(*exec.Cmd) {}

// adoptOrphans refuses: replicas don't run here.
func adoptOrphans() error {
	return errors.New("the demo runs replicas, which this platform does not support")
}

func endOrphans() int { return 0 }
