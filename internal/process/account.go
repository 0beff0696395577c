package process

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/safefile"
)

type account struct {
	uid, gid          uint32
	name, home, shell string // the command gets them as USER, HOME and SHELL
	source            string // source of the entry: fromPasswd, fromGetent, "the system", or "" if the user was named by a number that has no entry

	by *Accounts // looks up entries in the directory service
}

const (
	fromPasswd = "/etc/passwd"
	fromGetent = "getent passwd"
)

// setUser looks up the user and fills in the account. It returns a nil user and no error if the name is a number without an entry, or, with a group, a number
// whose lookup gets no answer: a command can start with the numbers of a user and a group alone.
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

// findUser looks the user up in /etc/passwd. If the user is not there, findUser asks the directory service, with most as the time limit. The error wraps
// [errNoEntry] if the user is in neither.
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
	return &user.User{Username: f[0], Uid: f[2], Gid: f[3], Name: f[4], HomeDir: cmp.Or(f[5], "/")}, cmp.Or(f[6], "/bin/sh"), nil
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

// parseID parses the number of a user or a group. It refuses the greatest 32-bit number, because system calls interpret that number as "leave unchanged".
func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == math.MaxUint32 {
		return 0, fmt.Errorf("%q is no user's or group's number", s)
	}
	return uint32(n), nil
}

const passwdFields = 7

