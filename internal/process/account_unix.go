//go:build linux || darwin

package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cronclave/cronclave/internal/safefile"
)

type identity struct {
	account
	groups []uint32
}

// lookupIdentity looks up a user and a group, each by name or by number. An empty name means the replica's own user or group. With a user, the supplementary
// groups are the ones that initgroups(3) sets: every group that lists the user, and the primary group. Without a user there are none. A user's number needs
// no entry in the user database, but without an entry there is no primary group, so the group must be named.
func (by *Accounts) lookupIdentity(userName, groupName string) (*identity, error) {
	a := &identity{account: account{uid: uint32(os.Getuid()), gid: uint32(os.Getgid()), by: by}}
	var u *user.User
	if userName != "" {
		var err error
		if u, err = a.setUser(userName, groupName); err != nil {
			return nil, err
		}
		if u == nil && groupName == "" {
			return nil, fmt.Errorf("user %s: no such user, so no primary group: group must be set", userName)
		}
	}
	if groupName != "" {
		gid, err := by.lookupGroup(groupName)
		if err != nil {
			return nil, err
		}
		a.gid = gid
	}
	if u == nil {
		return a, nil
	}
	u.Gid = strconv.FormatUint(uint64(a.gid), 10)
	if err := a.setGroups(u); err != nil {
		return nil, fmt.Errorf("groups of user %s: %w", userName, err)
	}
	return a, nil
}

// setGroups fills in the supplementary groups from /etc/group and from the directory service, which may list a user of /etc/passwd in its groups.
func (a *identity) setGroups(u *user.User) error {
	ids, err := u.GroupIds()
	if err != nil {
		return err //nolint:wrapcheck // the caller adds what failed
	}
	more, err := a.by.directoryGroups(u.Username, a.source)
	if err != nil {
		return err
	}
	for _, id := range append(ids, more...) {
		gid, err := parseID(id)
		if err != nil {
			return err
		}
		if !slices.Contains(a.groups, gid) {
			a.groups = append(a.groups, gid)
		}
	}
	return nil
}

// Sources looks up a user and a group as the start of a run does. It returns a text for display with the numbers and with the source of the user's entry.
// Without a user it returns "".
func (by *Accounts) Sources(userName, groupName string) (string, error) {
	if userName == "" {
		return "", nil
	}
	a, err := by.lookupIdentity(userName, groupName)
	if err != nil {
		return "", err
	}
	return a.String(), nil
}

// String describes the identity: "uid 1000, gid 100, groups 100 27, from /etc/passwd".
func (a *identity) String() string {
	groups := strings.Trim(fmt.Sprint(a.groups), "[]")
	return fmt.Sprintf("uid %d, gid %d, groups %s, from %s", a.uid, a.gid, cmp.Or(groups, "none"), cmp.Or(a.source, "no entry"))
}

// Rights returns the identity under which a job's files are opened. It returns nil if no user is named, or if the user is this process's own.
func (by *Accounts) Rights(userName, groupName string) (*safefile.Identity, error) {
	if userName == "" {
		return nil, nil
	}
	a, err := by.lookupIdentity(userName, groupName)
	if err != nil {
		return nil, err
	}
	if int(a.uid) == os.Geteuid() {
		return nil, nil
	}
	return &safefile.Identity{UID: a.uid, GID: a.gid, Groups: a.groups}, nil
}

func (by *Accounts) lookupGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	switch {
	case err == nil:
		return parseID(g.Gid)
	case !errors.As(err, new(user.UnknownGroupError)):
		return 0, fmt.Errorf("group %s: %w", name, err)
	}
	if gid, err := parseID(name); err == nil { // a group that is given by number needs no entry
		return gid, nil
	}
	line, err := by.cachedGetent(getentTime, "group", name)
	switch f := strings.Split(line, ":"); {
	case errors.Is(err, errNoEntry), errors.Is(err, errNoGetent):
		return 0, fmt.Errorf("group %s: no such group: not in /etc/group, and getent group: %w", name, err)
	case err != nil:
		return 0, fmt.Errorf("group %s: %w", name, err)
	case len(f) != 4 || !sameName(f[0], name):
		return 0, fmt.Errorf("getent group %s: the answer is no line of group(5) for it", name)
	default:
		return parseID(f[2])
	}
}

// sysCredential converts the identity to the type that os/exec takes. With keepGroups, the command keeps the replica's supplementary groups.
func (a *identity) sysCredential(keepGroups bool) *syscall.Credential {
	// An unprivileged process may change to its own user and group, but may not call setgroups.
	self := os.Geteuid() != 0 && int(a.uid) == os.Geteuid() && int(a.gid) == os.Getegid()
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups, NoSetGroups: keepGroups || self}
}
