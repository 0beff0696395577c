//go:build linux || darwin

package safefile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The modes that let a file be changed or read by others than its owner.
const (
	writable = 0o022
	sticky   = unix.S_ISVTX
)

// maxLinks is how many symbolic links lead to a file at most, as in the kernel.
const maxLinks = 40

// trusted judges an open file and the way to it. The way is walked after the file was opened: where all of it is
// trusted, none but trusted users could have made the name lead elsewhere in between.
func trusted(fd int, name string, st *unix.Stat_t, as *Identity) error {
	owners := []uint32{0}
	if as != nil {
		owners = append(owners, as.UID)
	}
	if err := judge(name, st, owners, func() bool { return readOnly(fd) }); err != nil {
		return err
	}
	return walk(name, owners)
}

func inspectFolder(name string) error { return walk(name, []uint32{0}) }

// judge judges the owner and the mode of a file or folder.
func judge(path string, st *unix.Stat_t, owners []uint32, fixed func() bool) error {
	var problems, remedies []string
	if !slices.Contains(owners, st.Uid) {
		problems = append(problems, fmt.Sprintf("belongs to the user %d", st.Uid))
		remedies = append(remedies, "chown "+rightful(st, owners)+" "+shellQuoted(path))
	}
	if by := classes(st, writable); by != "" && !fixed() {
		problems = append(problems, "can be written by "+by)
		remedies = append(remedies, "chmod go-w "+shellQuoted(path))
	}
	if len(problems) == 0 {
		return nil
	}
	return &UntrustedError{Path: path, Problem: strings.Join(problems, " and "), Remedy: strings.Join(remedies, " && ")}
}

// rightful is the owner that a file or folder should have. A file that is opened with a user's rights should belong to that user, since only then the
// user can read it.
func rightful(st *unix.Stat_t, owners []uint32) string {
	if uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG || len(owners) == 1 {
		return "root"
	}
	return strconv.FormatUint(uint64(owners[len(owners)-1]), 10)
}

// classes names those besides the owner to whom a mode gives something.
func classes(st *unix.Stat_t, bits uint32) string {
	var by []string
	if uint32(st.Mode)&bits&0o070 != 0 {
		by = append(by, fmt.Sprintf("the group %d", st.Gid))
	}
	if uint32(st.Mode)&bits&0o007 != 0 {
		by = append(by, "others")
	}
	return strings.Join(by, " and ")
}

// exposed names the users that may read a file, besides its owner, root's group, and the groups of the user that opens it: a file of root's is given
// to a user by such a group.
func exposed(st *unix.Stat_t, as *Identity) string {
	bits := uint32(0o044)
	if st.Gid == 0 || as != nil && (st.Gid == as.GID || slices.Contains(as.Groups, st.Gid)) {
		bits = 0o004
	}
	return classes(st, bits)
}

// walk judges each folder on the way to a file, and each link that a folder's other users may replace.
func walk(name string, owners []uint32) error {
	rest, err := parts(name)
	if err != nil {
		return failed(name, err)
	}
	links := 0
	folder, shared, err := judgeFolder("/", owners)
	for len(rest) > 0 && err == nil {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			folder, shared, err = judgeFolder(filepath.Dir(folder), owners)
			continue
		}
		path := filepath.Join(folder, part)
		var st unix.Stat_t
		if err := retry(func() error { return unix.Lstat(path, &st) }); err != nil {
			return failed(path, err)
		}
		switch uint32(st.Mode) & unix.S_IFMT {
		case unix.S_IFLNK:
			if shared && !slices.Contains(owners, st.Uid) {
				return &UntrustedError{Path: path, Problem: fmt.Sprintf("is a symbolic link of the user %d in a folder that others can write to", st.Uid),
					Remedy: "chown -h root " + shellQuoted(path)}
			}
			if links++; links > maxLinks {
				return failed(name, unix.ELOOP)
			}
			target, err := os.Readlink(path)
			if err != nil {
				return err //nolint:wrapcheck // it names the link
			}
			if filepath.IsAbs(target) {
				folder = "/"
			}
			rest = append(split(target), rest...)
		case unix.S_IFDIR:
			folder, shared, err = judgeFolder(path, owners)
		}
	}
	return err
}

// parts are those of the absolute path. A ".." is kept, since what it leads to depends on the links before it.
func parts(name string) ([]string, error) {
	if filepath.IsAbs(name) {
		return split(name), nil
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the file
	}
	return append(split(here), split(name)...), nil
}

func split(path string) []string {
	var all []string
	for part := range strings.SplitSeq(path, "/") {
		if part != "" && part != "." {
			all = append(all, part)
		}
	}
	return all
}

// judgeFolder judges one folder. shared says that others may add files to it, but not replace those of another owner.
func judgeFolder(path string, owners []uint32) (same string, shared bool, err error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Lstat(path, &st) }); err != nil {
		return path, false, failed(path, err)
	}
	shared = uint32(st.Mode)&sticky != 0 && uint32(st.Mode)&writable != 0
	return path, shared, judge(path, &st, owners, func() bool { return shared || readOnlyPath(path) })
}

// readOnly returns whether a file is on a read-only mount, so that its mode permits no write: Kubernetes mounts a ConfigMap so, with a folder that
// everybody might write to.
func readOnly(fd int) bool {
	var fs unix.Statfs_t
	err := retry(func() error { return unix.Fstatfs(fd, &fs) })
	return err == nil && mountedReadOnly(&fs)
}

func readOnlyPath(path string) bool {
	var fs unix.Statfs_t
	err := retry(func() error { return unix.Statfs(path, &fs) })
	return err == nil && mountedReadOnly(&fs)
}

// shellQuoted is a path as a shell takes it.
func shellQuoted(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%:,=") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
