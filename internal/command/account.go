package command

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/cronclave/cronclave/internal/exhaustion"
)

// account is whom a command runs as.
type account struct {
	uid, gid          uint32
	name, home, shell string // for the environment
}

// setUser fills in the user's fields. It returns no user for a number that has no entry.
func (a *account) setUser(name string) (*user.User, error) {
	u, err := user.Lookup(name)
	if errors.As(err, new(user.UnknownUserError)) {
		uid, numErr := number(name)
		if numErr != nil {
			return nil, fmt.Errorf("user %s: no such user", name)
		}
		if u, err = user.LookupId(name); errors.As(err, new(user.UnknownUserIdError)) {
			a.uid, a.name, a.home, a.shell = uid, name, "/", "/bin/sh"
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	if a.uid, err = number(u.Uid); err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	if a.gid, err = number(u.Gid); err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	a.name, a.home = u.Username, u.HomeDir
	if a.shell, err = loginShell("/etc/passwd", u.Username); err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	return u, nil
}

// number reads a user's or a group's number. The greatest one is none: it means "leave as it is" to the
// system calls.
func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == math.MaxUint32 {
		return 0, fmt.Errorf("%q is no user's or group's number", s)
	}
	return uint32(n), nil
}

// loginShell is the last field of the user's line in a passwd(5) file, which os/user leaves out; /bin/sh for
// a user that is not in it (but in a directory service) or whose field is empty.
func loginShell(passwd, name string) (string, error) {
	const none = "/bin/sh"
	f, err := os.Open(passwd)
	if exhaustion.Is(err) {
		return "", err
	}
	if err != nil {
		return none, nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) == 7 && fields[0] == name && fields[6] != "" {
			return fields[6], nil
		}
	}
	return none, nil
}
