package main

import (
	"strings"
	"testing"
)

// TestProgramsStartWithDefaultSignals starts exec and lock with signals ignored and blocked, as a supervisor, nohup or a script may. The command has none of
// that, and none of the variables with which a service manager addresses this process.
func TestProgramsStartWithDefaultSignals(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	const show = `grep -E '^Sig(Blk|Ign):' /proc/self/status; env | grep -E '^(NOTIFY|WATCHDOG|LISTEN)_' ; echo done`
	for name, line := range map[string][]string{
		"exec": execLine(t, "", "inherit_env = true\ncommand = [\"sh\", \"-c\", '''"+show+"''']\n"),
		"lock": {"cronclave", "lock", "l", "--redis", server.URL(), "--", "sh", "-c", show},
	} {
		t.Run(name, func(t *testing.T) {
			env := []string{"NOTIFY_SOCKET=/run/systemd/notify", "WATCHDOG_USEC=1000000", "WATCHDOG_PID=1", "LISTEN_FDS=1", "LISTEN_PID=1", "LISTEN_FDNAMES=x",
				"LISTEN_PIDFDID=7", "LISTEN_ADDR=:80"}
			p := startProcess(t, env, append([]string{"env", "--ignore-signal=HUP,INT,TSTP,TTIN,TTOU", "--block-signal=USR1,TERM"}, line...)...)
			said := strings.Replace(p.end(t, 0), "SigIgn:\t0000000080000000", "SigIgn:\t0000000000000000", 1) // 32 is a signal of the C library, which is linked with the race detector
			want := "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nLISTEN_ADDR=:80\ndone\n"
			if said != want {
				t.Errorf("the command said\n%s\nwant\n%s", said, want)
			}
			if p.stderr.Len() > 0 && !strings.Contains(p.stderr.String(), "[DEBUG]") {
				t.Errorf("stderr: %s", &p.stderr)
			}
		})
	}
}
