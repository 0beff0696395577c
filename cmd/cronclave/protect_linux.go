package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// protectMemory prevents other processes of the same user, such as jobs, from reading the environment and memory of this process by /proc or ptrace. They
// contain CRONCLAVE_REDIS and the contents of password files. A program that this process executes is not protected.
//
// A process inside a run is not protected either, unless it has CRONCLAVE_REDIS itself: the replica of the run finds stray processes by their
// environment.
func protectMemory() {
	if os.Getenv(envRunID) != "" && os.Getenv(envRedis) == "" {
		return
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // in Linux since 2.4
}
