package process

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/exhaustion"
	"github.com/cronclave/cronclave/internal/safefile"
)

// account is the user that a command runs as.
type account struct {
	uid, gid          uint32
	name, home, shell string // of the user; the command gets them as USER, HOME and SHELL
	source            string // source of the entry: fromPasswd, fromGetent, "the system", or "" if the user is a number without an entry

	by *Accounts // looks up entries in the directory service
}

// Values of account.source.
const (
	fromPasswd = "/etc/passwd"
	fromGetent = "getent passwd"
)

// setUser looks up the user and fills in the fields of a. For a number that has no entry, the returned user is nil and there is no error. The same applies if
// the directory service does not answer about a number and a group is named, because the two numbers are enough to start a command.
func (a *account) setUser(name, groupName string) (*user.User, error) {
	uid, numErr := parseID(name)
	most := getentTime
	if numErr == nil && groupName != "" {
		most = numberTime
	}
	u, shell, err := a.findUser(name, most)
	absent := errors.Is(err, errNoEntry) || errors.Is(err, errNoGetent)
	switch {
	case numErr == nil && (absent || groupName != "" && errors.Is(err, safefile.ErrUnanswered)):
		a.uid, a.name, a.home, a.shell, a.source = uid, name, "/", "/bin/sh", ""
		return nil, nil
	case absent:
		return nil, fmt.Errorf("user %s: no such user: not in %s, and %s: %w", name, fromPasswd, fromGetent, err)
	case err != nil:
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	if a.uid, err = parseID(u.Uid); err != nil {
		return nil, fmt.Errorf("user %s: %s: %w", name, a.source, err)
	}
	if a.gid, err = parseID(u.Gid); err != nil {
		return nil, fmt.Errorf("user %s: %s: %w", name, a.source, err)
	}
	a.name, a.home, a.shell = u.Username, u.HomeDir, shell
	return u, nil
}

// findUser looks the user up in /etc/passwd. If the user is not there, it asks the directory service and waits at most for the duration most. The error wraps
// [errNoEntry] if both lack the user.
func (a *account) findUser(name string, most time.Duration) (u *user.User, shell string, err error) {
	f, err := passwdEntry("/etc/passwd", name)
	if a.source = fromPasswd; errors.Is(err, errNoEntry) {
		a.source = fromGetent
		f, err = a.by.directoryEntry(name, most)
	}
	if errors.Is(err, errNoGetent) {
		return a.askSystem(name)
	}
	if err != nil {
		return nil, "", err
	}
	return &user.User{Username: f[0], Uid: f[2], Gid: f[3], Name: f[4], HomeDir: orText(f[5], "/")}, orText(f[6], "/bin/sh"), nil
}

// askSystem looks the user up with package os/user. It serves machines without getent, such as macOS, whose C library asks the directory service.
func (a *account) askSystem(name string) (u *user.User, shell string, err error) {
	a.source = "the system"
	if u, err = user.Lookup(name); err != nil {
		u, err = user.LookupId(name)
	}
	if err != nil {
		return nil, "", errNoGetent
	}
	return u, "/bin/sh", nil
}

// directoryEntry returns the fields of the user's line of passwd(5) from the directory service.
func (by *Accounts) directoryEntry(name string, most time.Duration) ([]string, error) {
	line, err := by.cachedGetent(most, "passwd", name)
	if err != nil {
		return nil, err
	}
	f := strings.Split(line, ":")
	if len(f) != passwdFields || !sameName(f[0], name) && f[2] != name {
		return nil, fmt.Errorf("getent passwd %s: the answer is no line of passwd(5) for it", name)
	}
	return f, nil
}

// sameName reports whether an entry of the directory service has the requested name. The service may return the name in another case, or append a domain to
// it, as SSSD does for Active Directory.
func sameName(entry, asked string) bool {
	if strings.EqualFold(entry, asked) {
		return true
	}
	at := strings.LastIndexByte(entry, '@')
	return at >= 0 && at+1 < len(entry) && strings.EqualFold(entry[:at], asked)
}

func orText(text, instead string) string {
	if text == "" {
		return instead
	}
	return text
}

// parseID parses the number of a user or a group. It refuses the greatest 32-bit number, because system calls interpret that number as "leave unchanged".
func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == math.MaxUint32 {
		return 0, fmt.Errorf("%q is no user's or group's number", s)
	}
	return uint32(n), nil
}

// passwdFields is the number of fields of a line of passwd(5).
const passwdFields = 7

// passwdEntry returns the fields of the user's line in a passwd(5) file. A line whose user has this name takes precedence over a line whose user has this
// number. The error is [errNoEntry] if no line matches.
func passwdEntry(passwd, name string) (entry []string, err error) {
	f, err := os.Open(passwd)
	if exhaustion.Is(err) {
		return nil, err
	}
	if err != nil {
		return nil, errNoEntry
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		switch fields := strings.Split(lines.Text(), ":"); {
		case len(fields) != passwdFields:
		case fields[0] == name:
			return fields, nil
		case fields[2] == name && entry == nil:
			entry = fields
		}
	}
	if entry == nil {
		return nil, errNoEntry
	}
	return entry, nil
}