// passwdEntry returns the fields of the line of a passwd(5) file with this user name or, if no line has the name, with this user number. The error is
// [errNoEntry] if no line matches.
func passwdEntry(passwd, name string) (entry []string, err error) {
	f, err := os.Open(passwd)
	if proc.IsExhausted(err) {
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

const (
	// getentTime bounds a lookup in a directory service (LDAP, SSSD). A slow lookup delays only the start that needs the entry.
	getentTime = 5 * time.Second
	// numberTime bounds the lookup of a user that is given by number together with a group. The lookup is optional: it adds the home folder and the further
	// groups. A start makes up to three lookups, which must take less than 5 s in total, because a granted lease may leave no more time for the start.
	numberTime = 1500 * time.Millisecond
	// mostGetent caps getent's output in bytes. It has room for the entry of a group with about ten thousand members.
	mostGetent = 4 << 20
)

// getentPrograms lists the usual paths of getent(1). getent asks the services of nsswitch.conf, such as LDAP, SSSD and systemd-homed. This program is linked
// statically, so without getent it could only read files such as /etc/passwd.
var getentPrograms = []string{"/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"}

var (
	errNoEntry  = errors.New("no entry")
	errNoGetent = errors.New("this machine has no getent to ask a directory with")
)

// silent reports that the directory service did not answer. It matches [safefile.ErrUnanswered], so that markNotStarted does not blame the command.
type silent struct{ error }

func (silent) Is(target error) bool { return target == safefile.ErrUnanswered }

// Accounts caches lookups of users and groups. It asks the directory service once per entry. After a lookup has timed out, new lookups with the same or a
// shorter time limit fail at once. Use a new Accounts for each `cronclave` command and for each reload of the configuration, because a cached entry is never
// looked up again. Each start of a run uses a nil *Accounts, which caches nothing. Accounts is safe for concurrent use.
type Accounts struct {
	mu     sync.Mutex
	known  map[[2]string]directoryAnswer // answers by database and key
	silent error                         // error of the timed-out lookup with the longest time limit, or nil
	waited time.Duration                 // time limit of the lookup that set silent
}

// databaseEntry maps each database of getent(1) to the kind of its entries, for errors.
var databaseEntry = map[string]string{"passwd": "user", "group": "group", "initgroups": "user"}

type directoryAnswer struct {
	line string
	err  error
}

// cachedGetent calls runGetent and caches its result, including errors.
func (by *Accounts) cachedGetent(most time.Duration, database, key string) (string, error) {
	if by == nil {
		return runGetent(most, database, key)
	}
	by.mu.Lock()
	defer by.mu.Unlock()
	of := [2]string{database, key}
	if got, asked := by.known[of]; asked {
		return got.line, got.err
	}
	if by.silent != nil && most <= by.waited {
		return "", by.silent
	}
	line, err := runGetent(most, database, key)
	if errors.Is(err, safefile.ErrUnanswered) {
		by.waited = most
		by.silent = silent{fmt.Errorf("not looked up, because the directory service did not answer for %s %s within %v", databaseEntry[database], key, most)}
		if most < getentTime { // a lookup with a longer time limit may ask again
			return line, err
		}
	}
	if by.known == nil {
		by.known = map[[2]string]directoryAnswer{}
	}
	by.known[of] = directoryAnswer{line, err}
	return line, err
}

// runGetent returns the first line that getent(1) prints. The error wraps [errNoEntry] if the entry does not exist, and matches [safefile.ErrUnanswered] if
// the directory service does not answer within the time most.
func runGetent(most time.Duration, database, key string) (string, error) {
	program := getentProgram()
	switch {
	case program == "":
		return "", errNoGetent
	case key == "" || strings.HasPrefix(key, "-") || strings.ContainsAny(key, "\x00\n"):
		return "", errNoEntry
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, database, key)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, "/"
	var out limitedBuffer
	cmd.Stdout = &out
	cmd.WaitDelay = time.Second
	done := make(chan error, 1)
	go func() { done <- cmd.Run() }() // getent may hang in the kernel, where even SIGKILL does not end it
	var err error
	select {
	case err = <-done:
	case <-time.After(most + 2*cmd.WaitDelay):
		err = context.DeadlineExceeded
	}
	var exit *exec.ExitError
	switch {
	case err != nil && ctx.Err() != nil:
		return "", silent{fmt.Errorf("getent %s %s: no answer within %v", database, key, most)}
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

// limitedBuffer keeps up to mostGetent bytes. Write returns an error instead of exceeding this length.
type limitedBuffer struct{ text []byte }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > mostGetent {
		return 0, fmt.Errorf("the answer is longer than %d bytes: %w", mostGetent, io.ErrShortBuffer)
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

// directoryServices returns the services that nsswitch.conf lists for the first database, or for the next one if the first has no line. It omits "files".
func directoryServices(nsswitch []byte, databases ...string) (services []string) {
	for _, database := range databases {
		for line := range bytes.Lines(nsswitch) {
			text, _, _ := strings.Cut(string(line), "#")
			name, named, found := strings.Cut(text, ":")
			if !found || strings.TrimSpace(name) != database {
				continue
			}
			for _, service := range strings.Fields(named) {
				if service != "files" && !strings.HasPrefix(service, "[") {
					services = append(services, service)
				}
			}
			return services
		}
	}
	return nil
}

// directoryGroups returns the numbers of a user's groups in the directory service. It returns none if nsswitch.conf does not exist or names no directory
// service. For a user of /etc/passwd, the service systemd does not count as a directory service: Debian configures it by default, and it has only users and
// groups of this machine.
func (by *Accounts) directoryGroups(user, source string) ([]string, error) {
	nsswitch, err := os.ReadFile("/etc/nsswitch.conf")
	if err != nil {
		return nil, nil //nolint:nilerr // without the file, no directory is configured
	}
	services := directoryServices(nsswitch, "initgroups", "group")
	if source == fromPasswd {
		services = slices.DeleteFunc(services, func(service string) bool { return service == "systemd" })
	}
	if len(services) == 0 {
		return nil, nil
	}
	line, err := by.cachedGetent(getentTime, "initgroups", user)
	switch {
	case errors.Is(err, errNoEntry), errors.Is(err, errNoGetent):
		return nil, nil
	case err != nil:
		return nil, err
	}
	fields := strings.Fields(strings.TrimPrefix(line, user))
	return fields, nil
}
