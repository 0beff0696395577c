package safefile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const systemFile = "/proc/self/status"

// onMain runs functions on the first thread of the process.
var onMain = make(chan func())

func TestMain(m *testing.M) {
	runtime.LockOSThread() // TestMain is called by the main goroutine, which the first thread runs when it is locked early
	code := make(chan int, 1)
	go func() { code <- m.Run() }()
	for {
		select {
		case f := <-onMain:
			f()
		case c := <-code:
			os.Exit(c)
		}
	}
}

// TestReadWithAUsersRights: root reads for a user what that user may read, and nothing else.
func TestReadWithAUsersRights(t *testing.T) {
	root := os.Geteuid() == 0
	who := &Identity{UID: stranger, GID: stranger, Groups: []uint32{stranger, member}}
	base := openDir(t)
	at := func(name string) string { return filepath.Join(base, name) }
	of := func(name string, mode os.FileMode, uid, gid int) string {
		put(t, at(name), name, mode)
		if root {
			must(t, os.Chown(at(name), uid, gid))
		}
		return at(name)
	}
	secret := of("root's", 0o600, 0, 0)
	must(t, os.Symlink("/etc/shadow", at("shadow")))
	must(t, os.Symlink(secret, at("link")))
	closed := folder(t, at("closed"), 0o700)
	put(t, closed+"/f", "x", 0o644)
	for _, tc := range []struct {
		file    string
		allowed bool
	}{
		{of("own", 0o600, stranger, stranger), true}, {of("public", 0o644, 0, 0), true},
		{of("first group", 0o640, 0, stranger), true}, {of("other group", 0o640, 0, member), true},
		{secret, false}, {of("root's group", 0o660, 0, 0), false}, {at("shadow"), false}, {at("link"), false}, {closed + "/f", false},
		{of("own, but unreadable", 0, stranger, stranger), false},
	} {
		_, err := Read(t.Context(), tc.file, Policy{MaxBytes: 1 << 20, As: who})
		if root && (tc.allowed != (err == nil) || err != nil && !errors.Is(err, os.ErrPermission)) {
			t.Errorf("%s: %v", tc.file, err)
		}
	}
	if data, err := Read(t.Context(), secret, Policy{MaxBytes: limit}); err != nil || string(data) != "root's" {
		t.Errorf("root itself afterwards: %q, %v", data, err)
	}
}

// Users read side by side, each with its own rights, and no thread of the process keeps another user.
func TestRightsAreOfOneThread(t *testing.T) {
	if os.Geteuid() != 0 {
		if _, err := Read(t.Context(), systemFile, Policy{MaxBytes: limit, As: &Identity{UID: stranger, GID: stranger}}); err != nil {
			t.Errorf("without the right to change the user: %v", err)
		}
		return
	}
	const users, rounds = 8, 20
	base := openDir(t)
	secret := put(t, filepath.Join(base, "secret"), "root", 0o600)
	var reads sync.WaitGroup
	for i := range users {
		name := fmt.Sprint(stranger + i)
		file := own(t, put(t, filepath.Join(base, name), name, 0o600), stranger+i)
		who := &Identity{UID: uint32(stranger + i), GID: stranger}
		reads.Go(func() {
			for range rounds {
				if data, err := Read(t.Context(), file, Policy{MaxBytes: limit, As: who}); err != nil || string(data) != name {
					t.Errorf("%s: %q, %v", name, data, err)
				}
				if _, err := Read(t.Context(), secret, Policy{MaxBytes: limit, As: who}); !errors.Is(err, os.ErrPermission) {
					t.Errorf("%s reads the secret: %v", name, err)
				}
				if _, err := Read(t.Context(), secret, Policy{MaxBytes: limit}); err != nil {
					t.Errorf("root: %v", err)
				}
			}
		})
	}
	reads.Wait()
	for len(threadsOfOthers(t)) > 0 { // they are about to end
		if t.Context().Err() != nil {
			t.Fatalf("threads with another user: %q", threadsOfOthers(t))
		}
		runtime.Gosched()
	}
}

