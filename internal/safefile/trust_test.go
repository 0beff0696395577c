//go:build linux || darwin

package safefile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
