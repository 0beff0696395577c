//go:build failpoints && unix

package scheduler

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// failpoint kills this process with SIGKILL if the environment variable CRONCLAVE_FAILPOINTS ("JOB=POINT:FILE,...") has an entry for the job and the
// point. The first replica that reaches the point creates the file, writes the tick of the run into it, and dies. The other replicas go on.
func failpoint(point string, run *Run) {
	for _, armed := range strings.Split(os.Getenv("CRONCLAVE_FAILPOINTS"), ",") {
		file, here := strings.CutPrefix(armed, run.Job+"="+point+":")
		if !here {
			continue
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			continue
		}
		fmt.Fprint(f, run.Tick.Unix())
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
