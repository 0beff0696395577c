package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// protectMemory keeps other processes of the same user, such as jobs, from reading the environment and the memory of this process through /proc or ptrace.
// There they would find CRONCLAVE_REDIS and the contents of password files. The protection ends when this process executes another program.
//
// A cronclave process inside a run is protected only if it has CRONCLAVE_REDIS. Otherwise the replica of the run must be able to read its environment, to
// find stray processes of the run.
func protectMemory() {
	if os.Getenv(envRunID) != "" && os.Getenv(envRedis) == "" {
		return
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // PR_SET_DUMPABLE exists since Linux 2.4
}
