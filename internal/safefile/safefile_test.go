//go:build linux || darwin

package safefile

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const limit = 4 << 10

// put writes a file and returns its name.
func put(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnlyRegularFilesOfBoundedSize: nothing else is read, and none of it is waited for.
func TestOnlyRegularFilesOfBoundedSize(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("file"), "text", 0o600)
	put(t, at("full"), strings.Repeat("x", limit), 0o600)
	put(t, at("long"), strings.Repeat("x", limit+1), 0o600)
	put(t, at("huge"), "", 0o600)
	must(t, os.Truncate(at("huge"), 1<<40))
	must(t, unix.Mkfifo(at("pipe"), 0o600))
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", at("socket"))
	must(t, err)
	defer socket.Close()
	for link, to := range map[string]string{"to-file": "file", "to-pipe": "pipe", "to-zero": "/dev/zero", "to-itself": "to-itself", "to-nothing": "none"} {
		must(t, os.Symlink(to, at(link)))
	}
	for _, tc := range []struct {
		name string
		want error // nil where it is read
	}{
		{at("file"), nil}, {at("to-file"), nil}, {at("full"), nil}, {"safefile_test.go/../safefile.go", unix.ENOTDIR},
		{at("long"), ErrTooLong}, {at("huge"), ErrTooLong},
		{at("pipe"), ErrNotRegular}, {at("to-pipe"), ErrNotRegular}, {at("socket"), ErrNotRegular}, {dir, unix.EISDIR},
		{"/dev/zero", ErrNotRegular}, {"/dev/tty", ErrNotRegular}, {at("to-zero"), ErrNotRegular},
		{at("to-itself"), unix.ELOOP}, {at("to-nothing"), os.ErrNotExist},
	} {
		for _, ctx := range []context.Context{context.Background(), t.Context()} { // on this goroutine, and on another one
			data, err := Read(ctx, tc.name, Policy{MaxBytes: limit})
			_, seen := Inspect(ctx, tc.name, Policy{MaxBytes: limit})
			if tc.name == "/dev/tty" && errors.Is(err, ErrNotRegular) != errors.Is(seen, ErrNotRegular) || tc.name != "/dev/tty" && !errors.Is(err, tc.want) || !errors.Is(seen, tc.want) {
				t.Errorf("%s: read %v, inspected %v, want %v", tc.name, err, seen, tc.want)
			}
			if (err == nil) != (len(data) > 0) {
				t.Errorf("%s: %d bytes and %v", tc.name, len(data), err)
			}
		}
	}
}

// TestFileThatSaysToBeEmpty: files of the system have a size of 0 and content all the same, which is bounded, too.
func TestFileThatSaysToBeEmpty(t *testing.T) {
	data, err := Read(t.Context(), systemFile, Policy{MaxBytes: 1 << 20})
	if err != nil || len(data) == 0 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if _, err := Read(t.Context(), systemFile, Policy{MaxBytes: 10}); !errors.Is(err, ErrTooLong) {
		t.Errorf("beyond the limit: %v", err)
	}
}

// TestReadThatHangsIsAbandoned: its caller goes on when the context ends, and the file is refused until the read has returned.
func TestReadThatHangsIsAbandoned(t *testing.T) {
	file := put(t, filepath.Join(t.TempDir(), "file"), "text", 0o600)
	reason := errors.New("the run's time is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	entered, release, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		<-entered
		cancel(reason)
	}()
	text, err := boundedCall(ctx, file, nil, func() (string, error) {
		close(entered)
		<-release
		close(returned)
		return "late", nil
	})
	if !errors.Is(err, reason) || !errors.Is(err, ErrUnanswered) || text != "" {
		t.Errorf("the caller got %q, %v", text, err)
	}
	if _, err := Read(ctx, file, Policy{MaxBytes: limit}); !errors.Is(err, reason) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := Read(t.Context(), file, Policy{MaxBytes: limit}); !errors.Is(err, ErrHangs) {
		t.Errorf("while it hangs: %v", err)
	}
	close(release)
	<-returned
	for hanging.has(file) {
		select {
		case <-t.Context().Done():
			t.Fatal("it is not forgotten")
		default:
		}
	}
	if data, err := Read(t.Context(), file, Policy{MaxBytes: limit}); err != nil || string(data) != "text" {
		t.Errorf("afterwards: %q, %v", data, err)
	}
}
