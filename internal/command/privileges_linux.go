package command

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// dropPrivileges changes this thread, and so what it forks. A change of the user takes permitted and effective capabilities away, but leaves inheritable ones, and
// between two users that are not root ambient ones, too: by these a job of a replica with AmbientCapabilities= would have its right to become anybody. The bounding
// set stays: it only matters to programs that get capabilities when they are executed, which no_new_privs prevents.
func (s *Spec) dropPrivileges() error {
	if s.User != "" {
		if err := dropInheritable(); err != nil {
			return err
		}
	}
	if s.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("%w: no_new_privs: %w", errPrivileges, err)
		}
	}
	return nil
}

// dropInheritable clears the ambient and the inheritable capabilities of this thread.
func dropInheritable() error {
	err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: before Linux 4.3 there are none
		return fmt.Errorf("%w: ambient capabilities: %w", errPrivileges, err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // version 3 has 64 bits
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("%w: read capabilities: %w", errPrivileges, err)
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("%w: inheritable capabilities: %w", errPrivileges, err)
	}
	return nil
}
