//go:build linux || darwin

package safefile

import (
	"errors"

	"golang.org/x/sys/unix"
)

// openAndRead opens, checks and reads a file on the calling thread and with the rights of that thread.
func openAndRead(name string, p Policy, read part) ([]byte, Info, error) {
	fd, err := openFile(name)
	if err != nil {
		return nil, Info{}, readError(name, err)
	}
	defer func() { _ = unix.Close(fd) }() // the file was only read
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

// checkFile returns an error if the policy does not accept the open file.
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

// retryInterrupted repeats a system call that was interrupted by a signal.
func retryInterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
