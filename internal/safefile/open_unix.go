//go:build linux || darwin

package safefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openAndRead opens, checks and reads a file on the calling thread and with the rights of that thread.
func openAndRead(name string, p Policy, read part) ([]byte, Info, error) {
	fd, err := openFile(name)
	if err != nil {
		return nil, Info{}, readError(name, err)
	}
	defer func() { _ = unix.Close(fd) }() // a failed close loses nothing, because the file was only read
	var st unix.Stat_t
	if err := retryInterrupted(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return nil, Info{}, readError(name, err)
	}
	if err := checkFile(fd, name, &st, p); err != nil {
		return nil, Info{}, err
	}
	info := Info{Exposed: exposedTo(&st, p.As), Remedy: "chmod go-r " + shellQuoted(name)}
	var data []byte
	switch read {
	case start:
		data, err = readStart(fd)
	case whole:
		data, err = readAll(fd, st.Size, p.MaxBytes)
	}
	if err != nil {
		return nil, Info{}, readError(name, err)
	}
	return data, info, nil
}

func openFile(name string) (fd int, err error) {
	err = retryInterrupted(func() error {
		fd, err = unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		return err
	})
	switch {
	case errors.Is(err, unix.ENXIO): // the file is a socket
		err = ErrNotRegular
	case errors.Is(err, unix.EAGAIN): // callers would take EAGAIN for an exhausted machine
		err = errLeased
	}
	return fd, err
}

var errLeased = errors.New("another process holds a lease on the file (fcntl F_SETLEASE)")

func checkFile(fd int, name string, st *unix.Stat_t, p Policy) error {
	switch kind := uint32(st.Mode) & unix.S_IFMT; {
	case kind == unix.S_IFDIR:
		return readError(name, unix.EISDIR)
	case kind != unix.S_IFREG:
		return readError(name, ErrNotRegular)
	case st.Size > p.MaxBytes:
		return readError(name, tooLong(p.MaxBytes))
	}
	if err := checkReadable(st, p.As); err != nil {
		return readError(name, err)
	}
	if p.Trust == Administrators {
		return checkTrust(fd, name, st, p.As)
	}
	return nil
}

// readAll reads to the end of a file. The content may be longer than size: files in /proc have the size 0.
func readAll(fd int, size, limit int64) ([]byte, error) {
	const least = 512
	data := make([]byte, 0, size+least)
	for {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err //nolint:wrapcheck // the caller names the file
		case n == 0:
			return data, nil
		}
		data = data[:len(data)+n]
		if int64(len(data)) > limit {
			return nil, tooLong(limit)
		}
	}
}

func readStart(fd int) ([]byte, error) {
	data, n := make([]byte, StartBytes), 0
	err := retryInterrupted(func() (err error) {
		n, err = unix.Read(fd, data)
		return err
	})
	return data[:max(n, 0)], err //nolint:wrapcheck // the caller names the file
}

func retryInterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

const (
	writable = 0o022
	sticky   = unix.S_ISVTX
)

// maxLinks is the maximum number of symbolic links on the way to a file, as in the kernel.
const maxLinks = 40

// checkTrust checks an open file, and the folders and links on the path to it. It checks the path after the file was opened: if the path passes, only trusted
// users could have replaced the file in between.
func checkTrust(fd int, name string, st *unix.Stat_t, as *Identity) error {
	owners := []uint32{0}
	if as != nil {
		owners = append(owners, as.UID)
	}
	if err := judgeOwner(name, st, owners, func() bool { return readOnly(fd) }); err != nil {
		return err
	}
	_, _, err := judgePath(name, owners)
	return err
}

func inspectFolder(name string) error {
	folder, shared, err := judgePath(name, []uint32{0})
	if err == nil && shared && !readOnlyPath(folder) {
		err = &UntrustedError{Path: folder, Problem: "lets other users add files"}
	}
	return err
}

// judgeOwner checks the owner and the mode of a file or folder. fixed reports whether it is protected although its mode lets other users write.
func judgeOwner(path string, st *unix.Stat_t, owners []uint32, fixed func() bool) error {
	var problems, remedies []string
	if !slices.Contains(owners, st.Uid) {
		problems = append(problems, fmt.Sprintf("belongs to the user %d", st.Uid))
		remedies = append(remedies, "chown "+rightfulOwner(st, owners)+" "+shellQuoted(path))
	}
	if by := permittedClasses(st, writable); by != "" && !fixed() {
		problems = append(problems, "can be written by "+by)
		remedies = append(remedies, "chmod go-w "+shellQuoted(path))
	}
	if len(problems) == 0 {
		return nil
	}
	return &UntrustedError{Path: path, Problem: strings.Join(problems, " and "), Remedy: strings.Join(remedies, " && ")}
}

