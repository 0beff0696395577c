package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	// getentTime is the time after which a directory service that does not answer is given up. It costs the start that asked, and no other.
	getentTime = 5 * time.Second
	// mostGetent caps the bytes of an answer: a group may have some ten thousand members.
	mostGetent = 4 << 20
)

// getentPrograms are the places of getent(1), which asks what nsswitch.conf names: LDAP, SSSD, systemd-homed. This program can't: it is linked statically, and reads
// files alone.
var getentPrograms = []string{"/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"}

// errNoEntry says that there is no such entry, and errNoGetent that this machine has no getent.
var (
	errNoEntry  = errors.New("no entry")
	errNoGetent = errors.New("this machine has no getent to ask a directory with")
)

// getent returns the first line of an answer. The error wraps [errNoEntry] if there is none.
func getent(database, key string) (string, error) {
	program := getentProgram()
	switch {
	case program == "":
		return "", errNoGetent
	case key == "" || strings.HasPrefix(key, "-") || strings.ContainsAny(key, "\x00\n"):
		return "", errNoEntry
	}
	ctx, cancel := context.WithTimeout(context.Background(), getentTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, database, key)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, "/"
	var out limitedBuffer
	cmd.Stdout = &out
	cmd.WaitDelay = time.Second
	done := make(chan error, 1)
	go func() { done <- cmd.Run() }() // which may hang in the kernel, beyond SIGKILL
	var err error
	select {
	case err = <-done:
	case <-time.After(getentTime + 2*cmd.WaitDelay):
		return "", fmt.Errorf("getent %s %s: no answer within %v", database, key, getentTime)
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("getent %s %s: no answer within %v", database, key, getentTime)
	case errors.As(err, &exit) && exit.ExitCode() == 2:
		return "", errNoEntry
	case err != nil:
		return "", fmt.Errorf("getent %s %s: %w", database, key, err)
	}
	line, _, _ := bytes.Cut(out.text, []byte("\n"))
	return string(line), nil
}

func getentProgram() string {
	for _, path := range getentPrograms {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// limitedBuffer keeps mostGetent bytes, and refuses more.
type limitedBuffer struct{ text []byte }

// Write fails if the answer is too long.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > mostGetent {
		return 0, fmt.Errorf("the answer is longer than %d bytes: %w", mostGetent, io.ErrShortBuffer)
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

// hasDirectory reports whether nsswitch.conf names more than files for a database, by the text of that file. Without the file glibc asks files alone.
func hasDirectory(nsswitch []byte, databases ...string) bool {
	for _, database := range databases {
		for line := range bytes.Lines(nsswitch) {
			text, _, _ := strings.Cut(string(line), "#")
			name, services, found := strings.Cut(text, ":")
			if !found || strings.TrimSpace(name) != database {
				continue
			}
			for _, service := range strings.Fields(services) {
				if service != "files" && !strings.HasPrefix(service, "[") {
					return true
				}
			}
			return false // the first database that is there counts
		}
	}
	return false
}

// directoryGroups returns the numbers of the groups that a directory has a user in, beside those of /etc/group; none where the machine has no directory.
func directoryGroups(user string) ([]string, error) {
	nsswitch, err := os.ReadFile("/etc/nsswitch.conf")
	if err != nil || !hasDirectory(nsswitch, "initgroups", "group") {
		return nil, nil //nolint:nilerr // without the file there is none
	}
	line, err := getent("initgroups", user)
	switch {
	case errors.Is(err, errNoEntry), errors.Is(err, errNoGetent):
		return nil, nil
	case err != nil:
		return nil, err
	}
	fields := strings.Fields(strings.TrimPrefix(line, user))
	return fields, nil
}
