//go:build failpoints && unix

package scheduler

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// failpoint kills this process, as kill -9 does, where CRONCLAVE_FAILPOINTS asks for it: "JOB=POINT:FILE,...". The first of the replicas that gets there
// makes the file, and dies; to the others it is nothing. The file has the tick of the run.
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
