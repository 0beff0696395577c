//go:build !linux && !darwin

package safefile

import (
	"errors"
	"io"
	"os"
)

// openAndRead opens, checks and reads a file. On this platform it does not check owners and modes, because no program runs as another user.
func openAndRead(name string, p Policy, read part) ([]byte, Info, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, Info{}, err //nolint:wrapcheck // the error names the file
	}
	defer func() { _ = f.Close() }() // a failed Close loses nothing, because f was only read
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, Info{}, err //nolint:wrapcheck // the error names the file
	case !info.Mode().IsRegular():
		return nil, Info{}, readError(name, ErrNotRegular)
	case info.Size() > p.MaxBytes:
		return nil, Info{}, readError(name, tooLong(p.MaxBytes))
	case read == nothing:
		return nil, Info{}, nil
	case read == start:
		data := make([]byte, StartBytes)
		n, err := f.Read(data)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return data[:n], Info{}, err //nolint:wrapcheck // the error names the file
	}
	data, err := io.ReadAll(io.LimitReader(f, p.MaxBytes+1))
	switch {
	case err != nil:
		return nil, Info{}, err //nolint:wrapcheck // the error names the file
	case int64(len(data)) > p.MaxBytes:
		return nil, Info{}, readError(name, tooLong(p.MaxBytes))
	}
	return data, Info{}, nil
}

// withRights calls f. If the rights of another user are needed, f gets an error.
func withRights(who *Identity, f func(error)) {
	if who != nil {
		f(errors.ErrUnsupported)
		return
	}
	f(nil)
}

func inspectFolder(string) error { return nil }
