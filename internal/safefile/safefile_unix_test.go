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
		{at("file"), nil}, {at("to-file"), nil}, {at("full"), nil}, {"safefile_unix_test.go/../safefile.go", unix.ENOTDIR},
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

const stranger, member = 4001, 4002

// As root a file counts only if none but trusted users can change it, its name, or the target of its links.
func TestTrust(t *testing.T) {
	root := os.Geteuid() == 0
	for _, tc := range []struct {
		name    string
		prepare func(dir string) (file string)
		as      *Identity
		problem string // contained in the error; "" where the file is trusted
		remedy  string // "DIR" is the folder
	}{
		{"root's own", func(dir string) string { return put(t, dir+"/f", "x", 0o644) }, nil, "", ""},
		{"written by its group", func(dir string) string { return put(t, dir+"/f", "x", 0o660) }, nil, "f can be written by the group 0", "chmod go-w DIR/f"},
		{"written by others", func(dir string) string { return put(t, dir+"/f", "x", 0o606) }, nil, "f can be written by others", "chmod go-w DIR/f"},
		{"a stranger's", func(dir string) string { return own(t, put(t, dir+"/f", "x", 0o666), stranger) }, nil,
			"f belongs to the user 4001 and can be written by the group 0 and others", "chown root DIR/f && chmod go-w DIR/f"},
		{"the job user's", func(dir string) string { return own(t, put(t, dir+"/f", "x", 0o600), stranger) }, &Identity{UID: stranger, GID: stranger}, "", ""},
		{"another job user's", func(dir string) string { return own(t, put(t, dir+"/f", "x", 0o644), member) }, &Identity{UID: stranger, GID: stranger}, "belongs to the user 4002", "chown 4001 DIR/f"},
		{"in a folder of others", func(dir string) string { return put(t, folder(t, dir+"/d", 0o777)+"/f", "x", 0o644) }, nil, "/d can be written by the group 0 and others", "chmod go-w DIR/d"},
		{"below a folder of others", func(dir string) string {
			return put(t, folder(t, folder(t, dir+"/d", 0o775)+"/e", 0o755)+"/f", "x", 0o644)
		}, nil, "/d can be written by the group 0", "chmod go-w DIR/d"},
		{"in a stranger's folder", func(dir string) string { return put(t, own(t, folder(t, dir+"/d", 0o755), stranger)+"/f", "x", 0o644) }, nil, "/d belongs to the user 4001", "chown root DIR/d"},
		{"in the job user's folder", func(dir string) string { return put(t, own(t, folder(t, dir+"/d", 0o755), stranger)+"/f", "x", 0o644) }, &Identity{UID: stranger, GID: stranger}, "", ""},
		{"in a shared folder", func(dir string) string { return put(t, folder(t, dir+"/d", 0o777|os.ModeSticky)+"/f", "x", 0o644) }, nil, "", ""},
		{"a stranger's folder in a shared one", func(dir string) string {
			return put(t, own(t, folder(t, folder(t, dir+"/d", 0o777|os.ModeSticky)+"/e", 0o755), stranger)+"/f", "x", 0o644)
		}, nil, "/e belongs to the user 4001", "chown root DIR/d/e"},
		{"by a link", func(dir string) string { return link(t, put(t, dir+"/f", "x", 0o644), dir+"/l", 0) }, nil, "", ""},
		{"by a stranger's link among root's files", func(dir string) string { return link(t, put(t, dir+"/f", "x", 0o644), dir+"/l", stranger) }, nil, "", ""},
		{"by a stranger's link in a shared folder", func(dir string) string {
			return link(t, put(t, dir+"/f", "x", 0o644), folder(t, dir+"/d", 0o777|os.ModeSticky)+"/l", stranger)
		}, nil, "/l is a symbolic link of the user 4001", "chown -h root DIR/d/l"},
		{"by a link to a folder of others", func(dir string) string {
			return link(t, folder(t, dir+"/d", 0o777), dir+"/l", 0) + put(t, dir+"/d/f", "x", 0o644)[len(dir+"/d"):]
		}, nil, "/d can be written", "chmod go-w DIR/d"},
		{"by a way back", func(dir string) string {
			put(t, dir+"/f", "x", 0o644)
			return link(t, folder(t, folder(t, dir+"/d", 0o755)+"/e", 0o755), dir+"/l", 0) + "/../../f"
		}, nil, "", ""},
		{"by a way back from a folder of others", func(dir string) string {
			put(t, dir+"/f", "x", 0o644)
			return folder(t, dir+"/d", 0o777) + "/../f"
		}, nil, "/d can be written", "chmod go-w DIR/d"},
		{"with a name that a shell would split", func(dir string) string { return put(t, dir+"/it's", "x", 0o646) }, nil, "written by others", `chmod go-w 'DIR/it'\''s'`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := folder(t, filepath.Join(openDir(t), "x"), 0o755)
			file := tc.prepare(dir)
			_, err := Read(t.Context(), file, Policy{MaxBytes: limit, Trust: Administrators, As: onlyRoot(tc.as)})
			if _, anyhow := Read(t.Context(), file, Policy{MaxBytes: limit}); anyhow != nil {
				t.Errorf("without a judgement: %v", anyhow)
			}
			var untrusted *UntrustedError
			switch {
			case tc.problem == "" || !root:
				must(t, err)
			case !errors.As(err, &untrusted) || !strings.Contains(err.Error(), tc.problem) || untrusted.Remedy != strings.ReplaceAll(tc.remedy, "DIR", dir):
				t.Errorf("%v\nwant %q and %q", err, tc.problem, tc.remedy)
			}
		})
	}
}

