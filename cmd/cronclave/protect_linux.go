package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// protect keeps other processes of the same user, such as jobs, from reading this one's environment and memory through /proc or ptrace, since they
// hold CRONCLAVE_REDIS and the content of password files. A program that this process executes is readable again.
//
// A process inside a run stays readable, unless it has such a secret itself: the run's replica finds stray processes by their environment.
func protect() {
	if os.Getenv(envRunID) != "" && os.Getenv(envRedis) == "" {
		return
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // Linux knows it since 2.4
}
