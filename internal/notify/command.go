package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"time"
)

// exitRefused is the exit code by which a command says that it will never take the event (EX_DATAERR of sysexits.h).
const exitRefused = 65

// sendToCommand runs the command with the event as JSON on stdin. Its environment has only PATH, HOME, LANG and TZ.
func sendToCommand(ctx context.Context, c *call, m Message) Result {
	body, err := encodeJSON(eventData(m))
	if err != nil {
		return Result{Verdict: Never, Answer: err.Error()}
	}
	cmd := exec.CommandContext(ctx, c.target.Command[0], c.target.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(body), c.output, c.output
	cmd.Env = []string{}
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ"} {
		if value, set := os.LookupEnv(name); set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	killGroup := inOwnGroup(cmd)
	cmd.Cancel = func() error { killGroup(); return nil }
	cmd.WaitDelay = time.Second // for a process outside the group that holds stdin or the output open
	if err := cmd.Start(); err != nil {
		r := Result{Verdict: Later, Answer: "the command cannot be started: " + bareReason(err)} // the machine may lack processes or memory for a while
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrPermission) {
			r.Verdict, r.Gone = Never, true
		}
		return r
	}
	err = cmd.Wait()
	killGroup() // what the command has left behind
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return Result{Verdict: Unknown, Answer: "the command was killed, because it did not end in time"}
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return Result{Answer: "exit code 0"}
	case errors.As(err, &exit) && exit.ExitCode() == exitRefused:
		return Result{Verdict: Never, Answer: fmt.Sprintf("exit code %d", exitRefused)}
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return Result{Verdict: Later, Answer: fmt.Sprintf("exit code %d", exit.ExitCode())}
	}
	return Result{Verdict: Unknown, Answer: "the command was killed by a signal"}
}