// A secret that others may read is reported with those others and a remedy.
func TestExposed(t *testing.T) {
	group := 0
	if os.Geteuid() != 0 {
		group = os.Getgid()
	}
	for mode, want := range map[os.FileMode]string{0o600: "", 0o604: "others"} {
		info, err := Inspect(t.Context(), put(t, filepath.Join(t.TempDir(), "f"), "x", mode), Policy{MaxBytes: limit})
		if err != nil || info.Exposed != want {
			t.Errorf("%o: %q, %v", mode, info.Exposed, err)
		}
	}
	file := put(t, filepath.Join(t.TempDir(), "f"), "x", 0o640)
	if info, err := Inspect(t.Context(), file, Policy{MaxBytes: limit}); err != nil || (info.Exposed == "") != (group == 0) {
		t.Errorf("for the group %d: %q, %v", group, info.Exposed, err)
	}
	if os.Geteuid() != 0 {
		return
	}
	who := &Identity{UID: stranger, GID: stranger, Groups: []uint32{member}}
	for gid, exposed := range map[int]bool{stranger: false, member: false, stranger + 100: true} {
		shared := put(t, filepath.Join(openDir(t), "f"), "x", 0o640)
		must(t, os.Chown(shared, stranger, gid))
		if info, err := Inspect(t.Context(), shared, Policy{MaxBytes: limit, As: who}); err != nil || (info.Exposed != "") != exposed {
			t.Errorf("a user's file of the group %d: %q, %v", gid, info.Exposed, err)
		}
	}
}

// openDir is a temporary folder that every user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		must(t, os.Chmod(d, 0o755))
	}
	return dir
}

// own gives a file to a user, if that can be done.
func own(t *testing.T, name string, uid int) string {
	t.Helper()
	if os.Geteuid() == 0 {
		must(t, os.Lchown(name, uid, -1))
	}
	return name
}

func folder(t *testing.T, name string, mode os.FileMode) string {
	t.Helper()
	must(t, os.Mkdir(name, 0o700))
	must(t, os.Chmod(name, mode))
	return name
}

func link(t *testing.T, to, name string, uid int) string {
	t.Helper()
	must(t, os.Symlink(to, name))
	return own(t, name, uid)
}

// onlyRoot is the identity where the test may take it.
func onlyRoot(who *Identity) *Identity {
	if os.Geteuid() != 0 {
		return nil
	}
	return who
}
