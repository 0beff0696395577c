package main

import (
	"runtime"
	"syscall"
	"time"
)

// usage is the resources that this process has used so far.
type usage struct {
	cpu            time.Duration
	mallocs, bytes uint64
}

func usageNow() (usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{}, err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{time.Duration(r.Utime.Nano() + r.Stime.Nano()), m.Mallocs, m.TotalAlloc}, nil
}