// TestUserCannotSignalTheThread: a signal to a thread ends the whole process, so the thread that opens a user's files stays root's to the kernel's eyes.
func TestUserCannotSignalTheThread(t *testing.T) {
	if os.Geteuid() != 0 {
		return // then no thread has another user
	}
	withRights(&Identity{UID: stranger, GID: stranger}, func(err error) {
		must(t, err)
		kill := exec.Command("/bin/sh", "-c", fmt.Sprintf("kill -0 %d", unix.Gettid()))
		kill.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
		done := make(chan error, 1)
		go func() { done <- kill.Run() }() // started with the rights of the process
		var refused *exec.ExitError
		if err := <-done; !errors.As(err, &refused) {
			t.Errorf("the user may signal the thread: %v", err)
		}
	})
}

// A file whose owner holds a lease that forbids others to open it is not taken for a machine that is short of a resource.
func TestLeasedFile(t *testing.T) {
	f, err := os.OpenFile(put(t, filepath.Join(openDir(t), "f"), "x", 0o600), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("this file system has no leases: %v", err)
	}
	signal.Ignore(syscall.SIGIO)
	defer signal.Reset(syscall.SIGIO)
	if _, err := Read(t.Context(), f.Name(), Policy{MaxBytes: limit}); !errors.Is(err, errLeased) || errors.Is(err, unix.EAGAIN) {
		t.Errorf("got %v", err)
	}
}

// threadsOfOthers lists the threads of this process that are not root's.
func threadsOfOthers(t *testing.T) (others []string) {
	t.Helper()
	statuses, err := filepath.Glob("/proc/self/task/*/status")
	must(t, err)
	for _, name := range statuses {
		status, err := os.ReadFile(name)
		if err == nil && !strings.Contains(string(status), "\nUid:\t0\t0\t0\t0\n") {
			others = append(others, name)
		}
	}
	return others
}

// The first thread keeps its user: it does not end with a goroutine, and ps shows its user.
func TestFirstThreadKeepsItsUser(t *testing.T) {
	var first, ran, uid int
	over := make(chan struct{})
	onMain <- func() {
		defer close(over)
		first = unix.Gettid()
		withRights(&Identity{UID: stranger, GID: stranger}, func(error) { ran = unix.Gettid() })
		uid = os.Geteuid()
	}
	<-over
	if first != os.Getpid() || ran == first || ran == 0 || uid != os.Getuid() {
		t.Errorf("the first thread is %d of %d, the function ran on %d, and the user is %d", first, os.Getpid(), ran, uid)
	}
}

// TestReadOnlyMount: Kubernetes mounts a ConfigMap with folders that everybody might write to, and links.
func TestReadOnlyMount(t *testing.T) {
	if dir := os.Getenv("SAFEFILE_MOUNT"); dir != "" {
		must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
		must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
		if data, err := Read(t.Context(), dir+"/jobs.toml", Policy{MaxBytes: limit, Trust: Administrators}); err != nil || string(data) != "jobs" {
			t.Errorf("%q, %v", data, err)
		}
		must(t, InspectFolder(dir, Administrators))
		return
	}
	dir := folder(t, filepath.Join(t.TempDir(), "mount"), 0o777|os.ModeSticky)
	put(t, folder(t, dir+"/..1", 0o777)+"/jobs.toml", "jobs", 0o664)
	must(t, os.Symlink("..1", dir+"/..data"))
	must(t, os.Symlink("..data/jobs.toml", dir+"/jobs.toml"))
	_, err := Read(t.Context(), dir+"/jobs.toml", Policy{MaxBytes: limit, Trust: Administrators})
	if untrusted := (*UntrustedError)(nil); errors.As(err, &untrusted) != (os.Geteuid() == 0) {
		t.Errorf("where it is not mounted: %v", err)
	}
	err = InspectFolder(dir, Administrators)
	if untrusted := (*UntrustedError)(nil); errors.As(err, &untrusted) != (os.Geteuid() == 0) {
		t.Errorf("a folder to which others can add files, where it is not mounted: %v", err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestReadOnlyMount$", "-test.v")
	child.Env = append(os.Environ(), "SAFEFILE_MOUNT="+dir)
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := child.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Logf("no mount namespace can be made here (%v), so only the judgement is tested", err)
		return
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