// rightfulOwner returns the owner that a file or folder should have. If a file is opened with a user's rights, that user should own it, because otherwise the
// user may be unable to read it.
func rightfulOwner(st *unix.Stat_t, owners []uint32) string {
	if uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG || len(owners) == 1 {
		return "root"
	}
	return strconv.FormatUint(uint64(owners[len(owners)-1]), 10)
}

// permittedClasses returns "the group N", "others", both or "": the users to whom a mode gives a permission in bits. It leaves out the owner.
func permittedClasses(st *unix.Stat_t, bits uint32) string {
	var by []string
	if uint32(st.Mode)&bits&0o070 != 0 {
		by = append(by, fmt.Sprintf("the group %d", st.Gid))
	}
	if uint32(st.Mode)&bits&0o007 != 0 {
		by = append(by, "others")
	}
	return strings.Join(by, " and ")
}

// exposedTo describes the users who can read a file. It leaves out the owner, the group of root, and the groups of the user who opens the file, because a
// group is the usual way to share a file of root with a user.
func exposedTo(st *unix.Stat_t, as *Identity) string {
	bits := uint32(0o044)
	if st.Gid == 0 || as != nil && (st.Gid == as.GID || slices.Contains(as.Groups, st.Gid)) {
		bits = 0o004
	}
	return permittedClasses(st, bits)
}

// judgePath checks each folder on the way to a file. It also checks the owner of each link in a shared folder, because the owner may replace the link. It returns
// the last folder, and whether other users may add files to it.
func judgePath(name string, owners []uint32) (folder string, shared bool, err error) {
	rest, err := pathParts(name)
	if err != nil {
		return "", false, readError(name, err)
	}
	links := 0
	folder, shared, err = judgeFolder("/", owners)
	for len(rest) > 0 && err == nil {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			folder, shared, err = judgeFolder(filepath.Dir(folder), owners)
			continue
		}
		path := filepath.Join(folder, part)
		var st unix.Stat_t
		if err := retryInterrupted(func() error { return unix.Lstat(path, &st) }); err != nil {
			return folder, shared, readError(path, err)
		}
		switch uint32(st.Mode) & unix.S_IFMT {
		case unix.S_IFLNK:
			if shared && !slices.Contains(owners, st.Uid) {
				return folder, shared, &UntrustedError{Path: path, Problem: fmt.Sprintf("is a symbolic link of the user %d in a folder that others can write to", st.Uid),
					Remedy: "chown -h root " + shellQuoted(path)}
			}
			if links++; links > maxLinks {
				return folder, shared, readError(name, unix.ELOOP)
			}
			target, err := os.Readlink(path)
			if err != nil {
				return folder, shared, err //nolint:wrapcheck // the error names the link
			}
			if filepath.IsAbs(target) {
				folder = "/"
			}
			rest = append(splitPath(target), rest...)
		case unix.S_IFDIR:
			folder, shared, err = judgeFolder(path, owners)
		}
	}
	return folder, shared, err
}

// pathParts returns the elements of the absolute path. It keeps "..", because the target of ".." depends on the links before it.
func pathParts(name string) ([]string, error) {
	if filepath.IsAbs(name) {
		return splitPath(name), nil
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the file
	}
	return append(splitPath(here), splitPath(name)...), nil
}

func splitPath(path string) []string {
	var all []string
	for part := range strings.SplitSeq(path, "/") {
		if part != "" && part != "." {
			all = append(all, part)
		}
	}
	return all
}

// judgeFolder checks one folder and returns its path. shared reports whether other users may add files, but may replace only their own (sticky bit).
func judgeFolder(path string, owners []uint32) (same string, shared bool, err error) {
	var st unix.Stat_t
	if err := retryInterrupted(func() error { return unix.Lstat(path, &st) }); err != nil {
		return path, false, readError(path, err)
	}
	shared = uint32(st.Mode)&sticky != 0 && uint32(st.Mode)&writable != 0
	return path, shared, judgeOwner(path, &st, owners, func() bool { return shared || readOnlyPath(path) })
}

// readOnly reports whether a file is on a read-only mount. The write permissions in its mode then have no effect. Kubernetes mounts a ConfigMap this way,
// with a folder whose mode lets everybody write.
func readOnly(fd int) bool {
	var fs unix.Statfs_t
	err := retryInterrupted(func() error { return unix.Fstatfs(fd, &fs) })
	return err == nil && mountedReadOnly(&fs)
}

func readOnlyPath(path string) bool {
	var fs unix.Statfs_t
	err := retryInterrupted(func() error { return unix.Statfs(path, &fs) })
	return err == nil && mountedReadOnly(&fs)
}

func shellQuoted(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%:,=") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
