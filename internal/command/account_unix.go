//go:build linux || darwin

package command

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/cronclave/cronclave/internal/safefile"
)

// identity is an account with its supplementary groups.
type identity struct {
	account
	groups []uint32
}

// lookupIdentity resolves a user and a group, each by name or by number, each "" for the replica's own. The
// supplementary groups are those that initgroups(3) gives: the groups that list the user, and the group
// itself. With no user there are none. A number needs no entry in the user database, but then there is no
// primary group to take and the group must be named.
func lookupIdentity(userName, groupName string) (*identity, error) {
	a := &identity{account: account{uid: uint32(os.Getuid()), gid: uint32(os.Getgid())}}
	var u *user.User
	if userName != "" {
		var err error
		if u, err = a.setUser(userName); err != nil {
			return nil, err
		}
		if u == nil && groupName == "" {
			return nil, fmt.Errorf("user %s: no such user, so no primary group: group must be set", userName)
		}
	}
	if groupName != "" {
		gid, err := lookupGroup(groupName)
		if err != nil {
			return nil, err
		}
		a.gid = gid
	}
	if u == nil {
		return a, nil
	}
	u.Gid = strconv.FormatUint(uint64(a.gid), 10)
	ids, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of user %s: %w", userName, err)
	}
	for _, id := range ids {
		gid, err := number(id)
		if err != nil {
			return nil, fmt.Errorf("groups of user %s: %w", userName, err)
		}
		a.groups = append(a.groups, gid)
	}
	return a, nil
}

// Rights are those with which a job's files are opened: its user's, or nil where that is this process's own user.
func Rights(userName, groupName string) (*safefile.Identity, error) {
	if userName == "" {
		return nil, nil
	}
	a, err := lookupIdentity(userName, groupName)
	if err != nil {
		return nil, err
	}
	if int(a.uid) == os.Geteuid() {
		return nil, nil
	}
	return &safefile.Identity{UID: a.uid, GID: a.gid, Groups: a.groups}, nil
}

func lookupGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if errors.As(err, new(user.UnknownGroupError)) {
		gid, numErr := number(name)
		if numErr != nil {
			return 0, fmt.Errorf("group %s: no such group", name)
		}
		return gid, nil
	}
	if err != nil {
		return 0, fmt.Errorf("group %s: %w", name, err)
	}
	return number(g.Gid)
}

// credential is the identity as the kernel wants it. keepGroups leaves the supplementary groups alone.
func (a *identity) credential(keepGroups bool) *syscall.Credential {
	// A process that runs as its own user needs no privilege, and setgroups would require one.
	self := os.Geteuid() != 0 && int(a.uid) == os.Geteuid() && int(a.gid) == os.Getegid()
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups, NoSetGroups: keepGroups || self}
}
