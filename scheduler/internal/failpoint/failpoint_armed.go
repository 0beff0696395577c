//go:build failpoints && unix

// Package failpoint lets tests kill a replica at a named point of its work.
package failpoint

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// Reach kills this process with SIGKILL if the environment variable CRONCLAVE_FAILPOINTS ("JOB=POINT:FILE,...") has an entry for the job and the
// point. The first replica that reaches the point creates the file, writes the tick of the run into it, and dies. The other replicas go on.
func Reach(point, job string, tick time.Time) {
	for _, armed := range strings.Split(os.Getenv("CRONCLAVE_FAILPOINTS"), ",") {
		file, here := strings.CutPrefix(armed, job+"="+point+":")
		if !here {
			continue
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			continue
		}
		fmt.Fprint(f, tick.Unix())
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
